#!/usr/bin/env python3
"""Published steps on A100s beside what ms-train simulate says of them, in points of MFU, with one device for all: MegaScale's
Table 2 (arXiv 2402.15627), Korthikanti et al. 2022, Table 5 (arXiv 2205.05198), Narayanan et al. 2021, Table 1 (arXiv
2104.04473). What the Megatron-LM of the last two did otherwise than this engine is counted, not fitted.
usage: tests/bench/published_rows.py                     as the cluster file is
       tests/bench/published_rows.py --cross-validate    the device's GEMMs and memory and the attention of 2021 chosen without
                                                         a model, or without a paper, which they then foretell
       tests/bench/published_rows.py --hopper [--plain]      hopper_rows.py: H100s and FP8
       tests/bench/published_rows.py --moe [--forecast | --why]      moe_rows.py: mixtures of experts"""

import collections
import functools
import itertools
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor

import hopper_rows
import intervals
import megascale_tables
import moe_rows

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = os.environ.get("MS_TRAIN", ROOT / "build/release/bin/ms-train")
CLUSTER = ROOT / "configs/clusters/a100-8x200g.toml"
FILE = tomllib.loads(CLUSTER.read_text())
PEAK = 312e12
SEQ, VOCAB = 2048, 51200

# What differs from this engine in the Megatron-LM that was measured, counted from its source; nothing here is fitted.
# All-reduces of a layer that nothing hides, of the 5 that this engine issues: two forward, two backward, one where it
# recomputes. In 2021 recomputation repeated both. Since September 2021 (--no-async-tensor-model-parallel-allreduce turns it
# off) those of the backward run beside the gradients of weights; with sequence parallelism only the gathers of output
# gradients, half an all-reduce each, are left of the backward.
ALL_REDUCES = {"Narayanan": 6, "full": 4, "selective": 3}
ENGINES_ALL_REDUCES = 5
# Bytes that norms, residual sums and dropout move per element of a layer's activations, beside this engine's fused norms
# without dropout. Forward: norm 4, bias + dropout + sum with its mask 7, twice. Backward: dropout 5, bias's gradient 2, norm
# 10 in two kernels, sum of gradients 6, twice. Full recomputation repeats the forward.
NORM = {"full": (2 * 22 + 46) / 44, "selective": (22 + 46) / 40}
# Bytes per parameter of a step: gradients copied to fp32 6, unscaled 8, normed 4, clipped 8, Adam 28, copied to fp16 6,
# cleared 2; this engine's one kernel and its norm move 34.
OPTIMIZER = 62 / 34
# Selective recomputation repeats the core of attention, as full does: 4.5 forward's worth, of which this engine, whose
# backward makes the scores anew as it goes, issues 3.5.
SELECTIVE_ATTENTION = 3.5 / 4.5

# By hand: what the host takes between two steps. On one node, 22B's layers leave hardly any time of a step.
MEGATRON_STEP = "20ms"
# Factors on the device's curves of GEMMs and memory, and the attention of 2021 as a share of its curve at heads of 96: the
# one number that is chosen for all rows of the last two papers alike.
Values = collections.namedtuple("Values", "gemm memory attention")
CHOSEN = Values(1, 1, 0.21)


def set_cluster(values):
    return [word for key, value in values.items() for word in ("--set-cluster", f"{key}={value}")]


def curve(name, factor):
    """Of the cluster file, at `factor` times its shares."""
    points = (point.split(":") for point in FILE["device"][name])
    return {f"device.{name}": "[" + ",".join(f'"{size}:{factor * float(share):.4f}"' for size, share in points) + "]"}


def written_scores(row, recompute, share):
    """The attention of Megatron-LM in 2021 and 2022, which wrote its scores to memory: it takes a time for each score, whatever
    the size of heads, and so a share of the peak that grows with that."""
    return curve("attention", share * row[2] / row[3] / 96 * (SELECTIVE_ATTENTION if recompute == "selective" else 1))


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
dp = {overlap_dp}
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


def simulate(row, recompute, options):
    _, layers, hidden, heads, tp, pp, chunks, gpus, batch, microbatch = row[:10]
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "config.toml"
        # The scripts name PyTorch's DistributedDataParallel where there is no pipeline: it reduces beside the backward.
        config.write_text(CONFIG.format(layers=layers, hidden=hidden, heads=heads, vocab=VOCAB, seq=SEQ, dp=gpus // (tp * pp),
                                        pp=pp, tp=tp, chunks=chunks, batch=batch, microbatch=microbatch, recompute=recompute,
                                        sequence=str(recompute == "selective").lower(), overlap_dp=str(pp == 1).lower()))
        done = subprocess.run([TOOL, "simulate", config, "--json", "--cluster", CLUSTER, *options],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{row[0]}: {done.stderr}")
        return json.loads(done.stdout)


def megatron(paper, row, recompute, values):
    """Seconds of a step as the paper's Megatron-LM made it."""
    layers, tp, pp, chunks = row[1], *row[4:7]
    shown = ALL_REDUCES[recompute if paper == "Korthikanti" else paper]
    if pp > 1 and recompute == "full":  # what arrives in parts is gathered inside the node, once forward and once backward
        shown += pp * chunks / layers
    longer = shown / ENGINES_ALL_REDUCES if tp > 1 else 1
    node = FILE["node"]
    settings = {
        "node.rate": node["rate"] / longer, "node.latency": f"{longer * float(node['latency'].removesuffix('us'))}us",
        "node.step": MEGATRON_STEP, "device.classes": f'["norm:{NORM[recompute]:.3f}","optimizer:{OPTIMIZER:.3f}"]',
        **curve("gemm", values.gemm), **curve("memory", values.memory), **written_scores(row, recompute, values.attention)}

    def with_network(times):
        return simulate(row, recompute, set_cluster({**settings, "network.rate": times * FILE["network"]["rate"]}))
    if recompute == "selective":
        return with_network(1)["iteration_s"]
    # Gradients were reduced in 16 bits, of which this engine's are twice; of activations without sequence parallelism each
    # tensor-parallel rank sent its part (--no-scatter-gather-tensors-in-pipeline turns it off, since February 2021).
    reduced = with_network(2)
    if pp == 1:
        return reduced["iteration_s"]
    sent = with_network(tp)
    return sent["iteration_s"] - sent["parts_s"]["dp"] + reduced["parts_s"]["dp"]


def megascale(system, dp, batch, values):
    options = set_cluster({**curve("gemm", values.gemm), **curve("memory", values.memory)})
    return megascale_tables.simulate(system, [f"mesh.dp={dp}", f"train.global_batch={batch}"], options)["iteration_s"]


# What a row is: source, model, GPUs, published seconds, FLOPs of a step, and seconds(values).
Row = collections.namedtuple("Row", "source model gpus published flops seconds")


def all_rows():
    rows = []
    for system, dp, batch, published, mfu in megascale_tables.TABLE_2:
        rows.append(Row(f"MegaScale {system}", "175B", dp * 64, published, mfu / 100 * published * PEAK * dp * 64,
                        functools.partial(megascale, system, dp, batch)))
    for row in KORTHIKANTI:
        for recompute, published in (("selective", row[10]), ("full", row[11])):
            rows.append(Row(f"Korthikanti {recompute}", row[0], row[7], published, model_flops(row[1], row[2], row[8]),
                            functools.partial(megatron, "Korthikanti", row, recompute)))
    for row in NARAYANAN:
        published = hardware_flops(row[1], row[2], row[8]) / (row[10] * 1e12 * row[7])
        rows.append(Row("Narayanan", row[0], row[7], published, model_flops(row[1], row[2], row[8]),
                        functools.partial(megatron, "Narayanan", row, "full")))
    return rows


def simulated(rows, values):
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda row: row.seconds(values), rows))


def points_of(rows, seconds):
    """Ours less the paper's, in points of MFU, of each row."""
    return [100 * row.flops / (PEAK * row.gpus) * (1 / got - 1 / row.published) for row, got in zip(rows, seconds)]


def summary(points):
    far = sum(abs(p) > 2 for p in points)
    rms = (sum(p**2 for p in points) / len(points)) ** 0.5
    return f"{far} of {len(points)} are off by more than 2 points of MFU, {rms:.1f} in the root mean square"


TRIED = Values([0.92 + 0.01 * i for i in range(16)], [0.8 + 0.05 * i for i in range(17)], [0.15 + 0.01 * i for i in range(16)])


def cross_validate():
    """Each choice is the best of TRIED by how rows answer to a change of each value; what it foretells is simulated."""
    rows = all_rows()
    base = points_of(rows, simulated(rows, CHOSEN))
    answers = []
    for key in Values._fields:
        changed = CHOSEN._replace(**{key: 0.95 * getattr(CHOSEN, key)})
        answers.append([(p - b) / math.log(0.95) for p, b in zip(points_of(rows, simulated(rows, changed)), base)])

    def chosen(used):
        def squares(values):
            moves = [math.log(value / at) for value, at in zip(values, CHOSEN)]
            return sum((base[i] + sum(move * answer[i] for move, answer in zip(moves, answers)))**2 for i in used)
        return Values(*min(itertools.product(*TRIED), key=squares))

    for what, name_of in (("model", lambda row: row.model), ("paper", lambda row: row.source.split()[0])):
        print(f"\n{'left out':12} {'GEMMs':>5} {'memory':>6} {'attention':>9}  points of MFU of its rows")
        points, errors = [], {}
        for group in dict.fromkeys(map(name_of, rows)):
            told = [row for row in rows if name_of(row) == group]
            at = chosen([i for i, row in enumerate(rows) if name_of(row) != group])
            seconds = simulated(told, at)
            errors[group] = [got / row.published - 1 for got, row in zip(seconds, told)]
            points += (foretold := points_of(told, seconds))
            print(f"{group:12} {at.gemm:5.2f} {at.memory:6.2f} {at.attention:9.2f}  {' '.join(f'{p:+.1f}' for p in foretold)}",
                  flush=True)
        print(f"without the {what} that they foretell: {summary(points)}\n{intervals.summary(errors)}")
    at = chosen(range(len(rows)))
    points = points_of(rows, simulated(rows, at))
    print(f"\nchosen with all, {at.gemm:.2f} {at.memory:.2f} {at.attention:.2f}: {summary(points)}")


def main():
    if sys.argv[1:] == ["--cross-validate"]:
        cross_validate()
        return
    if sys.argv[1:2] == ["--hopper"] and sys.argv[2:] in ([], ["--plain"]):
        hopper_rows.main(plain=bool(sys.argv[2:]))
        return
    if sys.argv[1:2] == ["--moe"] and sys.argv[2:] in ([], ["--forecast"]):
        moe_rows.main(forecast_only=bool(sys.argv[2:]))
        return
    if sys.argv[1:] == ["--moe", "--why"]:
        moe_rows.explain()
        return
    if sys.argv[1:]:
        sys.exit(__doc__)
    print(f"{'source':22} {'model':>6} {'GPUs':>6} {'seconds':>8} {'paper':>7} {'error':>8} {'MFU':>6} {'paper':>6} {'points':>7}")
    rows = all_rows()
    seconds = simulated(rows, CHOSEN)
    points = points_of(rows, seconds)
    for row, got, off in zip(rows, seconds, points):
        paper, ours = (100 * row.flops / (time * PEAK * row.gpus) for time in (row.published, got))
        print(f"{row.source:22} {row.model:>6} {row.gpus:6} {got:8.2f} {row.published:7.2f} "
              f"{100 * (got / row.published - 1):+6.1f} % {ours:6.1f} {paper:6.1f} "
              f"{off:+7.1f}")
    print(f"\n{summary(points)}")


if __name__ == "__main__":
    main()
