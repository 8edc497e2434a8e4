#!/usr/bin/env bats
# Pre-flight on a real cluster: a bad node is drained with its reason, and the job starts elsewhere without a person. What is
# timed is printed after "#", so that it can be read in the log of the suite; nothing is judged by time.

bats_require_minimum_version 1.5.0

setup() {
  cluster=$BATS_TEST_DIRNAME/run
  build=${CLUSTER_BUILD:-$BATS_TEST_DIRNAME/../../build/release}
  plugin="optional $build/lib/ms_spank.so config=/etc/ms/ms-diag.toml deadline=40"
  report=$BATS_TEST_TMPDIR/report
  [[ -e $build/lib/ms_spank.so ]] || skip "the plugin was not built: there is no slurm/spank.h"
}

# inside N OPTION... <SCRIPT: on the controller of a cluster of N nodes with 8 GPUs each; any failing line fails the test.
inside() {
  local n=$1
  shift
  report=$report "$cluster" "$n" --gres 8 --build "$build" "$@" -- \
    bash -euxo pipefail -c ". '$BATS_TEST_DIRNAME/preflight.sh'; $(cat)"
  if [[ -e $report ]]; then sed "s/^/# $BATS_TEST_DESCRIPTION: /" "$report" >&3; fi
}

# When things happened, from Slurm's own log, in seconds since the job was submitted.
# shellcheck disable=SC2016 # is for the inner shell
timeline='
  at() { grep -m1 -E "$1" "$CLUSTER_DIR/log/slurmctld.log" | sed "s/^\[\([^]]*\)\].*/\1/"; }
  since() { awk -v a="$submitted" -v b="$(date -d "${1/T/ }" +%s.%N)" "BEGIN { printf \"%.1f\", b - a }"; }
  tell_times() {
    local started
    started=$(output "$1" | awk "/^start 1 /{ print \$3; exit }")
    echo "drained $(since "$(at "update_node: node $2 state set to DRAIN|update_node: node $2 reason set")") s," \
      "requeued $(since "$(at "[Rr]equeu.*JobId=$1|JobId=$1.*[Rr]equeu")") s, started again" \
      "$(awk -v a="$submitted" -v b="$started" "BEGIN { printf \"%.1f\", b - a }") s after submission" >"$report"
  }'

# One bad node of four: what the three cases below have in common.
one_bad_node() { # CODE <SCRIPT that breaks node02
  inside 4 --plugstack "$plugin" <<TEXT
$timeline
policy </dev/null
all_gpus
$(cat)
submitted=\$(date +%s.%N)
job=\$(submit -N3)
completed \$job
output \$job
[[ \$(reason_of node02) == "ms-diag:$1 "* ]]
[[ \$(sinfo -h -R -o %20E) == "ms-diag:$1"* ]]
[[ \$(field \$job Restarts) == 1 && \$(ours) == 1 ]]
output \$job | grep -E '^start 1 .* node\[01,03-04\]\$'
output \$job | grep -q '^end'
# The user learns which node was dropped, and why.
output \$job | grep -q 'node02 was drained before start 1: $1'
scontrol show job \$job | grep -q 'AdminComment=.*node02 was drained before start 1: $1'
[[ -z \$(field \$job Comment) ]]
on-node node02 ms-diag history | grep -q 'drain .*$1'
# What other nodes know of it: a directory of root's on shared storage.
site_knows() { on-node node01 ms-diag history --site | grep -E '^node02 .*$1'; }
export -f site_knows
wait-until 20 site_knows
[[ \$(stat -c '%u %a' \$CLUSTER_DIR/site) == "0 700" ]]
tell_times \$job node02
TEXT
}

@test "a GPU is missing: drained, requeued, finished elsewhere" {
  one_bad_node gpu.count <<'TEXT'
gpus node02 "gpus 7"
TEXT
}

@test "a GPU has uncorrectable errors: drained, requeued, finished elsewhere" {
  one_bad_node gpu.ecc <<'TEXT'
gpus node02 "gpu 3 ecc_uncorrectable=4"
TEXT
}

@test "a mount hangs: drained, requeued, finished elsewhere" {
  one_bad_node disk.mounts <<'TEXT'
policy <<<'[expect]
mounts = ["/mnt"]'
for node in node01 node03 node04; do on-node $node mount -t tmpfs tmpfs /mnt; done
on-node node02 sh -c 'hung_mount /mnt >/run/fake/hung & until grep -q ready /run/fake/hung; do sleep 0.1; done'
TEXT
}

@test "two of six are bad, with the cap raised" {
  inside 6 --plugstack "$plugin" <<'TEXT'
policy <<<'[act]
mode = "act"
max_drained_percent = 50'
all_gpus
gpus node02 "gpu 0 lost"
gpus node05 "gpu 7 remap_failed=1"
job=$(submit -N4) # on node01 to node04 first, then with node05
completed "$job"
output "$job"
[[ $(field "$job" Restarts) == 2 ]]
output "$job" | grep -E '^start 2 .* node\[01,03-04,06\]$'
[[ $(reason_of node02) == "ms-diag:gpu.lost "* && $(reason_of node05) == "ms-diag:gpu.remap "* ]]
[[ $(ours) == 2 ]]
TEXT
}

@test "no healthy node is left: the job waits, with a reason that says why" {
  inside 2 --plugstack "$plugin" <<'TEXT'
policy <<<'[act]
mode = "act"
max_drained_percent = 100'
all_gpus "gpu 1 ecc_uncorrectable=1"
job=$(submit -N2)
both() { [[ $(ours) == 2 ]] && state_is "$1" PENDING; }
export -f both ours
wait-until 30 both "$job"
sleep 2
scontrol show job "$job" | grep -E 'Reason=(ReqNodeNotAvail|Nodes_required|Resources|BeginTime)'
scontrol show job "$job" | grep -q 'AdminComment=.*gpu.ecc'
sinfo -h -R | grep -q 'ms-diag:gpu.ecc'
TEXT
}

@test "eight bad nodes at once never end above the cap" {
  inside 8 --plugstack "$plugin" <<'TEXT'
policy </dev/null
all_gpus "gpu 1 ecc_uncorrectable=1"
job=$(submit -N8)
decided() { state_is "$1" COMPLETED || [[ $(field "$1" Restarts) -ge 1 ]]; } # one was drained, or all gave up
quiet() { no grep -qE 'RUNNING|COMPLETING|CONFIGURING' <(squeue -h -o %T); }
export -f decided no quiet
wait-until 40 decided "$job"
wait-until 40 quiet
[[ $(ours) -le 1 ]]
for _ in 1 2 3 4 5 6 7 8; do jobs+=("$(submit -N1)"); done
for one in "${jobs[@]}"; do completed "$one" 60; done # above the cap jobs run where they are
wait-until 40 quiet
sinfo -R
[[ $(ours) == 1 ]]
# Every node wanted it.
for node in $(nodes); do on-node "$node" ms-diag history | grep -E ' (drain|refused) .*gpu.ecc'; done
TEXT
}

@test "observe looks and does not touch" {
  inside 2 --plugstack "$plugin" <<'TEXT'
policy <<<'[act]
mode = "observe"'
all_gpus "gpu 3 ecc_uncorrectable=4"
job=$(submit -N2)
completed "$job"
[[ $(ours) == 0 && $(field "$job" Restarts) == 0 ]]
on-node node01 ms-diag history | grep -q 'would-drain .*gpu.ecc'
TEXT
}

@test "a job that has only healthy GPUs of a shared node is not touched by its neighbour's" {
  inside 1 --plugstack "$plugin" <<'TEXT'
policy </dev/null
all_gpus "gpu 7 ecc_uncorrectable=4"
job=$(submit -N1 --gpus-per-node=2)
completed "$job"
[[ $(ours) == 0 && $(field "$job" Restarts) == 0 ]]
job=$(submit -N1 --gpus-per-node=8)
wait-until 20 we_drained 1
TEXT
}

@test "srun, salloc and --no-requeue: drained, but the job runs; require fails it" {
  inside 5 --plugstack "$plugin" <<'TEXT'
policy <<<'[act]
mode = "act"
max_drained_percent = 100'
all_gpus "gpu 3 ecc_uncorrectable=4"
srun -N1 -w node01 hostname 2>&1 | tee "$CLUSTER_DIR/shared/srun"
grep -q node01 "$CLUSTER_DIR/shared/srun"
grep -q 'gpu.ecc' "$CLUSTER_DIR/shared/srun"
[[ $(reason_of node01) == ms-diag:gpu.ecc* ]]
job=$(submit -N1 -w node02 --no-requeue)
completed "$job"
output "$job" | grep -q 'gpu.ecc'
[[ $(reason_of node02) == ms-diag:gpu.ecc* ]]
status=0; timeout 30 srun -N1 -w node03 --ms-preflight=require hostname >"$CLUSTER_DIR/shared/require" 2>&1 || status=$?
cat "$CLUSTER_DIR/shared/require"
[[ $status != 0 && $status != 124 ]] # it failed, and did not just hang
no grep -q '^node03' "$CLUSTER_DIR/shared/require"
[[ $(reason_of node03) == ms-diag:gpu.ecc* ]]
# On the terminal: which node, which finding, what to do.
grep -q '^srun: ms-diag: node03 was drained before start 1: gpu.ecc gpu 3' "$CLUSTER_DIR/shared/require"
grep -q '^srun: ms-diag: this job ends before it began, since it insists .* submit it again' "$CLUSTER_DIR/shared/require"
status=0; timeout 30 salloc -N1 -w node04 --ms-preflight=require hostname >"$CLUSTER_DIR/shared/salloc" 2>&1 || status=$?
cat "$CLUSTER_DIR/shared/salloc"
[[ $status != 0 && $status != 124 ]]
grep -q '^salloc: ms-diag: node04 was drained before start 1: gpu.ecc gpu 3' "$CLUSTER_DIR/shared/salloc"
# A batch job that cannot start again has no standard error; its record says it.
job=$(submit -N1 -w node05 --no-requeue --ms-preflight=require)
gone() { no grep -q . <(squeue -h -j "$1" 2>/dev/null); } # whatever Slurm calls how it ended
export -f gone no
wait-until 30 gone "$job" || { scontrol show job "$job"; tail -20 "$CLUSTER_DIR/log/slurmctld.log"; tail -20 "$CLUSTER_DIR/log/node05.log"; false; }
scontrol show job "$job" | grep 'AdminComment=.*gpu.ecc gpu 3.*this job ends before it began, since .*--no-requeue; submit it'
TEXT
}

@test "a heterogeneous job: the script beside a bad node is told, and all of it starts again elsewhere" {
  inside 3 --plugstack "$plugin" <<'TEXT'
policy <<<'[act]
mode = "act"
max_drained_percent = 100'
all_gpus
gpus node02 "gpu 3 ecc_uncorrectable=4"
job=$(job_script | sed 's/^srun/sleep 5; srun --het-group=0,1/' | sbatch --parsable --output "$CLUSTER_DIR/shared/job-%j" \
  -N1 -w node01 : -N1)
both_completed() { [[ $(field "$1" JobState | sort -u) == COMPLETED ]]; } # of the two components
export -f both_completed
wait-until 60 both_completed "$job"
output "$job"
[[ $(reason_of node02) == ms-diag:gpu.ecc* && $(field "$job" Restarts | sort -u) == 1 ]]
output "$job" | grep -q '^end'
output "$job" | grep -q '^node03'
no grep -q '^node02' <(output "$job")
# The second start says why there was one, whether or not the first script had begun when node02 was found bad.
output "$job" | grep -q 'node02 was drained before start 1: gpu.ecc'
scontrol -o show job "$job" | grep -q "JobId=$job .*AdminComment=.*node02 was drained before start 1: gpu.ecc"
TEXT
}

@test "an operator's reason is never overwritten; undrain, relapse, strike" {
  inside 2 --plugstack "$plugin" <<'TEXT'
policy </dev/null
all_gpus
gpus node01 "gpu 3 ecc_uncorrectable=4"
job=$(submit -N1 -w node01)
wait-until 20 we_drained 1
gone() { [[ $(scontrol show node node01) == *State=IDLE+DRAIN* ]] && state_is "$1" PENDING; } # the job has left the node
export -f gone
wait-until 20 gone "$job"
scancel "$job" # not earlier: Slurm may forget a cancellation that comes while it requeues, or the node
status=0; on-node node01 ms-diag undrain --verified || status=$?
[[ $status == 2 && $(ours) == 1 ]]
gpus node01
on-node node01 ms-diag undrain --verified
[[ $(ours) == 0 ]]
gpus node01 "gpu 3 ecc_uncorrectable=5"
job=$(submit -N1 -w node01)
wait-until 20 we_drained 1
wait-until 20 gone "$job"
scancel "$job"
on-node node01 ms-diag history | grep -q 'strike'
scontrol update nodename=node01 state=resume
scontrol update nodename=node01 state=drain reason="mine: fan"
status=0; on-node node01 ms-diag undrain || status=$?
[[ $status == 1 && $(reason_of node01) == "mine: fan" ]]
TEXT
}

@test "what an operator drained and gave back is looked at as before, whatever reason Slurm keeps" {
  inside 1 --plugstack "$plugin" <<'TEXT'
policy </dev/null
all_gpus
scontrol update nodename=node01 state=drain reason="mine: fan"
scontrol update nodename=node01 state=resume
wait-until 60 all_are idle
gpus node01 "gpu 3 ecc_uncorrectable=4"
job=$(submit -N1)
wait-until 60 we_drained 1
scancel "$job"
TEXT
}

@test "a failed job's epilog looks again and drains on root's evidence only" {
  inside 1 --plugstack "$plugin" <<'TEXT'
policy </dev/null
all_gpus
failing() { sbatch --parsable -N1 --output /dev/null --wrap "exit $1"; }
job=$(failing 69)
wait-until 20 state_is "$job" FAILED
wait-until 20 all_are idle
[[ $(ours) == 0 ]]
on-node node01 rm -rf /var/lib/ms-diag # or the second look would come too soon
gpus node01 "gpu 3 ecc_uncorrectable=4"
on-node node01 touch /etc/ms/ms-diag.off # only until the job runs
job=$(sbatch --parsable -N1 --output /dev/null --wrap "sleep 2; exit 1")
wait-until 20 state_is "$job" RUNNING
on-node node01 rm /etc/ms/ms-diag.off
wait-until 20 state_is "$job" FAILED
wait-until 20 all_are drained
[[ $(reason_of node01) == ms-diag:gpu.ecc* ]]
TEXT
}
