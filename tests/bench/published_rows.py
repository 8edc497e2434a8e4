#!/usr/bin/env python3
"""Published steps on A100s beside what ms-train simulate says of them, in points of MFU, with one device for all: MegaScale's
Table 2 (arXiv 2402.15627), Korthikanti et al. 2022, Table 5 (arXiv 2205.05198), Narayanan et al. 2021, Table 1 (arXiv
2104.04473). The cluster file is fitted to MegaScale's 175B, but for the rate and latency inside a node.
usage: tests/bench/published_rows.py [ms-train option...]    as the cluster file is
       tests/bench/published_rows.py --cross-validate       rate and latency inside a node and the attention of 2021 chosen
                                                            without a model, or without a paper, which they then foretell"""

import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import megascale_tables

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = os.environ.get("MS_TRAIN", ROOT / "build/release/bin/ms-train")
CLUSTER = ROOT / "configs/clusters/a100-8x200g.toml"
PEAK = 312e12
SEQ, VOCAB = 2048, 51200


def written_scores(row, factor=1.0):
    """The attention of Megatron-LM in 2021 and 2022, which wrote its scores to memory: it takes a time for each score, whatever
    the size of heads, and so a share of the peak that grows with that. One number, a quarter of the file's curve at heads of 96,
    is fitted to the first of Narayanan's rows, where attention is most, and serves all others."""
    size = row[2] / row[3] / 96
    points = ((1e9, 0.038), (1e10, 0.085), (1e11, 0.094))
    return ["--set-cluster", "device.attention=[" + ",".join(f'"{flops:g}:{factor * share * size:.4f}"' for flops, share in points) + "]"]


# name, layers, hidden, heads, tp, pp, chunks, GPUs, batch, microbatch, seconds with selective and with full recomputation.
# The seconds are as remembered: no copy of the table was to be had.
KORTHIKANTI = [
    ("22B", 48, 6144, 64, 8, 1, 1, 8, 4, 4, 1.10, 1.42),
    ("175B", 96, 12288, 96, 8, 8, 3, 64, 64, 1, 13.75, 18.13),
    ("530B", 105, 20480, 128, 8, 35, 3, 280, 280, 1, 37.83, 49.05),
    ("1T", 128, 25600, 160, 8, 64, 1, 512, 512, 1, 71.49, 94.42),
]

# name, layers, hidden, heads, tp, pp, chunks, GPUs, batch, microbatch: as Megatron-LM's examples/sc21/run_table_1.sh has them.
# TFLOP/s of a GPU, with what recomputation adds, as remembered but for 163 of 1T (502 PFLOP/s on 3,072 GPUs).
NARAYANAN = [
    ("1.7B", 24, 2304, 24, 1, 1, 1, 32, 512, 16, 137),
    ("3.6B", 30, 3072, 32, 2, 1, 1, 64, 512, 16, 138),
    ("7.5B", 36, 4096, 32, 4, 1, 1, 128, 512, 16, 142),
    ("18.4B", 40, 6144, 48, 8, 1, 1, 256, 1024, 8, 135),
    ("39.1B", 48, 8192, 64, 8, 2, 1, 512, 1536, 4, 138),
    ("76.1B", 60, 10240, 80, 8, 4, 3, 1024, 1792, 2, 140),
    ("145.6B", 80, 12288, 96, 8, 8, 2, 1536, 2304, 2, 148),
    ("310.1B", 96, 16384, 128, 8, 16, 2, 1920, 2160, 1, 155),
    ("529.6B", 105, 20480, 128, 8, 35, 3, 2520, 2520, 1, 163),
    ("1008B", 128, 25600, 160, 8, 64, 1, 3072, 3072, 1, 163),
]


def model_flops(layers, hidden, batch):
    return 72 * batch * SEQ * layers * hidden**2 * (1 + SEQ / (6 * hidden) + VOCAB / (12 * layers * hidden))


def hardware_flops(layers, hidden, batch):
    """What Narayanan et al. count: a forward more, by full recomputation."""
    return 96 * batch * SEQ * layers * hidden**2 * (1 + SEQ / (6 * hidden) + VOCAB / (16 * layers * hidden))


CONFIG = """[model]
family = "gpt"
layers = {layers}
hidden = {hidden}
heads = {heads}
vocab = {vocab}
seq = {seq}
fused = true
[mesh]
dp = {dp}
pp = {pp}
tp = {tp}
chunks = {chunks}
sequence_parallel = {sequence}
[overlap]
tp = false
pp = false
dp = false
[train]
steps = 10
global_batch = {batch}
microbatch = {microbatch}
dtype = "bf16"
recompute = "{recompute}"
[optim]
zero = 0
[data]
train = ["text"]
"""


def seconds(row, recompute, sequence, options):
    _, layers, hidden, heads, tp, pp, chunks, gpus, batch, microbatch = row[:10]
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "config.toml"
        config.write_text(CONFIG.format(layers=layers, hidden=hidden, heads=heads, vocab=VOCAB, seq=SEQ, dp=gpus // (tp * pp),
                                        pp=pp, tp=tp, chunks=chunks, batch=batch, microbatch=microbatch, recompute=recompute,
                                        sequence=str(sequence).lower()))
        command = [TOOL, "simulate", config, "--json"]
        if "--cluster" not in options:
            command += ["--cluster", CLUSTER]
        done = subprocess.run(command + options, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{row[0]}: {done.stderr}")
        return json.loads(done.stdout)["iteration_s"]


def rows(options, factor=1.0):
    """source, name, GPUs, published seconds, simulated seconds, FLOPs of a step"""
    jobs = []
    for system, dp, batch, published, mfu in megascale_tables.TABLE_2:
        def megascale(system=system, dp=dp, batch=batch):
            settings = [f"mesh.dp={dp}", f"train.global_batch={batch}"]
            return megascale_tables.simulate(system, settings, options)["iteration_s"]
        jobs.append((f"MegaScale {system}", "175B", dp * 64, published, mfu / 100 * published * PEAK * dp * 64, megascale))
    for row in KORTHIKANTI:
        flops = model_flops(row[1], row[2], row[8])
        for recompute, published in (("selective", row[10]), ("full", row[11])):
            def korthikanti(row=row, recompute=recompute):
                return seconds(row, recompute, recompute == "selective", written_scores(row, factor) + options)
            jobs.append((f"Korthikanti {recompute}", row[0], row[7], published, flops, korthikanti))
    for row in NARAYANAN:
        published = hardware_flops(row[1], row[2], row[8]) / (row[10] * 1e12 * row[7])

        def narayanan(row=row):
            return seconds(row, "full", False, written_scores(row, factor) + options)
        jobs.append(("Narayanan", row[0], row[7], published, model_flops(row[1], row[2], row[8]), narayanan))
    with ThreadPoolExecutor(2) as pool:
        simulated = list(pool.map(lambda job: job[5](), jobs))
    return [(*job[:4], got, job[4]) for job, got in zip(jobs, simulated)]


RATES, LATENCIES, FACTORS = (158, 190, 230, 270), (8, 16, 24), (0.8, 1.0, 1.25)


def points_of(found):
    """Ours less the paper's, in points of MFU, of each row."""
    return [100 * flops / (PEAK * gpus) * (1 / got - 1 / published) for _, _, gpus, published, got, flops in found]


def cross_validate():
    points = {}
    for rate, latency, factor in itertools.product(RATES, LATENCIES, FACTORS):
        found = rows(["--set-cluster", f"node.rate={rate}", "--set-cluster", f"node.latency={latency}us"], factor)
        points[rate, latency, factor] = points_of(found)
    names = [(source.split()[0], name) for source, name, *_ in found]

    def chosen(left_out):
        """Where the squares of the rows that are not left out are least."""
        return min(points, key=lambda at: sum(p**2 for p, out in zip(points[at], left_out) if not out))

    for what, key in (("model", 1), ("paper", 0)):
        print(f"\n{'left out':12} {'GB/s':>5} {'us':>3} {'factor':>6}  points of MFU of its rows")
        all_points = []
        for group in dict.fromkeys(name[key] for name in names):
            left_out = [name[key] == group for name in names]
            at = chosen(left_out)
            told = [p for p, out in zip(points[at], left_out) if out]
            all_points += told
            print(f"{group:12} {at[0]:5} {at[1]:3} {at[2]:6}  {' '.join(f'{p:+.1f}' for p in told)}", flush=True)
        far = sum(abs(p) > 2 for p in all_points)
        rms = (sum(p**2 for p in all_points) / len(all_points)) ** 0.5
        print(f"without the {what} that they foretell: {far} of {len(all_points)} are off by more than 2 points of MFU, "
              f"{rms:.1f} in the root mean square")
    at = chosen([False] * len(names))
    rms = (sum(p**2 for p in points[at]) / len(names)) ** 0.5
    print(f"\nchosen with all: {at[0]} GB/s, {at[1]} us, factor {at[2]}: {sum(abs(p) > 2 for p in points[at])} of {len(names)} "
          f"off by more than 2 points, {rms:.1f} in the root mean square")


def main():
    if sys.argv[1:] == ["--cross-validate"]:
        cross_validate()
        return
    print(f"{'source':22} {'model':>6} {'GPUs':>6} {'seconds':>8} {'paper':>7} {'MFU':>6} {'paper':>6} {'points':>7}")
    far = 0
    found = rows(sys.argv[1:])
    for source, name, gpus, published, got, flops in found:
        paper, ours = (100 * flops / (time * PEAK * gpus) for time in (published, got))
        far += abs(ours - paper) > 2
        print(f"{source:22} {name:>6} {gpus:6} {got:8.2f} {published:7.2f} {ours:6.1f} {paper:6.1f} {ours - paper:+7.1f}")
    print(f"\n{far} of {len(found)} are off by more than 2 points of MFU")


if __name__ == "__main__":
    main()
