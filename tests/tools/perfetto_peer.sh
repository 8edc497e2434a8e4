#!/usr/bin/env bash
# Perfetto's own definitions of its format (the package perfetto of PyPI) read what ms-tracepp exports: the slices are those of
# the table, they nest, sends lead to receives, and shards hold together what one file holds, in at most 29 bytes an event.
# Nightly: installs the package in a virtual environment.   usage: perfetto_peer.sh MS-TRACEPP
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tracepp=$(realpath "$1")
configs=$here/../../configs
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
if ! { python3 -m venv venv && venv/bin/pip install --quiet perfetto; } >log 2>&1; then
  tail -n 3 log
  echo "skipped: the perfetto package cannot be installed"
  exit 77
fi
"${tracepp%/*}/ms-train" simulate "$configs/tiny-3d.toml" --cluster "$configs/clusters/h100-8x400g.toml" --slow rank=5:3 \
  --steps 100 --trace trace >log 2>&1 || { cat log; exit 1; }
{ "$tracepp" merge -o whole.perfetto trace && "$tracepp" export -o table.csv trace &&
  "$tracepp" export --shard-steps 50 --shard-dp 1 -o shards trace; } >log 2>&1 || { cat log; exit 1; }
venv/bin/python -B "$here/perfetto_peer.py"
