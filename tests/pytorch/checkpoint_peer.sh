#!/usr/bin/env bash
# Checkpoints that Megatron-LM's core, DeepSpeed and two older versions of PyTorch write here, on the CPU, and what ms-ckpt
# finds in them.   usage: checkpoint_peer.sh MS_CKPT
# Nightly. PEER_PYTHON is one that has megatron-core and deepspeed; where it is not set, a virtual environment is made. So is
# one for each older torch, 2.2 without FSDP2, in PEER_TORCHES (default: build/peer-torches).
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

# python_of VERSION: a Python that has this torch; fails where pip finds none for this system.
torches=${PEER_TORCHES:-$here/../../build/peer-torches}
python_of() {
  [[ -x $torches/$1/bin/python ]] || python3 -m venv "$torches/$1" || return
  "$torches/$1/bin/python" -c 'import torch.distributed.checkpoint, numpy' 2>/dev/null ||
    "$torches/$1/bin/pip" install --quiet "torch==$1" 'numpy<2' >&2 || return
  echo "$torches/$1/bin/python"
}
while read -r version cases; do
  if ! python=$(python_of "$version"); then
    echo "torch $version: skipped, pip cannot install it here"
    continue
  fi
  # shellcheck disable=SC2086 # words
  PYTHONDONTWRITEBYTECODE=1 "$python" -W ignore "$here/checkpoints.py" make "$dir/torch-$version" $cases >"$dir/log" 2>&1 ||
    { cat "$dir/log" >&2 && exit 1; }
  echo -n "torch $version: "
  "$python" -B "$here/checkpoint_hashes.py" "$ckpt" "$dir/torch-$version" || status=1
done <<'VERSIONS'
2.2.2 plain-1 ddp-2 fsdp1-2 dtensor-2 file-1 legacy-1
2.6.0 plain-1 ddp-2 fsdp1-2 fsdp-2 fsdp-4-async hsdp-4 even-2 whole-2 dtensor-2 file-1 legacy-1
VERSIONS
exit $status
