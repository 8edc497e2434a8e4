#!/usr/bin/env bats
# The order that ms-train plan --hostfile writes: srun obeys it, rank by rank.

bats_require_minimum_version 1.5.0

setup_file() {
  export kit=$BATS_FILE_TMPDIR/kit
  mkdir -p "$kit"
  cp "$BATS_TEST_DIRNAME/../support/training.sh" "$BATS_TEST_DIRNAME"/{driven.sh,loop.py} "$kit"
  # shellcheck source=tests/support/training.sh
  . "$kit/training.sh"
  tiny_config mesh.dp=2 mesh.tp=2 mesh.pp=2 train.steps=4 train.global_batch=12 >"$kit/c.toml"
}

# inside N <SCRIPT: runs the script on the controller of a cluster of N nodes, in a folder that all nodes share.
inside() { kit=$kit "$BATS_TEST_DIRNAME/run" "$1" -- bash -euo pipefail -c "$prelude"$'\n'"$(cat)"; }
# shellcheck disable=SC2016 # for the shell on the controller
prelude='
cp "$kit"/* "$CLUSTER_DIR/shared"
cd "$CLUSTER_DIR/shared"
. ./training.sh
# Runs the command that the plan shows, with COMMAND in the place of ms-train.
srun_as_said() { # PLAN COMMAND...
  local words
  words=$(sed -n "s/^  \(SLURM_HOSTFILE=.*\) ms-train run .*/\1/p" "$1")
  [[ -n $words ]]
  # shellcheck disable=SC2086 # words
  env $words "${@:2}"
}
# Two leaf switches: node01 and node03, node02 and node04.
two_leaves() {
  has_topology tree "SwitchName=leaf1 Nodes=node[01,03]" "SwitchName=leaf2 Nodes=node[02,04]" "SwitchName=spine Switches=leaf[1-2]"
}
# The same as two blocks, where this Slurm has them (23.11).
two_blocks() {
  compgen -G "/usr/lib/*/slurm*/topology_block.so" >/dev/null || { two_leaves && return; }
  has_topology block "BlockName=b1 Nodes=node[01,03]" "BlockName=b2 Nodes=node[02,04]" "BlockSizes=2"
}
has_topology() { # PLUGIN LINE...
  local old
  printf "%s\n" "${@:2}" >"$CLUSTER_DIR/etc/topology.conf"
  echo "TopologyPlugin=topology/$1" >>"$CLUSTER_DIR/etc/slurm.conf"
  old=$(cat /run/slurmctld.pid)
  kill "$old"
  gone() { [[ ! -e /proc/$old ]]; }
  idle() { [[ $(sinfo -h -t idle -o %D) == 4 ]]; }
  export old
  export -f gone idle
  wait-until 10 gone
  slurmctld
  wait-until 10 idle
}
who() { echo "$SLURM_PROCID $SLURMD_NODENAME"; }
ranks_are_where_the_order_says() { # PLAN ORDER
  srun_as_said "$1" bash -c who | sort -n >found
  awk "{ print NR - 1, \$1 }" "$2" | diff - found
}
export -f who srun_as_said ranks_are_where_the_order_says
'

@test "in a job: Slurm's own topology, dp groups under one leaf, and the same losses as anywhere" {
  inside 4 <<'BASH'
  two_leaves
  training_text 400
  ms-train run c.toml --set run.dir=threads
  salloc -N4 --ntasks-per-node=2 bash -euo pipefail -c '
    ms-train plan c.toml --hostfile slurm --order order >plan
    ranks_are_where_the_order_says plan order
    srun_as_said plan ms-train run c.toml --set run.dir=placed'
  [[ $(xargs <order) == "node01 node01 node03 node03 node02 node02 node04 node04" ]]
  grep -q "^switches  3, from scontrol show topology$" plan
  grep -q "^dp .* all under one leaf switch  *all over 2 levels of switches$" plan
  losses() { sed -n 's/.*"step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl"; }
  [[ $(losses placed | wc -l) -eq 4 ]]
  diff <(losses threads) <(losses placed)
BASH
}

@test "without a topology: a flat network; fewer hosts than the job has; a host that comes up twice" {
  inside 4 <<'BASH'
  export switches=$PWD/switches
  echo 'SwitchName=a Nodes=node[01-03]' >switches
  salloc -N4 -n8 bash -euo pipefail -c '
    echo "node[01-04] slots=2" >hosts
    ms-train plan c.toml --hostfile hosts --order flat.order >flat
    ranks_are_where_the_order_says flat flat.order
    ms-train plan c.toml --hostfile - --set mesh.tp=1 --order few.order <hosts >few
    ranks_are_where_the_order_says few few.order
    echo "node[01-03]:2" | ms-train plan c.toml --hostfile - --topology "$switches" --set mesh.tp=1 --set mesh.dp=3 --order twice.order >twice
    ranks_are_where_the_order_says twice twice.order'
  grep -q '^switches  none known (' flat # the reason is Slurm's, in words that differ by version
  [[ $(sort -u few.order | wc -l) -eq 2 ]]
  grep -q 'SLURM_JOB_NUM_NODES=2 .* -n 4 ' few
  [[ $(uniq twice.order | wc -l) -gt 3 ]]
BASH
}

@test "ms-driver --segment: the nodes of an attempt share a block, and a lost node takes its segment along" {
  inside 4 <<'BASH'
  two_blocks
  work=2 spares=2
  . ./driven.sh
  trap what_failed ERR
  drive_loop 200 --segment 3
  ends_with 2
  rm -rf r loop job.log
  drive_loop 200 --segment 2
  wait-until 60 looped 5
  [ "$(attempt 1 nodes)" = '["node01", "node03"]' ]
  kill-node node03
  ends_with 0
  [ "$(attempt 2 nodes)" = '["node02", "node04"]' ]
BASH
}
