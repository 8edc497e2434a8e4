#!/usr/bin/env bash
# Start-up of all groups of a mesh (tp 4, pp 4, the rest dp; with channels and rings): ours, by ids that the members fetch
# when they need them, against one group after the other with a barrier of all ranks after each. Processes on this machine
# under mpirun, on its own PMIx store; the median of three, both ways in turns; from the moment that all are there until
# the last rank has all its groups. Then how both grow, and the counts alone for sizes that no machine has.
# usage: tests/bench/group_start.sh [PROCESSES...] (default 8 16 32 64 128 256; 256 take 1.5 GB of memory)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${BUILD:-build/release}
if (($# == 0)); then set -- 8 16 32 64 128 256; fi
cmake --build "$build" --target group_start >/dev/null
program=$(realpath "$build/bin/group_start")
work=$(mktemp -d -p /dev/shm group-start.XXXXXX)
trap 'rm -rf "$work"' EXIT
ulimit -n "$(ulimit -H -n)" # mpirun holds several files for each process
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

header() { # NAME-OF-THE-LAST-COLUMN
  printf '%15s | %-33s | %s\n' '' ours 'in order, a barrier after each'
  printf '%7s %7s | %6s %6s %8s %10s | %6s %6s %8s %10s %10s\n' ranks groups puts gets barriers "$1" puts gets barriers \
    arrivals "$1"
}
rows() {
  awk '{ printf "%7d %7d | %6d %6d %8d %10s | %6d %6d %8d %10d %10s\n", $1, $2, $3, $5, $6, shown($7), $8, $10, $11,
           $1 * $11, shown($12) }
    function shown(seconds) { return seconds > 0 ? sprintf("%.3f", seconds) : "-" }'
}

header seconds
for processes in "$@"; do
  mpirun --oversubscribe --bind-to none -np "$processes" "$program" "$work/barrier.$processes" 3 | tee -a "$work/rows" | rows
done
if (($# > 1)); then # least squares of the logarithms; small sizes are mostly the latency of one message, so also the upper half
  awk '{ ranks[NR] = $1; ours[NR] = $7; ordered[NR] = $12 }
    function exponent(seconds, first,    i, n, x, y, sx, sy, sxx, sxy) {
      for (i = first; i <= NR; i++) {
        x = log(ranks[i]); y = log(seconds[i])
        n++; sx += x; sy += y; sxx += x * x; sxy += x * y
      }
      return (n * sxy - sx * sy) / (n * sxx - sx * sx)
    }
    function say(first) {
      printf "from %d to %d ranks, seconds grow as ranks to the power %.2f, in order to the power %.2f\n", ranks[first],
        ranks[NR], exponent(ours, first), exponent(ordered, first)
    }
    END { say(1); if (NR > 3) say(int(NR / 2) + 1)
          printf "at %d ranks, in order takes %.1f times as long\n", ranks[NR], ordered[NR] / ours[NR] }' "$work/rows"
fi
echo
echo "counted, by the same code without processes (arrivals: of ranks at barriers):"
header '-'
"$program" --counts "$@" 2048 12288 | rows
