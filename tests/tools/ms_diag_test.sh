#!/usr/bin/env bash
# ms-diag as its users see it. First every passive check, made to fail by what breaks in the field and passing on the clean
# twin, on a fake root and a fake driver; then what is refused and how results are shown.
# shellcheck source=tests/tools/expect.sh
. "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
scratch=$(mktemp -d) && cd "$scratch" || exit 1
trap 'rm -rf "$scratch"' EXIT
driver=$(dirname "$tool")/../lib/libfake_nvml.so
if [ ! -e "$driver" ]; then
  echo "there is no libfake_nvml.so beside the tool"
  exit 77
fi

put() { mkdir -p "$(dirname "root$1")" && printf '%s\n' "$2" >"root$1"; }

# make_healthy: a node of 2 GPUs, a port of InfiniBand, Ethernet links and a mount, all well.
make_healthy() {
  mkdir -p driver root/mnt/data root/tmp
  cp "$driver" driver/libnvidia-ml.so.1
  echo "gpus 2" >driver/gpus.txt
  put /proc/sys/kernel/hostname node01
  put /proc/uptime "5000.00 1000.00"
  put /proc/meminfo "MemTotal:       1048576 kB
MemAvailable:    900000 kB"
  put /sys/devices/system/cpu/present 0-63
  put /sys/devices/system/cpu/online 0-63
  put /sys/devices/system/edac/mc/mc0/ue_count 0
  put /sys/devices/system/edac/mc/mc0/ce_count 0
  put /run/fake/adjtimex "status 1"
  put /proc/sys/kernel/osrelease 6.1.0-1
  put /sys/class/dmi/id/bios_version 1.4
  put /proc/loadavg "0.20 0.18 0.12 1/80 11206"
  put /proc/sys/kernel/pid_max 4194304
  put /proc/sys/fs/file-nr "3264	0	1000000"
  put /proc/1/comm slurmd
  put /proc/1/stat "1 (slurmd) S 0"
  put /proc/stat "btime 1000000"
  put /sys/fs/cgroup/system.slice/slurmstepd.scope/cgroup.procs ""
  put /proc/77/status "Uid:	1234	1234	1234	1234
VmRSS:	   2000 kB"
  put /proc/77/cgroup "0::/system.slice/slurmstepd.scope/job_5/step_0/user/task_0"
  put /proc/77/stat "77 (python3) R 1 1 1 0 -1 4194304 1 2 3 4 9000 100 0 0"
  put /proc/buddyinfo "Node 0, zone   Normal   10   10   10   10   10   10   10   10   10   10   9000"
  put /proc/mdstat "Personalities : [raid1]
md0 : active raid1 sdb1[1] sda1[0]
      976630464 blocks super 1.2 [2/2] [UU]"
  put /sys/devices/system/clocksource/clocksource0/current_clocksource tsc
  put /sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count 0
  put /sys/module/nvidia_peermem/refcnt 0
  put /sys/module/ib_core/refcnt 0
  put /sys/class/hwmon/hwmon0/name coretemp
  put /sys/class/hwmon/hwmon0/temp1_crit_alarm 0
  put /sys/class/nvme/nvme0/state live
  put /sys/fs/lustre/health_check healthy
  local socket
  for socket in 0 1; do
    put /sys/devices/system/node/node$socket/cpulist $((socket * 32))-$((socket * 32 + 31))
    put /sys/devices/system/node/node$socket/meminfo "Node $socket MemTotal:       524288 kB"
    put /sys/devices/system/edac/mc/mc0/dimm$socket/size 512
    put /sys/class/net/eth$socket/device/vendor 0x15b3
    put /sys/class/net/eth$socket/operstate up
    put /sys/class/net/eth$socket/carrier 1
    put /sys/class/net/eth$socket/speed 25000
    put /sys/class/net/eth$socket/mtu 9000
    put /sys/class/infiniband/mlx5_$socket/fw_ver 28.39.1002
    put /sys/class/infiniband/mlx5_$socket/board_id MT_0000000838
  done
  put /dev/kmsg "6,1,1000000,-;Linux version 6.1"
  put /etc/fstab ""
  put /proc/self/mountinfo "21 1 8:1 / / rw - ext4 /dev/sda1 rw
22 21 8:2 / /mnt/data rw - ext4 /dev/sda2 rw"
  put /etc/slurm/gres.conf "Name=gpu File=/dev/nvidia[0-1]"
  local gpu address
  for gpu in 0 1; do
    put /dev/nvidia$gpu ""
    address=0000:1$gpu:00.0
    put /sys/bus/pci/devices/$address/vendor 0x10de
    put /sys/bus/pci/devices/$address/class 0x030200
  done
  local port=/sys/class/infiniband/mlx5_0/ports/1
  put $port/state "4: ACTIVE"
  put $port/phys_state "5: LinkUp"
  put $port/rate "400 Gb/sec (4X NDR)"
  put $port/link_layer InfiniBand
  put $port/counters/link_downed 0
  put $port/counters/symbol_error 0
  local bus=root/sys/devices/pci0000:00/0000:00:01.0/0000:17:00.0
  mkdir -p "$bus"
  local name
  for name in current_link_width max_link_width; do echo 16 >"$bus/$name"; done
  for name in current_link_speed max_link_speed; do echo "32.0 GT/s PCIe" >"$bus/$name"; done
  ln -s ../../../devices/pci0000:00/0000:00:01.0/0000:17:00.0 root/sys/bus/pci/devices/0000:17:00.0
  ln -s ../../../devices/pci0000:00/0000:00:01.0/0000:17:00.0 root/sys/class/infiniband/mlx5_0/device
  cat >policy.toml <<TEXT
[paths]
sysroot = "$scratch/root"
nvml = "$scratch/driver/libnvidia-ml.so.1"
gres_conf = "/etc/slurm/gres.conf"
state = "$scratch/state"
[expect]
gpus = 2
cpus = 64
memory_mib = 1024
nvlinks_per_gpu = 18
mounts = ["/mnt/data"]
modules = ["nvidia-peermem"]
processes = ["slurmd"]
strays = ["tmux"]
kernel_lines = ["*ACPI BIOS Error*"]
kernel = "6.1.0-1"
bios = "1.4"
dimms = 2
nvmes = 1
hcas = 2
links = ["mlx5_0/1"]
link_gbps = 400
TEXT
}
make_healthy
mkdir clean && cp -a root driver policy.toml clean/
healthy() { rm -rf root driver && cp -a clean/. .; }
log() { put /dev/kmsg "6,1,1000000,-;Linux version 6.1
3,2,2000000,-;$1"; }

run_check() { "$tool" run --json --config policy.toml --only "$1" >out 2>err </dev/null; }
covered=""

# fails CODE OUTCOME WHAT COMMAND...: passes on the healthy node, and after COMMAND is warn or critical about WHAT.
fails() {
  local code=$1 outcome=$2 what=$3
  shift 3
  healthy
  run_check "$code"
  grep -q '"outcome": "ok"' out || fail "$code does not pass on a healthy node"
  "$@"
  run_check "$code"
  if ! grep -q "\"outcome\": \"$outcome\"" out || ! grep -q "\"code\": \"$code\"" out || ! grep -Eq -- "$what" out; then
    fail "$code after '$*': expected $outcome about '$what'"
  fi
  covered+="$code "
}

# counts CODE WHAT COMMAND...: like fails, for what is only seen beside an earlier look, which a prolog of root keeps.
counts() {
  healthy
  rm -rf state spool
  echo "spool = \"$scratch/spool\"
notes = \"$scratch/notes\"" | sed -i '/^state/r /dev/stdin' policy.toml
  SLURM_JOB_ID=1 SLURM_JOB_UID=1 SLURMD_NODENAME=node01 "$tool" prolog --config "$scratch/policy.toml" >out 2>err || fail "prolog"
  run_check "$1"
  grep -q '"outcome": "ok"' out || fail "$1 does not pass when nothing has grown"
  "${@:3}"
  run_check "$1"
  if ! grep -q '"outcome": "warn"' out || ! grep -q "$2" out; then fail "$1 after ${*:3}"; fi
  covered+="$1 "
}
gpu() { echo "gpu $*" >>driver/gpus.txt; }

fails gpu.driver critical "Driver|driver" sh -c 'echo "init error 9" >>driver/gpus.txt'
fails gpu.count critical '"measured": 1' sh -c 'echo "gpus 1" >driver/gpus.txt'
fails gpu.lost critical "gpu 1" gpu 1 lost
fails gpu.ecc critical "gpu 0" gpu 0 ecc_uncorrectable=4
fails gpu.ecc warn "gpu 0" gpu 0 ecc_correctable=20000
fails gpu.remap critical "gpu 1" gpu 1 remap_failed=1
fails gpu.persist warn "gpu 1" gpu 1 persistent=0
fails gpu.inforom warn "gpu 1" gpu 1 inforom_valid=0
fails gpu.fabric warn "gpu 1" gpu 1 fabric_state=2
fails host.free warn "are free" put /proc/meminfo "MemTotal:       1048576 kB
MemAvailable:    10000 kB"
fails gpu.recovery critical "gpu 0" gpu 0 recovery_action=2
fails gpu.xid critical "79" log "NVRM: Xid (PCI:0000:11:00): 79, pid=1, GPU has fallen off the bus."
fails gpu.pcie critical "gpu 1" gpu 1 pcie_width=4 pcie_width_max=16
fails gpu.nvlink critical "gpu 0" gpu 0 nvlinks_active=16
fails gpu.thermal warn "gpu 1" gpu 1 clocks_event_reasons=64
fails gpu.busy warn "gpu 1" gpu 1 memory_used_bytes=60000000000 memory_total_bytes=80000000000
fails host.mce critical "" put /sys/devices/system/edac/mc/mc0/ue_count 1
fails host.memory critical '"measured": ' put /proc/meminfo "MemTotal:       524288 kB"
fails host.cpus critical '"measured": 32' put /sys/devices/system/cpu/present 0-31
fails host.clock warn "" put /run/fake/adjtimex "status 64"
fails host.clock warn "16" put /run/fake/adjtimex "maxerror 16000000"
fails host.hung warn "" log "INFO: task python3:4711 blocked for more than 120 seconds."
fails disk.mounts critical "/mnt/data" put /proc/self/mountinfo "21 1 8:1 / / rw - ext4 /dev/sda1 rw"
fails disk.errors warn "nvme0" log "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff"
fails disk.errors critical "nvme0" log "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff
3,3,2000001,-;nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff"
fails disk.ro critical "/mnt/data" sh -c 'echo "UUID=1 /mnt/data ext4 defaults 0 0" >root/etc/fstab; sed -i "s/data rw - ext4 .* rw/data ro - ext4 \/dev\/sda2 ro/" root/proc/self/mountinfo'
fails net.link critical "mlx5_0/1" put /sys/class/infiniband/mlx5_0/ports/1/state "1: DOWN"
fails net.pcie critical "0000:17:00.0|mlx5_0" put /sys/devices/pci0000:00/0000:00:01.0/0000:17:00.0/current_link_width 4
fails disk.ro critical "expect.mounts says rw" sh -c 'sed -i "s/data rw - ext4 .* rw/data ro - ext4 \/dev\/sda2 ro/" root/proc/self/mountinfo; sed -i "s,/mnt/data,/mnt/data:rw," policy.toml'
fails disk.ro warn "nothing says whether" sh -c 'sed -i "s/data rw - ext4 .* rw/data ro - lustre 10.0.0.1@o2ib:\/data ro/" root/proc/self/mountinfo'
fails host.mce critical "The report in the kernel" log "{1}[Hardware Error]: event severity: fatal
3,3,2000001,-;{1}[Hardware Error]:  section_type: PCIe error"
fails gpu.sxid warn "switch 0.*" log "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 42 LTSSM Fault Up"
fails gpu.mixed warn "no majority" gpu 1 memory_total_bytes=40000000000
fails host.pcie warn "0000:17:00.0" log "pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:17:00.0"
fails host.pcie warn "slot 4" log "pcieport 0000:00:01.0: pciehp: Slot(4): Link Down"
fails host.thermal warn "throttled" log "mce: CPU12: Package temperature/speed above threshold, cpu clock throttled (total events = 1)"
fails host.timer warn "hpet" put /sys/devices/system/clocksource/clocksource0/current_clocksource hpet
fails host.swap warn "swapped out" put /proc/meminfo "MemTotal: 1048576 kB
SwapTotal: 1048576 kB
SwapFree: 0 kB"
fails host.frag warn "2 MiB" put /proc/buddyinfo "Node 0, zone   Normal   900000   10   10   10   10   10   10   10   10   1   0"
fails host.tables warn "open files" put /proc/sys/fs/file-nr "900000	0	1000000"
fails host.tables warn "tasks" put /proc/sys/kernel/pid_max 90
fails host.load warn "fifteen minutes" put /proc/loadavg "300 200 100 90/99 11206"
fails host.numa warn "node1" put /sys/devices/system/node/node1/meminfo "Node 1 MemTotal:       393216 kB"
fails host.dimms warn "1 of 2" rm root/sys/devices/system/edac/mc/mc0/dimm1/size
fails host.sensors warn "coretemp" put /sys/class/hwmon/hwmon0/temp1_crit_alarm 1
fails host.modules warn "nvidia-peermem" rm -r root/sys/module/nvidia_peermem
fails host.procs warn "slurmd" put /proc/1/comm init
fails host.version warn "kernel.*6.1.0-2|6.1.0-2" put /proc/sys/kernel/osrelease 6.1.0-2
stray() { # what a job left: large, as nothing of a fake root is busy now
  put /proc/77/cgroup "0::/user.slice/user-1234.slice/session-4.scope"
  put /proc/77/status "Uid:	1234	1234	1234	1234
VmRSS:	   2000000 kB"
}
fails host.strays warn "python3 of user 1234 is in no job" stray
fails host.kmsg warn "said something new" log "something new"
healthy && log "ACPI BIOS Error (bug): known here" && expect 0 "1 error line, all known" run -v --config policy.toml --only host.kmsg
fails disk.nfs warn "fs1" log "nfs: server fs1 not responding, still trying"
fails disk.lustre warn "scratch-OST0001" log "LustreError: 167-0: scratch-OST0001-osc-ff8a: This client was evicted by scratch-OST0001; in progress operations using this service will fail."
fails disk.lustre warn "LBUG" put /sys/fs/lustre/health_check "LBUG"
fails disk.raid warn "md0" put /proc/mdstat "md0 : active raid1 sdb1[1](F) sda1[0]
      976630464 blocks super 1.2 [2/1] [U_]"
fails disk.nvme warn "nvme0" put /sys/class/nvme/nvme0/state resetting
fails disk.nvme critical "is dead" put /sys/class/nvme/nvme0/state dead
fails net.mlx5 warn "0000:17:00.0" log "mlx5_core 0000:17:00.0: poll_health:821:(pid 0): device's health compromised - reached miss count"
fails net.mtu warn "eth1" put /sys/class/net/eth1/mtu 1500
fails net.hcas warn "mlx5_1|28.38" put /sys/class/infiniband/mlx5_1/fw_ver 28.38.1000
fails slurm.gres critical "nvidia1" rm root/dev/nvidia1
fails host.space warn "" sh -c 'printf "[limits]\nspace_free_percent = 100\n" >>policy.toml'
if [ "$(id -u)" -eq 0 ]; then
  boots() { # three times, each seen by a prolog but the last
    local time
    for time in 2000000 3000000; do
      put /proc/stat "btime $time"
      SLURM_JOB_ID=1 SLURM_JOB_UID=1 SLURMD_NODENAME=node01 "$tool" prolog --config "$scratch/policy.toml" >out 2>err
    done
    put /proc/stat "btime 4000000"
  }
  site_check() {  # EXIT LINE
    mkdir -p checks
    printf '#!/bin/sh\necho "%s"; exit %s\n' "$2" "$1" >checks/scratch
    chmod 755 checks checks/scratch
  }
  sed -i "/^state/a checks = \"$scratch/checks\"" clean/policy.toml
  site_check 0 "OK"
  fails site.checks critical "\"message\": \"CRITICAL no room\"" site_check 2 "CRITICAL no room"
  site_check 0 "OK"
  healthy && expect 0 "no prolog kept an earlier boot" run -v --config policy.toml --only host.boots
  counts host.boots "booted 3 times in a day" boots
  counts net.flaps mlx5_0 put /sys/class/infiniband/mlx5_0/ports/1/counters/link_downed 50
  counts net.errors mlx5_0 put /sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error 100000
  counts gpu.nverrors "gpu 1" gpu 1 nvlink_errors=100000
else
  covered+="net.flaps net.errors gpu.nverrors host.boots site.checks " # a prolog is root's
fi
for code in $("$tool" list --json | sed -n 's/.*"code":"\([^"]*\)","level":1,.*/\1/p'); do
  case " $covered" in *" $code "*) ;; *) fail "$code was not made to fail" ;; esac
done

# A check that hangs or crashes the driver's library is cut, and the others go on.
healthy
gpu 1 hang
expect 2 "gpu.driver GPU driver: did not answer within" run --config policy.toml --only 'gpu.*,disk.errors'
[ "$(grep -c 'critical gpu.*did not answer' out)" -eq 1 ] || fail "a driver that hangs is said once"
grep -q 'nvidia-smi will hang, too' out || fail "a driver that hangs: what to do"
grep -q "disk.errors" out && fail "a check that passed is shown without --verbose"
healthy
echo "init crash" >>driver/gpus.txt
expect 3 "broken +gpu.*signal 11" run --config policy.toml --only 'gpu.*,disk.errors'

# ---- how results are shown
healthy
expect 0 "ok: [0-9]+ checks passed" run --config policy.toml --only 'gpu.*'
expect 0 "pass +gpu.ecc" run --config policy.toml --only 'gpu.*' --verbose
gpu 0 ecc_uncorrectable=4
expect 2 "critical gpu.ecc gpu 0.*4 uncorrectable" run --config policy.toml --only 'gpu.*'
grep -q ': if that does not help, call the GPU team (gpu.ecc)$' out || fail "whom to call"
grep -q ": unfit for jobs, drain it: scontrol update NodeName=.* State=DRAIN Reason='ms-diag:gpu.ecc gpu 0" out ||
  fail "how to drain"
expect 2 "^CRITICAL - gpu.ecc gpu 0.*\| 'seconds'=.*'gpu.ecc gpu 0.*'=4" run --config policy.toml --only 'gpu.*' --nagios
[ "$(wc -l <out)" -eq 1 ] || fail "--nagios is one line"
expect 2 "" run --config policy.toml --only 'gpu.*' --prometheus "$scratch/ms.prom"
grep -q 'ms_diag_check_status{node=.*,check="gpu.ecc"} 2' ms.prom || fail "--prometheus"
expect 0 "perf.memory +2 +node" list
expect 0 '"code":"gpu.ecc"' list --json
expect 0 '"code":"gpu.sxid","level":1,.*"proved":"a fake file tree"' list --json
[ "$(grep -c '"level"' out)" -eq "$(grep -c '"proved":"an\? ' out)" ] || fail "list --json: how each check was proved"
healthy && put /sys/class/net/eth1/mtu 1500
expect 1 "net.mtu" run --config policy.toml --only net.mtu
expect 0 "net.mtu" run --config policy.toml --only net.mtu --warnings-pass
expect 0 "Remedy: " explain gpu.ecc
expect 0 "Remedy: " explain 79
expect 0 "nothing was decided|WHEN" history --config policy.toml

# ---- nodes beside their peers
for node in n1 n2 n3 n4; do
  healthy
  [ $node = n3 ] && put /proc/sys/kernel/osrelease 6.1.0-2
  SLURMD_NODENAME=$node "$tool" facts --config policy.toml >>facts.jsonl
done
expect 1 "n3.*kernel.*6.1.0-2.*6.1.0-1.*3 of 4" fleet --from facts.jsonl --config policy.toml --html fleet.html
grep -q "<td>6.1.0-2</td>" fleet.html || fail "fleet --html"
expect 1 '"attribute": "kernel"' fleet --from facts.jsonl --json
echo "not facts" >>facts.jsonl
expect 1 "line 5 .*no answer of ms-diag facts" fleet --from facts.jsonl
for _ in 1 2 3; do head -n 1 facts.jsonl; done >twice.jsonl
expect 1 "line 3 .*n1 has answered in line 1 already" fleet --from twice.jsonl
expect 1 "1 of 3 nodes answered" fleet --from twice.jsonl
mkfifo pipe.jsonl
expect 3 "is not a regular file" fleet --from pipe.jsonl

# ---- from NHC to a policy that can be used
printf '* || check_fs_mount_rw -f /\n{n[01-02]} || check_hw_mcelog\n' >nhc.conf
expect 0 'mounts = \["/:rw"\]' import-nhc nhc.conf --node n02
cp out imported.toml
expect 1 "nhc.conf:2: not translated" import-nhc nhc.conf
printf '* || check_hw_cpuinfo 2 64 99999\n' >large.conf
expect 3 "expect.cpus" import-nhc large.conf
echo "# nothing" >none.conf
expect 3 "no line with a check" import-nhc none.conf
expect 3 "nowhere.conf" import-nhc nowhere.conf
"$tool" run --config imported.toml --only site.checks >/dev/null 2>err
grep -q "imported.toml" err && fail "the policy of import-nhc cannot be used"

# ---- what is refused: 3, which is "unknown" to a monitor, never 2, which would page somebody
expect 3 "there is no check 'gpu.exx'" explain gpu.exx
expect 3 "did you mean gpu.ecc" explain gpu.ec
expect 3 "no check of level 1 is called 'nothing.\*'" run --only 'nothing.*'
expect 3 "level: must be 1 to 3" run --level 4
expect 3 "give --level 2" run --only 'perf.*'
expect 3 "two forms" run --json --nagios
expect 3 "the list of nodes is empty" run -w ''
expect 3 "skip +gpu.ecc: it was not done|skip +gpu.ecc: there was no time" run --config policy.toml --only gpu.ecc --deadline 0s
SLURM_JOB_ID=7 expect 3 "inside the job itself" requeue --now --exclude node01
expect 3 "unknown option" run --odd
expect 3 "a command is missing"
expect 3 "which nodes" fleet
expect 3 "which nodes" fleet -w node01 --from facts.jsonl
expect 3 "expected capture, compare or peers" golden learn x
echo "{}" >golden.json
expect 3 "no golden values" golden compare golden.json
expect 3 "give one" history --site -w node01
expect 3 "give one" undrain --node n1 -w node01
expect 3 "deadline: expected a duration" run --deadline soon
expect 3 "unexpected|too many|what is" run gpu.ecc
expect 3 "nowhere.toml" run --config nowhere.toml
printf '[act]\nmode = "axe"\nallow = ["gpu.exx", "gpu.busy"]\n[limitz]\n' >bad.toml
expect 3 "act.mode" run --config bad.toml --prometheus "$scratch/bad.prom"
grep -q 'ms_diag_policy_usable 0' bad.prom || fail "--prometheus with a policy that cannot be used"
expect 3 "act.mode" run --config bad.toml
for problem in "gpu.exx" "gpu.busy" "limitz"; do grep -q "$problem" err || fail "bad.toml: $problem is not reported with the rest"; done
expect 3 "host|-oProxy" run -w "-oProxyCommand=touch$IFS x"
expect 3 "not a list of hosts" run -w "node[01"
expect 3 "cannot be handed" run -w node01 --config "\$(reboot)"
expect 3 "name a job" requeue --exclude node01
expect 3 "JOB" requeue --exclude node01 x
expect 0 "no prolog" prolog --config policy.toml
SLURM_JOB_ID=1 SLURM_JOB_UID=1 SLURMD_NODENAME=node01 "$tool" prolog --config nowhere.toml 2>err || fail "a prolog without a policy"
sed 's/^\[paths\]/&\nscontrol = "\/nowhere\/scontrol"/' policy.toml >unasked.toml
expect 3 "/nowhere/scontrol" check-site --config unasked.toml

[ "$failures" -eq 0 ] && echo "all passed"
[ "$failures" -eq 0 ]
