#!/usr/bin/env bash
# What guard.replay_every costs: the time that comparing dp ranks takes, as the run's log says it, against that of a step in the
# same run. Prints the medians and their ratio, and the share of the time at an interval of 100 steps.
# usage: tests/bench/replay_cost.sh [STEPS [DP]] (default 60 steps, some 100 ms each, of 2 dp ranks)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=$(realpath "${BUILD:-build/release}")
steps=${1:-60} dp=${2:-2}
cmake --build "$build" --target ms-train ms-data >/dev/null
bin=$build/bin
work=$(mktemp -d -p "$build" replay-cost.XXXXXX)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/training.sh
. tests/support/training.sh
cd "$work"
training_text 400 >/dev/null 2>&1
tiny_config mesh.dp="$dp" train.steps="$steps" train.global_batch=$((8 * dp)) train.eval_every=0 data.valid_fraction=0 \
  model.hidden=128 model.seq=128 guard.replay_every=2 run.sample_tokens=0 'run.dir="r"' >c.toml
"$bin/ms-train" run c.toml >out 2>log || { tail -n 5 log && exit 1; }
python3 - <<'PY'
import json, re, statistics
replays = [float(s) for s in re.findall(r"has the same bits on all \d+ dp ranks, in ([0-9.]+) s", open("log").read())]
steps = [json.loads(line)["step_s"] for line in open("r/metrics.jsonl")][5:]
replay, step = statistics.median(replays), statistics.median(steps)
print(f"{len(replays)} replays of {replay * 1e3:.1f} ms, steps of {step * 1e3:.1f} ms: a replay takes {replay / step:.2f} of a step")
print(f"guard.replay_every = 100: {replay / (100 * step + replay):.2%} of the time")
PY
