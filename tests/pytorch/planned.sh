#!/usr/bin/env bash
# The dumps that NCCL would leave in the jobs of flight_recorder.py, and those that gloo left (dumps/): JSON and pickles.
# Hangs of twelve causes with all their sources (incidents.py). Then the traces that jobs on GPUs would leave that are slow for a known cause, also as Nsight Systems would export them.
# usage: planned.sh MS_TRACEPP
set -euo pipefail
tracepp=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -B "$here/flight_recorder.py" plan "$dir"
python3 -B "$here/flight_recorder.py" judge "$tracepp" "$dir"
python3 -B "$here/flight_recorder.py" judge "$tracepp" "$here/dumps"
python3 -B "$here/incidents.py" judge "$tracepp"
python3 -B "$here/causes.py" plan "$dir/causes"
python3 -B "$here/causes.py" judge "$tracepp" "$dir/causes"
python3 -B "$here/nsys_exports.py" "$tracepp" "$dir/causes"
