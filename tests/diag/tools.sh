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
check_train() { expect "$1" "$2" run --verbose --config policy.toml --level 3 --only soak.train --soak 0s; }
check_train 0 'pass +soak.train'
echo "last=4.0\$(cat $dir/n 2>/dev/null); echo 1 >>$dir/n" >fault
check_train 2 'critical soak.train training: 1 of 2 trainings gave other losses'
echo last=5.5 >fault
check_train 1 'warning +soak.train training: the loss does not fall'
echo 'echo "error: cannot load libdnnl.so" >&2; exit 70' >fault
check_train 1 'warning +soak.train training: .*exit status 70, error: cannot load libdnnl.so'
exit $((failures > 0))
