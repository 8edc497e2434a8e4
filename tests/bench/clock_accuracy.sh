#!/usr/bin/env bash
# How exact the times of different hosts are once ms-tracepp has aligned them, on synthetic runs whose true times are
# known, and how long matching and aligning takes for 16.6 M events of 10,000 ranks (3 GB of memory, 2 threads).
# usage: tests/bench/clock_accuracy.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${BUILD:-build/release}
cmake --build "$build" --target clock_accuracy >/dev/null
"$build/bin/clock_accuracy"
"$build/bin/clock_accuracy" --speed
