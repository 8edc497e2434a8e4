#!/usr/bin/env bash
# One driver of ms-driver and many agents, which one process plays over TCP with MUNGE's credentials, 8 ranks each: seconds
# until all have joined, processors and memory of the driver while they report, seconds until it notices one that is missing.
# The driver, the agents and munged share this machine's processors. Takes root, for a network namespace and a munged of its own.
# usage: tests/bench/driver_agents.sh [AGENTS...] (default 500 2000 6144)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${BUILD:-build/release}
if (($# == 0)); then set -- 500 2000 6144; fi
cmake --build "$build" --target driver_agents >/dev/null
program=$(realpath "$build/bin/driver_agents")
work=$(mktemp -d -p /dev/shm driver-agents.XXXXXX)
# shellcheck disable=SC2317 # called by the trap
clean() {
  if [[ -e $work/munge/pid ]]; then kill "$(cat "$work/munge/pid")" || true; fi
  rm -rf "$work"
}
trap clean EXIT
chmod 755 "$work"
mkdir -m 755 "$work/bin" "$work/munge"
# What the driver starts through srun is played: the agents by the program, the ranks by nobody.
printf '#!/bin/sh\nexec sleep 100000\n' >"$work/bin/srun"
chmod +x "$work/bin/srun"
(umask 377 && head -c 128 /dev/urandom >"$work/munge/key")
munged --force --num-threads=4 --key-file="$work/munge/key" --log-file="$work/munge/log" --pid-file="$work/munge/pid" \
  --seed-file="$work/munge/seed" --socket="$work/munge/socket" 2>"$work/munge/said"
ulimit -n "$(ulimit -H -n)"
printf '%6s %6s %8s %10s %11s %11s %9s\n' agents ranks 'every s' 'joined s' processors 'memory MiB' 'missed s'
for agents in "$@"; do
  # shellcheck disable=SC2016 # for the inner shell
  PATH=$work/bin:$PATH unshare --net --pid --fork --kill-child --mount-proc bash -euc \
    'ip link set lo up; exec "$@"' driver_agents "$program" "$agents" 8 "$work/run-$agents" "$work/munge/socket" 2>"$work/log" ||
    { tail -n 5 "$work/log" >&2 && exit 1; }
done
