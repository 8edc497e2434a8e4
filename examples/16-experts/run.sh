#!/usr/bin/env bash
# Trains a small mixture of experts on eight ranks, shows the load of its experts, and exports it as a Mixtral.
# shellcheck source=examples/common.sh
. "$(dirname "$0")/../common.sh"
begin 16-experts

encode_text
experts=(--set model.family=llama --set model.experts=8 --set model.expert_ffn_hidden=128 --set train.moe_aux_loss=0.01)
show ms-train plan "$examples/tiny.toml" "${experts[@]}"
show ms-train run "$examples/tiny.toml" "${experts[@]}" --set metrics.expert_load_every=20 --set checkpoint.dir=checkpoints
show grep -o '"expert_load":{[^}]*}' run/metrics.jsonl
show ms-ckpt export --format hf --output hf checkpoints
show cat hf/config.json
show ms-ckpt import --format hf --output imported hf
show ms-train generate imported --prompt 'The run ' --max-tokens 40
