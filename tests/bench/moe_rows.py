"""Published steps of mixtures of experts beside what ms-train simulate says of them, with configs/clusters/h100-8x400g.toml, to
which nothing of them was fitted. usage: tests/bench/published_rows.py --moe [--forecast | --why]
With --forecast no published step is printed: the forecasts alone. With --why rows that are off by more than 10 % are simulated
once more, each with one difference.

Layouts that the engine has, or that it has once a shard of the sequence stands for a tensor-parallel rank (Row.shards). Without
context parallelism, MLA and FSDP of more than the attention."""

import collections
import json
import pathlib
import statistics
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor

import hopper_rows
import intervals

# layers, hidden, heads, kv heads, head size, width of an expert, experts, experts of a token, shared experts, vocabulary
Model = collections.namedtuple("Model", "layers hidden heads kv_heads head_dim ffn experts per_token shared vocab")
MODELS = {
    "352B": Model(60, 4096, 32, 8, 128, 14336, 32, 3, 1, 65536),
    "Mixtral 8x22B": Model(56, 6144, 48, 8, 128, 16384, 8, 2, 0, 32000),
    "Mixtral G8T8": Model(56, 6144, 48, 8, 128, 2048, 64, 8, 0, 32000),
    "Llama 3 8x70B": Model(80, 8192, 64, 8, 128, 28672, 8, 2, 0, 128256),
    "Qwen2 57B": Model(28, 3584, 28, 4, 128, 2560, 64, 8, 8, 151936),
    "Qwen3 30B": Model(48, 2048, 32, 4, 128, 768, 128, 8, 0, 151936),
    "Qwen3 235B": Model(94, 4096, 64, 4, 128, 1536, 128, 8, 0, 151936),
    "GPT-OSS 120B": Model(36, 2880, 64, 8, 64, 2880, 128, 4, 0, 201088),
}
WINDOWS = {"GPT-OSS 120B": 128}  # of every other layer

# How the software of a source differs from this engine's settings: what it overlaps, and the links of its machines. An H800 has
# NVLinks of 200 GB/s one way, of which a share like that of an H100's is expected.
Source = collections.namedtuple("Source", "overlap_tp overlap_ep recompute node_rate")
SOURCES = {
    "Folding": Source(False, False, "none", None),      # Megatron-Core 0.11 or so: neither, in MoE layers
    "Megatron-LM": Source(False, False, "none", 149),
    "MegaScale-MoE": Source(True, True, "selective", 149),
    "Bridge": Source(True, True, "none", None),
    "Bridge GPT-OSS": Source(True, True, "selective", None),  # its recipe recomputes norms and activations
    "AutoModel": Source(False, False, "none", None),
}

# chunks: where a page does not print them, one layer each: the layout with the smallest bubble. shards: ranks among which a
# sequence is split beside tp, in the layers as published by sequence parallelism (MegaScale-MoE) or by tensor parallelism of
# the attention alone (Bridge). published: tokens/s of a GPU in each version of the page, or the steps' seconds.
Row = collections.namedtuple("Row", "source model precision gpus tp ep pp chunks shards seq batch microbatch published")


def full_flops(model, seq):
    """Per token, with the whole square of the attention, as Megatron-Core counted when the paper was written."""
    qkv = model.hidden * model.head_dim * (2 * model.heads + 2 * model.kv_heads)
    ffn = 3 * model.hidden * model.ffn * (model.per_token + model.shared)
    matrices = model.layers * (qkv + ffn) + model.hidden * model.vocab
    return 6 * matrices + 12 * model.layers * seq * model.heads * model.head_dim


def folding(model, gpus, tp, ep, pp, batch, mfu):
    """A row of Table 1 or Figure 4 of arXiv 2504.14960 without folding: experts are split over tp as the attention is."""
    seq, peak = 4096, 989e12
    seconds = full_flops(MODELS[model], seq) * batch * seq / (peak * mfu / 100 * gpus)
    return Row("Folding", model, "bf16", gpus, tp, ep, pp, MODELS[model].layers // pp, 1, seq, batch, 1, [seconds])


def tokens(row, rates):
    return row._replace(published=[row.batch * row.seq / (rate * row.gpus) for rate in rates])


MEGASCALE_STEPS = [(240, 39.94, 21.61), (480, 19.56, 11.83), (720, 13.70, 7.97), (960, 10.82, 6.12), (1440, 7.90, 4.19)]
ROWS = [
    *(Row("Megatron-LM", "352B", "bf16", gpus, 8, 1, 15, 4, 1, 8192, 720, 1, [step]) for gpus, step, _ in MEGASCALE_STEPS),
    *(Row("MegaScale-MoE", "352B", "bf16", gpus, 1, 8, 15, 4, 8, 8192, 720, 1, [step]) for gpus, _, step in MEGASCALE_STEPS),
    folding("Mixtral 8x22B", 128, 2, 4, 8, 256, 46.3),
    *(folding("Mixtral 8x22B", gpus, 2, 4, 8, 1024, mfu) for gpus, mfu in ((128, 49.4), (256, 48.0), (512, 45.5), (1024, 42.3))),
    folding("Qwen2 57B", 64, 2, 4, 4, 256, 35.3),
    *(folding("Qwen2 57B", gpus, 2, 4, 4, 1024, mfu) for gpus, mfu in ((64, 36.2), (256, 34.8), (1024, 29.8))),
    folding("Mixtral G8T8", 128, 2, 8, 8, 256, 17.1),
    *(folding("Mixtral G8T8", gpus, 2, 8, 8, 1024, mfu) for gpus, mfu in ((128, 19.8), (512, 16.3))),
    folding("Llama 3 8x70B", 256, 8, 4, 8, 256, 38.8),
    *(folding("Llama 3 8x70B", gpus, 8, 4, 8, 1024, mfu) for gpus, mfu in ((256, 40.1), (1024, 39.1))),
    tokens(Row("Bridge", "Qwen3 235B", "fp8", 256, 1, 32, 8, 4, 2, 4096, 2048, 1, []), [1575]),
    tokens(Row("Bridge", "Qwen3 235B", "fp8", 256, 1, 32, 8, 4, 2, 4096, 8192, 1, []), [1633, 1611, 1686, 1712]),
    tokens(Row("Bridge", "Qwen3 30B", "fp8", 16, 1, 8, 2, 24, 1, 4096, 512, 2, []), [5275]),
    tokens(Row("Bridge", "Qwen3 30B", "fp8", 16, 1, 8, 2, 12, 1, 4096, 1024, 1, []), [9058]),  # 5113 in the release before
    tokens(Row("Bridge", "Qwen3 30B", "fp8", 16, 1, 16, 1, 1, 1, 4096, 1024, 1, []), [8901, 8960, 8826]),
    tokens(Row("Bridge GPT-OSS", "GPT-OSS 120B", "bf16", 64, 1, 8, 4, 1, 1, 4096, 512, 4, []), [5630]),
    tokens(Row("Bridge GPT-OSS", "GPT-OSS 120B", "bf16", 64, 1, 8, 4, 1, 1, 4096, 1280, 1, []), [5993, 5984, 5810, 5824]),
    tokens(Row("AutoModel", "Qwen3 30B", "bf16", 8, 1, 8, 1, 1, 1, 4096, 512, 4, []), [12040]),
]

CONFIG = """[model]
family = "llama"
layers = {layers}
hidden = {hidden}
heads = {heads}
kv_heads = {kv_heads}
head_dim = {head_dim}
expert_ffn_hidden = {ffn}
experts = {experts}
experts_per_token = {per_token}
shared_experts = {shared}
vocab = {vocab}
seq = {seq}
window = {window}
tied_embeddings = false
[mesh]
dp = {dp}
pp = {pp}
tp = {tp}
ep = {ep}
chunks = {chunks}
sequence_parallel = {sequence}
[overlap]
tp = {overlap_tp}
ep = {overlap_ep}
[train]
steps = 10
global_batch = {batch}
microbatch = {microbatch}
dtype = "bf16"
recompute = "{recompute}"
moe_dispatch = "all_to_all"
moe_capacity = {capacity}
[run]
device = "cuda"
[data]
train = ["text"]
"""


def device_of(row):
    """The device as the software uses it. Every rank has an even share of the rows: routers were balanced by force, or what is
    above an even share dropped. An engine of experts in FP8 is not ours: its GEMMs take the time of FP8 GEMMs, the rounding of
    their operands is not counted. A rank with a shard of the sequence has as many times the attention of a sequence of its
    length."""
    device = hopper_rows.FILE["device"]
    points = [(float(size), float(share)) for size, share in (point.split(":") for point in device["attention"])]
    halved = 2 if row.precision == "fp8" else 1  # of a peak that is twice that of 16 bits
    share = hopper_rows.ATTENTION / halved / row.shards
    attention = ",".join(f'"{size / row.shards:.4g}:{share * of:.5f}"' for size, of in points)
    values = [f"device.attention=[{attention}]", f'device.classes=["loss:{hopper_rows.LOSS:.3f}"]', "device.capacity=8TiB"]
    if row.precision == "fp8":
        gemm = ",".join(f'"{point}"' for point in device["gemm_fp8"])
        values += [f"device.tflops={device['tflops_fp8']}", f"device.gemm=[{gemm}]"]
    if SOURCES[row.source].node_rate:
        values.append(f"node.rate={SOURCES[row.source].node_rate}")
    return [word for value in values for word in ("--set-cluster", value)]


def step(row, window, options):
    source = SOURCES[row.source]
    settings = {"dp": row.gpus // (row.tp * row.pp), "seq": row.seq // row.shards, "batch": row.batch * row.shards,
                "sequence": row.tp > 1, "overlap_tp": source.overlap_tp, "overlap_ep": source.overlap_ep,
                "recompute": source.recompute, "window": window, "capacity": int(row.ep > 1)}
    settings = {key: str(value).lower() if isinstance(value, bool) else value for key, value in settings.items()}
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "config.toml"
        config.write_text(CONFIG.format(**{**MODELS[row.model]._asdict(), **row._asdict(), **settings}))
        done = subprocess.run([hopper_rows.TOOL, "simulate", config, "--json", "--cluster", hopper_rows.CLUSTER,
                               *device_of(row), *options], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{row.source} {row.model}: {done.stderr}")
        got = json.loads(done.stdout)
        return got["iteration_s"], got["parts_s"]


def simulate(row, options=()):
    """Seconds of a step, and what they are spent on. Half of the layers with a window: the mean of all with it and of none."""
    steps = [step(row, window, options) for window in sorted({0, WINDOWS.get(row.model, 0)})]
    parts = {key: statistics.mean(parts[key] for _, parts in steps) for key in steps[0][1]}
    return statistics.mean(seconds for seconds, _ in steps), parts


# What a row of which software is simulated with once more: the difference, in words and as options.
LAUNCH = ("20 us from one kernel to the next, as from Python", lambda row: ["--set-cluster", "device.launch=20us"])
WHY = {
    "Megatron-LM": ("all activations recomputed", lambda row: ["--set", "train.recompute=full"]),
    "MegaScale-MoE": ("the busiest rank has 1.25 even shares",
                      lambda row: ["--set", "train.moe_capacity=1.25", "--expert-load", "zipf=3"]),
    "Folding": LAUNCH, "Bridge": LAUNCH, "Bridge GPT-OSS": LAUNCH, "AutoModel": LAUNCH,
}


def explain():
    for row in ROWS:
        published = statistics.median(row.published)
        before = simulate(row)[0] / published - 1
        if abs(before) > 0.1:
            difference, options = WHY[row.source]
            after = simulate(row, options(row))[0] / published - 1
            print(f"{row.source:15} {row.model:14} {row.gpus:5} {row.batch:6} {100 * before:+6.1f} % {100 * after:+6.1f} %  {difference}")


def main(forecast_only):
    with ThreadPoolExecutor(2) as pool:
        forecasts = list(pool.map(simulate, ROWS))
    by_model = {}
    for row, (ours, parts) in zip(ROWS, forecasts):
        shares = " ".join(f"{k} {100 * v / ours:.0f}%" for k, v in parts.items() if k != "world" and v > 0.005 * ours)
        told = f"{row.source:15} {row.model:14} {row.precision:5} {row.gpus:5} {row.batch:6} {ours:8.2f} s"
        if forecast_only:
            print(f"{told}  {shares}")
            continue
        published = statistics.median(row.published)
        spread = (max(row.published) - min(row.published)) / published
        error = ours / published - 1
        by_model.setdefault((row.source, row.model), []).append(error)
        print(f"{told} {published:8.2f} s {100 * spread:5.1f} % {100 * error:+6.1f} %  {shares}")
    if not forecast_only:
        errors = [error for some in by_model.values() for error in some]
        print(f"\n{sum(abs(error) > 0.1 for error in errors)} of {len(errors)} are off by more than 10 %; "
              f"{intervals.summary(by_model)}")
