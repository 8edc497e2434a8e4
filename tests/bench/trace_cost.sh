#!/usr/bin/env bash
# What traces cost the CPU engine: step time with [trace] on and off, and bytes for each rank and step: a table
# (trace_cost.cpp says how). Nothing else may run on the machine.   usage: tests/bench/trace_cost.sh [--rounds N] [CASE...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${BUILD:-build/release}
cmake --build "$build" --target trace_cost >/dev/null
"$build/bin/trace_cost" "$@"
