#!/usr/bin/env bash
# Pid 1 of a node, in namespaces of its own inside the controller's: makes the file system that is the node's alone, says
# "ready" on stdout and holds. boot_node (lib.sh) starts it and brings the link; killing it is the node's power loss.
# usage: node.sh NODE
set -euo pipefail
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# private_run NODE: a /run of its own, in which of the controller's only the shared folder is seen.
private_run() {
  local stage=$disks/$1/run
  mkdir -p "$stage"
  mount -n -t tmpfs -o mode=755 tmpfs "$stage"
  mkdir -p "$stage"{"${CLUSTER_DIR#/run}",/fake,/sshd}
  mount -n --bind "$CLUSTER_DIR" "$stage${CLUSTER_DIR#/run}"
  mount -n --bind "$disks/$1/fake" "$stage/fake"
  mount -n --move "$stage" /run
}

echo "$1" >/proc/sys/kernel/hostname
mount -n -t sysfs sysfs /sys # shows this network namespace's interfaces
private_root "$disks/$1"
mount -n -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -n -t tmpfs -o mode=1777 tmpfs /tmp # PMIx, too, makes files here whose names are the same on every node
keep_visible
private_run "$1"
echo ready
hold
