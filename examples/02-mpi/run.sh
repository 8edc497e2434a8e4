#!/usr/bin/env bash
# Trains the same configuration twice, on 8 threads and on 8 processes, and compares the losses, which are bitwise equal.
# shellcheck source=examples/common.sh
. "$(dirname "$0")/../common.sh"
begin 02-mpi
command -v mpirun >/dev/null || { echo "skipped: mpirun was not found" && exit 77; }
mpirun=(mpirun --oversubscribe --bind-to none -np 8) # not needed on a machine with 8 free cores
if [[ $(id -u) -eq 0 ]]; then mpirun+=(--allow-run-as-root); fi

encode_text
show ms-train run "$examples/tiny.toml" --set train.steps=20 --set run.dir=threads
show "${mpirun[@]}" ms-train run "$examples/tiny.toml" --set train.steps=20 --set run.dir=processes

losses() { grep -o '^{"step":[0-9]*,"loss":[0-9.]*' "$1/metrics.jsonl"; }
losses threads >threads.losses
losses processes >processes.losses
show cmp threads.losses processes.losses
echo "the losses of $(wc -l <threads.losses) steps are equal"
