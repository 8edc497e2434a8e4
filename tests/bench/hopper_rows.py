"""Published steps on H100s beside what ms-train simulate says of them with configs/clusters/h100-8x400g.toml, to which
nothing of them was fitted. usage: tests/bench/published_rows.py --hopper [--plain]
With --plain the cluster file is as it is: what the measured software does otherwise is not counted.

Dense models trained from scratch, in layouts that the engine has: without FSDP. FP8, but for one row. With context parallelism
keys and values are gathered, which the engine does not do on GPUs yet; the measured software may pass them around a ring."""

import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor

import intervals

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = os.environ.get("MS_TRAIN", ROOT / "build/release/bin/ms-train")
CLUSTER = ROOT / "configs/clusters/h100-8x400g.toml"
FILE = tomllib.loads(CLUSTER.read_text())

# family, layers, hidden, FFN, heads, kv heads, vocabulary. Squared ReLU (Nemotron) counts as GELU: it has the same GEMMs.
MODELS = {
    "GPT-3 5B": ("gpt", 24, 4096, 16384, 32, 32, 51200),
    "GPT-3 20B": ("gpt", 44, 6144, 24576, 48, 48, 51200),
    "GPT-3 175B": ("gpt", 96, 12288, 49152, 96, 96, 51200),
    "Llama 2 7B": ("llama", 32, 4096, 11008, 32, 32, 32000),
    "Llama 2 13B": ("llama", 40, 5120, 13824, 40, 40, 32000),
    "Llama 2 70B": ("llama", 80, 8192, 28672, 64, 8, 32000),
    "Llama 3 70B": ("llama", 80, 8192, 28672, 64, 8, 128256),
    "Llama 3.1 405B": ("llama", 126, 16384, 53248, 128, 8, 128256),
    "Nemotron 8B": ("gpt", 32, 4096, 16384, 32, 32, 256000),
    "Nemotron 22B": ("gpt", 40, 6144, 24576, 48, 48, 256000),
    "Nemotron-4 15B": ("gpt", 32, 6144, 24576, 48, 8, 256000),
    "Nemotron-4 340B": ("gpt", 96, 18432, 73728, 96, 8, 256000),
}
# source, model, precision, GPUs, tp, pp, cp, chunks, sequence, batch, microbatch, tokens/s of a GPU in each version of a page.
# NeMo: NVIDIA/NeMo docs/source/performance/performance_summary.md, three versions of 24.07's and one of 25.02's. Bridge:
# NVIDIA-NeMo/Megatron-Bridge docs/performance-summary-archive.md, and of the same layout Megatron-LM's examples/llama. dgxc:
# NVIDIA/dgxc-benchmarking 25.04 and 25.05.05.
ROWS = [
    ("NeMo", "GPT-3 5B", "fp8", 64, 1, 1, 1, 1, 2048, 2048, 4, [22521, 23574, 23406]),
    ("NeMo", "GPT-3 20B", "fp8", 64, 2, 1, 1, 1, 2048, 256, 2, [5851, 5894, 5851]),
    ("NeMo", "GPT-3 175B", "fp8", 128, 4, 8, 1, 6, 2048, 256, 1, [726, 745, 716]),
    ("NeMo", "GPT-3 175B", "fp8", 512, 4, 8, 1, 6, 2048, 2048, 2, [782, 832, 825, 866]),
    ("NeMo", "Llama 2 7B", "fp8", 8, 1, 1, 1, 1, 4096, 128, 1, [16847, 16634, 16934]),
    ("NeMo", "Llama 2 13B", "fp8", 16, 1, 4, 1, 10, 4096, 128, 1, [8646, 8715, 8715]),
    ("NeMo", "Llama 2 70B", "fp8", 64, 4, 4, 1, 20, 4096, 128, 1, [1707, 1717, 1728]),
    ("NeMo", "Nemotron 8B", "fp8", 64, 2, 1, 1, 1, 4096, 256, 4, [12701, 12507, 12507]),
    ("NeMo", "Nemotron 22B", "fp8", 64, 2, 4, 1, 10, 4096, 256, 2, [4256, 4289, 4312]),
    ("NeMo", "Nemotron-4 340B", "fp8", 128, 8, 8, 1, 12, 4096, 32, 1, [322, 328, 326]),
    ("Bridge", "Llama 3 70B", "fp8", 64, 4, 8, 1, 5, 8192, 128, 1, [1619, 1602, 1621]),
    ("Bridge", "Llama 3 70B", "fp8", 64, 4, 8, 1, 5, 8192, 256, 1, [1621, 1639, 1633, 1627]),
    ("Bridge", "Llama 3.1 405B", "fp8", 1024, 8, 8, 2, 8, 8192, 512, 1, [292, 302, 315]),
    ("Bridge", "Llama 3.1 405B", "fp8", 1024, 8, 8, 2, 8, 8192, 1536, 1, [311, 327.7, 326]),
    ("dgxc", "Nemotron-4 15B", "bf16", 16, 2, 1, 1, 1, 4096, 64, 2, [6159.4, 5966.5]),
]
# Layers of the first and the last virtual stage: Bridge's recipes of this model count the embedding and the loss as a layer
# each.
ENDS = {"Llama 3.1 405B": (1, 1)}
# All recipes overlap tensor parallelism with GEMMs. What differs from this engine, counted and not fitted: the attention is
# not deterministic, whose backward, 2.5 of 3.5 parts, took 1.11 times as long on an H200 as without.
ATTENTION = 3.5 / (1 + 2.5 / 1.11)
# Bytes of norms and residual sums per element of a layer's activations, as published_rows.py counts them: with the dropout of
# 0.1 that NeMo's GPT-3 recipes have, and without.
NORM = {True: (22 + 46) / 40, False: 44 / 40}
# Bytes per logit of Megatron-LM's cross entropy, on fp32 copies, beside the 6 of this engine's: copied 6, maximum 4, subtracted
# 8, exponent 8, sum 4, divided 8; gradient scaled 8, copied to bf16 6.
LOSS = 52 / 6

CONFIG = """[model]
family = "{family}"
layers = {layers}
hidden = {hidden}
ffn_hidden = {ffn}
heads = {heads}
kv_heads = {kv_heads}
vocab = {vocab}
seq = {seq}
tied_embeddings = false
[mesh]
dp = {dp}
pp = {pp}
tp = {tp}
cp = {cp}
chunks = {chunks}
first_layers = {ends[0]}
last_layers = {ends[1]}
sequence_parallel = {sequence}
[overlap]
tp = true
[train]
steps = 10
global_batch = {batch}
microbatch = {microbatch}
dtype = "bf16"
fp8 = {fp8}
[run]
device = "{device}"
[data]
train = ["text"]
"""


def as_measured_software(model):
    """What of the cluster file differs by it."""
    points = (point.split(":") for point in FILE["device"]["attention"])
    curve = ",".join(f'"{size}:{ATTENTION * float(share):.4f}"' for size, share in points)
    return [f"device.attention=[{curve}]",
            f'device.classes=["norm:{NORM[model.startswith("GPT-3")]:.3f}","loss:{LOSS:.3f}"]']


def simulate(row, plain):
    """Seconds of a step, and what they are spent on."""
    _, model, precision, gpus, tp, pp, cp, chunks, seq, batch, microbatch, _ = row
    family, layers, hidden, ffn, heads, kv_heads, vocab = MODELS[model]
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "config.toml"
        config.write_text(CONFIG.format(family=family, layers=layers, hidden=hidden, ffn=ffn, heads=heads, kv_heads=kv_heads,
                                        vocab=vocab, seq=seq, dp=gpus // (tp * pp * cp), pp=pp, tp=tp, cp=cp, chunks=chunks,
                                        ends=ENDS.get(model, (0, 0)), batch=batch, microbatch=microbatch, sequence=str(tp > 1).lower(),
                                        fp8=str(precision == "fp8").lower(), device="cuda" if cp == 1 else "cpu"))
        # This engine keeps gradients in fp32; whether that fits is not the question here.
        done = subprocess.run([TOOL, "simulate", config, "--json", "--cluster", CLUSTER]
                              + [word for value in [*([] if plain else as_measured_software(model)), "device.capacity=1TiB"]
                                 for word in ("--set-cluster", value)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{model}: {done.stderr}")
        got = json.loads(done.stdout)
        return got["iteration_s"], got["parts_s"]


def main(plain):
    with ThreadPoolExecutor(2) as pool:
        forecasts = list(pool.map(lambda row: simulate(row, plain), ROWS))
    errors = []
    print(f"{'source':7} {'model':16} {'':5} {'GPUs':>5} {'batch':>6} {'seconds':>8} {'published':>9} {'spread':>7} {'error':>7}"
          "  of it")
    by_model = {}
    for row, (ours, parts) in zip(ROWS, forecasts):
        source, model, precision, gpus, *_, seq, batch, _, rates = row
        steps = [batch * seq / (rate * gpus) for rate in rates]
        published = statistics.median(steps)
        errors.append(100 * (ours / published - 1))
        by_model.setdefault(model, []).append(errors[-1] / 100)
        spread = 100 * (max(steps) - min(steps)) / published
        shares = " ".join(f"{k} {100 * v / ours:.0f}%" for k, v in parts.items() if k != "world" and v > 0.005 * ours)
        print(f"{source:7} {model:16} {precision:5} {gpus:5} {batch:6} {ours:8.2f} {published:9.2f} {spread:5.1f} % "
              f"{errors[-1]:+5.1f} %  {shares}")
    print(f"\n{sum(abs(e) > 5 for e in errors)} of {len(errors)} are off by more than 5 %, at most {max(errors, key=abs):+.1f} %; "
          f"{intervals.summary(by_model)}")
