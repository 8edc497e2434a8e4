#!/usr/bin/env bash
# Ranks are killed or stopped at random moments, over MPI also inside MPI_Init: every survivor ends within its deadline, with the
# code of a lost peer, and one verdict names the rank. Ranks as threads share a process, so there one hangs.
# usage: kills.sh COUNT BIN MPIEXEC INIT_FAULT [SEED]: MPIEXEC "-" where there is no MPI, INIT_FAULT init_fault.so.
set -u
count=$1
bin=$2
mpiexec=$3
init_fault=$4
seed=${5:-$(date +%N | sed 's/^0*//')}
# shellcheck source=tests/support/training.sh
. "$(dirname "$0")/../support/training.sh"
dir=$(mktemp -d)
trap 'cd / && rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failures=0
timeout_s=3
# Of the last survivor: its deadline, the two seconds in which others may answer, and what a busy machine takes to start.
most_s=$((timeout_s + 2 + 15))
RANDOM=$((seed % 32768))
echo "seed $seed"

fail() {
  echo "FAILED: strike $strike, $what: $1"
  for file in out err run/verdict.json; do [ -s "$file" ] && sed "s|^|  $file: |" "$file" | tail -n 20; done
  failures=$((failures + 1))
}
training_text 400 >/dev/null 2>err || { echo "FAILED: ms-data encode" && exit 1; }
tiny_config mesh.dp=2 mesh.tp=2 train.steps=1000000 'run.dir="run"' "run.comm_timeout=\"${timeout_s}s\"" >c.toml

verdict_names() { # RANK KIND...: one of the kinds
  python3 - "$@" <<'PYTHON' || fail "the verdict is not as expected: code 76, rank $1, $2"
import json, sys
verdict = json.load(open("run/verdict.json"))
rank, kinds = int(sys.argv[1]), sys.argv[2:]
if verdict["code"] != 76 or verdict.get("rank") != rank or verdict["kind"] not in kinds:
    sys.exit(f"{verdict}")
PYTHON
}

over_threads() {
  local rank=$((RANDOM % 4)) step=$((RANDOM % 12)) code=0
  what="threads, rank $rank hangs in step $step"
  MS_FAULT="step=$step rank=$rank hang" timeout $most_s "$bin/ms-train" run c.toml >out 2>err </dev/null || code=$?
  [ $code -eq 76 ] || fail "it ended with $code"
  verdict_names $rank comm.deadline
}

over_mpi() {
  local rank=$((RANDOM % 4)) signal=KILL moment=init code pid ended waited survivor
  if [ $((RANDOM % 2)) -eq 0 ]; then signal=STOP; fi
  if [ $((RANDOM % 2)) -eq 0 ]; then moment=$((RANDOM % 20 + 1)); fi
  what="MPI, rank $rank gets SIG$signal at $moment"
  rm -f pid.* code.*
  # The survivors are left alone (--enable-recovery), as those of a node that Slurm has lost are. Each leaves its code.
  # shellcheck disable=SC2016 # for the shell of each rank
  INIT_FAULT="$([ $moment = init ] && echo "$rank $(kill -l $signal)")" "$mpiexec" --enable-recovery --oversubscribe \
    --bind-to none -np 4 sh -c '
    LD_PRELOAD=$1 "$2" run c.toml & echo $! >pid.$OMPI_COMM_WORLD_RANK
    wait $!
    echo $? >code.new.$OMPI_COMM_WORLD_RANK && mv code.new.$OMPI_COMM_WORLD_RANK code.$OMPI_COMM_WORLD_RANK' sh "$init_fault" \
    "$bin/ms-train" >out 2>err </dev/null &
  local job=$!
  if [ $moment != init ]; then
    for _ in $(seq 600); do grep -qs "\"step\":$moment," run/metrics.jsonl && break; sleep 0.05; done
    kill -$signal "$(cat pid.$rank)"
  fi
  for ((waited = 0; waited < 10 * most_s; ++waited)); do
    ended=0
    for survivor in 0 1 2 3; do
      if [ $survivor -ne $rank ] && [ -s code.$survivor ]; then ended=$((ended + 1)); fi
    done
    [ "$ended" -eq 3 ] && break
    sleep 0.1
  done
  [ "$ended" -eq 3 ] || fail "only $ended survivors ended within $most_s s"
  for pid in pid.*; do kill -KILL "$(cat "$pid")" 2>/dev/null; done
  wait $job
  for survivor in 0 1 2 3; do
    [ $survivor -eq $rank ] && continue
    code=$(cat code.$survivor 2>/dev/null)
    [ "$code" = 76 ] || fail "rank $survivor exited with ${code:-nothing}"
  done
  verdict_names $rank comm.deadline comm.peer_lost
  [ "$(grep -c 'ms-train: error:' err)" -eq 1 ] || fail "not one error message"
}

for ((strike = 1; strike <= count; ++strike)); do
  rm -rf run
  if [ "$mpiexec" = - ] || [ $((strike % 4)) -eq 0 ]; then over_threads; else over_mpi; fi
done
if [ "$mpiexec" = - ]; then echo "no MPI: only ranks as threads"; fi
echo "$count strikes, $failures failures"
[ $failures -eq 0 ]
