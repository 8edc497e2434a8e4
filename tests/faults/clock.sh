#!/usr/bin/env bash
# The wall clock of a run jumps by a day, back and forth, of all ranks or of one: losses are those of a run whose clock is right,
# steps take no time of days, nobody is said to hang, the checkpoint is loaded, and traces have one time.
# usage: clock.sh BIN MPIEXEC CLOCK_FAULT: MPIEXEC "-" where there is no MPI, CLOCK_FAULT clock_fault.so.
set -u
bin=$1
mpiexec=$2
clock_fault=$3
# shellcheck source=tests/support/training.sh
. "$(dirname "$0")/../support/training.sh"
dir=$(mktemp -d)
trap 'cd / && rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failures=0

fail() {
  echo "FAILED: $what: $1"
  tail -n 20 err
  failures=$((failures + 1))
}
training_text 400 >/dev/null 2>err || { echo "FAILED: ms-data encode" && exit 1; }
tiny_config mesh.dp=2 mesh.tp=2 train.steps=30 'run.comm_timeout="20s"' 'checkpoint.dir="checkpoints"' \
  'checkpoint.every="10s"' >c.toml

# trained RUN [FAULT]: to step 20, and on to step 30 by another process.
trained() {
  local name=$1 fault=${2-} run=("$bin/ms-train")
  what="$name, fault '$fault'"
  rm -rf checkpoints
  if [[ $name == mpi* ]]; then
    run=("$mpiexec" --oversubscribe --bind-to none -np 4 -x CLOCK_FAULT -x LD_PRELOAD "$bin/ms-train")
  fi
  for steps in 20 30; do
    CLOCK_FAULT=$fault LD_PRELOAD=${fault:+$clock_fault} \
      "${run[@]}" run c.toml --set train.steps=$steps --set "run.dir=\"$name\"" >out 2>err </dev/null || fail "it ended with $?"
  done
  python3 - "$name" <<'PYTHON' || fail "its metrics are not as expected"
import json, sys
lines = [json.loads(line) for line in open(f"{sys.argv[1]}/metrics.jsonl")]
assert [line["step"] for line in lines] == list(range(1, 31)), lines
assert all(0 < line["step_s"] < 3600 for line in lines), [line["step_s"] for line in lines]
json.dump([line["loss"] for line in lines], open(f"{sys.argv[1]}.losses", "w"))
PYTHON
}

same_losses() { cmp -s "$1.losses" "$2.losses" || fail "the losses are not those of $1"; }

trained right
for seconds in 86400 -86400; do
  trained "threads$seconds" "-1 $seconds"
  grep -q "$(date -u -d "$seconds seconds" +%Y-%m-%d)T" err || fail "no line of the log has the other day: the fault did not strike"
  same_losses right "threads$seconds"
done
if [ "$mpiexec" != - ]; then
  trained mpi
  trained mpi_one "1 86400"
  same_losses mpi mpi_one
  "$bin/ms-tracepp" report --json mpi_one >report.json 2>err || fail "ms-tracepp ended with $?"
  python3 -c 'import json; step_s = json.load(open("report.json"))["breakdown"]["mean"]["step_s"]; assert 0 < step_s < 3600, step_s' \
    2>err || fail "the traces have times of days"
fi
exit $((failures > 0))
