#!/usr/bin/env bash
# One loader for the ranks of a node against one in each rank: memory, mapped files, tokens/s and stalls, a table
# (node_loader.cpp says how). Nothing else may run on the machine.   usage: tests/bench/node_loader.sh [LAYOUT]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${BUILD:-build/release}
cmake --build "$build" --target node_loader >/dev/null
"$build/bin/node_loader" "$@"
