#!/usr/bin/env bash
# Trains 40 steps on 8 ranks with checkpoints, then resumes on 4 ranks in another layout: dp 1 x pp 4 x tp 1.
# shellcheck source=examples/common.sh
. "$(dirname "$0")/../common.sh"
begin 04-resume
checkpoints=(--set checkpoint.dir=checkpoints --set checkpoint.every_steps=20)

encode_text
show ms-train run "$examples/tiny.toml" "${checkpoints[@]}" --set train.steps=40
show ms-ckpt ls checkpoints
show ms-train run "$examples/tiny.toml" "${checkpoints[@]}" --set mesh.dp=1 --set mesh.pp=4 --set mesh.tp=1
show ms-ckpt ls checkpoints
show ms-ckpt verify checkpoints/step-00000060
