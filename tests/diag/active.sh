#!/usr/bin/env bash
# The active checks as a user runs them: each passes where nothing is expected and shows its number; each fails when more
# is expected than this machine can do; among several processes they share the cores and perf.reduce takes part.
# usage: active.sh MS-DIAG MPIRUN|none
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/../tools/expect.sh"
mpirun=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

nics=0
if ip -o address show scope global up 2>/dev/null | grep -q .; then nics=1; fi

# Its own numbers: nothing is expected, so nothing can be too little.
cat >expects-nothing.toml <<'TOML'
[active]
min_fraction = 0.75
TOML
expect 0 '"outcome": "ok"' run --level 2 --only 'perf.*' --json --config expects-nothing.toml
cp out all
"$tool" list --json | python3 -c '
import json, sys
deadlines = {row["code"]: row["deadline_s"] for row in map(json.loads, sys.stdin)}
late = [check for check in json.load(open("all"))["checks"] if check["seconds"] > deadlines[check["code"]]]
sys.exit(str(late) if late else 0)' || fail "checks that take longer than their deadlines"
# unmeasured CODE FILE: whether the check is not measured, on a machine whose processors have twice as much to do as they can.
unmeasured() {
  awk -v processors="$(nproc)" '{ exit !($1 > 2 * processors) }' /proc/loadavg &&
    tr -d '\n' <"$2" | grep -Eq "\"code\": \"$1\", *\"level\": 2, *\"outcome\": \"skip\", *\"note\": \"not measured: "
}
passes() { # CODE NOTE: an extended regular expression
  tr -d '\n' <all | grep -Eq "\"code\": \"$1\", *\"level\": 2, *\"outcome\": \"pass\", *\"note\": \"[^\"]*$2" || unmeasured "$1" all || fail "$1 did not pass with '$2': $(cat all)"
}
passes perf.memory 'triad [0-9.]+ GB/s \(CPU, '
passes perf.gemm 'fp32 [0-9.]+ GFLOP/s, bf16 [0-9.]+ GFLOP/s \(CPU, '
passes perf.bits '[0-9]+ GEMMs of 384 x 384 compared'
passes perf.a2a 'all-to-all [0-9.]+ GB/s \(CPU, '
if ((nics)); then passes perf.nic '[a-z0-9]+ [0-9.]+ Gbit/s'; fi
tr -d '\n' <all | grep -Eq '"perf.reduce", *"level": 2, *"outcome": "skip", *"note": "one process: start it with srun' || fail "perf.reduce alone"

# More than any machine does is critical, and says how much it was.
cat >expects-much.toml <<'TOML'
[active]
memory_gbps = 1e8
gemm_gflops_fp32 = 1e11
gemm_gflops_bf16 = 1e11
nic_gbps = 1e6
a2a_gbps = 1e8
reduce_gbps = 1e8
TOML
expect 2 '"outcome": "critical"' run --level 2 --only 'perf.memory,perf.gemm,perf.nic,perf.a2a' --json --config expects-much.toml
for code in perf.memory perf.gemm perf.a2a; do
  tr -d '\n' <out | grep -Eq "\"code\": \"$code\", *\"severity\": \"critical\", *\"blame\": \"node\"" || unmeasured "$code" out || fail "$code should be critical"
done
if ((nics)); then grep -q '"perf.nic"' out || fail "perf.nic should be critical"; fi

if [ "$mpirun" = none ]; then
  echo "without MPI perf.reduce is not tested"
  exit $((failures > 0))
fi
# together N ARGS...: ms-diag as N processes of one launch.
together() {
  local size=$1
  shift
  "$mpirun" --oversubscribe --bind-to none -np "$size" "$tool" run --level 2 --json "$@" >out 2>err
}
for size in 2 3; do
  together "$size" --only perf.reduce || fail "perf.reduce among $size: exit code $?"
  [ "$(grep -c "all-reduce [0-9.]* GB/s (CPU, $size processes on 1 nodes" out)" -eq "$size" ] || fail "perf.reduce among $size"
done
together 2 --only perf.reduce --config expects-much.toml && fail "perf.reduce should not pass"
grep -Eq '"blame": "fabric"' out || fail "perf.reduce should blame the fabric"
together 2 --only perf.memory || unmeasured perf.memory out || fail "perf.memory as two processes"
half=$((($(nproc) + 1) / 2))
unmeasured perf.memory out || grep -Eq "CPU, ($half|$(($(nproc) / 2))) of $(nproc) cores|CPU, 1 cores" out || fail "two processes should share the cores"

exit $((failures > 0))
