#!/usr/bin/env bash
# Checkpoints that Megatron-LM's core and DeepSpeed write here, on the CPU, and what ms-ckpt finds in them.   usage: checkpoint_peer.sh MS_CKPT
# Nightly. PEER_PYTHON is one that has megatron-core and deepspeed; where it is not set, a virtual environment is made.
set -euo pipefail
ckpt=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
python=${PEER_PYTHON-}
if [[ -z $python ]]; then
  venv=$here/../../build/peer-checkpoints
  python=$venv/bin/python
  if ! "$python" -c 'import deepspeed, megatron.core' 2>/dev/null; then
    python3 -m venv "$venv"
    { "$venv/bin/pip" install --quiet torch numpy setuptools wheel einops transformers megatron-core &&
      DS_BUILD_OPS=0 "$venv/bin/pip" install --quiet --no-build-isolation deepspeed; } ||
      { echo "skipped: pip cannot install megatron-core and deepspeed" && exit 77; }
  fi
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
status=0
for kind in megatron deepspeed; do
  PYTHONDONTWRITEBYTECODE=1 "$python" "$here/${kind}_checkpoints.py" make "$dir/$kind" >"$dir/log" 2>&1 || { cat "$dir/log" >&2 && exit 1; }
  "$python" -B "$here/checkpoint_hashes.py" "$ckpt" "$dir/$kind" || status=1
done
# The model that ms-ckpt makes of Megatron-LM's weights computes what Megatron-LM computes.
for case in whole qwen3; do
  truth=$dir/megatron/$case.json
  "$python" -c 'import json, sys; json.dump(json.load(open(sys.argv[1]))["config"], open(sys.argv[2], "w"))' "$truth" "$dir/config.json"
  "$ckpt" import -o "$dir/imported-$case" --config "$dir/config.json" "$dir/megatron/$case"/iter_* >/dev/null
  "$ckpt" export -o "$dir/hf-$case" "$dir/imported-$case" >/dev/null
  "$python" -B -W ignore "$here/megatron_checkpoints.py" logits "$truth" "$dir/hf-$case" || status=1
done
"$python" -c 'import importlib.metadata as m; print(*(f"{p} {m.version(p)}" for p in ("torch", "megatron-core", "deepspeed")))'
exit $status
