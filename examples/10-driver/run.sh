#!/usr/bin/env bash
# Submits driven.sbatch, a job of three nodes in which a rank dies and ms-driver uses the spare node, and shows the driver's
# report; then a loop in Python that hangs. Needs a Slurm cluster with access to this directory; without one, as root:
#   tests/cluster/run 3 -- examples/10-driver/run.sh
# shellcheck source=examples/common.sh
. "$(dirname "$0")/../common.sh"
begin 10-driver
timeout 10 sinfo >/dev/null 2>&1 || { echo "skipped: Slurm does not respond" && exit 77; }

encode_text
# The second rank dies in step 30 of the first attempt.
show env MS_FAULT='step=30 rank=1 restart=0 kill' sbatch --wait "$examples/10-driver/driven.sbatch" run \
  ms-train run "$examples/tiny.toml" --set mesh.dp=2 --set mesh.pp=1 --set mesh.tp=1 --set checkpoint.dir=checkpoints \
  --set checkpoint.every_steps=10
show ms-driver report run
show ms-driver status run

# Any command: here a Python loop, which reports its progress after every step.
show sbatch --wait "$examples/10-driver/driven.sbatch" loop python3 "$examples/10-driver/heartbeat.py" 60
show ms-driver report loop
