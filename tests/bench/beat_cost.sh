#!/usr/bin/env bash
# What heartbeats cost: the time that a beat takes the rank's thread and the processor time that an agent of ms-driver spends on
# it, as shares of the steps of a small model. Timing whole runs with and without, in turns, cannot tell: their steps differ by
# tenths on a virtual machine, and a beat takes microseconds.
# usage: tests/bench/beat_cost.sh [BEATS] (default 20000: 25 s and a short training)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=$(realpath "${BUILD:-build/release}")
beats=${1:-20000}
cmake --build "$build" --target ms-train ms-driver ms-data beat_cost >/dev/null
bin=$build/bin
work=$(mktemp -d -p "$build" beat-cost.XXXXXX)
agent=''
trap 'if [[ -n $agent ]]; then kill "$agent"; fi; rm -rf "$work"' EXIT
# shellcheck source=tests/support/training.sh
. tests/support/training.sh
cd "$work"
training_text 400 >/dev/null 2>&1
tiny_config train.steps=60 model.hidden=128 model.seq=128 checkpoint.dir='""' >c.toml
"$bin/ms-train" run c.toml --set run.dir=r >run.log 2>&1 || { tail -n 5 run.log && exit 1; }
socket=/tmp/ms-driver-bench-$$/beat
# No driver is at that address: the agent hears the beats, and has nobody to report to, as reports are not the rank's cost.
"$bin/ms-driver" agent --job $$ --heartbeat "$socket" --connect 127.0.0.1:9 >agent.log 2>&1 &
agent=$!
until [[ -S $socket ]]; do sleep 0.02; done
processor_ms() { awk -v hz="$(getconf CLK_TCK)" '{print ($14 + $15) * 1000 / hz}' "/proc/$agent/stat"; }
before=$(processor_ms) begin=$(date +%s%N)
read -r mean median most < <("$bin/beat_cost" "$socket" "$beats")
after=$(processor_ms) end=$(date +%s%N)
# The agent's own second: what it spends without beats.
idle_before=$after
sleep 5
idle_after=$(processor_ms)
python3 - "$mean" "$median" "$most" "$before" "$after" "$idle_before" "$idle_after" "$beats" $(((end - begin) / 1000000)) <<'PY'
import json, statistics, sys
mean, median, most, before, after, idle_before, idle_after, beats, took_ms = map(float, sys.argv[1:])
agent_us = ((after - before) - (idle_after - idle_before) / 5000 * took_ms) / beats * 1e3
step_s = statistics.median([json.loads(line)["step_s"] for line in open("r/metrics.jsonl")][5:])
print(f"a beat takes the rank {mean:.1f} us (median {median:.1f}, 99 % below {most:.1f}) and the agent {agent_us:.1f} us")
for name, seconds in (("this model's", step_s), ("a step of 100 ms:", 0.1), ("a step of 1 s:", 1.0)):
    print(f"{name:18} {'step of ' + format(seconds * 1e3, '.1f') + ' ms:' if name.startswith('this') else '':20}"
          f"{mean / seconds / 1e4:8.4f} % of the rank's time, {agent_us / seconds / 1e4:8.4f} % of a processor")
PY
