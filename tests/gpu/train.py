#!/usr/bin/env python3
"""Trains on a GPU and says how fast: tokens/s, MFU by every convention, where the time goes, a layer's own share, with
attention deterministic and not, with operations timed and not, beside PyTorch; and whether losses are the CPU's, and
the same twice. Prints a table and writes JSON.

usage: tests/gpu/train.py BUILD OUT.json [--small] [--no-peer] [--budget SECONDS]
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# A configuration, and one with fewer layers: what is between them is layers alone.
MODELS = {
    "gpt2-xl": ("configs/gpu/gpt2-xl.toml", {"model.layers": 24}),
    "llama-8b, 16 layers": ("configs/gpu/llama-8b-16-layers.toml", {"model.layers": 8}),
    "gpt-175b, 3 layers": ("configs/gpu/gpt-175b-3-layers.toml", {"model.layers": 1}),
}
SMALL = {"model.layers": 2, "model.hidden": 64, "model.heads": 8, "model.seq": 32, "model.vocab": 300,
         "train.steps": 4, "train.global_batch": 4, "train.microbatch": 1}
FIRST = 3  # steps that are not counted: plans are made, memory grows


def text_of(value):
    return json.dumps(value) if isinstance(value, (str, bool)) else str(value)


class Bench:
    def __init__(self, build, work, small, budget_s):
        self.build, self.work, self.small = build, work, small
        self.until = time.monotonic() + budget_s
        self.tokens = str(work / "text")
        noise = work / "noise"
        noise.write_bytes(os.urandom(2_000_000).hex().encode())
        subprocess.run([build / "bin/ms-data", "encode", "--tokenizer", "byte", "--output", self.tokens, noise],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def options(self, changes):
        changes = changes | {"run.dir": str(self.work / "run"), "data.train": [self.tokens]}
        if self.small:
            layers = min(changes.get("model.layers", 2), 2)
            changes = SMALL | {k: v for k, v in changes.items() if k not in SMALL} | {"model.layers": layers}
        return [word for key, value in changes.items()
                for word in ("--set", f"{key}={json.dumps(value) if isinstance(value, list) else text_of(value)}")]

    def run(self, config, changes):
        """Rows of metrics.jsonl, or why there are none."""
        left_s = self.until - time.monotonic()
        if left_s < 10:
            return "no time was left"
        command = [self.build / "bin/ms-train", "run", ROOT / config, "--fresh", *self.options(changes)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=left_s)
        except subprocess.TimeoutExpired:
            return "it took too long"
        if done.returncode != 0:
            return (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return [json.loads(line) for line in open(self.work / "run/metrics.jsonl")]

    def plan(self, config, changes):
        command = [self.build / "bin/ms-train", "plan", ROOT / config, "--json", *self.options(changes)]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


VARIANTS = {"deterministic": {}, "fp8": {"train.fp8": True}, "timed products": {},
            "fast attention": {"run.deterministic": False}, "untimed": {"run.time_ops": False}, "deterministic again": {}}


def speed(rows, plan, peak):
    """Medians over the steps that count."""
    rows = rows[FIRST if len(rows) > 2 * FIRST else 1:]
    step_s = statistics.median(row["step_s"] for row in rows)
    tokens_per_s = plan["batch"]["tokens_per_step"] / step_s
    classes = {name: statistics.median(row["seconds"][name] for row in rows) / step_s for name in rows[0]["seconds"]}
    return {"step_s": step_s, "tokens_per_s": tokens_per_s,
            "mfu": {name: flops * tokens_per_s / peak for name, flops in plan["flops_per_token"].items()},
            "share_of_step": classes | {"between operations": 1 - sum(classes.values())}}


def measure(bench, name, peak, peer):
    config, fewer = MODELS[name]
    result = {"model": name}
    # In turns, so that what changes meanwhile changes for all.
    plan = bench.plan(config, {})
    for variant, changes in VARIANTS.items():
        if variant == "timed products":
            changes = changes | {"run.matmul_choices": bench.work / f"{name}.choices"}
        rows = bench.run(config, changes)
        result[variant] = {"failed": rows} if isinstance(rows, str) else speed(rows, plan, peak)
    less = bench.run(config, fewer)
    if not isinstance(less, str) and "step_s" in result["deterministic"]:
        small_plan = bench.plan(config, fewer)
        few = speed(less, small_plan, peak)
        flops = {key: plan["flops_per_token"][key] - small_plan["flops_per_token"][key] for key in plan["flops_per_token"]}
        seconds = result["deterministic"]["step_s"] - few["step_s"]
        tokens = plan["batch"]["tokens_per_step"]
        result["mfu_of_layers"] = {key: value * tokens / seconds / peak for key, value in flops.items()}
    if peer:
        command = [sys.executable, ROOT / "tests/gpu/peer_pytorch.py", "--config", ROOT / config, "--json",
                   bench.work / "peer.json"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=max(1, bench.until - time.monotonic()))
            said = (bench.work / "peer.json").read_text() if done.returncode == 0 else None
            result["pytorch"] = json.loads(said) if said else {"failed": done.stderr.strip().splitlines()[-1:]}
        except subprocess.TimeoutExpired:
            result["pytorch"] = {"failed": "no time was left"}
    return result


def losses(bench):
    """A small model for 100 steps on the GPU, twice, and on the CPU."""
    changes = {"model.layers": 4, "model.hidden": 256, "model.heads": 4, "model.seq": 256, "model.vocab": 300,
               "train.steps": 6 if bench.small else 100, "train.global_batch": 8, "train.microbatch": 4}
    runs = {}
    for name, device in (("gpu", "cuda"), ("gpu again", "cuda"), ("cpu", "cpu")):
        rows = bench.run("configs/gpu/gpt2-xl.toml", changes | {"run.device": device})
        if isinstance(rows, str):
            return {"failed": f"{name}: {rows}"}
        runs[name] = [row["loss"] for row in rows]
    return {"steps": len(runs["gpu"]), "same_bits": runs["gpu"] == runs["gpu again"],
            "largest_difference_to_cpu": max(abs(a - b) for a, b in zip(runs["gpu"], runs["cpu"])),
            "first": runs["gpu"][0], "last": runs["gpu"][-1]}


def report(results, of_losses):
    print(f"{'model':22} {'variant':20} {'tokens/s':>9} {'gemm':>6} {'causal':>6} {'full':>6} {'reported':>8}")
    for result in results:
        for variant in VARIANTS:
            row = result[variant]
            if "failed" in row:
                print(f"{result['model']:22} {variant:20} failed: {row['failed']}")
                continue
            mfu = row["mfu"]
            print(f"{result['model']:22} {variant:20} {row['tokens_per_s']:9.0f} {mfu['gemm']:6.1%} {mfu['causal']:6.1%} "
                  f"{mfu['full']:6.1%} {mfu['reported']:8.1%}")
        if "mfu_of_layers" in result:
            mfu = result["mfu_of_layers"]
            print(f"{result['model']:22} {'of a layer alone':20} {'':9} {mfu['gemm']:6.1%} {mfu['causal']:6.1%} "
                  f"{mfu['full']:6.1%} {mfu['reported']:8.1%}")
        if "tokens_per_s" in result["fp8"] and "tokens_per_s" in result["deterministic"]:
            times = result["fp8"]["tokens_per_s"] / result["deterministic"]["tokens_per_s"]
            print(f"{result['model']:22} {'fp8 over bf16':20} {times:9.2f}")
        if "pytorch" in result:
            print(f"{result['model']:22} {'PyTorch':20} {json.dumps(result['pytorch'])[:160]}")
        if "share_of_step" in result["deterministic"]:
            shares = sorted(result["deterministic"]["share_of_step"].items(), key=lambda item: -item[1])
            print("  of a step: " + ", ".join(f"{name} {share:.1%}" for name, share in shares if share > 0.001))
    print(f"losses: {json.dumps(of_losses)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--small", action="store_true", help="whether it runs, where it is slow: an emulated GPU")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--budget", type=float, default=540, help="seconds in all")
    parser.add_argument("--peak", type=float, default=989, help="TFLOP/s")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        bench = Bench(arguments.build, pathlib.Path(work), arguments.small, arguments.budget)
        of_losses = losses(bench)
        results = [measure(bench, name, arguments.peak * 1e12, not arguments.no_peer) for name in MODELS]
    report(results, of_losses)
    arguments.out.write_text(json.dumps({"losses": of_losses, "models": results}, indent=1))
    failed = "failed" in of_losses or not of_losses["same_bits"] or any("failed" in r["deterministic"] for r in results)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
