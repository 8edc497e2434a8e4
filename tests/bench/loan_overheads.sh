#!/usr/bin/env bash
# What it costs an elastic run to change its size, on the test cluster of four nodes, and a job to begin again: the defaults of
# jobs.scale_overhead and jobs.preempt_overhead of ms-loan.toml(5) come from here. In rounds: ms-loan takes a node back (the run
# shrinks in its allocation), lends it again (the run saves and is queued again to grow). Seconds without a step, less the usual
# step; and from the start that Slurm tells to the first step.
# usage: tests/bench/loan_overheads.sh [ROUNDS] (default 5)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
build=$(realpath "${BUILD:-$here/../../build/release}")
cmake --build "$build" --target ms-train ms-driver ms-data ms-diag ms-loan >/dev/null
export CLUSTER_BUILD=$build rounds=${1:-5} root=$here/../..
# shellcheck disable=SC2016 # for the shell on the controller
exec "$here/../cluster/run" 4 -- bash -euo pipefail -c '
cp "$root"/tests/cluster/{driven,loan}.sh "$root/tests/support/training.sh" "$root/jobscripts/elastic.sbatch" "$CLUSTER_DIR/shared"
cd "$CLUSTER_DIR/shared"; . ./training.sh; . ./loan.sh; . ./driven.sh
sed -i "s/^grace = .*/grace = \"90s\"/" policy.toml
printf "[schedule]\ninterval = \"2s\"\n" >>policy.toml
demand 0
loan act --once 2>act.log
work=4 driven_config mesh.dp="\"auto\"" mesh.dp_max=4 train.global_batch=24 train.steps=100000 train.eval_every=0
job=$(RUN_DIR=$PWD/r TASKS_PER_NODE=1 LEAST_NODES=1 MOST_NODES=4 \
  sbatch --parsable --partition loan --nodes=2-4 --output=job.log elastic.sbatch c.toml)
wait-until 120 at_step 10
# When each step was seen to end.
tail -n +1 -F r/metrics.jsonl 2>/dev/null | while read -r line; do echo "$EPOCHREALTIME ${line:0:16}"; done >ends & watches=$!
ms-loan act --policy policy.toml 2>>act.log & acts=$!
# changed NAME DEMAND ATTEMPT: the seconds without a step, less the median of all steps, until the attempt has trained a while.
changed() {
  local begin=$EPOCHREALTIME before
  demand "$2"
  wait-until 120 grep -q "attempt $3 on" job.log
  before=$(steps_done)
  wait-until 120 at_step $((before + 10))
  python3 - "$1" "$begin" <<TEXT | tee -a "$1"
import sys, statistics
ends = [float(line.split()[0]) for line in open("ends") if line.strip()]
gaps = [b - a for a, b in zip(ends, ends[1:])]
recent = [gap for gap, end in zip(gaps, ends[1:]) if end > float(sys.argv[2])]
print(sys.argv[1], f"{max(recent) - statistics.median(gaps):.2f}")
TEXT
}
attempt=1
for ((round = 1; round <= rounds; round++)); do
  changed shrinks 1 $((++attempt))
  changed grows 0 $((++attempt))
  start=$(SLURM_TIME_FORMAT=%s squeue -h -j "$job" -o %S)
  first=$(attempt $attempt first_step_s)
  awk "BEGIN { printf \"begins %.2f\n\", $first - $start }" | tee -a begins
done
kill "$acts" "$watches"
ms-driver stop --run-dir r >/dev/null
python3 -c "
import statistics
for name in (\"shrinks\", \"grows\", \"begins\"):
    seconds = [float(line.split()[1]) for line in open(name)]
    print(f\"{name}: median {statistics.median(seconds):.1f} s, from {min(seconds):.1f} to {max(seconds):.1f}\")"'
