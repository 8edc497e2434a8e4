#!/usr/bin/env bash
# Deadlines that a run learns: a hang is found in seconds, though run.comm_timeout is ten minutes, and leaves the stacks of the
# processes; what only takes its time is none.
# usage: learned.sh BIN MPIEXEC: BIN the folder of the programs, MPIEXEC "-" where there is no MPI: then threads only.
set -u
bin=$1
mpiexec=$2
# shellcheck source=tests/support/training.sh
. "$(dirname "$0")/../support/training.sh"
dir=$(mktemp -d)
trap 'cd / && rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failures=0

training_text 400 >/dev/null 2>err || { cat err && exit 1; }
tiny_config mesh.dp=2 mesh.tp=2 train.eval_every=0 data.valid_fraction=0 run.sample_tokens=0 'run.dir="run"' \
  'run.least_timeout="1s"' >c.toml

# in_own NAME COMMAND...: runs a case in a directory of its own; it leaves its complaints in NAME/complaints.
in_own() {
  mkdir "$1"
  cp text* c.toml "$1"
  # Open MPI's launchers that begin at the same time fail over a directory that all of them make.
  (cd "$1" && : >complaints && OMPI_MCA_orte_tmpdir_base=$PWD "${@:2}")
}
complain() { echo "$1" >>complaints; }
# verdict_is CODE KIND RANK
verdict_is() {
  local pattern
  for pattern in "\"code\": $1," "\"kind\": \"$2\"" "\"rank\": $3,"; do
    grep -q "$pattern" run/verdict.json || complain "the verdict lacks $pattern: $(cat run/verdict.json)"
  done
}
await() { # SECONDS COMMAND...: of an idle machine; a busy one gets four times as long
  local tries=$((40 * $1))
  while ((tries-- > 0)); do
    "${@:2}" && return
    sleep 0.1
  done
  complain "in vain: ${*:2}"
  return 1
}
did_step() { grep -qs "\"step\":$1," run/metrics.jsonl; }
last_step() { sed -n 's/.*"step":\([0-9]*\),.*/\1/p' run/metrics.jsonl 2>/dev/null | tail -n 1; }
is_past() { [ "$(last_step)" -gt "$1" ]; }

hang() {
  MS_FAULT='step=9 rank=1 hang' timeout 400 "$bin/ms-train" run c.toml --set train.steps=1000000 >out 2>err </dev/null
  local code=$?
  [ $code -eq 76 ] || complain "it ended with $code"
  verdict_is 76 comm.deadline 1
  grep -q '^evidence: the stacks of all threads are in run/evidence/' err || complain "it is not said where the stacks are"
  grep -q '^thread [0-9]* rank 1 ' run/evidence/*/ranks.txt || complain "no stack of rank 1"
  grep -q '^  #0 ' run/evidence/*/ranks.txt || complain "no frame of any thread"
  grep -q '^host: uptime_s ' run/evidence/*/devices-*.txt || complain "no state of this node's devices"
  "$bin/ms-tracepp" hang run/trace >said 2>&1
  grep -q 'where rank 1 stood, and the other threads, is in ' said || complain "ms-tracepp hang: $(cat said)"
}
data() { # longer than any deadline that is learned here
  MS_FAULT='data=9 rank=1 pause=9' timeout 400 "$bin/ms-train" run c.toml --set train.steps=15 >out 2>err </dev/null ||
    complain "a run whose data is late ended with $?"
}

# mpi ARGUMENT...: four processes, whose identifiers are in pid.RANK, and their exit codes in code.RANK.
mpi() {
  # shellcheck disable=SC2016 # for the shell of each rank
  timeout 900 "$mpiexec" --enable-recovery --oversubscribe --bind-to none -np 4 sh -c '
    "$@" & echo $! >pid.new.$OMPI_COMM_WORLD_RANK && mv pid.new.$OMPI_COMM_WORLD_RANK pid.$OMPI_COMM_WORLD_RANK
    wait $!
    echo $? >code.new.$OMPI_COMM_WORLD_RANK && mv code.new.$OMPI_COMM_WORLD_RANK code.$OMPI_COMM_WORLD_RANK' sh \
    "$bin/ms-train" run c.toml --set train.steps=1000000 "$@" >out 2>err </dev/null &
  job=$!
}
pids() { cat pid.[0-9]; }
# A host that stands still tells where, though its launcher ends it soon.
hung_process() {
  MS_FAULT='step=9 rank=2 hang' mpi
  await 60 eval 'cat code.0 code.1 code.3 >/dev/null 2>&1'
  kill -KILL "$(cat pid.2)" 2>/dev/null
  wait $job
  verdict_is 76 comm.deadline 2
  grep -q '^  #.* ms::watch::Faults::strike' run/evidence/*/rank-2.txt || complain "rank 2 does not tell where it stood"
}
stopped() {
  mpi
  await 60 did_step 9 && kill -STOP "$(cat pid.2)"
  await 60 eval 'cat code.0 code.1 code.3 >/dev/null 2>&1'
  for rank in 0 1 3; do [ "$(cat code.$rank)" = 76 ] || complain "rank $rank ended with $(cat code.$rank)"; done
  kill -KILL "$(cat pid.2)"
  wait $job
  verdict_is 76 comm.deadline 2
  grep -q 'which is blamed: state T' run/evidence/*/rank-0.txt || complain "the process that is stopped is not shown"
  "$bin/ms-tracepp" hang run/trace >said 2>&1
  grep -q 'where rank 2 stood, .* is in .*rank-' said || complain "ms-tracepp hang: $(cat said)"
}
# One rank for less than the shortest deadline; then all for longer, as Slurm does that suspends a job.
suspended() {
  mpi --set run.least_timeout=8s # long enough for a busy machine
  local at
  await 60 did_step 9 && kill -STOP "$(cat pid.1)"
  sleep 2
  kill -CONT "$(cat pid.1)"
  at=$(last_step)
  await 60 is_past $((at + 5))
  pids | xargs kill -STOP
  sleep 14
  pids | xargs kill -CONT
  at=$(last_step)
  await 60 is_past $((at + 5))
  touch run/stop
  await 60 eval 'cat code.0 code.1 code.2 code.3 >/dev/null 2>&1' || pids | xargs kill -KILL
  wait $job
  grep -q '"kind": "run.stopped"' run/verdict.json || complain "a run that was suspended ended with $(cat run/verdict.json err)"
}

cases=(hang data)
if [ "$mpiexec" = - ]; then echo "no MPI: only ranks as threads"; else cases+=(hung_process stopped suspended); fi
for case in "${cases[@]}"; do in_own "$case" "$case" & done
wait
for case in "${cases[@]}"; do
  if [ -s "$case/complaints" ]; then
    echo "FAILED: $case"
    tail -n 40 "$case/complaints" "$case/err"
    failures=$((failures + 1))
  fi
done
[ $failures -eq 0 ]
