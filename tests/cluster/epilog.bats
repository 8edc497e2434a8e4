#!/usr/bin/env bats
# After jobs: a node that broke under a job is drained by its epilog, however the job ended. Slurm says 0 of jobs that were
# cancelled or requeued, as jobs that hang are.

# shellcheck disable=SC2016 # what is in single quotes is for the inner shell
bats_require_minimum_version 1.5.0

setup() {
  cluster=$BATS_TEST_DIRNAME/run
  build=${CLUSTER_BUILD:-$BATS_TEST_DIRNAME/../../build/release}
  [[ -e $build/lib/ms_spank.so ]] || skip "the plugin was not built: there is no slurm/spank.h"
}

inside() { # <SCRIPT: on the controller of a cluster of two nodes whose GPUs are well until breaks says otherwise
  "$cluster" 2 --gres 8 --build "$build" --plugstack "optional $build/lib/ms_spank.so config=/etc/ms/ms-diag.toml deadline=40" -- \
    bash -euxo pipefail -c ". '$BATS_TEST_DIRNAME/preflight.sh'; cd \$CLUSTER_DIR/shared
policy </dev/null
all_gpus
user() { setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/ \"\$@\"; }
started() { [[ -e \$CLUSTER_DIR/shared/started-\$1 ]]; }
looked() { on-node node01 grep -q '\"last_epilog_wall_s\":[1-9]' /var/lib/ms-diag/state.json; }
no_marks() { ! on-node node01 ls /run/ms-diag 2>/dev/null | grep -q killed; }
by_epilog() { scontrol show job \"\$1\" | grep -q 'AdminComment=.*was drained after start'; }
export -f started looked no_marks by_epilog
breaks() { gpus node01 'gpu 3 ecc_uncorrectable=4'; }
hangs='touch started-\$SLURM_JOB_ID; sleep 600'
begin() { # SCRIPT: a job on node01 that has begun; prints its number
  local job
  job=\$(user sbatch --parsable --requeue -N1 -w node01 --output /dev/null -D \"\$PWD\" --wrap \"\$1\")
  wait-until 20 started \"\$job\"
  echo \"\$job\"
}
$(cat)"
}

@test "a job that ended well is not looked at, one that was cancelled while it hung is" {
  inside <<'TEXT'
job=$(begin 'srun touch started-$SLURM_JOB_ID')
completed "$job"
wait-until 20 all_are idle
no looked
job=$(begin "srun bash -c '$hangs'")
breaks
user scancel "$job"
wait-until 20 drained_for node01 gpu.ecc
wait-until 5 no_marks
TEXT
}

@test "one that catches the signal and ends with 0, too" {
  inside <<'TEXT'
job=$(begin "trap 'exit 0' TERM; srun bash -c '$hangs' & wait")
breaks
scancel --batch --signal=TERM "$job"; scancel "$job"
wait-until 20 drained_for node01 gpu.ecc
TEXT
}

@test "one that somebody requeues while it hangs" {
  inside <<'TEXT'
job=$(begin "srun bash -c '$hangs'")
breaks
scontrol requeue "$job"
wait-until 20 drained_for node01 gpu.ecc
wait-until 5 by_epilog "$job" # and not by the prolog of the next start
scancel "$job"
TEXT
}

@test "one whose script has it requeued by ms-diag requeue and ends with 0" {
  inside <<'TEXT'
job=$(begin 'touch started-$SLURM_JOB_ID; sleep 2; srun --mpi=none bash -c "kill -KILL \$\$"; ms-diag requeue; exit 0')
breaks
wait-until 20 drained_for node01 gpu.ecc
wait-until 5 by_epilog "$job"
[[ $(field "$job" Restarts) == 1 ]]
scancel "$job"
TEXT
}
