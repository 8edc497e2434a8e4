#!/usr/bin/env bash
# Times a step of a 175 billion parameter GPT on 12,288 GPUs, as Megatron-LM and as MegaScale train it; then makes one of 8 GPUs
# slow and finds it in the traces of the simulated run.
# shellcheck source=examples/common.sh
. "$(dirname "$0")/../common.sh"
begin 09-simulate
cluster=(--cluster "$repo/configs/clusters/a100-8x200g.toml")
big=(--set mesh.dp=192 --set train.global_batch=6144 --tokens 300e9)

show ms-train simulate "$repo/configs/megascale/175b-megatron.toml" "${cluster[@]}" "${big[@]}"
show ms-train simulate "$repo/configs/megascale/175b-megascale.toml" "${cluster[@]}" "${big[@]}"
node=(--cluster "$repo/configs/clusters/h100-8x400g.toml")
show ms-train simulate "$repo/configs/llama-1b.toml" "${node[@]}" --slow rank=5:1.2 --trace traces
show ms-tracepp stragglers traces
