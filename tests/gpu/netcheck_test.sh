#!/usr/bin/env bash
# ms-netcheck between GPUs, on the emulated GPU and NCCL: what it measures, a slow pair, a rank that dies and one that hangs,
# and what is refused. usage: tests/gpu/netcheck_test.sh MPIEXEC MS_NETCHECK EMULATED_LIB_DIRECTORY
set -uo pipefail
mpiexec=$1 netcheck=$2 emulated=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export MS_EMULATED_GPU_MEMORY=200000000
# ms-netcheck takes its libraries from beside itself.
mkdir "$work/bin" && cp "$netcheck" "$work/bin" && ln -s "$emulated" "$work/lib"
netcheck=$work/bin/ms-netcheck
unset SLURM_JOB_ID SLURM_JOB_NODELIST
failed=0
fail() {
  echo "FAILED: $*"
  tail -n 20 "$work/log"
  failed=1
}
# ranks N SETTINGS ARGUMENTS...: runs that many; SETTINGS are words VARIABLE=VALUE for rank 2 of them. Returns their exit code.
ranks() {
  local number=$1
  export RANK_2=$2
  shift 2
  # shellcheck disable=SC2016 # for the ranks' own shells
  timeout 90 "$mpiexec" --oversubscribe --bind-to none -np "$number" sh -c \
    '[ "$OMPI_COMM_WORLD_RANK" != 2 ] || export $RANK_2 NOTHING=; exec "$@"' sh "$netcheck" "$@" >"$work/log" 2>&1
}
# says CODE[|CODE] PATTERN WHAT: of the last ranks()
says() {
  local got=$?
  [[ $got =~ ^($1)$ ]] || fail "$3: exit code $got, expected $1"
  grep -Eq -- "$2" "$work/log" || fail "$3: expected to see '$2'"
}
# accuses_only_2 WHAT: no finding of the last ranks() is about a rank, or a link, that rank 2 has no part in.
accuses_only_2() {
  if grep -E '^[a-z]+ net\.(silent|slow|latency) ' "$work/log" | grep -vE '^[a-z]+ [^ ]+ ([^ ]+ ->? )?[^ ]+:2[: ]'; then
    fail "$1: another rank is accused"
  fi
}

# The host leaves the GPU's memory alone: whoever touches it is killed.
MS_EMULATED_GPU_GUARD=1 ranks 4 "" pairs --transport nccl --seconds 50ms --pings 10 --json
says 0 '"healthy": \[$' pairs
[ "$(grep -c '"gbps": [0-9]' "$work/log")" = 12 ] || fail "pairs: not 12 ways between 4 GPUs"
[ "$(grep -c '"p50": [0-9]' "$work/log")" = 6 ] || fail "pairs: not 6 latencies"
ranks 3 "" pairs --transport nccl --schedule ring --seconds 50ms
says 0 '3 of 3 nodes measured, 2 rounds' ring
MS_EMULATED_GPU_GUARD=1 ranks 4 "" collectives --transport nccl --from 64KiB --to 64KiB --iterations 3
says 0 'world of 4 +all_to_all +65536' collectives
[ "$(awk '/^world/ { rows++; wrong += $NF } END { print rows, wrong }' "$work/log")" = "6 0" ] ||
  fail "collectives: not six without a wrong element"

MS_EMULATED_NCCL_SLOW=1-2@4000000 ranks 4 "" locate --transport nccl --max-rate 0.2 --seconds 300ms --pings 10
says 2 '^critical net.slow [^ ]*:1 - [^ ]*:2: ' "a slow pair"

# Who is lost is named, whatever NCCL does.
ranks 4 MS_EMULATED_NCCL_DIES=30 locate --transport nccl --seconds 50ms --pings 10 && fail "a rank that dies: no error"
grep -Eq 'rank 2|:2: ' "$work/log" || fail "a rank that dies: it is not named"
accuses_only_2 "a rank that dies"
ranks 4 MS_EMULATED_NCCL_STOPS=30 locate --transport nccl --seconds 50ms --pings 10 --deadline 10s
says 2 '^critical net.silent [^ ]*:2: .*rank 2 does not answer' "a rank that is stopped"
accuses_only_2 "a rank that is stopped"
# A transfer that does not begin on one side looks the same from the other: the two are named together.
ranks 4 MS_EMULATED_NCCL_HANG=30 locate --transport nccl --seconds 50ms --pings 10 --deadline 10s
says 2 '^critical net.undecided .*:2.*wait for each other' "a rank that hangs"
accuses_only_2 "a rank that hangs"
# A call that connects two ranks blocks its thread: it is revoked.
ranks 4 MS_EMULATED_NCCL_CONNECT_HANGS=2 locate --transport nccl --seconds 50ms --pings 10 --deadline 10s
says 2 '^critical net.undecided .*:2.*wait for each other' "a connection that hangs"
accuses_only_2 "a connection that hangs"
MS_EMULATED_NCCL_HANG=12 MS_EMULATED_NCCL_ABORT_HANGS=1 ranks 2 "" collectives --transport nccl --from 64KiB --to 64KiB \
  --iterations 3 --deadline 3s
says 3 'NCCL does not abort' "an abort that hangs"

MS_EMULATED_GPU_COUNT=0 ranks 2 "" pairs --transport nccl
says 3 'hint: .*' "no GPU"
ranks 2 "" pairs --transport nccl --gpu 3
says 3 'GPU 3 of 1 does not exist' "a GPU that is not there"
exit $failed
