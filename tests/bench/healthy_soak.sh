#!/usr/bin/env bash
# A healthy node soaks and nothing is said against it: soak.cpu and then soak.memory, each for so many minutes, with the least
# priority, so that it may lie beside other work (a busy machine is the harder case: a check that is late must not accuse the
# node). Prints what ms-diag said, the load beside it, and its exit status, which is 0 where the node is healthy.
# usage: tests/bench/healthy_soak.sh [MINUTES [CPUS]] (default 30 minutes on the first CPU; CPUS as for taskset, as 0-3)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=$(realpath "${BUILD:-build/release}")
minutes=${1:-30}
cpus=${2:-0}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/policy.toml"
echo "began $(date -u +%FT%TZ), load $(cut -d' ' -f1-3 /proc/loadavg), $(nproc) CPUs, of them $cpus"
if [[ -w /proc/self/autogroup ]]; then echo 19 >/proc/self/autogroup; fi # where sessions share the CPUs, nice alone means little
status=0
nice -n 19 taskset --cpu-list "$cpus" "$build/bin/ms-diag" run --level 3 --only soak.cpu,soak.memory --soak "${minutes}m" \
  --memory 64MiB --verbose --config "$work/policy.toml" || status=$?
echo "ended $(date -u +%FT%TZ), load $(cut -d' ' -f1-3 /proc/loadavg), exit status $status"
exit "$status"
