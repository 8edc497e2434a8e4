#!/usr/bin/env bash
# Trains on 8 ranks, which are threads of one process: no MPI, no Slurm, no GPU.
# shellcheck source=examples/common.sh
. "$(dirname "$0")/../common.sh"
begin 01-threads

encode_text
show ms-train check "$examples/tiny.toml"
show ms-train plan "$examples/tiny.toml"
show ms-train run "$examples/tiny.toml"
show tail -n 1 run/metrics.jsonl
show cat run/verdict.json
