#!/usr/bin/env bash
# The checks that ask programs of others: each passes on what a healthy one prints, finds what a broken one prints, and is
# skipped, with the reason, where the program is missing or answers nothing. smartctl, ipmitool, dcgmi, scontrol and, but for one
# run, ms-train are scripts.
# usage: tools.sh MS-DIAG
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/../tools/expect.sh"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
mkdir -p root/sys/block/nvme0n1 root/sys/block/sda root/sys/block/loop0
cat >policy.toml <<TEXT
[paths]
sysroot = "$dir/root"
smartctl = "$dir/smartctl"
ipmitool = "$dir/ipmitool"
dcgmi = "$dir/dcgmi"
scontrol = "$dir/scontrol"
TEXT
prints() { # PROGRAM <TEXT: prints it, whatever it is asked
  { echo "#!/bin/sh" && echo "cat <<'END'" && cat && echo END; } >"$1"
  chmod 755 "$1"
}
check() { # CODE PATTERN LEVEL CHECK
  expect "$1" "$2" run --verbose --config policy.toml --level "$3" --only "$4"
}

check 3 'skip +disk.smart: .*there is no .*/smartctl \(paths.smartctl\)' 2 disk.smart
smart() { # HEALTHY SPARE MEDIA-ERRORS
  prints smartctl <<TEXT
{"smart_status": {"passed": $1}, "nvme_smart_health_information_log":
 {"available_spare": $2, "available_spare_threshold": 10, "percentage_used": 3, "media_errors": $3}}
TEXT
}
smart true 100 0
check 0 'pass +disk.smart: 2 disks' 2 disk.smart
smart false 100 0
check 1 'warning +disk.smart nvme0n1: says that it fails' 2 disk.smart
smart true 5 0
check 1 'warning +disk.smart sda: 5% of its spare blocks' 2 disk.smart
smart true 100 7
check 1 'warning +disk.smart sda: 7 media errors' 2 disk.smart
prints smartctl <<<'{"smart_status": {"passed": true}, "ata_smart_attributes": {"table": [{"id": 197, "raw": {"value": 8}}]}}'
check 1 'warning +disk.smart sda: 8 sectors wait' 2 disk.smart
prints smartctl <<<'no JSON'
check 3 'skip +disk.smart: .*does not tell its health' 2 disk.smart
for odd in '{"smart_status": 7}' '{"smart_status": {"passed": "no"}}'; do
  prints smartctl <<<"$odd"
  check 3 'skip +disk.smart: .*does not tell its health' 2 disk.smart
done
# One disk's smartctl is not even ended by SIGKILL, as one that sleeps in the kernel: the check ends all the same and names the
# disk. Signals of this ms-diag reach nobody; the sleeper ends with its parent. It takes 26 s, meanwhile other tests go on.
cat >smartctl-stuck <<TEXT
#!/bin/sh
[ "\$3" = /dev/sda ] && exec setpriv --pdeathsig KILL sleep 600
echo '{"smart_status": {"passed": true}}'
TEXT
chmod 755 smartctl-stuck
sed 's,/smartctl",/smartctl-stuck",' policy.toml >stuck.toml
python3 - "$tool" run --verbose --config stuck.toml --level 2 --only disk.smart >stuck-out 2>&1 <<'PYTHON' &
import ctypes, os, platform, struct, sys
kill = {"x86_64": 62, "aarch64": 129}[platform.machine()]
# A seccomp filter by which kill() returns 0 and does nothing.
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, kill), (0x06, 0, 0, 0x00050000), (0x06, 0, 0, 0x7FFF0000)]
filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rules), ctypes.addressof(filters)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execv(sys.argv[1], sys.argv[1:])
PYTHON
stuck_run=$!
# One disk of many hangs: it is named, is no fault, and nothing of its smartctl is left.
mkdir root/sys/block/sd{b..f}
cat >smartctl <<TEXT
#!/bin/sh
[ "\$3" = /dev/sda ] && { echo \$\$ >>$dir/hung && sleep 600; }
echo '{"smart_status": {"passed": true}}'
TEXT
check 0 'pass +disk.smart: 6 disks; sda: .*no answer in time' 2 disk.smart
while read -r pid; do
  if kill -0 "$pid" 2>/dev/null; then fail "the smartctl that hung is still there"; fi
done <hung
rmdir root/sys/block/sd{b..f}
wait "$stuck_run"
[ $? -eq 1 ] || fail "a stuck smartctl: exit code is not 1"
grep -Eq 'warning +disk.smart sda: smartctl waits for it in the kernel, and SIGKILL' stuck-out ||
  fail "a stuck smartctl: $(cat stuck-out)"
grep -q 'did not answer within' stuck-out && fail "a stuck smartctl: the check itself was cut off"

check 3 'skip +host.bmc: .*paths.ipmitool' 2 host.bmc
bmc() { # STATE READING EVENT TIME
  cat >ipmitool <<TEXT
#!/bin/sh
case \$1 in
  sdr) echo "FAN1             | 30h | $1  |  7.1 | $2" && echo "PSU1             | 31h | ok  | 10.1 | Presence detected" ;;
  sel) echo "   1 | $4 | 10:00:00 | Memory #0x53 | $3 | Asserted" ;;
esac
TEXT
  chmod 755 ipmitool
}
today=$(date -u +%m/%d/%Y)
bmc ok "5400 RPM" "Correctable ECC" "$today"
check 0 'pass +host.bmc: 2 sensors, 1 event in the log' 2 host.bmc
bmc cr "0 RPM" "Correctable ECC" "$today"
check 1 'warning +host.bmc FAN1: is 0 RPM, state cr' 2 host.bmc
bmc ok "5400 RPM" "Uncorrectable ECC" "$today"
check 1 'warning +host.bmc Memory #0x53: Uncorrectable ECC' 2 host.bmc
bmc ok "5400 RPM" "Uncorrectable ECC" 01/02/2024 # repaired long ago
check 0 'pass +host.bmc' 2 host.bmc
printf '#!/bin/sh\necho "Could not open device at /dev/ipmi0" >&2\nexit 1\n' >ipmitool
check 3 'skip +host.bmc: .*Could not open device' 2 host.bmc
for date in "$(date -u +%m/%d/%y)" "$(date -u +%F)"; do # as newer versions write it
  bmc ok "5400 RPM" "Uncorrectable ECC" "$date"
  check 1 'warning +host.bmc Memory #0x53: Uncorrectable ECC' 2 host.bmc
done
bmc ok "5400 RPM" "Uncorrectable ECC" 01/02/2099
check 0 'pass +host.bmc: .*1 failure dated in the future not judged' 2 host.bmc
bmc ok "5400 RPM" "Uncorrectable ECC" Pre-Init
check 0 'pass +host.bmc: .*1 failure without a date not judged' 2 host.bmc
sensor() { # READING: of the only one, with its state; the event log is empty
  cat >ipmitool <<TEXT
#!/bin/sh
[ \$1 = sel ] || echo "S1 | 30h | $1"
TEXT
}
for reading in "ok | 7.1 | Watchdog disabled" "nr | 7.1 | No Reading" "ns | 7.1 | Disabled" "ok | 7.1 | No AC lost"; do
  sensor "$reading"
  check 0 'pass +host.bmc: 1 sensor, 0 events in the log' 2 host.bmc
done
sensor "ok | 7.1 | Presence detected, Power Supply AC lost"
check 1 'warning +host.bmc S1: is Presence detected, Power Supply AC lost' 2 host.bmc
events() { # <LINES: of the event log, of healthy sensors
  cat >log
  cat >ipmitool <<TEXT
#!/bin/sh
[ \$1 = sdr ] && echo "FAN1 | 30h | ok | 7.1 | 5400 RPM" && exit
cat $dir/log
TEXT
}
events <<TEXT
1 | $today | 10:00:00 | Power Supply #0x31 | Power Supply AC lost | Asserted
2 | $today | 10:00:00 | Power Supply #0x32 | Redundancy Lost | Asserted
3 | $today | 10:01:00 | Power Supply #0x31 | Power Supply AC lost | Deasserted
4 | $today | 10:01:00 | Power Supply #0x32 | Fully Redundant | Asserted
TEXT
check 0 'pass +host.bmc: 1 sensor, 4 events in the log' 2 host.bmc
events <<TEXT
1 | $today | 10:00:00 | Power Supply #0x31 | Power Supply AC lost | Deasserted
2 | $today | 10:01:00 | Power Supply #0x31 | Power Supply AC lost | Asserted
3 | $today | 10:02:00 | Power Supply #0x32 | Power Supply AC lost | Deasserted
TEXT
check 1 'warning +host.bmc Power Supply #0x31: Power Supply AC lost' 2 host.bmc
events <<TEXT
1 | $today | 10:00:00 | Memory #0x53 | Uncorrectable ECC | Asserted
2 | $today | 10:01:00 | Memory #0x53 | Uncorrectable ECC | Deasserted
TEXT
check 1 'warning +host.bmc Memory #0x53: Uncorrectable ECC' 2 host.bmc # it happened
rm log
check 0 'pass +host.bmc: 1 sensor; the event log cannot be read: .*log: No such file' 2 host.bmc

check 3 'skip +slurm.node: .*paths.scontrol' 2 slurm.node
nodes() { # STATE-OF-THIS-NODE STATE-OF-ANOTHER
  prints scontrol <<TEXT
NodeName=n1 NodeHostName=n1 State=$1 Partitions=a
NodeName=n2 NodeHostName=n2 State=$2 Partitions=a
NodeName=n3 NodeHostName=n3 State=IDLE Partitions=a
TEXT
}
export SLURMD_NODENAME=n1
nodes IDLE IDLE
check 0 'pass +slurm.node: n1 is IDLE, 0 of 3 nodes are down' 2 slurm.node
nodes IDLE+DRAIN IDLE
check 1 'warning +slurm.node n1: is IDLE\+DRAIN' 2 slurm.node
nodes IDLE 'DOWN*'
check 1 'warning +slurm.node cluster: 1 of 3 nodes are down' 2 slurm.node
for power in CLOUD+POWERED_DOWN DOWN+CLOUD+POWERED_DOWN DOWN+CLOUD+POWERING_UP 'DOWN*+REBOOT_ISSUED' FUTURE; do
  nodes IDLE "$power"
  check 0 'pass +slurm.node: n1 is IDLE, 0 of 3 nodes are down' 2 slurm.node
done
for answer in "lorem ipsum" ""; do
  prints scontrol <<<"$answer"
  check 3 'skip +slurm.node: .*did not answer as expected' 2 slurm.node
done
# Of a job step the first process asks for all nodes, the others for their own: none accuses slurmctld of what it did not say.
for SLURM_PROCID in 0 1; do
  export SLURM_PROCID
  nodes IDLE IDLE
  check 0 'pass +slurm.node: n1 is IDLE' 2 slurm.node
  nodes DOWN IDLE
  check 1 'warning +slurm.node n1: is DOWN' 2 slurm.node
  for answer in "lorem ipsum" "" $'\033[2J' "NodeName=n9 State=DOWN"; do
    prints scontrol <<<"$answer"
    check 3 'skip +slurm.node: (scontrol show node did not answer as expected|Slurm knows no node n1)' 2 slurm.node
  done
  printf '#!/bin/sh\necho "Node n1 not found"\nexit 1\n' >scontrol
  check 3 'skip +slurm.node: Slurm knows no node n1' 2 slurm.node
  printf '#!/bin/sh\nkill -SEGV $$\n' >scontrol
  check 1 'warning +slurm.node slurmctld: .*killed by signal' 2 slurm.node
done
unset SLURM_PROCID
printf '#!/bin/sh\necho "slurm_load_node error: Unable to contact slurm controller (connect failure)" >&2\nexit 1\n' >scontrol
check 1 'warning +slurm.node slurmctld: .*Unable to contact slurm controller' 2 slurm.node

check 3 'skip +gpu.dcgm: .*paths.dcgmi' 3 gpu.dcgm
dcgm() { # RESULT: of the memory test
  prints dcgmi <<TEXT
{"DCGM Diagnostic": {"test_categories": [
 {"category": "Deployment", "tests": [{"name": "software", "results": [{"entity_group": "GPU", "entity_id": 0, "status": "Pass"}]}]},
 {"category": "Hardware", "tests": [{"name": "memory", "results": [$1]}]}]}}
TEXT
}
dcgm '{"entity_group": "GPU", "entity_id": 3, "status": "Pass"}'
check 0 'pass +gpu.dcgm: 2 results' 3 gpu.dcgm
dcgm '{"entity_group": "GPU", "entity_id": 3, "status": "Fail", "warnings": [{"warning": "Page 7 is bad", "error_id": 22}]}'
check 1 "warning +gpu.dcgm gpu 3: DCGM's memory: Page 7 is bad" 3 gpu.dcgm
dcgm '{"gpu_ids": "5", "status": "FAIL", "warnings": "Too slow"}' # as DCGM 3 writes it
check 1 "warning +gpu.dcgm gpu 5: DCGM's memory: Too slow" 3 gpu.dcgm
dcgm '{"gpu_ids": "5", "status": "Skip"}'
check 0 'pass +gpu.dcgm: 1 result of dcgmi diag, 1 skipped' 3 gpu.dcgm
for status in Error fail Sideways; do
  dcgm "{\"gpu_ids\": \"5\", \"status\": \"$status\"}"
  check 1 "warning +gpu.dcgm gpu 5: DCGM's memory: $status" 3 gpu.dcgm
done
prints dcgmi <<'TEXT'
log {x} of the host engine
{y}
{"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [{"name": "memory", "results": [
 {"gpu_ids": "0", "status": "Skip"}, {"gpu_ids": "1", "status": "NOT RUN"}]}]}]}}
TEXT
check 3 'skip +gpu.dcgm: nothing was run' 3 gpu.dcgm
prints dcgmi <<<'Error: unable to establish a connection to the specified host: localhost'
check 3 'skip|broken' 3 gpu.dcgm
prints dcgmi <<<'{"DCGM Diagnostic": {"test_categories": 7}}'
check 3 'broken +gpu.dcgm: what dcgmi printed cannot be read' 3 gpu.dcgm

# ms-diag takes the tools that are beside it.
real=$(realpath "$tool")
expect 0 'pass +soak.train: 2 trainings of 20 steps, loss' \
  run --verbose --config policy.toml --level 3 --only soak.train --soak 0s
mkdir bin
cp "$real" bin/ms-diag
ln -s "$(dirname "$real")/../lib" lib
tool=$dir/bin/ms-diag
check_train() { expect "$1" "$2" run --verbose --config policy.toml --level 3 --only soak.train --soak 0s; }
if [ -z "$(PATH=/usr/local/bin:/usr/bin:/bin command -v ms-data)" ]; then
  check_train 3 'skip +soak.train: there is no ms-data beside ms-diag'
fi
printf '#!/bin/sh\nexit 0\n' >bin/ms-data
cat >bin/ms-train <<'TEXT'
#!/bin/sh
. FAULT
mkdir -p run
echo "{\"loss\": 5}" >run/metrics.jsonl
echo "{\"loss\": $last}" >>run/metrics.jsonl
TEXT
sed -i "s,FAULT,$dir/fault," bin/ms-train
chmod 755 bin/*
echo last=4 >fault
check_train 0 'pass +soak.train'
echo "last=4.0\$(cat $dir/n 2>/dev/null); echo 1 >>$dir/n" >fault
check_train 2 'critical soak.train training: 1 of 2 trainings gave other losses'
echo last=5.5 >fault
check_train 1 'warning +soak.train training: the loss does not fall'
echo 'echo "error: cannot load libdnnl.so" >&2; exit 70' >fault
check_train 1 'warning +soak.train training: .*exit status 70, error: cannot load libdnnl.so'
# One that takes longer than there is time for is no failure of the node.
echo 'exec sleep 600' >fault
expect 3 'skip +soak.train: not measured: .*ms-train was not done in time' \
  run --verbose --config policy.toml --level 3 --only soak.train --soak 0s --deadline 5s
exit $((failures > 0))
