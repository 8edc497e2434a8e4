#!/usr/bin/env bash
# Runs that are slow, hang or die on purpose, and what ms-tracepp says of the traces they leave.
# usage: traces.sh CASE BIN MPIEXEC: CASE is a function case_NAME below, BIN the folder of the programs, MPIEXEC "-" where
# there is no MPI. Skips (77) what cannot be tried here.
set -u
case=$1
bin=$2
mpiexec=$3
# shellcheck source=tests/support/training.sh
. "$(dirname "$0")/../support/training.sh"
dir=$(mktemp -d)
failures=0
trap 'cd / && rm -rf "$dir"' EXIT
cd "$dir" || exit 1

fail() {
  echo "FAILED: $1"
  for file in out err said; do [ -s "$file" ] && sed "s|^|  $file: |" "$file" | tail -n 40; done
  failures=$((failures + 1))
}
skip() {
  echo "skipped: $1"
  exit 77
}

training_text 4000 >/dev/null 2>err || fail "ms-data encode"
tiny_config model.layers=4 model.hidden=64 model.seq=64 model.tied_embeddings=false mesh.dp=2 mesh.pp=2 mesh.tp=2 \
  train.steps=60 train.global_batch=16 train.eval_every=0 data.valid_fraction=0 'run.dir="runs/a"' \
  run.sample_tokens=0 'run.comm_timeout="4s"' 'trace.flush="0.2s"' >c.toml

# Ranks as threads, or with MPI as processes.
threads() { rm -rf runs && MS_FAULT=$1 "$bin/ms-train" run c.toml "${@:2}" >out 2>err </dev/null; }
processes() {
  [ "$mpiexec" != - ] || skip "no MPI"
  MS_FAULT=$1 "$mpiexec" --oversubscribe --bind-to none -np 8 "$bin/ms-train" run c.toml "${@:2}" >out 2>err </dev/null
}
# says PATTERN COMMAND...: what ms-tracepp prints of the run.
says() {
  local pattern=$1
  shift
  "$bin/ms-tracepp" "$@" runs/a/trace >said 2>&1 || fail "ms-tracepp $*: exit code $?"
  grep -Eq -- "$pattern" said || fail "ms-tracepp $*: expected to see '$pattern'"
}
# slow_ranks RANKS...: what ms-tracepp finds slow for a third of the steps or more is one of these; "none": nothing. For a
# few steps another program may have taken the core of any rank, which is then true of it.
slow_ranks() {
  local found
  "$bin/ms-tracepp" stragglers --json runs/a/trace >said 2>err || fail "ms-tracepp stragglers: exit code $?"
  found=$(python3 -c '
import json
print(*(rank for f in json.load(open("said"))["findings"] if f["code"] == "slow_rank" and f["last_step"] - f["first_step"] >= 20
        for rank in f["ranks"]))')
  [[ " $* " == *" ${found:-none} "* ]] || fail "of $*, found: ${found:-none}"
}

# Ranks that share cores with each other, and with whatever else runs here, vary by as much as some faults: these may not
# be found, and nobody else is accused. A rank that is slower than that is found.
case_slow() {
  threads "step=10 rank=5 slow=1.5" || fail "ms-train: exit code $?"
  slow_ranks 5 none
  threads "step=10 rank=5 slow=4" || fail "ms-train: exit code $?"
  slow_ranks 5
  says 'slow_rank: rank 5' stragglers
  says 'rank 5' report
}

# A pause is longer than what other programs on the machine may take from any rank.
case_data() {
  threads "data=20 rank=1 pause=5" --set run.comm_timeout=60s || fail "ms-train: exit code $?"
  says '(data_stall|pause).*rank' stragglers
  says 'data' stragglers
}

case_pause() {
  threads "step=30 rank=6 pause=5" --set run.comm_timeout=60s || fail "ms-train: exit code $?"
  says '(pause|launch_delay).*rank.* 6' stragglers
}

case_hang() {
  processes "step=30 rank=3 hang" --set run.comm_timeout=10s && fail "a run that hangs ended well"
  says '^rank 3 .*never issued' hang
  says 'suspect .* rank 3 .*not_issuing' hang
  "$bin/ms-tracepp" hang --check runs/a/trace >said 2>&1
  [ $? -eq 1 ] || fail "ms-tracepp hang --check did not exit with 1"
}

case_killed() {
  processes "step=30 rank=4 kill" && fail "a run that was killed ended well"
  says 'rank 4 ' hang
}

# All of it is killed in the middle of a step: what was written until then can be read, and is no hang.
case_cut_off() {
  "$bin/ms-train" run c.toml --set train.steps=100000 >out 2>err </dev/null &
  local job=$!
  for _ in $(seq 300); do
    grep -qs '"step":40,' runs/a/metrics.jsonl && break
    sleep 0.1
  done
  sleep 0.5
  kill -KILL "$job"
  wait "$job" 2>/dev/null
  says 'ranks +8 of 8' info
  says 'not ended' info
  says '^no hang' hang
  local last
  last=$(sed -n 's/^steps .* to \([0-9]*\),.*/\1/p' <("$bin/ms-tracepp" info runs/a/trace))
  [ "${last:-0}" -ge 38 ] || fail "40 steps were done, the traces end with step ${last:-none}"
}

"case_$case"
[ "$failures" -eq 0 ]
