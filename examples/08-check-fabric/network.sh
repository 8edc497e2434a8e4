#!/usr/bin/env bash
# Runs a command with nodes n1, n2, ..., which are network namespaces behind one switch. Links have 50 Mbit/s, the link of
# SLOW-NODE 15 Mbit/s. `ip netns exec n2 COMMAND` runs a command on a node. The network is removed after the command.
# usage: network.sh NODES SLOW-NODE COMMAND...      exit status: the command's; 77 if the kernel does not allow namespaces
set -euo pipefail
nodes=$1 slow=$2
shift 2
if [[ ${MS_NETWORK:-} != here ]]; then
  own=(unshare --user --map-root-user --net --mount --pid --fork --kill-child --mount-proc)
  "${own[@]}" mount -t tmpfs tmpfs /run 2>/dev/null || { echo "skipped: no network namespaces here" && exit 77; }
  MS_NETWORK=here exec "${own[@]}" "$0" "$nodes" "$slow" "$@"
fi

mount -t tmpfs tmpfs /run
ip link add switch type bridge
ip address add 10.79.0.254/24 dev switch
ip link set switch up
for ((number = 1; number <= nodes; number++)); do
  node=n$number rate=50mbit
  if [[ $node == "$slow" ]]; then rate=15mbit; fi
  ip netns add "$node"
  ip link add "to-$node" type veth peer name eth0 netns "$node"
  ip link set "to-$node" master switch up
  ip -n "$node" link set lo up
  ip -n "$node" address add "10.79.0.$number/24" dev eth0
  ip -n "$node" link set eth0 up
  tc qdisc add dev "to-$node" root tbf rate "$rate" burst 32k latency 500ms
  tc -n "$node" qdisc add dev eth0 root tbf rate "$rate" burst 32k latency 500ms
done
"$@"
