#!/usr/bin/env bash
# How much of communication is exposed with [overlap] off and on, for each axis and for all: a table (overlap.cpp says
# how). Nothing else may run on the machine.   usage: tests/bench/overlap.sh [--rounds N] [CASE...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${BUILD:-build/release}
cmake --build "$build" --target overlap_bench >/dev/null
"$build/bin/overlap_bench" "$@"
