#!/usr/bin/env bash
# The suspects that ms-tracepp names in synthetic runs with a known fault, of 64 and of 4,096 ranks: how often right at
# the first try and within two, how many other findings there were (false alarms), and seconds of analysis.
# usage: tests/bench/straggler_accuracy.sh [SEEDS [HEALTHY-RUNS]]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${BUILD:-build/release}
cmake --build "$build" --target straggler_accuracy >/dev/null
"$build/bin/straggler_accuracy" --seeds "${1:-10}" --healthy "${2:-100}" --ranks 64 --ranks 4096
