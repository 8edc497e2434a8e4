#!/usr/bin/env bash
# What heartbeats cost a run: step time of one rank with an agent of ms-driver that listens, and without, in turns, every other
# pair the other way round. Prints the median step of both over all rounds, their ratio, and the ratios of the rounds. Steps are
# short, so the share is an upper bound for real ones; nothing else may run on the machine.
# usage: tests/bench/beat_cost.sh [ROUNDS [STEPS]] (default 10 rounds of 150 steps, some 100 ms each)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=$(realpath "${BUILD:-build/release}")
rounds=${1:-10} steps=${2:-150}
cmake --build "$build" --target ms-train ms-driver ms-data >/dev/null
bin=$build/bin
work=$(mktemp -d -p "$build" beat-cost.XXXXXX)
agent=''
trap 'if [[ -n $agent ]]; then kill "$agent"; fi; rm -rf "$work"' EXIT
# shellcheck source=tests/support/training.sh
. tests/support/training.sh
cd "$work"
training_text 400 >/dev/null 2>&1
tiny_config train.steps="$steps" model.hidden=128 model.seq=128 checkpoint.dir='""' >c.toml
export MS_ATTEMPT=1
socket=/tmp/ms-driver-bench-$$/beat

train() { # NAME: with heartbeats, or without
  local name=$1
  if [[ $name == with ]]; then
    # No driver is at that address: the agent hears the beats, and has nobody to report to, as reports are not the rank's cost.
    "$bin/ms-driver" agent --job $$ --heartbeat "$socket" --connect 127.0.0.1:9 >agent.log 2>&1 &
    agent=$!
    until [[ -S $socket ]]; do sleep 0.02; done
    MS_HEARTBEAT=$socket "$bin/ms-train" run c.toml --set run.dir=r >run.log 2>&1 || { tail -n 5 run.log && exit 1; }
    kill "$agent" && { wait "$agent" || true; }
    agent=''
    rm -rf "${socket%/*}"
  else
    "$bin/ms-train" run c.toml --set run.dir=r >run.log 2>&1 || { tail -n 5 run.log && exit 1; }
  fi
  cat r/metrics.jsonl >>"$name.$round"
  rm -rf r
}
for ((round = 1; round <= rounds; round++)); do
  if ((round % 2)); then train with && train without; else train without && train with; fi
done
python3 - "$rounds" <<'PY'
import json, statistics, sys
def median(kind, rounds):
    times = []
    for round in rounds:
        times += [json.loads(line)["step_s"] for line in open(f"{kind}.{round}")][5:]  # the first steps warm up
    return statistics.median(times)
rounds = range(1, int(sys.argv[1]) + 1)
each = sorted(median("with", [r]) / median("without", [r]) for r in rounds)
print(f"step with {median('with', rounds) * 1e3:.3f} ms, without {median('without', rounds) * 1e3:.3f} ms, "
      f"ratio {median('with', rounds) / median('without', rounds):.4f}; "
      f"rounds {each[0]:.4f} to {each[-1]:.4f}, median {statistics.median(each):.4f}")
PY
