#!/usr/bin/env python3
"""Faults in simulated runs of 64 and 4,096 ranks (ms-train simulate --slow), and what ms-tracepp stragglers says of their
traces: whether the first thing that it calls a fault is the right one, and how long it looked.
usage: tests/bench/sim_faults.py [SEEDS]     (4,096 ranks take half a minute a run)"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / "build/release/bin"
MESHES = {64: (8, 4, 2), 4096: (256, 8, 2)}  # dp, pp, tp

CONFIG = """[model]
family = "gpt"
layers = 16
hidden = 2048
heads = 16
vocab = 1024
seq = 2048
[train]
steps = 10
microbatch = 1
global_batch = {batch}
[mesh]
dp = {dp}
pp = {pp}
tp = {tp}
[data]
train = ["text"]
"""


def found(ranks, slow, sets, spread, directory):
    dp, pp, tp = MESHES[ranks]
    config = directory / "config.toml"
    config.write_text(CONFIG.format(dp=dp, pp=pp, tp=tp, batch=8 * dp))
    traces = directory / "traces"
    subprocess.run(["rm", "-rf", traces], check=True)
    command = [BIN / "ms-train", "simulate", config, "--cluster", ROOT / "configs/clusters/a100-8x200g.toml",
               "--set-cluster", f"noise.spread={spread}", "--set-cluster", "node.step=0s", "--trace", traces, "--steps", "4"]
    command += [word for text in slow for word in ("--slow", text)] + [word for text in sets for word in ("--set", text)]
    subprocess.run(command, check=True, capture_output=True)
    begin = time.monotonic()
    said = subprocess.run([BIN / "ms-tracepp", "stragglers", "--json", traces], check=True, capture_output=True)
    return json.loads(said.stdout)["findings"], time.monotonic() - begin


def main():
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print(f"{'ranks':>5}  {'fault':24} {'runs':>4} {'right first':>11} {'others':>6} {'seconds':>7}")
    with tempfile.TemporaryDirectory() as name:
        for ranks in MESHES:
            chance = random.Random(ranks)
            kinds = [(f"rank {percent} % slower", "rank", 1 + percent / 100, "slow_rank") for percent in (5, 10, 20)]
            kinds += [("node 10 % slower", "node", 1.1, None), ("link at a quarter", "link", 4, None), ("none", None, 1, None),
                      ("last stage with a head", "vocab", 1, "last_stage"),
                      ("a layer more in stage 0", "layers", 1, "slow_stage"),
                      ("rank 30 %, hosts differ", "differ", 1.3, "slow_rank")]
            for fault, what, factor, code in kinds:
                right = others = 0
                spent = 0.0
                for _ in range(seeds):
                    which = chance.randrange(ranks // 8 if what == "node" else ranks)
                    target = "rank" if what == "differ" else what
                    slow = [f"{target}={which}:{factor}"] if target in ("rank", "node", "link") else []
                    sets = {"vocab": ["model.vocab=64000"], "layers": ["model.layers=17"]}.get(what, [])
                    findings, seconds = found(ranks, slow, sets, 0.08 if what == "differ" else 0, pathlib.Path(name))
                    spent += seconds
                    first = findings[0] if findings else {"code": "none", "ranks": []}
                    sought = {which} if target in ("rank", "link") else set(range(8 * which, 8 * which + 8))
                    if what is None:
                        good = not any(f["fault"] for f in findings)
                    elif what in ("vocab", "layers"):
                        good = first["code"] == code
                    elif what == "differ":  # slow hosts are findings too
                        good = any(f["code"] == code and f["ranks"] == [which] for f in findings)
                    else:
                        good = first["ranks"] and set(first["ranks"]) <= sought and (code in (None, first["code"]))
                    right += bool(good)
                    others += sum(f["fault"] for f in findings) - (1 if slow and good else 0)
                    if not good:
                        print("       ", slow, json.dumps(first)[:200])
                print(f"{ranks:5}  {fault:24} {seeds:4} {right:11} {others:6} {spent / seeds:7.2f}", flush=True)


if __name__ == "__main__":
    main()
