#!/usr/bin/env bash
# How near ms-train simulate comes to runs on this machine: seconds of a step, predicted with a cluster file that
# ms-train calibrate has written, and measured. The machine itself is not the same from one minute to the next, so both
# are done in turns, several times over, three runs a turn; compared are the medians, and how far values lie apart is said
# beside them.   usage: tests/bench/calibration.sh [TURNS]    (3 turns take about twenty minutes)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
exec python3 - "${BUILD:-build/release}/bin" "${1:-3}" <<'PYTHON'
import json, re, statistics, subprocess, sys, tempfile

BIN, TURNS = sys.argv[1], int(sys.argv[2])
CASES = [(8, "fp32", "dp=2 pp=2 tp=2"), (8, "bf16", "dp=2 pp=2 tp=2"), (2, "fp32", "dp=1 pp=1 tp=2"), (1, "fp32", "dp=1 pp=1 tp=1")]
MODELS = ["hidden=160", "hidden=320"]
TOKENS = 2048  # of a step


def ms(tool, *args):
    return subprocess.run([f"{BIN}/{tool}", *args], check=True, capture_output=True, text=True).stdout


def sets(*pairs):
    return [word for pair in pairs for word in ("--set", pair)]


with tempfile.TemporaryDirectory() as dir:
    with open(f"{dir}/text", "w") as text:
        for i in range(1, 401):
            text.write(f"line {i}: the quick brown fox jumps over the lazy dog, {i * 7919 % 1000} times\n")
    ms("ms-data", "encode", "--tokenizer", "byte", "--output", f"{dir}/text", f"{dir}/text")
    running = sets(f"data.train={dir}/text", "train.steps=30", "train.eval_every=0", "run.sample_tokens=0", "optim.warmup_steps=4")
    predicted, measured = {}, {}
    for turn in range(TURNS):
        for ranks, dtype, mesh in CASES:
            ms("ms-train", "calibrate", "--busy", "--ranks", str(ranks), "--dtype", dtype, "--output", f"{dir}/cluster.toml")
            for model in MODELS:
                case = (ranks, dtype, mesh, model)
                what = sets(f"train.dtype={dtype}", f"model.{model}", "train.microbatch=2", *(f"mesh.{axis}" for axis in mesh.split()))
                of = json.loads(ms("ms-train", "simulate", "configs/tiny-3d.toml", "--cluster", f"{dir}/cluster.toml", *what, "--json"))
                predicted.setdefault(case, []).append(of["iteration_s"])
                for again in range(3):
                    place = f"run.dir={dir}/run-{turn}-{again}-{ranks}-{dtype}-{model}"
                    out = ms("ms-train", "run", "configs/tiny-3d.toml", *running, *sets(place), *what)
                    measured.setdefault(case, []).append(TOKENS / float(re.search(r"tokens_per_s +(\S+)", out)[1]))
                    print(f"turn {turn + 1}: {ranks} {dtype} {model}: {predicted[case][-1]:.4f} {measured[case][-1]:.4f}", file=sys.stderr)

    spread = lambda values: 100 * (max(values) / min(values) - 1)
    print("ranks dtype  what                        predicted (apart)   measured (apart)     off")
    for (ranks, dtype, mesh, model), values in predicted.items():
        runs = measured[ranks, dtype, mesh, model]
        p, m = statistics.median(values), statistics.median(runs)
        print(f"{ranks:5} {dtype:6} {mesh + ' ' + model:26} {p:9.4f}s ({spread(values):3.0f} %) {m:9.4f}s ({spread(runs):3.0f} %) {100 * (p / m - 1):+6.1f} %")
PYTHON
