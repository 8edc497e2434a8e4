#!/usr/bin/env bash
# What checkpoints cost a run on this machine: a table of item, aim and measured, every aim a ratio of this one run
# (checkpoint_cost.cpp says how). Takes 10 GB of memory and 7 GB of disk.
# usage: tests/bench/checkpoint_cost.sh [DIR [LAYERS [SAVES]]]: DIR is on the disk to measure; 16 layers are 2.1 GB of state
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${BUILD:-build/release}
work=$(mktemp -d -p "${1:-$build}" checkpoint-cost.XXXXXX)
trap 'rm -rf "$work"' EXIT
cmake --build "$build" --target checkpoint_cost >/dev/null
"$build/bin/checkpoint_cost" "$work" "${2:-16}" "${3:-5}"
