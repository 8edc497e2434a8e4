#!/usr/bin/env bash
# Traces of 10,000 ranks and 10 steps: read, put on one clock, analysed; a table of seconds (trace_scale.cpp).
# usage: tests/bench/trace_scale.sh [--ranks N] [--steps N]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${BUILD:-build/release}
cmake --build "$build" --target trace_scale >/dev/null
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$build/bin/trace_scale" write "$dir" "$@"
du -sh --apparent-size "$dir" | sed 's/\t.*/ of files, with holes/'
du -sh "$dir" | sed 's/\t.*/ on the disk/'
"$build/bin/trace_scale" read "$dir"
