#!/usr/bin/env bash
# What pre-flight costs a healthy node: wall time and CPU time of whole prologs (ms-prolog, which starts ms-diag, which runs
# every passive check with a driver that has 8 GPUs), and how long "srun true" takes with and without the plugin, in turns.
# usage: tests/bench/prolog_cost.sh [RUNS] [BUILD]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
runs=${1:-200} build=${2:-build/release}
cluster=tests/cluster

percentiles() { # NAME <SECONDS a line
  sort -n | awk -v name="$1" '{ t[NR] = $1 * 1000; sum += t[NR] }
    END { printf "%-34s p50 %.1f ms  p99 %.1f ms  max %.1f ms  (%d runs)\n", name, t[int((NR + 1) / 2)],
          t[int(NR * 0.99 + 0.999)], t[NR], NR }'
}
export -f percentiles

measure() {
  # shellcheck disable=SC2016 # is for the inner shell
  "$cluster/run" 1 --gres 8 --build "$build" -- bash -euo pipefail -c '
    . "'"$cluster"'/preflight.sh"
    policy </dev/null
    all_gpus
    '"$script"
}

# shellcheck disable=SC2016
script='
  export SLURM_JOB_ID=1 SLURM_JOB_UID=65534 SLURMD_NODENAME=node01 SLURM_SCRIPT_CONTEXT=prolog_slurmd
  TIMEFORMAT="%R %U %S"
  on-node node01 bash -c "TIMEFORMAT=\"%R %U %S\"; for ((i = 0; i < '"$runs"'; i++)); do
    time $CLUSTER_BUILD/libexec/ms/ms-prolog; done" 2>times
  [[ $(grep -c . times) == '"$runs"' ]]
  cut -d " " -f 1 times | percentiles "prolog, wall time"
  awk "{ print \$2 + \$3 }" times | percentiles "prolog, CPU time"
  rm times'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build=$(realpath "$build") cluster=$(realpath "$cluster")
cd "$work"
measure

# shellcheck disable=SC2016
script='
  TIMEFORMAT=%R
  stack=$CLUSTER_DIR/etc/plugstack.conf
  for ((i = 0; i < '"$((runs / 4))"'; i++)); do
    echo >"$stack"
    { time srun -N1 true 2>/dev/null; } 2>>without
    echo "optional $CLUSTER_BUILD/lib/ms_spank.so config=/etc/ms/ms-diag.toml" >"$stack"
    { time srun -N1 true 2>/dev/null; } 2>>with
  done
  percentiles "srun true, without the plugin" <without
  percentiles "srun true, with it" <with'
measure
