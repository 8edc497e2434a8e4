#!/usr/bin/env bash
# Submits train.sbatch, waits for the job, and shows its log. Needs a Slurm cluster with access to this directory; without one, as root:
#   tests/cluster/run 2 -- examples/03-slurm/run.sh
# shellcheck source=examples/common.sh
. "$(dirname "$0")/../common.sh"
begin 03-slurm
timeout 10 sinfo >/dev/null 2>&1 || { echo "skipped: Slurm does not respond" && exit 77; }

show sinfo
encode_text
show sbatch --wait "$examples/03-slurm/train.sbatch" "$examples/tiny.toml"
show cat ms-example.log
