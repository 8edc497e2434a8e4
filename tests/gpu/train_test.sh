#!/usr/bin/env bash
# The trainings of tests/gpu/run bench, small, on the emulated GPU, with PyTorch on the CPU. Nightly. usage:
# train_test.sh BUILD PYTHON is one that has PyTorch 2; if unset, a virtual environment is created in build/peer (pip
# install torch).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(realpath "$1")
peer=$(realpath "$here/../..")/build/peer
python=${PYTHON:-$peer/bin/python}
has_torch() { "$python" -c 'import torch' 2>/dev/null; }
if [[ -z ${PYTHON:-} ]] && ! has_torch; then
  rm -rf "$peer"
  { python3 -m venv "$peer" && "$peer/bin/pip" install --quiet torch numpy; } || rm -rf "$peer"
fi
if ! has_torch; then
  echo "skipped: there is no PyTorch here, and none can be had"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
LD_LIBRARY_PATH=$build/emulated/lib "$build/bin/gpu_bench" --small --json "$work/ops.json" >"$work/bench.log"
"$python" -B "$here/train.py" "$build" "$work/train.json" --small --peer-device cpu --ceilings "$work/ops.json" \
  --budget 800 --library-path "$build/emulated/lib"
