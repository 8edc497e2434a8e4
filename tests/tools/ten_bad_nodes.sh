#!/usr/bin/env bash
# Ten bad nodes, for somebody who has never read the manual: what ms-diag run says of each, in shuffled order and without a title,
# into DIRECTORY/blind.txt, and what is wrong with which into DIRECTORY/key.txt. The reader says of each node what is wrong, what to do
# and whom to call; the key tells whether that is right. The nodes are those of ms_diag_test.sh, broken.
# usage: tests/tools/ten_bad_nodes.sh MS-DIAG DIRECTORY
set -euo pipefail
tool=$(realpath "$1")
result=$(realpath "$2")
fixtures=$(realpath "$(dirname "${BASH_SOURCE[0]}")/ms_diag_test.sh")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
# shellcheck disable=SC2034 # make_healthy reads it
driver=$(dirname "$tool")/../lib/libfake_nvml.so
# shellcheck source=/dev/null
. <(sed -n '/^put() /p;/^make_healthy() {/,/^}/p;/^log() {/,/^3,2/p;/^gpu() {/p;/^stray() {/,/^}/p' "$fixtures")
make_healthy
mkdir clean
cp -a root driver policy.toml clean/

lost_gpu() {
  log "NVRM: Xid (PCI:0000:11:00): 79, pid=1, GPU has fallen off the bus."
  gpu 1 lost
}
slow_gpu() {
  gpu 1 pcie_width=4 pcie_width_max=16
  gpu 1 clocks_event_reasons=64 temperature_c=92
}
no_subnet_manager() {
  put /sys/class/infiniband/mlx5_0/ports/1/state "2: INIT"
  put /sys/class/net/eth1/mtu 1500
}
silent_server() {
  put /proc/self/mountinfo "21 1 8:1 / / rw - ext4 /dev/sda1 rw"
  put /etc/fstab "fs1:/data /mnt/data nfs4 defaults 0 0"
  log "nfs: server fs1 not responding, still trying"
}
bad_memory() {
  put /sys/devices/system/edac/mc/mc0/ue_count 1
  put /proc/meminfo "MemTotal:       524288 kB
MemAvailable:    400000 kB"
}
dead_disk() {
  log "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff"
  put /sys/class/nvme/nvme0/state dead
}
bad_switch() {
  log "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 42 LTSSM Fault Up"
  gpu 0 nvlinks_active=16
  gpu 1 fabric_state=2
}
left_behind() {
  stray
  put /etc/passwd "alice:x:1234:1234::/:/bin/sh"
  gpu 1 memory_used_bytes=60000000000 process=77
  gpu 0 power_limit_mw=500000
}
wrong_image() {
  put /proc/sys/kernel/osrelease 6.1.0-2
  put /proc/1/comm init
  rm -r root/sys/module/nvidia_peermem
}
hanging_driver() {
  gpu 1 hang
}

names=(a b c d e f g h i j)
: >"$result/blind.txt"
: >"$result/key.txt"
for fault in $(shuf -e lost_gpu slow_gpu no_subnet_manager silent_server bad_memory dead_disk bad_switch left_behind wrong_image \
  hanging_driver); do
  node=node-${names[0]}
  names=("${names[@]:1}")
  rm -rf root driver
  cp -a clean/. .
  "$fault"
  {
    echo "=== $node"
    SLURMD_NODENAME=$node "$tool" run --config policy.toml 2>&1 || true
    echo
  } >>"$result/blind.txt"
  echo "$node $fault" >>"$result/key.txt"
done
