#!/usr/bin/env bats
# An elastic run of ms-train under ms-driver, on nodes that ms-loan lends: a node that is asked back leaves the job, the run goes
# on without it, with the samples and losses of an undisturbed run, and takes more nodes when they are idle again, and when a
# person says so. One that loses a node goes on with the others.

bats_require_minimum_version 1.5.0

setup() {
  kit=$BATS_TEST_TMPDIR/kit
  mkdir -p "$kit"
  cp "$BATS_TEST_DIRNAME/../support/training.sh" "$BATS_TEST_DIRNAME"/{driven.sh,loan.sh,../../jobscripts/elastic.sbatch} "$kit"
}

# shellcheck disable=SC2016 # for the shell on the controller
inside() { # N <SCRIPT
  kit=$kit "$BATS_TEST_DIRNAME/run" "$1" -- bash -euo pipefail -c \
    'cp -r "$kit/." "$CLUSTER_DIR/shared"; cd "$CLUSTER_DIR/shared"; . ./training.sh; . ./loan.sh; . ./driven.sh'$'\n'"$(cat)"
}

@test "a run on loan lets go of the node that is asked back, goes on, shrinks and grows with the same samples" {
  inside 4 <<'BASH'
  trap '[[ $? -eq 0 ]] || tail -n 60 job.log act.log r/driver/agents.log state/decisions.jsonl' EXIT
  sed -i 's/^grace = .*/grace = "90s"/' policy.toml # a busy machine must not make it a requeue
  printf '[schedule]\ninterval = "2s"\n' >>policy.toml
  demand 0
  loan act --once
  [[ $(on_loan) == 'node[01-04]' ]]
  # dp is 1, 2, 3 or 4.
  work=4 driven_config mesh.dp='"auto"' mesh.dp_max=4 train.global_batch=24 train.steps=100000 train.eval_every=0 \
    optim.warmup_steps=0 'optim.schedule="constant"'
  job=$(RUN_DIR=$PWD/r TASKS_PER_NODE=1 LEAST_NODES=1 MOST_NODES=4 \
    sbatch --parsable --partition loan --nodes=2-4 --output=job.log elastic.sbatch c.toml)
  wait-until 60 at_step 3
  [[ $(attempt 1 nodes) == '["node01", "node02", "node03", "node04"]' ]]
  wait-until 30 bash -c "squeue -h -j $job -o %k | grep -q '^ms-driver: elastic from 1 node, start 0 takes 1,2,3,4; '"

  # Inference wants a node. ms-loan is killed after it has asked, and started again.
  demand 1
  loan act --once 2>act.log
  [[ $(on_loan) == 'node[01,03-04]' ]]
  ms-loan act --policy policy.toml 2>>act.log & acts=$!
  sleep 0.3 # at any moment
  kill -KILL "$acts"
  wait "$acts" || true
  ms-loan act --policy policy.toml 2>>act.log & acts=$!
  wait-until 85 bash -c "[[ \$(squeue -h -j $job -o %N) == 'node[01,03-04]' ]]"
  wait-until 20 bash -c '[[ $(sinfo -h -n node02 -o %T) == idle ]]'
  steps=$(steps_done)
  wait-until 60 at_step $((steps + 5))
  [[ $(attempt 2 nodes) == '["node01", "node03", "node04"]' ]]
  wait-until 20 grep -q '^ms_loan_shrunk_total 1$' state/metrics.prom
  grep -q '^ms_loan_preemptions_total 0$' state/metrics.prom
  # The node counts as returned once Slurm has it idle, which may be one round of ms-loan later.
  wait-until 20 awk '/^ms_loan_returned_seconds_max/ { found = $2 > 0 && $2 <= 90 } END { exit !found }' state/metrics.prom
  grep '^ms_loan_returned_seconds_max' state/metrics.prom
  [[ $(restarts "$job") == 0 ]]
  wait-until 20 explains "$job" 'notify: the run is asked for node02'

  # Inference needs it no more: it goes on loan again, and the run takes it.
  demand 0
  wait-until 90 grep -q 'attempt 3 on node\[01-04\]' job.log
  steps=$(steps_done)
  wait-until 60 at_step $((steps + 5))
  wait-until 20 explains "$job" 'grow: 1 node idle on loan and no job waits: from 3 to 4'
  # Slurm or ms-loan starts it, whoever sees first that it waits; on a busy machine it may be asked twice before it saves.
  wait-until 20 grep -q '^ms_loan_grown_total [12]$' state/metrics.prom
  grep -q '^ms_loan_preemptions_total 0$' state/metrics.prom
  [[ $(restarts "$job") == 1 && $(attempt 2 cause) == '"resizes"' ]]

  # A person makes it smaller, and larger again.
  ms-driver resize 2 --run-dir r | grep -q 'continues with 2 nodes'
  wait-until 60 grep -q 'attempt 4 on node\[01-02\]' job.log
  steps=$(steps_done)
  wait-until 60 at_step $((steps + 5))
  ms-driver resize 3 --run-dir r | grep -q 'continues with 3 nodes'
  wait-until 60 grep -q 'attempt 5 on node\[01-03\]' job.log
  steps=$(steps_done)
  wait-until 60 at_step $((steps + 5))
  ms-driver give-back node01 --run-dir r | grep -q 'node01 runs the driver'
  ms-driver report r
  ms-driver stop --run-dir r
  wait-until 60 bash -c "[[ -z \$(squeue -h -j $job -o %T -t R,CG) ]]"
  kill "$acts"
  compare_undisturbed 4
BASH
}

@test "a job that waits gets a node that an elastic run has above its least, and the run takes it again when the job has ended" {
  cp "$BATS_TEST_DIRNAME/../../configs/clusters/h100-8x400g.toml" "$kit"
  inside 4 <<'BASH'
  trap '[[ $? -eq 0 ]] || { tail -n 60 job.log act.log r/driver/agents.log state/decisions.jsonl; squeue -o "%i %T %r %N %k"; }' EXIT
  sed -i 's/^grace = .*/grace = "90s"/' policy.toml # a busy machine must not make it a refusal
  printf '[schedule]\ninterval = "2s"\nsettle = "0s"\n' >>policy.toml
  sed 's/^\(tflops[a-z0-9_]*\) = .*/\1 = 0.01/' h100-8x400g.toml >machines.toml # so slow that more of them help
  demand 0
  loan act --once
  work=4 driven_config mesh.dp='"auto"' mesh.dp_max=4 train.global_batch=24 train.steps=100000 train.eval_every=0 \
    optim.warmup_steps=0 'optim.schedule="constant"' run.cluster="\"$PWD/machines.toml\""
  job=$(RUN_DIR=$PWD/r TASKS_PER_NODE=1 LEAST_NODES=3 MOST_NODES=4 \
    sbatch --parsable --partition loan --nodes=3-4 --output=job.log elastic.sbatch c.toml)
  wait-until 120 at_step 3
  [[ $(attempt 1 nodes) == '["node01", "node02", "node03", "node04"]' ]]
  wait-until 60 bash -c "squeue -h -j $job -o %k | grep -qE '^ms-driver: elastic from 3 nodes, start 0 takes 3,4, speeds 1:[^;]*,4:[0-9.e+]+; '"

  # One job waits, one wants a node of its own choice and is left to Slurm. ms-loan is killed after it has asked.
  rigid=$(submit loan -N1) named=$(submit loan -N1 -w node04)
  observes() { ms-loan observe --policy policy.toml >seen && grep -qE "$1" seen; }
  export -f observes
  wait-until 120 observes "^shrink job $job: job $rigid waits for 1 node and 0 are free: from 4 to 3, 0.[0-9]+ times as fast by its own"
  [[ $(on_loan) == 'node[01-04]' ]]
  loan act --once 2>act.log
  [[ $(on_loan) == 'node[01-03]' ]]
  scancel "$named"
  ms-loan act --policy policy.toml 2>>act.log & acts=$!
  wait-until 90 runs "$rigid"
  [[ $(squeue -h -j "$job" -o %N) == 'node[01-03]' && $(squeue -h -j "$rigid" -o %N) == node04 && $(restarts "$job") == 0 ]]
  steps=$(steps_done)
  wait-until 120 at_step $((steps + 5))
  wait-until 20 explains "$job" 'notify: the run is asked for node04, and in 1m26s keeps them if it has them still'
  wait-until 20 explains node04 "lend: job $job has let go of it, and job $rigid waits"

  # It has its least now.
  second=$(submit loan -N1)
  wait-until 120 observes "^not now: job $second waits for 1 node: 0 idle or on the way, and elastic runs can give up 0"
  scancel "$second" "$rigid"
  wait-until 120 grep -q 'attempt 3 on node\[01-04\]' job.log
  steps=$(steps_done)
  wait-until 120 at_step $((steps + 5))
  wait-until 20 explains "$job" 'grow: 1 node idle on loan and no job waits: from 3 to 4, 1.[0-9]* times as fast by its own curve'
  ms-driver report r
  ms-driver stop --run-dir r
  wait-until 120 bash -c "[[ -z \$(squeue -h -j $job -o %T -t R,CG) ]]"
  kill "$acts"
  compare_undisturbed 4
BASH
}

@test "a run with mesh.dp = auto that loses a node goes on with the others, with the same samples" {
  inside 3 <<'BASH'
  trap '[[ $? -eq 0 ]] || tail -n 60 job.log r/driver/agents.log' EXIT
  work=3 driven_config mesh.dp='"auto"' train.steps=100000 train.eval_every=0 optim.warmup_steps=0 'optim.schedule="constant"'
  job=$(RUN_DIR=$PWD/r TASKS_PER_NODE=1 LEAST_NODES=1 sbatch --parsable --nodes=3 --output=job.log elastic.sbatch c.toml)
  wait-until 60 at_step 7
  kill-node node02
  wait-until 90 grep -q 'attempt 2 on node\[01,03\]' job.log
  steps=$(steps_done)
  wait-until 60 at_step $((steps + 5))
  ms-driver report r
  [[ $(attempt 1 cause) == '"node_lost"' && $(restarts "$job") == 0 ]]
  ms-driver stop --run-dir r
  wait-until 60 bash -c "[[ -z \$(squeue -h -j $job -o %T -t R,CG) ]]"
  compare_undisturbed 2
BASH
}
