#!/usr/bin/env bash
# The same models here and in transformers give the same logits: runs of ours exported, models of theirs imported.
# Nightly: wants a python3 with torch, and installs transformers beside it.   usage: hf_peer.sh MS-TRAIN HF_PEER
set -euo pipefail
train=$(realpath "$1")
peer=$(realpath "$2")
ckpt=$(dirname "$train")/ms-ckpt
bin=$(dirname "$train")
# shellcheck source=tests/support/training.sh
. "$(dirname "$0")/../support/training.sh"
script=$(realpath "$(dirname "$0")/hf_peer.py")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"

# A Python with both: as it is, or Debian's torch with transformers in a virtual environment.
find_python() {
  local python
  for python in ${MS_HF_PYTHON:+"$MS_HF_PYTHON"} python3 /usr/bin/python3; do
    if "$python" -c 'import torch, transformers' 2>/dev/null; then
      echo "$python"
      return
    fi
    "$python" -c 'import torch' 2>/dev/null || continue
    "$python" -m venv --system-site-packages venv >&2 || continue
    # The last ones that work with torch 1.13, which is what Debian 12 has.
    venv/bin/pip install --quiet 'transformers<4.36' safetensors 'numpy<2' >&2 || continue
    echo venv/bin/python
    return
  done
  return 1
}
python=$(find_python) || {
  echo "skipped: there is no python3 with torch and transformers"
  exit 77
}
"$python" -c 'import torch, transformers; print("torch", torch.__version__, "transformers", transformers.__version__)'
their() { PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1 "$python" "$script" "$@" 2>errors || { cat errors >&2; return 1; }; }

# same WHAT HF_DIR CHECKPOINT: both sides' logits of the same tokens.
same() {
  local -a tokens
  their logits "$2" >theirs.json
  read -ra tokens < <(their tokens theirs.json)
  "$peer" "$3" "${tokens[@]}" >ours.json
  echo "$1: $(their compare theirs.json ours.json)"
}
take() { "$ckpt" import --format hf -o "$2" "$1" 2>log || { cat log >&2; return 1; }; }
give() { "$ckpt" export --format hf "$@" >log 2>&1 || { cat log >&2; return 1; }; }

training_text 200 >log 2>&1
tiny_config model.layers=4 model.seq=16 model.init_std=0.1 train.steps=12 train.eval_every=0 optim.lr=1e-2 \
  train.dtype= >c.toml

# ours NAME SETTING...: a short run, and its newest checkpoint through every kind of export.
ours() {
  local name=$1 setting path
  local -a settings=(--set "checkpoint.dir=$name-ckpt" --set "run.dir=$name-run")
  for setting in "${@:2}"; do settings+=(--set "$setting"); done
  "$train" run c.toml "${settings[@]}" >log 2>&1 || { cat log >&2; return 1; }
  path=$(find "$name-ckpt" -maxdepth 1 -name 'step-*' -type d | sort | tail -n 1)
  give --dtype fp32 -o "$name-fp32" "$path"
  same "$name, exported in fp32" "$name-fp32" "$path"
  give --max-shard-size 40kB -o "$name-stored" "$path"
  [ -e "$name-stored/model.safetensors.index.json" ]
  same "$name, exported as stored, sharded, and back" "$name-stored" "$(take "$name-stored" "$name-back")"
}
ours gpt model.tied_embeddings=true train.dtype=fp32 mesh.dp=2 mesh.tp=2
ours gpt-untied model.tied_embeddings=false train.dtype=bf16 model.ffn_hidden=80
ours llama model.family=llama model.kv_heads=2 model.tied_embeddings=false train.dtype=bf16 mesh.tp=2 mesh.pp=2
ours llama-tied model.family=llama model.tied_embeddings=true model.rotary_base=500 train.dtype=fp32 model.ffn_hidden=88
ours llama3 model.family=llama model.kv_heads=2 model.qkv_bias=true model.out_bias=true model.mlp_bias=true \
  model.rotary_scaling=llama3 model.rotary_original_seq=12 model.tied_embeddings=false train.dtype=fp32 mesh.tp=2 mesh.dp=2
ours mistral model.family=llama model.kv_heads=2 model.window=5 model.head_dim=24 model.rotary_scaling=linear \
  train.dtype=fp32 mesh.pp=2
ours qwen2 model.family=llama model.kv_heads=2 model.qkv_bias=true train.dtype=fp32 mesh.tp=2 mesh.sequence_parallel=false
ours qwen2-window model.family=llama model.qkv_bias=true model.window=5 train.dtype=fp32
ours yarn model.family=llama model.kv_heads=2 model.rotary_scaling=yarn model.rotary_original_seq=12 \
  model.rotary_high_freq=1 model.rotary_low_freq=0.05 train.dtype=fp32 mesh.tp=2
ours phi3 model.family=llama model.kv_heads=2 model.rotary_dim=6 model.window=5 train.dtype=fp32 mesh.tp=2
ours qwen3 model.family=llama model.kv_heads=2 model.qk_norm=true model.head_dim=24 train.dtype=fp32 mesh.tp=2 mesh.pp=2
ours mixtral model.family=llama model.kv_heads=2 model.experts=6 model.window=5 train.dtype=fp32 mesh.tp=2 mesh.pp=2
ours qwen3-moe model.family=llama model.kv_heads=2 model.qk_norm=true model.experts=4 model.expert_ffn_hidden=40 \
  model.router_normalized=false train.dtype=bf16 mesh.dp=2
ours qwen3-moe-dense model.family=llama model.kv_heads=2 model.qk_norm=true model.experts=4 model.expert_ffn_hidden=40 \
  model.dense_layers=0-2:2 train.dtype=fp32 mesh.dp=2 mesh.ep=2 mesh.pp=2
ours dots1 model.family=llama model.kv_heads=2 model.qk_norm=true model.experts=8 model.expert_ffn_hidden=40 \
  model.shared_experts=1 model.router=sigmoid model.router_bias=true model.router_groups=4 model.router_scale=2.5 \
  model.router_groups_per_token=2 model.dense_layers=0 train.moe_bias_rate=0.05 train.dtype=bf16 mesh.dp=2 mesh.ep=2
ours qwen2-moe model.family=llama model.kv_heads=2 model.qkv_bias=true model.experts=4 model.expert_ffn_hidden=40 \
  model.shared_experts=2 model.shared_expert_gate=true train.dtype=fp32 mesh.tp=2

ours neox model.family=neox model.parallel_block=true model.exact_gelu=true model.rotary_dim=4 \
  model.tied_embeddings=false train.dtype=bf16 mesh.tp=2 mesh.pp=2
ours neox-serial model.family=neox model.tied_embeddings=false train.dtype=fp32 mesh.tp=2 mesh.dp=2

for case in gpt2:float16 gpt2_untied:bfloat16 llama:bfloat16 llama_tied:float32 llama:float32 \
  llama3:float32 llama_linear:bfloat16 llama_yarn:float32 qwen3_yarn:bfloat16 phi3:float32 phi3_partial:bfloat16 mistral:float32 qwen2:bfloat16 qwen2_window:float32 qwen3:float32 \
  mixtral:bfloat16 qwen3_moe:float32 qwen3_moe_dense:float32 dots1:float32 dots1:bfloat16 qwen2_moe:float32 neox:float32 neox:bfloat16 neox_serial:float16; do
  kind=${case%:*} dtype=${case#*:}
  their make "$kind" "$dtype" "theirs-$kind-$dtype"
  same "theirs, $kind in $dtype" "theirs-$kind-$dtype" "$(take "theirs-$kind-$dtype" "ckpt-$kind-$dtype")"
done
