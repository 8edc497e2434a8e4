#!/usr/bin/env bash
# What ms-diag collect costs a node: CPU time of whole samples (the program, its processes, the file), as a share of one CPU
# at a sample in five minutes, and bytes a sample. The node is a fake root: 8 GPUs of a fake driver, 8 InfiniBand ports, 10
# interfaces, 128 processors, 20,000 lines of kernel log. A real driver's own time is not in it. Then how long ms-diag history
# --site takes for 1,000 nodes with as many samples each.
# usage: tests/bench/collect_cost.sh [RUNS] [BUILD]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
runs=${1:-100} build=$(realpath "${2:-build/release}")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
put() { mkdir -p "$(dirname "root$1")" && printf '%s\n' "$2" >"root$1"; }
mkdir driver
cp "$build/lib/libfake_nvml.so" driver/libnvidia-ml.so.1
echo "gpus 8" >driver/gpus.txt
put /proc/uptime "5000.00 1000.00"
put /proc/loadavg "0.20 0.18 0.12 1/80 11206"
put /proc/meminfo "MemAvailable:   1048576 kB"
for what in cpu memory io; do put "/proc/pressure/$what" "some avg10=0.00 avg60=0.00 avg300=1.25 total=9"; done
for ((i = 0; i < 128; i++)); do put /sys/devices/system/cpu/cpu$i/thermal_throttle/core_throttle_count 0; done
for ((i = 0; i < 16; i++)); do put /sys/devices/system/edac/mc/mc$i/ce_count 0 && put /sys/devices/system/edac/mc/mc$i/ue_count 0; done
for ((i = 0; i < 4; i++)); do
  put /sys/class/hwmon/hwmon$i/name coretemp
  for ((sensor = 1; sensor <= 66; sensor++)); do put /sys/class/hwmon/hwmon$i/temp${sensor}_input 51000; done
done
for ((i = 0; i < 10; i++)); do
  put /sys/class/net/eth$i/device/vendor 0x15b3
  for file in speed carrier_changes statistics/{rx,tx}_{bytes,errors} statistics/rx_{crc_errors,dropped}; do
    put "/sys/class/net/eth$i/$file" 7
  done
done
for ((i = 0; i < 8; i++)); do
  for file in link_downed link_error_recovery symbol_error local_link_integrity_errors port_rcv_errors port_rcv_data \
    port_xmit_data port_xmit_wait; do
    put "/sys/class/infiniband/mlx5_$i/ports/1/counters/$file" 7
  done
done
mkdir -p root/dev
seq 20000 | sed 's/.*/6,&,&000000,-;device eth0 entered some mode or other, line &/' >root/dev/kmsg
cat >policy.toml <<TEXT
[paths]
sysroot = "$scratch/root"
nvml = "$scratch/driver/libnvidia-ml.so.1"
[telemetry]
directory = "$scratch/samples"
TEXT
TIMEFORMAT="%U %S"
"$build/bin/ms-diag" collect --config policy.toml # makes the file, and shows what is in it
start=$(stat -c %s samples/*/*.tlm)
for ((i = 0; i < runs; i++)); do
  { time "$build/bin/ms-diag" collect --config policy.toml >/dev/null; } 2>>cpu_times
done
end=$(stat -c %s samples/*/*.tlm)
awk -v runs="$runs" -v bytes=$((end - start)) '{ cpu += $1 + $2 }
  END { printf "%.1f ms of CPU a sample, %.4f %% of one CPU at a sample in 5 minutes; %d bytes a sample, %.0f KiB a day (%d runs)\n",
        cpu / runs * 1000, cpu / runs / 300 * 100, bytes / runs, bytes / runs * 288 / 1024, runs }' cpu_times
node=$(basename samples/*)
for ((i = 0; i < 1000; i++)); do cp -r "samples/$node" "samples/copy$i"; done
TIMEFORMAT="history --site of 1,000 nodes: %R s, CPU %U s"
time "$build/bin/ms-diag" history --site --config policy.toml | head -n 1
