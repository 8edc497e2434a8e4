#!/usr/bin/env bash
# A rank is killed: ms-driver, which goes on in the allocation, against jobscripts/train-simple.sbatch, which has the job queued
# again. On the test cluster, two nodes at work and one more, in turns: seconds from the fault until a step ends that had
# not ended before it, their medians and the ratio.
# usage: tests/bench/driver_requeue.sh [ROUNDS] (default 5)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
build=$(realpath "${BUILD:-$here/../../build/release}")
cmake --build "$build" --target ms-train ms-driver ms-data ms-diag >/dev/null
export CLUSTER_BUILD=$build rounds=${1:-5} root=$here/../.. work=2 spares=1
# shellcheck disable=SC2016 # for the shell on the controller
exec "$here/../cluster/run" 3 -- bash -euo pipefail -c '
cp "$root/tests/cluster/driven.sh" "$root/tests/support/training.sh" "$CLUSTER_DIR/shared"
cd "$CLUSTER_DIR/shared"; . ./training.sh; . ./driven.sh
sed "/^#SBATCH --ms-preflight$/d" "$root/jobscripts/train-simple.sbatch" >simple.sbatch
driven_config
now() { echo "$EPOCHREALTIME"; }
# recovered NAME: kills a rank after step 12, and waits for a step that is new.
recovered() {
  local before fault
  wait-until 60 at_step 12
  on-node node02 pkill -KILL -x ms-train
  fault=$(now)
  sleep 0.5 # in which the others write their last steps, and no start is so quick
  before=$(steps_done)
  wait-until 120 at_step $((before + 1))
  awk "BEGIN { print $(now) - $fault }" | tee -a "$1" | sed "s/^/$1 /"
}
clean() {
  wait-until 60 bash -c "[[ -z \$(squeue -h) ]]"
  rm -rf r ckpt job.log
}
for ((round = 1; round <= rounds; round++)); do
  drive_training
  recovered driver
  ends_with 0 120
  clean
  RUN_DIR=$PWD/r CHECKPOINT_DIR=$PWD/ckpt sbatch --parsable --nodes=2 --ntasks-per-node=1 -o job.log simple.sbatch c.toml >job.id
  recovered requeue
  scancel "$(cat job.id)"
  clean
done
python3 -c "
import statistics
driver, requeue = (statistics.median(float(line) for line in open(name)) for name in (\"driver\", \"requeue\"))
print(f\"fault to the next new step: driver {driver:.1f} s, requeue {requeue:.1f} s, ratio {requeue / driver:.1f}\")"'
