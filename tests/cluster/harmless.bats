#!/usr/bin/env bats
# First do no harm: where pre-flight is off or cannot work, jobs run as if it were not there. In every case the nodes have a
# GPU that would have them drained, so that a check which worked would be noticed. What the plugin makes of an ms-diag that is
# missing, hangs or crashes, and Slurm of a plugin for another Slurm, is in spank.bats.

bats_require_minimum_version 1.5.0

setup() {
  cluster=$BATS_TEST_DIRNAME/run
  build=${CLUSTER_BUILD:-$BATS_TEST_DIRNAME/../../build/release}
  so=$build/lib/ms_spank.so
  [[ -e $so ]] || skip "the plugin was not built: there is no slurm/spank.h"
}

# unhurt OPTION CONFIG <SCRIPT that puts something in the way: a batch job over both nodes and an srun, with the option (or ""),
# then run at once, on their first try, and no node is drained. With the obstacle gone the next job has its node drained, so
# it was the obstacle, and not a check that never came to anything.
unhurt() {
  "$cluster" 2 --gres 8 --build "$build" --plugstack "optional $so config=$2 deadline=40" -- bash -euxo pipefail -c "
. '$BATS_TEST_DIRNAME/preflight.sh'
policy </dev/null
all_gpus 'gpu 3 ecc_uncorrectable=4'
$(cat)
job=\$(submit -N2 $1)
completed \$job
output \$job
output \$job | grep -q '^start 0 '
output \$job | grep -q '^end'
srun -N2 $1 hostname | sort | xargs | grep -qx 'node01 node02'
wait-until 20 all_are idle
[[ \$(field \$job Restarts) == 0 && \$(ours) == 0 ]]
for node in \$(nodes); do on-node \$node rm -f /etc/ms/ms-diag.off /etc/ms/ms-diag.toml; done
policy </dev/null
for node in \$(nodes); do on-node \$node cp /etc/ms/ms-diag.toml /etc/ms/other.toml; done
submit -N1 -w node02
wait-until 20 we_drained 1
drained_for node02 gpu.ecc
"
}

@test "the job says off, and the site allows it" {
  unhurt --ms-preflight=off /etc/ms/ms-diag.toml <<'TEXT'
policy <<<'[act]
mode = "act"
allow_off = true'
TEXT
}

@test "observe mode" {
  unhurt "" /etc/ms/ms-diag.toml <<'TEXT'
policy <<<'[act]
mode = "observe"'
TEXT
}

@test "the kill switch" {
  unhurt "" /etc/ms/ms-diag.toml <<'TEXT'
for node in $(nodes); do on-node $node touch /etc/ms/ms-diag.off; done
TEXT
}

@test "there is no policy, an unreadable one, one of somebody else's" {
  unhurt "" /etc/ms/other.toml <<<true
  unhurt "" /etc/ms/ms-diag.toml <<'TEXT'
for node in $(nodes); do echo 'act = [[[' | on-node $node sh -c 'cat >/etc/ms/ms-diag.toml'; done
TEXT
  unhurt "" /etc/ms/ms-diag.toml <<'TEXT'
on-node node01 chown nobody /etc/ms/ms-diag.toml
on-node node02 chmod o+w /etc/ms/ms-diag.toml
TEXT
}

@test "Slurm does not answer ms-diag" {
  unhurt "" /etc/ms/ms-diag.toml <<'TEXT'
for node in $(nodes); do
  for program in scontrol squeue; do
    on-node $node install -D -m 755 /dev/stdin /var/lib/bin/$program <<<$'#!/bin/sh\nexec sleep 600'
  done
done
policy <<<"[paths]
scontrol = \"/var/lib/bin/scontrol\"
nvml = \"$CLUSTER_BUILD/lib/libfake_nvml.so\""
TEXT
}

@test "the state and spool directories are full, gone, links or somebody else's: the drain still works, and nothing else" {
  "$cluster" 4 --gres 8 --build "$build" --plugstack "optional $so config=/etc/ms/ms-diag.toml deadline=40" -- bash -euxo pipefail -c "
. '$BATS_TEST_DIRNAME/preflight.sh'
$(cat <<'TEXT'
policy <<<'[act]
mode = "act"
max_drained_percent = 100'
all_gpus
on-node node01 sh -c 'mount -t tmpfs -o size=4k tmpfs /var/lib/ms-diag; chmod 700 /var/lib/ms-diag; head -c 4096 /dev/zero >/var/lib/ms-diag/x; rm -rf /var/spool/ms-diag'
on-node node02 sh -c 'rm -rf /var/lib/ms-diag /var/spool/ms-diag; mkdir /var/lib/target; ln -s /var/lib/target /var/lib/ms-diag; ln -s /var/lib/target /var/spool/ms-diag'
on-node node03 sh -c 'chown nobody /var/lib/ms-diag /var/spool/ms-diag'
job=$(submit -N4)
completed "$job"
[[ $(field "$job" Restarts) == 0 && $(ours) == 0 ]]
[[ -z $(on-node node02 ls -A /var/lib/target) ]]
for node in node01 node02 node03; do gpus $node "gpu 3 ecc_uncorrectable=4"; done
job=$(submit -N1 -w node04)
completed "$job"
for node in node01 node02 node03; do
  job=$(submit -N1 -w $node)
  wait-until 20 drained_for $node gpu.ecc
  wait-until 20 state_is "$job" PENDING
  scancel "$job"
done
[[ -z $(on-node node02 ls -A /var/lib/target) ]]
TEXT
)"
}

