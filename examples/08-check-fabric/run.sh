#!/usr/bin/env bash
# Times collectives between threads of this machine; then measures a network of four nodes and names the slow one.
# shellcheck source=examples/common.sh
. "$(dirname "$0")/../common.sh"
begin 08-check-fabric
network=("$examples/08-check-fabric/network.sh" 4 n3)
# In a Slurm job these options are not needed: `salloc -N 4 ms-netcheck locate` starts the agents with srun.
nodes=(--nodes "n[1-4]" --launch "ip netns exec {node} env SLURMD_NODENAME={node} {agent}" --seconds 200ms)

show ms-netcheck collectives --transport threads --ranks 4 --what all_reduce,all_gather --to 256KiB --iterations 5
status=0
show "${network[@]}" ms-netcheck locate "${nodes[@]}" --html map.html || status=$?
case $status in
  77) echo "skipped: the network of four nodes" ;;
  *) echo "exit status $status: 0 nothing found, 1 warning, 2 critical, as for Nagios" && ((status <= 2)) ;;
esac
