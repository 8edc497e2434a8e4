#!/usr/bin/env bats
# ms-loan on a real Slurm: idle inference nodes go on loan, come back within the grace time with exact victims, and nothing
# else is touched; a kill at any moment and a Slurm that does not answer lose no node and no job.

# shellcheck disable=SC2016 # what is in single quotes is for the inner shell
bats_require_minimum_version 1.5.0

setup() {
  cluster=$BATS_TEST_DIRNAME/run
  build=${CLUSTER_BUILD:-$BATS_TEST_DIRNAME/../../build/release}
}

inside() { # N <SCRIPT
  "$cluster" "$1" --build "$build" -- bash -euxo pipefail -c "cd \$CLUSTER_DIR/shared; $(cat "$BATS_TEST_DIRNAME/loan.sh" -)"
}

@test "nodes go on loan, and come back in time from the fewest jobs; what observe says is what act does" {
  inside 5 <<'TEXT'
demand 4
loan observe >out
grep -q '^nothing to do' out
demand 1
loan observe >out
[[ $(grep -c '^lend node0' out) == 3 && -z $(on_loan) ]]
grep -q 'lend node01: it is idle, inference keeps 1 of 4' out
loan act --once
[[ $(on_loan) == 'node[01-03]' ]]
two=$(submit loan -N2) one=$(submit loan -N1) other=$(submit train -N1 -w node05)
wait-until 20 runs "$two" "$one" "$other"
waits=$(submit loan -N1)
wait-until 20 explains "$waits" "^job $waits waits for 1 node in partition loan$"
explains "$waits" '^it needs 1 node, and may use 3 on loan (0 idle): when is not known, for jobs .* no time limit, or more than 100 days'
explains "$two" "^job $two does not wait: it is on node"
scancel "$waits"
wait-until 20 explains "$waits" 'does not wait: it is CANCELLED\|there is no job'
demand 2 # one node more: half of the large job is a smaller share than all of the other one
begin=$EPOCHREALTIME
ms-loan act --policy policy.toml & acts=$!
wait-until 20 pending "$two"
took=$(awk "BEGIN { print $EPOCHREALTIME - $begin }")
awk "BEGIN { exit !($took < 6 + 2) }" # the grace time, and KillWait of the test cluster
[[ $(on_loan) == 'node[02-03]' ]]
grep -q 'saved' "loan-$two.out"
runs "$one" "$other"
demand 1 # and it goes on loan again, to the job that waits
wait-until 30 runs "$two"
kill "$acts"
loan explain "$two" >out
grep -q 'notify: node01 goes back' out
grep -q 'requeue: node01 goes back' out
explains node01 'reclaim: inference needs 2 nodes, and has 1'
explains node05 'nothing was done to node05'
grep -q '^ms_loan_preemptions_total 1$' state/metrics.prom
[[ $(restarts "$one") == 0 && $(restarts "$other") == 0 && $(restarts "$two") == 1 ]]
TEXT
}

@test "killed at any moment and started again: no node is lost, no other job hurt" {
  inside 4 <<'TEXT'
demand 0
loan act --once
[[ $(on_loan) == 'node[01-04]' ]]
job=$(submit loan -N2)
wait-until 20 runs "$job"
demand 3
# Killed by the scancel that has just sent the notice: what was done to the job is known all the same.
mkdir bin
for program in scontrol squeue sinfo; do ln -s "$(command -v $program)" bin; done
printf '#!/bin/sh\n%s "$@"\nkill -KILL $PPID\n' "$(command -v scancel)" >bin/scancel
chmod +x bin/scancel
sed "s|^\[slurm\]|&\nscontrol = \"$PWD/bin/scontrol\"|" policy.toml >killed.toml
status=0; ms-loan act --policy killed.toml || status=$?
[[ $status == 137 ]]
explains "$job" '  notify: '
for delay in 0.02 0.05 0.1 0.2 0.4; do
  ms-loan act --policy policy.toml & acts=$!
  sleep $delay
  kill -KILL "$acts"
  wait "$acts" || true
done
ms-loan act --policy policy.toml & acts=$!
wait-until 30 pending "$job"
wait-until 10 bash -c '[[ $(sinfo -h -p train -t idle -o %D) == 4 ]]'
demand 0
wait-until 30 runs "$job"
[[ $(on_loan) == 'node[01-04]' && $(restarts "$job") == 1 ]]
kill "$acts"
TEXT
}

@test "when Slurm, demand or the policy's partition cannot be trusted it stops acting, and says so" {
  inside 4 <<'TEXT'
demand 0
loan act --once
job=$(submit loan -N1)
wait-until 20 runs "$job"
echo many >demand.new && mv demand.new demand
status=0; loan observe >out 2>&1 || status=$?
[[ $status == 2 ]]
grep -q "demand 'many' is no number of nodes" out
ms-loan act --policy policy.toml 2>err & acts=$!
wait-until 10 grep -q 'stopped acting.*no number of nodes' err
pkill -STOP -x slurmctld
demand 4
wait-until 20 grep -q 'stopped acting.*no answer within' err
pkill -CONT -x slurmctld
wait-until 20 grep -q 'acts again' err
wait-until 20 pending "$job"
status=0; loan act --once 2>out || status=$?
[[ $status == 2 ]]
grep -q 'another ms-loan acts' out
sed 's/^grace = .*/grace = "3s"/' policy.toml >short.toml
status=0; ms-loan observe --policy short.toml 2>out || status=$?
[[ $status == 2 ]]
grep -q "loan.grace 3.0s cannot hold: loan.poll is 1.0s, Slurm's KillWait 2.0s and slurm.end 1.0s" out
kill "$acts"
kill-node node04 # vanishes
scontrol update PartitionName=loan Nodes=node01
sed -i "s/^nodes = .*/nodes = 'node[02-04,99]'/" policy.toml
status=0; loan act --once 2>out || status=$?
[[ $status == 2 ]]
grep -q 'partition loan has node node01, which slurm.nodes of the policy does not name' out
scontrol update PartitionName=loan Nodes=
demand 0
wait-until 30 bash -c 'scontrol show node node04 | grep -q DOWN'
loan observe >out
grep -q '^in trouble: node\[04,99\]' out
loan act --once
[[ $(on_loan) == 'node[02-03]' ]]
TEXT
}
