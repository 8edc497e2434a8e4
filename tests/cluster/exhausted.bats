#!/usr/bin/env bats
# Root's prolog where a neighbour has used up what it needs: processes, descriptors, memory, disk. It may find nothing then; it
# ends within its deadline, by no signal, and nothing but a drain that stands keeps the job away.

# shellcheck disable=SC2016 # what is in single quotes is for the inner shell
bats_require_minimum_version 1.5.0

setup() {
  cluster=$BATS_TEST_DIRNAME/run
  build=${CLUSTER_BUILD:-$BATS_TEST_DIRNAME/../../build/release}
  [[ -e $build/lib/ms_spank.so ]] || skip "the plugin was not built: there is no slurm/spank.h"
}

inside() { # <SCRIPT: on the controller of a cluster of three nodes with a bad GPU in node01
  "$cluster" 3 --gres 8 --build "$build" --plugstack "optional $build/lib/ms_spank.so config=/etc/ms/ms-diag.toml deadline=40" -- \
    bash -euxo pipefail -c ". '$BATS_TEST_DIRNAME/preflight.sh'; cd \$CLUSTER_DIR/shared
printf '#!/bin/sh\n[ \"\$SLURM_JOB_ID\" ] && exec ms-diag prolog --config /etc/ms/ms-diag.toml\n' >prolog
chmod 755 prolog
policy </dev/null
all_gpus
job=\$(sbatch --parsable -N1 -w node01 --output /dev/null --wrap 'sleep 600')
wait-until 20 state_is \"\$job\" RUNNING
gpus node01 'gpu 3 ecc_uncorrectable=4'
# prolog COMMAND...: as slurmd runs it for that job, under the command; prints its status and how long it took.
prolog() {
  local begin=\$EPOCHREALTIME status=0
  on-node node01 env SLURM_JOB_ID=\$job SLURM_JOB_UID=65534 SLURMD_NODENAME=node01 SLURM_JOB_NODELIST=node01 \
    SLURM_CONF=\$SLURM_CONF timeout -s KILL 40 \"\$@\" \$PWD/prolog >said 2>&1 || status=\$?
  awk -v s=\$status -v b=\$begin -v e=\$EPOCHREALTIME 'BEGIN { printf \"%d %.1f\n\", s, e - b }'
}
# opens WHAT COMMAND...: the prolog lets the job start, or has drained the node, and is in time.
opens() {
  local what=\$1 status took
  shift
  read -r status took < <(prolog \"\$@\")
  echo \"\$what: status \$status after \$took s, \$(ours) drained\"
  if [[ \$status == 69 ]]; then
    drained_for node01 gpu.ecc
  else
    ((status < 128)) # by no signal; of all others only 69 keeps a job away
  fi
  awk -v t=\$took 'BEGIN { exit !(t < 20) }'
  on-node node01 ms-diag undrain >/dev/null || true
}
$(cat)"
}

@test "the twin: with all it needs the prolog keeps the job away and drains" {
  inside <<'TEXT'
read -r status took < <(prolog env)
cat said
on-node node01 ms-diag history
[[ $status == 69 ]]
drained_for node01 gpu.ecc
TEXT
}

@test "descriptors" {
  inside <<'TEXT'
for n in 3 4 5 6 7 8 9 10 12 14 16 20 24 32; do opens "$n descriptors" prlimit --nofile=$n; done
TEXT
}

@test "memory" {
  inside <<'TEXT'
# Not 8: with about that much the program can be loaded, and globals of CLI11 find none left, before main().
for mib in 4 6 10 12 16 24 32 64 128; do opens "$mib MiB" prlimit --as=$((mib << 20)); done
TEXT
}

@test "processes" {
  inside <<'TEXT'
# The limit does not hold for root, so the prolog is somebody else here, who has none left: it can fork nothing.
for n in 1 2 3 4 6 8; do
  opens "$n processes" setpriv --reuid=4711 --regid=4711 --clear-groups prlimit --nproc=$n
done
TEXT
}

@test "disk: state, spool and notes are full" {
  inside <<'TEXT'
on-node node01 sh -c 'for dir in /var/lib/ms-diag /var/spool/ms-diag /run/ms-diag; do
  mkdir -p $dir; mount -t tmpfs -o size=4k,mode=700 tmpfs $dir; head -c 4096 /dev/zero >$dir/x; done'
opens "a full disk" env
TEXT
}
