# shellcheck shell=bash
# Cases of faults.sh, which sources this: limits of the system on threads, memory and descriptors.
# shellcheck disable=SC2154 # bin, mpiexec and code are those of faults.sh

# What the system does not give, threads, memory or descriptors, is said at once by the run, with a verdict where it has a
# directory, and no library crashes of it. At every limit the run ends with 0 or 2.
fault_limits() {
  make_text 400
  mkdir -m 777 limited
  chmod 755 . && chmod 644 text* c.toml
  limited() { # RESOURCE VALUE [COMMAND...]: the run with 'ulimit -RESOURCE VALUE'
    local resource=$1 value=$2 refused=0
    shift 2
    rm -rf limited/*
    # shellcheck disable=SC2016 # for the shell with the limit
    "$@" bash -c 'ulimit -$1 $2 && exec timeout 480 "$3" run c.toml --set train.steps=5 --set run.dir=limited/a \
      --set run.comm_timeout=60s' sh "$resource" "$value" "$bin/ms-train" >out 2>err </dev/null
    code=$?
    case $code in
      0) went_on=$((went_on + 1)) ;;
      2)
        refusals=$((refusals + 1))
        [ "$(grep -c 'error:' err)" -eq 1 ] || refused=1
        grep -q 'hint: ' err || refused=1
        [ ! -e limited/a/start ] || grep -q '"code": 2' limited/a/verdict.json || refused=1
        [ $refused -eq 0 ] || fail "ulimit -$resource $value: not one message with a hint, and a verdict"
        ;;
      *) fail "ulimit -$resource $value: the run ended with $code" ;;
    esac
  }
  both() { # RESOURCE: the run was refused, and it went on
    if [ "$refusals" -eq 0 ] || [ "$went_on" -eq 0 ]; then fail "ulimit -$1: $refusals refused, $went_on went on: this tests nothing"; fi
    refusals=0 went_on=0
  }
  refusals=0 went_on=0
  local value
  for value in $(seq 160000 14000 480000); do limited v "$value"; done
  both v
  for value in 6 7 8 9 10 11 12 32; do limited n "$value"; done
  both n
  [ "$(id -u)" -eq 0 ] || return
  for value in $(seq 4 3 28); do limited u "$value" setpriv --reuid 4242 --regid 4242 --clear-groups; done
  both u
  # Nor may a directory that cannot be written, or full memory for copies, be anything else than what it is.
  mkdir read-only full
  # shellcheck disable=SC2016 # for the shell in the namespace
  timeout 900 unshare -m sh -c 'mount -t tmpfs -o ro none read-only || exit 77
    mount -t tmpfs -o size=16k none full || exit 77
    "$1" run c.toml --set train.steps=5 --set run.dir=read-only/a; echo $? >code.read-only
    "$1" run c.toml --set train.steps=5 --set run.dir=limited/b --set checkpoint.dir=limited/b/ck --set checkpoint.memory_dir=full
    echo $? >code.full' sh "$bin/ms-train" >out 2>err </dev/null
  [ $? -ne 77 ] || return
  [ "$(cat code.read-only)" -eq 2 ] || fail "with a read-only run.dir, the run ended with $(cat code.read-only)"
  grep -q 'error: .*read-only.*Read-only file system' err || fail "with a read-only run.dir: no word of it"
  [ "$(cat code.full)" -eq 0 ] || fail "with full memory for copies, the run ended with $(cat code.full)"
  grep -q 'lacks copies in this node.s memory (logged once): .*No space left' err || fail "full memory for copies: no word of it"
}

# One rank of an MPI job has too little memory, however little: the others end with it, and the verdict names it. Libraries may
# crash in that rank; inside MPI_Init they may wait until the deadline of a start.
fault_limits_mpi() {
  with_mpi || skip "built without MPI"
  make_text 400
  local value rank ended=0
  for value in $(seq 90000 10000 230000); do
    rm -rf runs code.*
    # shellcheck disable=SC2016 # for the shell of each rank
    timeout 720 "$mpiexec" --enable-recovery --oversubscribe --bind-to none -np 4 sh -c '
      if [ "$OMPI_COMM_WORLD_RANK" -eq 1 ]; then ulimit -v "$2"; fi
      "$1" run c.toml --set train.steps=5 --set run.comm_timeout=20s
      echo $? >code.$OMPI_COMM_WORLD_RANK' sh "$bin/ms-train" "$value" >out 2>err </dev/null
    [ $? -ne 124 ] || fail "ulimit -v $value: the run hangs"
    grep -qx 0 code.1 && continue
    ended=$((ended + 1))
    for rank in 0 2 3; do
      grep -qxE '2|76' code.$rank || fail "ulimit -v $value: rank $rank ended with $(cat code.$rank)"
    done
    if grep -qE 'all ranks wait for each other|in MPI_Comm_idup' err; then continue; fi # nobody can tell
    verdict 'code=2|76' rank=1
  done
  [ $ended -gt 0 ] || fail "no limit ended a run: this tests nothing"
}
