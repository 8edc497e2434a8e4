#!/usr/bin/env bash
# Trains a small Llama and exports it as a Hugging Face model; imports and evaluates that model, exports it again, and
# fine-tunes it.
# shellcheck source=examples/common.sh
. "$(dirname "$0")/../common.sh"
begin 05-export

encode_text
show ms-train run "$examples/tiny.toml" --set model.family=llama --set model.kv_heads=2 --set train.steps=20 \
  --set checkpoint.dir=checkpoints
show ms-ckpt export --format hf --output hf checkpoints
show ls -l hf
show cat hf/config.json
show ms-ckpt import --format hf --output imported hf
show ms-train eval imported --data text --samples 64 --set train.microbatch=8
show ms-train generate imported --prompt 'The run ' --max-tokens 40
show ms-ckpt export --format hf --output again imported
show cmp hf/model.safetensors again/model.safetensors
show ms-train run "$examples/tiny.toml" --set model.family=llama --set model.kv_heads=2 --set train.steps=10 \
  --set checkpoint.load=imported --set checkpoint.weights_only=true --set checkpoint.dir=tuned
