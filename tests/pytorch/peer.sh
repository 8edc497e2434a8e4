#!/usr/bin/env bash
# Dumps, traces and checkpoints of real PyTorch jobs, made here, and what is said of them.   usage: peer.sh MS_TRACEPP MS_CKPT
# Nightly. PYTHON is one that has torch; where it is not set, a virtual environment is made in build/peer (pip install torch).
set -euo pipefail
tracepp=$(realpath "$1")
ckpt=$(realpath "$2")
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON-}
if [[ -z $python ]]; then
  python=$here/../../build/peer/bin/python
  if [[ ! -x $python ]]; then
    python3 -m venv "$here/../../build/peer"
    "$here/../../build/peer/bin/pip" install --quiet torch numpy transformers accelerate lightning || { echo "skipped: pip cannot install torch" && exit 77; }
  fi
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$python" -c 'import torch; print("torch", torch.__version__)'
status=0
for kind in flight_recorder profiler causes; do
  PYTHONDONTWRITEBYTECODE=1 "$python" "$here/$kind.py" make "$dir/$kind" 2>"$dir/errors" || { cat "$dir/errors" >&2 && exit 1; }
  "$python" -B "$here/$kind.py" judge "$tracepp" "$dir/$kind" || status=1
done
PYTHONDONTWRITEBYTECODE=1 "$python" "$here/checkpoints.py" make "$dir/checkpoints" 2>"$dir/errors" || { cat "$dir/errors" >&2 && exit 1; }
"$python" -B "$here/checkpoint_verdicts.py" "$ckpt" "$dir/checkpoints" || status=1
"$python" -B "$here/checkpoint_hashes.py" "$ckpt" "$dir/checkpoints" || status=1
"$ckpt" import -o "$dir/imported" "$dir/checkpoints/llama/hf" >/dev/null
"$ckpt" export -o "$dir/hf" "$dir/imported" >/dev/null
PYTHONDONTWRITEBYTECODE=1 "$python" -W ignore "$here/checkpoints.py" read "$dir/hf" "$dir/checkpoints/llama/hf" || status=1
PYTHONDONTWRITEBYTECODE=1 "$python" "$here/heartbeats.py" "$dir" || status=1
exit $status
