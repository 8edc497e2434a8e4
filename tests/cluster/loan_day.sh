#!/usr/bin/env bash
# A day of loans in small, on nine nodes of the test cluster, eight of them the policy's: demand rises and falls while an elastic
# ms-train and two rigid jobs run on loan, and ms-loan act is killed again and again. Nodes come back within the grace time and
# from the fewest jobs, the elastic run shrinks and grows without losing a step, with the samples and losses of an undisturbed
# run, and what is outside the policy is not touched.
# usage: loan_day.sh [BUILD]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
"$here/run" --check
build=$(realpath "${1:-$here/../../build/release}")
kit=$(mktemp -d)
trap 'rm -rf "$kit"' EXIT
cp "$here/../support/training.sh" "$here"/{driven,loan}.sh "$here/../../jobscripts/elastic.sbatch" "$kit"
# shellcheck disable=SC2016 # for the shell on the controller
kit=$kit "$here/run" 9 --build "$build" -- bash -euo pipefail -c '
cp -r "$kit/." "$CLUSTER_DIR/shared"; cd "$CLUSTER_DIR/shared"; . ./training.sh; . ./loan.sh; . ./driven.sh
trap "[[ \$? -eq 0 ]] || tail -n 60 job.log act.log r/driver/agents.log state/decisions.jsonl" EXIT
grace=60 # a busy machine must not make it a preemption
sed -i "s/^grace = .*/grace = \"${grace}s\"/; s/^nodes = .*/nodes = \"node[01-08]\"/" policy.toml
printf "[schedule]\ninterval = \"2s\"\n" >>policy.toml
demand 0
loan act --once 2>act.log
[[ $(on_loan) == "node[01-08]" ]]
outside=$(submit train -N1 -w node09)
work=5 driven_config mesh.dp="\"auto\"" mesh.dp_max=6 train.global_batch=120 train.steps=100000 train.eval_every=0 \
  optim.warmup_steps=0 "optim.schedule=\"constant\""
job=$(RUN_DIR=$PWD/r TASKS_PER_NODE=1 LEAST_NODES=1 MOST_NODES=6 \
  sbatch --parsable --partition loan --nodes=1-5 --output=job.log elastic.sbatch c.toml)
wait-until 120 at_step 3
[[ $(attempt 1 nodes) == "[\"node01\", \"node02\", \"node03\", \"node04\", \"node05\"]" ]]
two=$(submit loan -N2) one=$(submit loan -N1)
wait-until 60 runs "$two" "$one" "$outside"

# It is killed at any moment, and started again.
(while :; do
  timeout -s KILL "$((RANDOM % 4)).$((RANDOM % 10))" ms-loan act --policy policy.toml 2>>act.log || true
done) & kills=$!

inference_has() { # COUNT: so many idle nodes that are not on loan
  [[ $(sinfo -h -N -n "node[01-08]" -p train -t idle -o %N | grep -vxFf <(scontrol show hostnames "$(on_loan)") -c) -ge $1 ]]
}
export -f inference_has on_loan
trains() { # for a while, as it is now
  local before
  before=$(steps_done)
  wait-until 120 at_step $((${before:-0} + 5))
}
rises() { # COUNT: and the nodes come back in time
  local begin=$SECONDS
  demand "$1"
  wait-until $((grace + 20)) inference_has "$1"
  echo "demand $1: nodes are back after $((SECONDS - begin)) s"
  ((SECONDS - begin <= grace))
}
rises 1
trains
rises 4 # the elastic run has its least now; without slurmdbd it goes through the queue for it
trains
[[ $(restarts "$two") == 0 && $(restarts "$one") == 0 ]]
[[ $(squeue -h -j "$job" -o %D) == 1 ]]
rises 5 # half of the large job is the smallest share
[[ $(restarts "$two") == 1 && $(restarts "$one") == 0 ]]
trains
# Down again: the job that waits comes first, then the elastic run, which takes what is left, as far as sizes allow.
demand 0
wait-until 120 runs "$two"
wait-until 240 bash -c "[[ \$(squeue -h -j $job -o %D) == 5 ]]"
trains
kill "$kills"
[[ $(restarts "$two") == 1 && $(restarts "$one") == 0 && $(restarts "$outside") == 0 ]]
runs "$one" "$two" "$outside"
grep -E "^ms_loan_(shrunk|grown|preemptions|queue)" state/metrics.prom
grep -q "^ms_loan_preemptions_total 2$" state/metrics.prom
if grep -E "\"(node09|$outside)\"" state/decisions.jsonl; then false; fi
scancel "$two" "$one"
ms-driver report r
ms-driver stop --run-dir r
wait-until 60 bash -c "[[ -z \$(squeue -h -j $job -o %T -t R,CG) ]]"
scancel "$outside"
compare_undisturbed 9 5'
