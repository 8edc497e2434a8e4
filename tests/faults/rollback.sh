#!/usr/bin/env bash
# Rollbacks of the guard: the data of the steps that spoil a run is left out, once and for all starts, over threads and MPI
# and with another dp; a start after a kill in between does the same, and a run that is spoiled again and again stops.
# usage: rollback.sh BIN MPIEXEC: BIN is the folder of the programs, MPIEXEC "-" where there is no MPI.
set -u
bin=$1
mpiexec=$2
# shellcheck source=tests/support/training.sh
. "$(dirname "$0")/../support/training.sh"
dir=$(mktemp -d)
failures=0
trap 'cd / && rm -rf "$dir"' EXIT
cd "$dir" || exit 1

fail() {
  echo "FAILED: $1"
  for file in out err run/verdict.json ck/rollbacks.json; do [ -s "$file" ] && sed "s|^|  $file: |" "$file" | tail -n 30; done
  failures=$((failures + 1))
}
# run CODE PATTERN COMMAND...: exit code, and an extended regular expression in what it says.
run() {
  local expected=$1 pattern=$2
  shift 2
  timeout 400 "$@" >out 2>err </dev/null
  code=$?
  [ "$code" -eq "$expected" ] || fail "$*: exit code $code, not $expected"
  cat out err | grep -Eq -- "$pattern" || fail "$*: expected to see '$pattern'"
}
afresh() { rm -rf run ck; }
# Every step once, as many tokens as were trained on, and the chain that ms-data computes; sets $chain.
is_whole() {
  "$bin/ms-data" sample c.toml --step 12 --chain >sample.out 2>err || fail "ms-data sample"
  chain=$(tail -n 1 sample.out | cut -d ' ' -f 5)
  python3 - "$chain" <<'PYTHON' || fail "$1: the metrics are not as they should be"
import json, sys
rows = [json.loads(line) for line in open("run/metrics.jsonl")]
assert [row["step"] for row in rows] == list(range(1, 13)), [row["step"] for row in rows]
assert [row["tokens"] for row in rows] == [256 * n for n in range(1, 13)], rows
assert rows[-1]["data_chain"] == sys.argv[1], (rows[-1], sys.argv[1])
PYTHON
}
numbers() { python3 -c 'import json, sys; print(json.load(open("ck/rollbacks.json"))["rollbacks"])'; }

training_text 400 >/dev/null 2>err || fail "ms-data encode"
tiny_config mesh.dp=2 train.steps=12 train.eval_every=0 'run.dir="run"' 'checkpoint.dir="ck"' checkpoint.every_steps=2 \
  'checkpoint.when_busy="wait"' 'guard.nonfinite="rollback"' guard.rollback_steps=3 >c.toml

run 0 'committed' "$bin/ms-train" run c.toml
is_whole "the undisturbed run"
undisturbed=$chain

# Step 7 is NaN. The newest checkpoint that is three steps older is that of step 4: samples 32 to 55 were read since.
export MS_FAULT='step=6 rank=1 restart=0 nan'
afresh
said='rolling back to ck/step-00000004, samples 32 to 55 are left out: rollback 1 of at most 3'
run 0 "step 7: the gradient norm is nan.*; $said" "$bin/ms-train" run c.toml
is_whole "the run with a rollback"
skipped=$chain
[ "$skipped" != "$undisturbed" ] || fail "nothing was left out"
"$bin/ms-data" sample c.toml --step 5 --json | grep -q '"sample": 56' || fail "step 5 does not begin with sample 56"
"$bin/ms-ckpt" show ck --json 2>/dev/null | grep -q '"rollbacks": 1' || fail "the checkpoint does not tell of the rollback"

# What spoils every start ends the run; a run that begins afresh has no rollbacks.
MS_FAULT='step=6 rank=1 nan'
run 2 'and the run had 2 rollbacks, as many as guard.max_rollbacks' "$bin/ms-train" run c.toml --fresh --set guard.max_rollbacks=2
[ "$(numbers)" != "[]" ] || fail "the rollbacks are not listed"
grep -q '"kind": "train.rollback"' run/verdict.json || fail "the verdict of a run that rolls back too often"
afresh
run 2 'no checkpoint is at least 9 steps older' "$bin/ms-train" run c.toml --set guard.rollback_steps=9

if [ "$mpiexec" != - ]; then
  mpi() { "$mpiexec" -q --oversubscribe --bind-to none -np 2 "$bin/ms-train" run c.toml; }
  export -f mpi && export bin mpiexec
  afresh
  run 75 "$said" bash -c mpi
  grep -q '"kind": "run.rolled_back"' run/verdict.json || fail "the verdict of a rollback"
else
  afresh
  MS_FAULT='step=6 rank=1 restart=0 nan' run 0 "$said" "$bin/ms-train" run c.toml
  rm -rf ck/step-0000000[5-9] ck/step-0000001*
fi
unset MS_FAULT
# As if the kill had come between the two: the rollback is written, and what it left is not yet set aside.
mv ck/set-aside-1/step-00000006 ck/ || fail "step 6 was not set aside"
rmdir ck/set-aside-1
run 0 'resuming from ck/step-00000004: step 4' "$bin/ms-train" run c.toml --set mesh.dp=4
grep -q 'checkpoints that a rollback has left are now in ck/set-aside-1' err || fail "step 6 was not set aside again"
is_whole "the run that went on with another dp"
[ "$chain" = "$skipped" ] || fail "another dp was fed otherwise"

# Before the rollback's step and behind it, a start goes on with the same data.
rm -rf ck/step-00000008 ck/step-0000001*
run 0 'resuming from ck/step-00000006: step 6' "$bin/ms-train" run c.toml
is_whole "the run that resumed behind the rollback"
[ "$chain" = "$skipped" ] || fail "a resume behind the rollback was fed otherwise"
rm -rf ck/step-00000004 ck/step-00000006 ck/step-00000008 ck/step-0000001*
run 0 'resuming from ck/step-00000002: step 2' "$bin/ms-train" run c.toml
is_whole "the run that resumed before the rollback"
[ "$chain" = "$skipped" ] || fail "a resume before the rollback was fed otherwise"

mv ck/rollbacks.json kept.json
run 2 'was saved after 1 rollback, and .ck/rollbacks.json. lists 0' "$bin/ms-train" run c.toml
: >ck/rollbacks.json
run 74 'rollbacks.json. is empty' "$bin/ms-train" run c.toml
sed 's/"end": [0-9]*/"end": 9223372036854775807/' kept.json >ck/rollbacks.json
run 74 'rollbacks.json. is damaged: a rollback is out of range' "$bin/ms-train" run c.toml

# A stop that is asked for in the step of a rollback is not forgotten.
afresh
MS_FAULT='step=5 rank=0 restart=0 pause=2;step=6 rank=1 restart=0 nan' "$bin/ms-train" run c.toml >out 2>err </dev/null &
for _ in $(seq 300); do
  if grep -qs '"step":5,' run/metrics.jsonl; then break; fi
  sleep 0.02
done
touch run/stop
wait $!
code=$?
[ "$code" -eq 75 ] || fail "exit code $code of a run that was stopped while it rolled back, expected 75"

echo '{' >ck/rollbacks.json
run 74 'rollbacks.json. is damaged' "$bin/ms-train" run c.toml
[ "$failures" -eq 0 ] || exit 1
echo "all as expected"
