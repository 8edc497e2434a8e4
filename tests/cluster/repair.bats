#!/usr/bin/env bats
# ms-diag repair on a real cluster: the head node mends nodes by ssh, a fake RebootProgram and a fake nvidia-smi.

# shellcheck disable=SC2016 # what is in single quotes is for the inner shell
bats_require_minimum_version 1.5.0

setup() {
  cluster=$BATS_TEST_DIRNAME/run
  build=${CLUSTER_BUILD:-$BATS_TEST_DIRNAME/../../build/release}
  "$cluster" --check --ssh || skip "there is no sshd"
  printf 'RebootProgram=/run/cluster/shared/reboot\nResumeTimeout=60\n' >"$BATS_TEST_TMPDIR/conf"
}

# inside N <SCRIPT: on the controller of a cluster of so many nodes. A GPU reset clears the errors of GPU 3; a reboot gives
# back a GPU that is lost.
inside() {
  "$cluster" "$1" --gres 8 --ssh --build "$build" --conf "$BATS_TEST_TMPDIR/conf" -- bash -euxo pipefail -c ". '$BATS_TEST_DIRNAME/preflight.sh'; cd \$CLUSTER_DIR/shared; $(cat <<'TEXT'
cat >nvidia-smi <<'END'
#!/bin/sh
[ "$1" = --gpu-reset ] || exit 0
echo reset >>/run/fake/done
exec sed -i "/gpu 3 ecc/d" /run/fake/gpus.txt
END
cat >reboot <<'END'
#!/bin/bash
echo reboot >>/run/fake/done
sed -i '/gpu 5 /d' /run/fake/gpus.txt
setsid bash -c 'pid=$(cat /run/slurmd.pid); kill "$pid"; while [ -e "/proc/$pid" ]; do sleep 0.1; done; exec slurmd -b' \
  </dev/null >/dev/null 2>&1 &
END
chmod 755 . nvidia-smi reboot
settings() {
  cat <<END
[act]
mode = "act"
max_drained_percent = 100
[paths]
nvml = "$CLUSTER_BUILD/lib/libfake_nvml.so"
gres_conf = "$CLUSTER_DIR/etc/gres.conf"
nvidia_smi = "$CLUSTER_DIR/shared/nvidia-smi"
[expect]
mounts = [${mounts:-}]
[repair]
checks = "gpu.*,disk.mounts,net.link,host.memory,host.load"
level = ${level:-2}
soak = "1s"
max_nodes_percent = 100
interval = "1s"
$*
END
}
set_up() { # LINE...: of [repair]
  policy < <(settings "$@")
  mkdir -p /etc/ms
  (umask 022; settings "$@" >/etc/ms/ms-diag.toml)
  all_gpus
}
# The level-2 checks of one kind only: the others load two cores for minutes.
repair() { ms-diag repair --ssh-config "$CLUSTER_SSH_CONFIG" "$@"; }
once() { status=0; repair --apply --once >>said 2>&1 || status=$?; [[ $status -le 2 ]]; }
stage() { sed -n 's/^  "stage": "\(.*\)",$/\1/p' "/var/lib/ms-repair/$1.json"; }
until_stage() { # NODE STAGE: passes until it is there
  local end=$((SECONDS + 120))
  while ((SECONDS < end)); do
    once
    if [[ $(stage "$1") == "$2" ]]; then return 0; fi
  done
  cat said && false
}
drained() { scontrol update nodename="$1" state=drain reason="ms-diag:$2"; }
is_idle() { [[ $(sinfo -h -N -n "$1" -o %T | sort -u) == idle ]]; }
export -f is_idle
TEXT
  ); $(cat)"
}

@test "dry run changes nothing; a curable node returns, one that no remedy cures is bundled, an admin's drain stays" {
  inside 4 <<'TEXT'
set_up
gpus node01 "gpu 3 ecc_uncorrectable=4"
gpus node02 "gpu 6 ecc_uncorrectable=4" # neither a reset nor a reboot clears that
scontrol update nodename=node03 state=drain reason="mine: fan"
gpus node03 "gpu 3 ecc_uncorrectable=4"
before=$(scontrol -o show node | grep -o 'NodeName=[^ ]*\| State=[^ ]*\| Reason=.*')
repair --once >dry
cat dry
grep -q '^node01: would drain: ms-diag:gpu.ecc' dry
grep -q '^node02: would drain: ms-diag:gpu.ecc' dry
no grep -q '^node0[34]' dry
[[ $(scontrol -o show node | grep -o 'NodeName=[^ ]*\| State=[^ ]*\| Reason=.*') == "$before" ]]
[[ ! -e /var/lib/ms-repair ]]

once
drained_for node01 gpu.ecc && drained_for node02 gpu.ecc
# Where ssh reaches no node, nothing is concluded of one, and nothing is done.
cp /var/lib/ms-repair/audit.jsonl audit.before
status=0; ms-diag repair --apply --once --ssh-config /dev/null || status=$?
[[ $status == 3 ]]
cmp audit.before /var/lib/ms-repair/audit.jsonl
status=0; repair --once >dry || status=$?
cat dry
[[ $status == 1 ]]
grep -q '^node01: would do: remedy gpu-reset' dry
until_stage node01 well
wait-until 20 is_idle node01
[[ $(on-node node01 cat /run/fake/done) == reset ]]
on-node node01 ms-diag history | grep undrain
until_stage node02 bundled
[[ $(on-node node02 xargs </run/fake/done 2>/dev/null || on-node node02 cat /run/fake/done | xargs) == 'reset reboot' ]]
[[ $(ours) == 1 ]] && drained_for node02 gpu.ecc
# For ms-diag notify: two drains, a node that is back, and one that waits for a person.
for kind in drain drain undrain bundled; do echo "$kind"; done | sort >told
grep -rhoE '"(kind|event)": ?"[a-z-]*"' /var/spool/ms-diag | cut -d '"' -f 4 | sort | diff told -
status=0; repair --apply --once || status=$?
[[ $status == 2 ]]
tar -tf /var/lib/ms-repair/node02.tar >files
cat files
for file in before/report.json before/kernel.log before/history.jsonl after/report.json after/facts.json audit.jsonl repair.json; do
  grep -qx "$file" files
done
tar -xf /var/lib/ms-repair/node02.tar before/report.json audit.jsonl
grep -q '"gpu.ecc"' before/report.json
grep -q '"event":"remedy reboot"' audit.jsonl
[[ $(stat -c %a /var/lib/ms-repair/node02.tar) == 600 ]]
# Nothing was done to the admin's node, or to the well one.
[[ $(reason_of node03) == "mine: fan" ]]
no on-node node03 test -e /run/fake/done
no on-node node04 test -e /run/fake/done
no grep -q '"node":"node0[34]"' /var/lib/ms-repair/audit.jsonl
is_idle node04
TEXT
}

@test "a lost GPU: rebooted, drained again, tested, returned; killed at every state, and Slurm away in between" {
  inside 2 <<'TEXT'
set_up
gpus node01 "gpu 5 lost"
drained node01 "gpu.lost gpu 5: it is lost"
# The service is killed as soon as it has reached a state that it had not reached before, and started again.
seen= now=
end=$((SECONDS + 600))
while [[ $now != well && $now != bundled ]] && ((SECONDS < end)); do
  ms-diag repair --ssh-config "$CLUSTER_SSH_CONFIG" --apply >>said 2>&1 &
  service=$!
  while kill -0 "$service" 2>/dev/null && ((SECONDS < end)); do
    now=$(stage node01 2>/dev/null || true)
    if [[ -n $now && " $seen " != *" $now "* ]]; then seen+=" $now"; break; fi
    sleep 0.05
  done
  kill -KILL "$service"
  wait "$service" || true
done
cat said /var/lib/ms-repair/audit.jsonl
[[ $(stage node01) == well ]]
wait-until 20 is_idle node01
[[ $(on-node node01 cat /run/fake/done) == reboot ]]
for state in gather choose remedy test2 returning well; do [[ " $seen " == *" $state "* ]]; done

# A Slurm that does not answer changes nothing.
drained node02 "gpu.ecc gpu 3: 4 errors"
once
kept=$(cat /var/lib/ms-repair/node02.json)
kill -STOP "$(cat /run/slurmctld.pid)"
status=0; repair --apply --once --deadline 1s || status=$?
kill -CONT "$(cat /run/slurmctld.pid)"
[[ $status == 3 && $(cat /var/lib/ms-repair/node02.json) == "$kept" ]]
TEXT
}

@test "a mount that is gone comes back, leftovers of ended jobs are ended, a job is waited for; somebody steps in" {
  inside 3 <<'TEXT'
mounts='"/run/data"' level=3
set_up 'remedies = ["kill-leftovers", "remount", "gpu-reset"]'
for node in $(nodes); do
  on-node "$node" sh -c 'mkdir -p /run/data; echo "tmpfs /run/data tmpfs size=1m 0 0" >>/etc/fstab; mount /run/data'
done
on-node node01 umount /run/data
on-node node01 sh -c 'SLURM_JOB_ID=7 setpriv --reuid=65534 --regid=65534 --clear-groups setsid sleep 1000 >/dev/null 2>&1 </dev/null &'
on-node node01 sh -c 'setpriv --reuid=65534 --regid=65534 --clear-groups setsid sleep 2000 >/dev/null 2>&1 </dev/null &'
drained node01 "disk.mounts /run/data: is not mounted"
job=$(sbatch --parsable -N1 -w node02 --output /dev/null --wrap 'until [ -e go ]; do sleep 0.2; done')
wait-until 20 state_is "$job" RUNNING
drained node02 "gpu.ecc gpu 3: 4 errors"
drained node03 "gpu.ecc gpu 3: 4 errors"
status=0; on-node node02 ms-diag repair --here gpu-reset || status=$?
[[ $status == 3 ]] # it has a job
once && once
scontrol update nodename=node03 reason='mine: wait for the vendor'
until_stage node01 well
wait-until 20 is_idle node01
on-node node01 mountpoint /run/data
no on-node node01 pgrep -f 'sleep 1000'
on-node node01 pgrep -f 'sleep 2000'
[[ $(stage node02) == choose ]]
no on-node node02 test -e /run/fake/done
[[ $(stage node03) == released && $(reason_of node03) == 'mine: wait for the vendor' ]]
touch go
completed "$job"
until_stage node02 well
wait-until 20 is_idle node02
[[ $(reason_of node03) == 'mine: wait for the vendor' ]]
TEXT
}

@test "a job that begins while leftovers have their seconds is not touched, nor are they" {
  inside 1 <<'TEXT'
set_up 'remedies = ["kill-leftovers"]'
cat >stay <<'END'
#!/bin/bash
trap 'touch /tmp/asked' TERM
until [ -e /tmp/enough ]; do sleep 0.1; done
END
chmod 755 stay
user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
on-node node01 sh -c "SLURM_JOB_ID=7 ${user[*]} setsid $PWD/stay >/dev/null 2>&1 </dev/null &"
drained node01 "gpu.ecc gpu 3: 4 errors"
on-node node01 sh -c 'ms-diag repair --here kill-leftovers; echo $? >/tmp/ended' & # by a shell: nsenter stops with its child
remedy=$!
wait-until 20 on-node node01 test -e /tmp/asked
on-node node01 pkill -STOP -x ms-diag
scontrol update nodename=node01 state=resume
job=$("${user[@]}" sbatch --parsable -N1 --output /dev/null --wrap 'exec sleep 1234')
wait-until 20 state_is "$job" RUNNING
wait-until 20 on-node node01 pgrep -f 'sleep 1234'
on-node node01 pkill -CONT -x ms-diag
wait "$remedy"
[[ $(on-node node01 cat /tmp/ended) == 3 ]]
state_is "$job" RUNNING
on-node node01 pgrep -f 'sleep 1234'
on-node node01 pgrep -f "$PWD/stay"
on-node node01 touch /tmp/enough
TEXT
}

# Slurm calls a drained node that has nothing but suspended jobs idle.
@test "a node with a suspended job is left alone until that has ended" {
  inside 1 <<'TEXT'
set_up 'remedies = ["kill-leftovers", "gpu-reset"]'
gpus node01 "gpu 3 ecc_uncorrectable=4"
job=$(setpriv --reuid=65534 --regid=65534 --clear-groups sbatch --parsable -N1 --exclusive --output /dev/null --wrap 'exec sleep 1234')
wait-until 20 on-node node01 pgrep -f 'sleep 1234'
drained node01 "gpu.ecc gpu 3: 4 errors"
scontrol suspend "$job"
wait-until 20 state_is "$job" SUSPENDED
once && once && once
status=0; on-node node01 ms-diag repair --here gpu-reset || status=$?
[[ $status == 3 && $(stage node01) == choose ]]
no on-node node01 test -e /run/fake/done
on-node node01 pgrep -f 'sleep 1234'
scancel "$job"
wait-until 30 state_is "$job" CANCELLED
until_stage node01 well
[[ $(on-node node01 cat /run/fake/done) == reset ]]
TEXT
}
