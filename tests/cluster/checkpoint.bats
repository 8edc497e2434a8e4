#!/usr/bin/env bats
# Checkpoints on several nodes: what is left in the memory of nodes when others lose power.

bats_require_minimum_version 1.5.0

setup_file() {
  export kit=$BATS_FILE_TMPDIR/kit
  mkdir -p "$kit"
  cp "$BATS_TEST_DIRNAME/../support/training.sh" "$kit"
  # shellcheck source=tests/support/training.sh
  . "$kit/training.sh"
  sed '/^#SBATCH --ms-preflight$/d' "$BATS_TEST_DIRNAME/../../jobscripts/train-simple.sbatch" >"$kit/script"
  tiny_config mesh.dp=2 mesh.tp=2 mesh.pp=2 train.steps=12 checkpoint.every_steps=4 checkpoint.async=false \
    'checkpoint.memory_dir="/dev/shm"' >"$kit/c.toml"
}

# inside N <SCRIPT: runs the script on the controller of a cluster of N nodes, in a folder that all nodes share.
inside() { kit=$kit "$BATS_TEST_DIRNAME/run" "$1" -- bash -euo pipefail -c "$prelude"$'\n'"$(cat)"; }
# shellcheck disable=SC2016 # for the shell on the controller
prelude='
cp "$kit"/* "$CLUSTER_DIR/shared"
cd "$CLUSTER_DIR/shared"
. ./training.sh
trap "[[ \$? -eq 0 ]] || tail -n 60 ./log*" EXIT
training_text 400
ms-train run c.toml --set run.dir=undisturbed # as threads: the same bits
export RUN_DIR=run CHECKPOINT_DIR=checkpoints
# Stands still in step 9, after the checkpoint of step 8; nothing else would stop it before it is done.
MS_FAULT="step=9 rank=0 hang" sbatch --no-requeue -o log.lost script c.toml
says() { grep -q -e "$2" "log.$1"; } # JOB PATTERN
losses() { sed -n "s/.*\"step\":\([0-9]*\),\"loss\":\([^,]*\),.*/\1 \2/p" "$1/metrics.jsonl"; } # RUN
ends_as_undisturbed() {
  wait-until 60 says again "the job ends with code 0\$"
  [[ $(losses undisturbed | wc -l) -eq 12 ]]
  diff <(losses undisturbed) <(losses run)
}
resumed() { grep -o "\"resumed\":{[^}]*}" run/metrics.jsonl; }
copies() { on-node "$1" find /dev/shm -name "rank-*.h5" | sed "s/.*rank-0000\(.\).h5/\1/" | sort | xargs; } # NODE
all_at_step_8() {
  local node
  for node in node01 node02 node03 node04; do
    [[ $(on-node $node find /dev/shm -name mark) == /dev/shm/ms-*/*/step-00000008/mark ]] || return 1
    [[ $(on-node $node find /dev/shm -name "step-*" | wc -l) -eq 1 ]] || return 1
  done
}
# Another job, not the same one again: what Open MPI leaves in /dev/shm has the name of the job and the step, and the end of
# a step that lost a node may come late enough to take it from the next.
lose() { # NODE...: power, and the job
  local node
  for node in "$@"; do kill-node "$node"; done
  scancel 1 || true # Slurm may have ended it already
  wait-until 60 nobody_runs
  sbatch -o log.again script c.toml
}
nobody_runs() { [[ -z $(squeue -h) && -z $(sinfo -h -N -o %T | grep -Ev "idle|down") ]]; }
export -f says all_at_step_8 nobody_runs
wait-until 30 says lost "checkpoint of step 8: committed"
wait-until 10 all_at_step_8
'

@test "a lost node: the others have what it had in memory, and storage is not read" {
  inside 5 <<'BASH'
  # Two ranks on a node; a rank and its keeper differ in dp, pp and tp.
  [[ $(copies node01) == "0 1 6 7" && $(copies node04) == "0 1 6 7" ]]
  [[ $(copies node02) == "2 3 4 5" && $(copies node03) == "2 3 4 5" ]]
  lose node02
  ends_as_undisturbed
  says again 'nodes node\[01,03-05\]'
  says again 'resuming from .*/step-00000008: step 8, .* from memory in .* read 0 B from storage'
  [[ $(resumed) == *'"step":8,'*'"bytes_read":0,'* ]]
  # A run that is done leaves nothing there.
  for node in node01 node03 node04 node05; do [[ -z $(copies $node) ]]; done
BASH
}

@test "a second lost node that had the other copies: storage is read, once" {
  inside 6 <<'BASH'
  lose node02 node03
  ends_as_undisturbed
  says again 'nodes node\[01,04-06\]'
  says again 'step 8 is not loaded from memory but from storage: 4 of 8 files are in no node.s memory'
  says again 'resuming from .*/step-00000008: step 8, '
  bytes=$(resumed | sed 's/.*"bytes":\([0-9]*\),.*/\1/')
  [[ $bytes -gt 0 && $(resumed) == *"\"bytes_read\":$bytes,"* ]]
BASH
}
