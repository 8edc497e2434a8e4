#!/usr/bin/env bash
# Real failures of real training runs: what the user sees, what the run leaves behind, and that nobody hangs.
# usage: faults.sh FAULT BIN MPIEXEC: FAULT is a function fault_NAME below, BIN the folder of the programs, MPIEXEC "-"
# where there is no MPI. Skips (77) what cannot be tried here.
set -u
fault=$1
bin=$2
mpiexec=$3
# shellcheck source=tests/support/training.sh
. "$(dirname "$0")/../support/training.sh"
# shellcheck source=tests/faults/limits.sh
. "$(dirname "$0")/limits.sh"
dir=$(mktemp -d)
failures=0
job=

finish() {
  [ -z "$job" ] || kill -TERM "$job" 2>/dev/null
  cd / && rm -rf "$dir"
}
trap finish EXIT
cd "$dir" || exit 1

fail() {
  echo "FAILED: $1"
  for file in out err runs/a/verdict.json; do [ -s "$file" ] && sed "s|^|  $file: |" "$file" | tail -n 40; done
  failures=$((failures + 1))
}
skip() {
  echo "skipped: $1"
  exit 77
}
with_mpi() { [ "$mpiexec" != - ]; }

make_text() { training_text "$1" >/dev/null 2>err || fail "ms-data encode"; } # LINES
tiny_config mesh.dp=2 mesh.tp=2 train.steps=1000000 'run.dir="runs/a"' >c.toml

# Starts ms-train on four ranks in the background; each leaves its process id in pid.RANK and its exit code in code.RANK.
# mpi OPTIONS-OF-MPIEXEC... -- ARGUMENTS-OF-MS-TRAIN...
mpi() {
  local options=()
  while [ "$1" != -- ]; do
    options+=("$1")
    shift
  done
  shift
  rm -rf runs pid.* code.*
  # shellcheck disable=SC2016  # for the shell of each rank
  "$mpiexec" "${options[@]}" --oversubscribe --bind-to none -np 4 sh -c '
    "$@" & echo $! >pid.$OMPI_COMM_WORLD_RANK.new && mv pid.$OMPI_COMM_WORLD_RANK.new pid.$OMPI_COMM_WORLD_RANK
    wait $!
    code=$?
    echo $code >code.$OMPI_COMM_WORLD_RANK
    exit $code' sh "$bin/ms-train" run c.toml "$@" >out 2>err </dev/null &
  job=$!
}
# Waits until the run has made a step, at most two minutes.
await_step() {
  for _ in $(seq 1200); do
    grep -qs "\"step\":$1," runs/a/metrics.jsonl && return
    kill -0 "$job" 2>/dev/null || break
    sleep 0.1
  done
  fail "the run did not come to step $1"
}
# The exit code of the job, which must end by itself within SECONDS.
ends_within() {
  for _ in $(seq $((10 * $1))); do
    kill -0 "$job" 2>/dev/null || break
    sleep 0.1
  done
  if kill -0 "$job" 2>/dev/null; then
    fail "the run still hangs after $1 s"
    kill -TERM "$job"
  fi
  wait "$job"
  code=$?
  job=
}
# verdict FIELD=REGEX...: runs/a/verdict.json is JSON, and its fields are as they should be.
verdict() {
  python3 - "$@" <<'PYTHON' || fail "the verdict is not as expected: $*"
import json, re, sys
verdict = json.load(open("runs/a/verdict.json"))
for row in sys.argv[1:]:
    field, _, pattern = row.partition("=")
    if not re.fullmatch(pattern, str(verdict.get(field, ""))):
        sys.exit(f"{field} is {verdict.get(field)!r}, not {pattern}")
PYTHON
}
# Exactly one error is said, by whomever, and it matches.
one_error() {
  [ "$(grep -c 'error:' err)" -eq 1 ] || fail "not exactly one error message"
  grep 'error:' err | grep -Eq -- "$1" || fail "the error does not say '$1'"
}

# A rank is killed: the run ends by itself, says who died during which operation, and nobody hangs.
fault_killed() {
  with_mpi || skip "built without MPI"
  make_text 400
  for victim in 2 0; do
    mpi --
    await_step 5
    kill -KILL "$(cat pid.$victim)"
    ends_within 60
    [ "$code" -ne 0 ] || fail "mpiexec returned 0"
    verdict code=76 blame=peer kind=comm.peer_lost "rank=$victim" "node=$(hostname)" \
      "operation=.* operation [0-9]+ of group .+" "message=rank $victim \(pid [0-9]+ on .*\) died during .*" "step=[0-9]+"
    one_error "rank $victim \(pid "
  done
  # Where mpiexec leaves the survivors alone, they go by themselves.
  mpi --enable-recovery --
  await_step 5
  kill -KILL "$(cat pid.1)"
  ends_within 60
  got=$(cat code.* | sort -n | paste -s -d ' ')
  [ "$got" = "76 76 76 137" ] || fail "the ranks exited with $got"
  verdict code=76 rank=1
}

# The run is started again while ranks of the start before are still about, as those of a node that was cut off: what they say
# when they come back is not the verdict of the run that has the directory now.
fault_superseded() {
  with_mpi || skip "built without MPI"
  make_text 400
  mpi --enable-recovery -- --set run.comm_timeout=3s
  await_step 5
  local first=$job second
  kill -STOP "$(cat pid.1)" "$(cat pid.2)" "$(cat pid.3)"
  kill -KILL "$(cat pid.0)"
  for _ in $(seq 100); do [ -s code.0 ] && break; sleep 0.1; done
  "$bin/ms-train" run c.toml >out.second 2>err.second </dev/null &
  second=$!
  for _ in $(seq 300); do grep -q ' step 20 of' err.second && break; sleep 0.1; done
  kill -CONT "$(cat pid.1)" "$(cat pid.2)" "$(cat pid.3)"
  for _ in $(seq 200); do [ "$(cat code.* 2>/dev/null | wc -l)" -eq 4 ] && break; sleep 0.1; done
  [ "$(cat code.* | sort -n | paste -s -d ' ')" = "76 76 76 137" ] || fail "the ranks of the first start exited with $(cat code.*)"
  job=$first
  ends_within 60
  grep -q 'start 2 of the run has runs/a: this one writes no verdict' err || fail "the first start does not say that it was superseded"
  [ ! -e runs/a/verdict.json ] || fail "the first start wrote into the directory of the second"
  kill -USR2 $second
  wait $second
  code=$?
  [ "$code" -eq 93 ] || fail "the second start ended with $code"
  verdict code=93 kind=run.stopped start=2
}

# Tokens beyond the vocabulary in the middle of a file, where the check at the start does not look: the rank that reads
# them says so, once, and everybody stops with code 2.
fault_bad_data() {
  make_text 15000
  cp text.bin bad.bin
  cp text.idx bad.idx
  # The check reads 16 pieces of 4096 tokens, evenly spread; these 60,000 lie between the first two.
  head -c 120000 /dev/zero | tr '\0' '\377' | dd of=bad.bin bs=2000 seek=5 conv=notrunc status=none
  timeout 900 "$bin/ms-train" run c.toml --set data.train=bad >out 2>err </dev/null
  code=$?
  [ "$code" -eq 2 ] || fail "as threads, the run ended with $code"
  verdict code=2 blame=user kind=data.vocab rank='[0-3]' "message=.*bad.bin: the token at position [0-9]+ is 65535.*" "step=[0-9]+"
  one_error "rank [0-3]: bad.bin: the token at position [0-9]+ is 65535"
  [ -s runs/a/metrics.jsonl ] || fail "the run failed before its first step: this tests nothing"
  if with_mpi; then
    mpi -- --set data.train=bad
    ends_within 60
    [ "$code" -eq 2 ] || fail "over MPI, the run ended with $code"
    verdict code=2 blame=user kind=data.vocab rank='[0-3]'
    one_error "rank [0-3]: bad.bin: the token at position"
  fi
}

# A token file is cut while a run reads it, as a full disk or a careless copy does: an error that names it, no SIGBUS.
fault_cut_data() {
  make_text 15000
  "$bin/ms-train" run c.toml >out 2>err </dev/null &
  job=$!
  await_step 3
  truncate -s 40 text.bin
  ends_within 60
  [ "$code" -eq 74 ] || fail "the run ended with $code"
  verdict code=74 blame=storage kind=file.cut "message=.*text.bin was cut while it was in use: it has 40 bytes now.*"
  one_error "text.bin was cut while it was in use"
}

# stop_rank_3 SECONDS: stops rank 3, $victim, behind its fifth step, and waits so long for the others to end.
stop_rank_3() {
  with_mpi || skip "built without MPI"
  make_text 400
  mpi --enable-recovery -- --set run.comm_timeout=3s
  await_step 5
  victim=$(cat pid.3)
  kill -STOP "$victim"
  for _ in $(seq $((10 * $1))); do
    [ "$(cat code.* 2>/dev/null | wc -l)" -eq 3 ] && break
    sleep 0.1
  done
}

# A rank stands still, as one that waits for a dead disk: after the deadline the others say whom they waited for, during
# which operation of which group, and go.
fault_stopped() {
  stop_rank_3 60
  kill -KILL "$victim"
  ends_within 60
  got=$(cat code.* | sort -n | paste -s -d ' ')
  [ "$got" = "76 76 76 137" ] || fail "the ranks exited with $got"
  verdict code=76 blame=peer kind=comm.deadline rank=3 "operation=.* operation [0-9]+ of group .+" \
    "message=rank [0-2] waited ([3-9]|[1-9][0-9]+)\.[0-9] s for ranks? [0-3].*; rank 3 does not answer"
  one_error "waited ([3-9]|[1-9][0-9]+)\.[0-9] s for .* of group .*; rank 3 does not answer"
  "$bin/ms-tracepp" hang runs/a/trace >out 2>err || fail "ms-tracepp hang: exit code $?"
  head -n 1 out | grep -Eq '^rank 3 ' || fail "ms-tracepp hang does not name rank 3"
}

# A rank stands still and goes on once the others are gone, as one whose node was swapped out: its trace then ends later
# than all others, and looks like that of a rank that only waits.
fault_continued() {
  stop_rank_3 60
  kill -CONT "$victim"
  for _ in $(seq 300); do [ -s code.3 ] && break; sleep 0.1; done
  [ -s code.3 ] || kill -KILL "$victim"
  ends_within 60
  verdict code=76 blame=peer kind=comm.deadline rank=3
  "$bin/ms-tracepp" hang runs/a/trace >out 2>err || fail "ms-tracepp hang: exit code $?"
  head -n 1 out | grep -Eq '^rank 3 .*did not answer' || fail "ms-tracepp hang does not say that rank 3 did not answer"
  grep -m 1 suspect out | grep -Eq 'suspect 95 %: rank 3 .*: silent$' || fail "rank 3 is not the first suspect"
}

# The file system of the run directory fills up in the middle: the run goes on, says once that metrics are lost, and has a
# verdict. In a mount namespace of its own, where this may be had.
fault_disk_full() {
  unshare -m true 2>/dev/null || skip "no mount namespace to be had"
  make_text 400
  mkdir -p runs
  # shellcheck disable=SC2016 # for the shell in the namespace
  on_full_disk() { # COMMAND...: what is left of the run comes to left/
    rm -rf left
    timeout 900 unshare -m sh -c 'mount -t tmpfs -o size=128k none runs || exit 77
      "$@" --set train.steps=300 --set trace.enabled=false
      code=$?
      cp -a runs/a left
      exit $code' sh "$@" >out 2>err </dev/null
    code=$?
    [ "$code" -ne 77 ] || skip "no tmpfs to be had"
    [ "$code" -eq 0 ] || fail "$1 on a full disk ended with $code"
    grep -q '"code": 0' left/verdict.json || fail "$1 on a full disk: no verdict"
    # Said where it begins: again only after a shorter line found room.
    local lost again lines
    lost=$(grep -c 'the metrics of step .* are lost, training continues: .*No space left' err)
    again=$(grep -c 'metrics are written again from step' err)
    if [ "$lost" -eq 0 ] || [ "$lost" -gt $((again + 1)) ]; then fail "$1: the loss is said $lost times"; fi
    lines=$(wc -l <left/metrics.jsonl)
    if [ "$lines" -lt 5 ] || [ "$lines" -ge 300 ]; then fail "$1: metrics of $lines steps"; fi
    python3 -c 'import json, sys; [json.loads(line) for line in open(sys.argv[1])]' left/metrics.jsonl ||
      fail "$1: metrics.jsonl has a torn line"
  }
  on_full_disk "$bin/ms-train" run c.toml
  if with_mpi; then on_full_disk "$mpiexec" --oversubscribe --bind-to none -np 4 "$bin/ms-train" run c.toml; fi
}

# refuse PATTERN COMMAND...: code 2, one message, nothing left behind.
refuse() {
  local pattern=$1
  shift
  timeout 900 "$@" >out 2>err </dev/null
  code=$?
  [ "$code" -eq 2 ] || fail "$* ended with $code"
  one_error "$pattern"
  [ ! -e runs/a ] || fail "$* left a run directory"
  rm -rf runs
}
# Ranks that were started with different settings are told so before anything is trained, once, with both and the key.
fault_configuration() {
  with_mpi || skip "built without MPI"
  make_text 400
  timeout 900 "$mpiexec" --oversubscribe --bind-to none -np 2 "$bin/ms-train" run c.toml : \
    -np 2 "$bin/ms-train" run c.toml --set optim.lr=2e-3 --set run.dir=runs/b >out 2>err </dev/null
  code=$?
  [ "$code" -eq 2 ] || fail "the run ended with $code"
  different='rank [23] was started with another configuration than rank 0: \[optim\] lr is 0.0003 there and 0.002 here'
  one_error "$different"
  verdict code=2 blame=user kind=comm.configuration "rank=[23]" "message=$different" step=0
  [ ! -e runs/b ] || fail "who was refused left a run directory"
}

# Many processes that find the same mistake say it once; many processes that cannot find each other refuse to be many runs
# in one run directory.
fault_launch() {
  make_text 400
  refuse 'srun started 4 processes' env SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0 "$bin/ms-train" run c.toml
  if ! with_mpi; then
    refuse 'mpirun started 4 processes, but this program was built without MPI' \
      env OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=0 PMIX_RANK=0 "$bin/ms-train" run c.toml
    return
  fi
  four=("$mpiexec" --oversubscribe --bind-to none -np 4 "$bin/ms-train")
  refuse "did you mean 'model.layers'" "${four[@]}" run c.toml --set model.layer=3
  refuse 'nowhere.toml' "${four[@]}" run nowhere.toml
  refuse 'CONFIG' "${four[@]}" run
  refuse 'missing.idx' "${four[@]}" run c.toml --set data.train=missing
  refuse 'does not equal the number of ranks, 4' "${four[@]}" run c.toml --set mesh.dp=4
  refuse 'mpirun started 4 processes' "${four[@]}" run c.toml --ranks 4
}

# A fault that MS_FAULT injects: who declares its node bad is the first cause, whoever writes it down, with its node; a
# fault of another start of the job changes nothing, and one that is not understood is refused.
fault_injected() {
  make_text 400
  local node_bad=(code=69 kind=fault.node blame=node rank=3 "node=$(hostname)" step=5
    "message=injected fault 'step=5 rank=3 node-bad': rank 3 declares .*")
  MS_FAULT='step=5 rank=3 node-bad' timeout 900 "$bin/ms-train" run c.toml >out 2>err </dev/null
  code=$?
  [ "$code" -eq 69 ] || fail "as threads, the run ended with $code"
  verdict "${node_bad[@]}"
  one_error 'rank 3: injected fault'
  [ "$(grep -c 'W .*a fault is armed' err)" -eq 1 ] || fail "it is not said that a fault is armed"
  MS_FAULT='step=5 rank=1 hang' timeout 900 "$bin/ms-train" run c.toml --set run.comm_timeout=3s >out 2>err </dev/null
  code=$?
  [ "$code" -eq 76 ] || fail "with a rank that hangs, the run ended with $code"
  verdict code=76 kind=comm.deadline rank=1
  SLURM_RESTART_COUNT=1 MS_FAULT='step=5 rank=3 restart=0 node-bad' timeout 900 "$bin/ms-train" run c.toml \
    --set train.steps=6 >out 2>err </dev/null || fail "the fault of another start struck"
  rm -rf runs
  MS_FAULT='step=5 rank=3 nodebad' refuse "unknown fault 'nodebad'" "$bin/ms-train" run c.toml
  MS_FAULT='step=5 rank=4 kill' refuse 'the run has 4 ranks' "$bin/ms-train" run c.toml
  with_mpi || return
  export MS_FAULT
  for i in 1 2 3; do
    MS_FAULT='step=5 rank=3 node-bad'
    mpi --enable-recovery --
    ends_within 60
    got=$(cat code.* | sort -n | paste -s -d ' ')
    [ "$got" = "69 76 76 76" ] || fail "the ranks exited with $got"
    verdict "${node_bad[@]}"
    one_error 'rank 3: injected fault'
    mpi -- # where mpiexec ends the survivors, too
    ends_within 60
    verdict "${node_bad[@]}"
  done
  MS_FAULT='step=5 rank=2 nan'
  mpi --enable-recovery -- --set guard.nonfinite=stop
  ends_within 60
  [ "$(sort -u code.*)" = 2 ] || fail "with a NaN that stops the run, the ranks exited with $(cat code.*)"
  verdict code=2 blame=user kind=train.diverged "message=step 6: the gradient norm is nan, .*"
  one_error 'step 6: the gradient norm is nan'
  MS_FAULT='step=5 rank=2 exit'
  mpi --
  ends_within 60
  verdict code=76 kind=comm.peer_lost rank=2
  MS_FAULT='step=5 rank=3 nodebad'
  mpi --
  ends_within 60
  [ "$code" -eq 2 ] || fail "with a fault that nobody understands, mpiexec returned $code"
  one_error "unknown fault 'nodebad'"
}

"fault_$fault"
[ "$failures" -eq 0 ] || exit 1
echo "all as expected"
