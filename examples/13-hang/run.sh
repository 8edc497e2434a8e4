#!/usr/bin/env bash
# Makes rank 5 of 8 hang in step 30. The run ends after a deadline, the traces show the rank, and the same command resumes.
# shellcheck source=examples/common.sh
. "$(dirname "$0")/../common.sh"
begin 13-hang
run=(ms-train run "$examples/tiny.toml" --set checkpoint.dir=checkpoints --set checkpoint.every_steps=10)
code=0

encode_text
show env MS_FAULT="step=30 rank=5 hang" "${run[@]}" || code=$? # waits 15 s for the rank
show ms-tracepp hang run/trace
show ms-train explain "$code"
show "${run[@]}"
