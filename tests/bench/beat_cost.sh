#!/usr/bin/env bash
# What heartbeats cost: the time that a beat takes the rank's thread and the processor time that reading it takes, as shares of
# the steps of a small model. Timing whole runs with and without, in turns, cannot tell: their steps differ by tenths on a virtual
# machine, and a beat takes microseconds.
# usage: tests/bench/beat_cost.sh [BEATS] (default 20000: 25 s and a short training)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=$(realpath "${BUILD:-build/release}")
beats=${1:-20000}
cmake --build "$build" --target ms-train ms-data beat_cost >/dev/null
bin=$build/bin
work=$(mktemp -d -p "$build" beat-cost.XXXXXX)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/training.sh
. tests/support/training.sh
cd "$work"
training_text 400 >/dev/null 2>&1
tiny_config train.steps=60 model.hidden=128 model.seq=128 checkpoint.dir='""' >c.toml
"$bin/ms-train" run c.toml --set run.dir=r >run.log 2>&1 || { tail -n 5 run.log && exit 1; }
read -r mean median most heard_us heard < <("$bin/beat_cost" "$beats")
python3 - "$mean" "$median" "$most" "$heard_us" "$heard" "$beats" <<'PY'
import json, statistics, sys
mean, median, most, heard_us, heard, beats = map(float, sys.argv[1:])
step_s = statistics.median([json.loads(line)["step_s"] for line in open("r/metrics.jsonl")][5:])
print(f"a beat takes the rank {mean:.1f} us (median {median:.1f}, 99 % below {most:.1f}) and its listener {heard_us:.1f} us; "
      f"{heard:.0f} of {beats:.0f} were heard")
for name, seconds in ((f"this model's step of {step_s * 1e3:.1f} ms:", step_s), ("a step of 100 ms:", 0.1), ("a step of 1 s:", 1.0)):
    print(f"{name:32} {mean / seconds / 1e4:8.4f} % of the rank's time, {heard_us / seconds / 1e4:8.4f} % of a processor")
PY
