#!/usr/bin/env bash
# Somebody who comes with a PyTorch job, torch from PyPI and jobscripts/pytorch.sbatch, on the test cluster: torchrun is not on
# the PATH at first; then a rank hangs, which is found, and the run goes on with the spare node; then torchrun's own elastic
# launch, --nnodes=1:2, under ms-driver, which loses a node. For the night.
# PYTHON is one that has torch; where it is not set, a virtual environment is made in build/peer (pip install torch).
# usage: pytorch.sh BUILD [simple|elastic...]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
"$here/../cluster/run" --check || exit
CLUSTER_BUILD=$(realpath "${1:-build/release}")
export CLUSTER_BUILD
shift || true
python=${PYTHON-$here/../../build/peer/bin/python}
if [[ ! -x $python ]]; then
  python3 -m venv "$here/../../build/peer"
  "$here/../../build/peer/bin/pip" install --quiet torch numpy || { echo "skipped: pip cannot install torch" && exit 77; }
fi
torch=$(cd "$(dirname "$python")" && pwd) # not -P: the environment is where its programs are
export torch walks=$here names="${*:-simple elastic}"
# shellcheck disable=SC2016 # for the shell on the controller
exec "$here/../cluster/run" 3 -- bash -euo pipefail -c '
. "$walks/walk.sh"
cd "$CLUSTER_DIR/shared"
cp "$walks"/train.py "$walks"/../../{examples/10-driver/heartbeat.py,jobscripts/pytorch.sbatch} .
ended() { [[ $(scontrol show job "$1" | sed -n "s/.*JobState=\([A-Z]*\).*/\1/p") =~ COMPLETED|FAILED|CANCELLED|TIMEOUT ]]; }
export -f ended
code_of() { scontrol show job "$1" | sed -n "s/.* ExitCode=\([0-9]*\):.*/\1/p" | head -n 1; }
# job CODE LOG SBATCH-ARGUMENT...: submits, waits for the end, and shows the log.
job() {
  local id code=$1 log=$2
  shift 2
  note "\$ sbatch $*"
  id=$(sbatch --parsable --output="$log" "$@")
  wait-until 600 ended "$id" || { tail -n 40 "$log" && stumble "job $id does not end"; }
  said=$(cat "$log")
  grep -v "^\[W\|OMP_NUM_THREADS\|run.py.*\(\*\*\*\*\|\] *$\)" "$log" | tail -n 25 | cut -c 1-160 | sed "s/^/        /"
  [[ $(code_of "$id") == "$code" ]] || stumble "job $id ends with $(code_of "$id"), and should with $code"
}
walk_simple() {
  note "the environment is not activated"
  job 2 first.log -N3 pytorch.sbatch train.py . 40
  says "torchrun is not on the PATH: activate"
  note "now it is; rank 1 stops for ever at step 20"
  export PATH=$torch:$PATH PROCS_PER_NODE=2
  RUN_DIR=run HANG=1 job 0 second.log -N3 pytorch.sbatch train.py . 40
  says "no rank made progress"
  says "4 ranks begin at step 20"
  says "^trained"
  does ms-driver report run
  says " hang "
  does bash -c "head -n 5 run/driver/attempt-1.node01.stacks"
  does ms-driver status run
}
walk_elastic() {
  note "torchrun --nnodes=1:2 by itself goes on with one node when the other one is lost"
  export PATH=$torch:$PATH
  rm -f saved.pt
  cat >elastic.sh <<"BASH"
first=$(scontrol show hostnames "$SLURM_STEP_NODELIST" | head -n 1)
exec torchrun --nnodes=1:2 --max-restarts=3 --nproc-per-node=1 --rdzv-id="$SLURM_JOB_ID.$MS_ATTEMPT" --rdzv-backend=c10d \
  --rdzv-endpoint="$first:29400" train.py . 100
BASH
  cat >elastic.sbatch <<"BASH"
#!/bin/bash
exec ms-driver run --min-nodes 1 --tasks-per-node 1 --run-dir elastic -- bash elastic.sh
BASH
  export STEP_S=0.3
  (wait-until 300 test -e saved.pt && kill-node node02) >/dev/null 2>&1 &
  job 0 elastic.log -N2 --no-kill --exclusive elastic.sbatch
  wait
  says "2 ranks begin at step 0"
  says "1 ranks begin at step [1-9]"
  says "^trained"
  does ms-driver report elastic
}
for name in $names; do "walk_$name"; done
note done'
