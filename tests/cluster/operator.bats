#!/usr/bin/env bats
# ms-diag in an operator's and a user's hands, on a real cluster: other nodes by ssh, the site's configuration, requeue.

# shellcheck disable=SC2016 # what is in single quotes is for the inner shell
bats_require_minimum_version 1.5.0

setup() {
  cluster=$BATS_TEST_DIRNAME/run
  build=${CLUSTER_BUILD:-$BATS_TEST_DIRNAME/../../build/release}
  [[ -e $build/lib/ms_spank.so ]] || skip "the plugin was not built: there is no slurm/spank.h"
  plugin="optional $build/lib/ms_spank.so config=/etc/ms/ms-diag.toml deadline=40"
  export jobscripts=$BATS_TEST_DIRNAME/../../jobscripts
}

inside() { # N OPTION... <SCRIPT
  local n=$1
  shift
  "$cluster" "$n" --gres 8 --build "$build" "$@" -- bash -euxo pipefail -c ". '$BATS_TEST_DIRNAME/preflight.sh'; cd \$CLUSTER_DIR/shared; $(cat)"
}

@test "other nodes by ssh, a drained one, a dead one" {
  "$cluster" --check --ssh || skip "there is no sshd"
  inside 4 --ssh <<'TEXT'
policy </dev/null
all_gpus
gpus node03 "gpu 3 ecc_uncorrectable=4"
scontrol update nodename=node02 state=drain reason=mine
status=0; ms-diag run -w 'node[01-03]' --ssh-config "$CLUSTER_SSH_CONFIG" --only 'gpu.*' >out || status=$?
cat out
[[ $status == 2 ]]
grep -q '^node01: ok' out
grep -q '^node02: ok' out
grep -q '^node03: critical gpu.ecc gpu 3' out
kill-node node04
status=0; ms-diag run -w node01,node04 --ssh-config "$CLUSTER_SSH_CONFIG" --only 'gpu.*' --nagios >out || status=$?
cat out
[[ $status == 3 ]]
[[ $(wc -l <out) == 1 ]] # of several nodes the worst, in the one line that Nagios reads
grep -q '^UNKNOWN - node04 ' out
TEXT
}

@test "several nodes are one JSON array, and one file of metrics in which every family is told once" {
  "$cluster" --check --ssh || skip "there is no sshd"
  inside 3 --ssh <<'TEXT'
policy </dev/null
all_gpus
gpus node03 "gpu 3 ecc_uncorrectable=4"
look() { ms-diag run -w 'node[01-03]' --ssh-config "$CLUSTER_SSH_CONFIG" --only 'gpu.*' "$@"; }
status=0; look --json --prometheus metrics >out || status=$?
cat out metrics
[[ $status == 2 ]]
[[ $(grep -c '^\[' out) == 1 && $(grep -c '^\]' out) == 1 && $(sed -n '1p;$p' out | xargs) == '[ ]' ]]
[[ $(sed -n 's/^    "node": "\(.*\)",$/\1/p' out | xargs) == 'node01 node02 node03' ]]
[[ $(sed -n 's/^    "outcome": "\(.*\)",$/\1/p' out | xargs) == 'ok ok critical' ]]
[[ $(grep -c '^  },$' out) == 2 && $(grep -c '^  }$' out) == 1 ]] # so that a parser takes it
sed -n 's/^# TYPE \([^ ]*\) .*/\1/p' metrics >families
[[ $(wc -l <families) -ge 2 && -z $(sort families | uniq -d) ]]
# The samples of a family stand together, behind its TYPE: as often as its name changes there are families.
[[ $(grep -v '^#' metrics | sed 's/[{ ].*//' | uniq | xargs) == $(xargs <families) ]]
for n in 1 2; do grep -q "^ms_diag_status{node=\"node0$n\"} 0$" metrics; done
grep -q '^ms_diag_status{node="node03"} 2$' metrics
TEXT
}

@test "check-site: this cluster may act; what others lack is said, and act is then refused" {
  inside 1 --plugstack "$plugin" <<'TEXT'
policy </dev/null
status=0; on-node node01 ms-diag check-site >out || status=$?
cat out
[[ $status == 1 ]] # the test cluster's time-outs are short
grep -q '^ready, with' out
TEXT
  printf 'PrologFlags=Serial\nSchedulerParameters=batch_sched_delay=0\n' >"$BATS_TEST_TMPDIR/conf"
  inside 2 --plugstack "required $build/lib/ms_spank.so config=/etc/ms/ms-diag.toml deadline=40" --conf "$BATS_TEST_TMPDIR/conf" <<'TEXT'
policy </dev/null
status=0; on-node node01 ms-diag check-site >out || status=$?
cat out
[[ $status == 2 ]]
grep -q 'critical: site.alloc' out
grep -q 'critical: site.hold' out
grep -q 'warning: site.required' out
grep -q '^not ready: ' out
# --fix says what to write.
on-node node01 ms-diag check-site --fix >fix || [[ $? == 2 ]]
cat fix
grep -qx 'PrologFlags=Serial,Alloc,DeferBatch' fix
grep -qx 'SchedulerParameters=batch_sched_delay=0,nohold_on_prolog_fail' fix
all_gpus "gpu 3 ecc_uncorrectable=4"
job=$(submit -N2)
completed "$job"
[[ $(ours) == 0 && $(field "$job" Restarts) == 0 ]]
on-node node01 ms-diag history | grep -q 'refused .*site'
TEXT
  inside 1 --plugstack "optional $build/tests/spank/ms_spank_wrong_abi.so config=/etc/ms/ms-diag.toml" <<'TEXT'
# The plugin for another Slurm, where it is looked for by its name.
cp "$CLUSTER_BUILD/tests/spank/ms_spank_wrong_abi.so" "$CLUSTER_DIR/shared/ms_spank.so"
sed -i "s|[^ ]*/ms_spank_wrong_abi.so|$CLUSTER_DIR/shared/ms_spank.so|" "$CLUSTER_DIR/etc/plugstack.conf"
status=0; ms-diag check-site >out 2>/dev/null || status=$?
cat out
[[ $status == 2 ]]
grep -q 'critical: site.abi' out
TEXT
}

@test "requeue: by the owner, from outside and from inside the job; the list of nodes is merged; another's job is refused" {
  inside 4 --plugstack "$plugin" <<'TEXT'
user() { setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/ "$@"; }
excluded() { [[ $(field "$1" ExcNodeList) == "$2" ]]; }
restarted() { [[ $(field "$1" Restarts) == "$2" ]]; }
export -f excluded restarted
job=$(user sbatch --parsable --requeue -N1 -w node02 --exclude node04 --output /dev/null --wrap 'sleep 60')
wait-until 20 state_is "$job" RUNNING
scontrol update JobId="$job" ReqNodeList= || true
user ms-diag requeue "$job" --exclude 'node[02-03]' --now
wait-until 20 excluded "$job" 'node[02-04]'
wait-until 20 restarted "$job" 1
wait-until 20 state_is "$job" PENDING
no grep -q 'Reason=.*[Hh]eld' <(scontrol show job "$job")
scancel "$job"
job=$(user sbatch --parsable --requeue -N1 --output "$CLUSTER_DIR/shared/inside" --open-mode=append \
  --wrap 'echo start $SLURM_RESTART_COUNT on $SLURMD_NODENAME; [ -n "$SLURM_RESTART_COUNT" ] || ms-diag requeue --exclude $SLURMD_NODENAME; sleep 1; echo end')
completed "$job"
cat "$CLUSTER_DIR/shared/inside"
first=$(sed -n 's/^start on //p' "$CLUSTER_DIR/shared/inside")
[[ -n $first ]]
excluded "$job" "$first"
no grep -q "^start 1 on $first" "$CLUSTER_DIR/shared/inside"
grep -q "^start 1 on node" "$CLUSTER_DIR/shared/inside"
job=$(sbatch --parsable -N1 --output /dev/null --wrap 'sleep 60')
wait-until 20 state_is "$job" RUNNING
status=0; user ms-diag requeue "$job" --exclude node01 >out 2>&1 || status=$?
cat out
[[ $status == 3 ]]
state_is "$job" RUNNING
[[ $(field "$job" ExcNodeList) != *node* ]]
TEXT
}

# Slurm's own requeue at that moment left such jobs with BadConstraints for good in most tries (22.05), not in all.
@test "requeue while a node of an exclusive job is gone, and Slurm has not seen that" {
  inside 4 <<'TEXT'
begun() { [[ -e began ]]; }
export -f begun
job=$(sbatch --parsable --requeue --exclusive -N2 -n2 --output "$PWD/said" --open-mode=append --wrap '
  [ -z "$SLURM_RESTART_COUNT" ] || { echo again on $SLURM_JOB_NODELIST; exit 0; }
  trap "" TERM; touch began; until [ -e cut ]; do sleep 0.2; done; ms-diag requeue --exclude node02; sleep 60')
wait-until 20 begun
cut-link node02
touch cut
completed "$job" 80
cat said
grep -q 'node02 does not answer; waiting' said
grep -q 'again on node' said
no grep -q 'again on .*02' said
[[ $(field "$job" ExcNodeList) == node02 ]]
TEXT
}

@test "samples of two nodes on shared storage; a node that is likely to fail is used last, until its chance falls" {
  inside 2 <<'TEXT'
policy <<<"[telemetry]
directory = \"$CLUSTER_DIR/shared/kept\""
all_gpus
for node in node01 node02; do on-node $node ms-diag collect | grep -q "are kept in .*/$node/"; done
on-node node01 ms-diag history --samples 'node[01-02]' >samples
for node in node01 node02; do grep -q "^[0-9]*,$node,gpu7,temperature_c,34$" samples; done
on-node node01 ms-diag history --site >site
grep -q '^samples of 2 nodes' site
score() { echo "{\"schema\":1,\"skill\":true,\"day\":$(($(date +%s) / 86400)),\"units\":[{\"unit\":\"node01/gpu3\",\"chance\":$1},{\"unit\":\"node02\",\"chance\":0.1}]}" >scores; }
score 0.8
on-node node01 ms-diag avoid "$PWD/scores" --apply | tee said
[[ $(sinfo -h -N -n node01 -o %w | sort -u) == 1000001 ]]
[[ $(srun -N1 hostname) == node02 ]]
[[ $(srun -N2 hostname | sort | xargs) == 'node01 node02' ]] # who needs it gets it
line=$(sed -n 's/^to check them.* idle: //p' said)
cp "$jobscripts/diag.sbatch" .
LEVEL=1 SBATCH_OUTPUT=$PWD/checked-%N bash -c "$line"
wait-until 40 grep -qs 'ms-diag ends with' checked-node01
wait-until 40 all_are idle
sbatch --wait --no-kill -N2 -o driven.log --wrap "ms-driver run --spares 1 --run-dir $PWD/driven -- true" || { cat driven.log; exit 1; }
tr -d ' \n' <driven/driver/ledger.json >ledger
grep -q '"nodes":\["node02"\]' ledger
score 0.2
on-node node01 ms-diag avoid "$PWD/scores" --apply
[[ $(sinfo -h -N -n node01 -o %w | sort -u) == 1 ]]
TEXT
}

@test "HealthCheckProgram drains a bad node under a job, which goes on, and leaves another's drain alone" {
  printf '%s\n' "HealthCheckProgram=$(realpath "$build")/libexec/ms/ms-health" HealthCheckInterval=1 >"$BATS_TEST_TMPDIR/conf"
  inside 3 --conf "$BATS_TEST_TMPDIR/conf" <<'TEXT'
all_gpus # before the policy, under which every node without them is drained within a second
policy </dev/null
scontrol update nodename=node03 state=drain reason=mine
mkfifo gate
job=$(sbatch --parsable -w node02 --wrap 'cat gate')
wait-until 20 state_is $job RUNNING
gpus node02 "gpu 3 ecc_uncorrectable=4"
gpus node03 "gpu 3 ecc_uncorrectable=4"
wait-until 60 drained_for node02 gpu.ecc
state_is $job RUNNING
refused() { on-node node03 ms-diag history | grep -q refused; }
export -f refused
wait-until 60 refused
[[ $(reason_of node03) == mine ]]
[[ $(ours) == 1 ]]
echo >gate
completed $job
[[ $(field $job Restarts) == 0 ]]
ms-diag check-site >out || true # there is no plugin in this cluster
grep site.none out
no grep site.health out
TEXT
}

# Slurm 25.11 itself starts such a job again, or holds it, whenever its script fails.
@test "sbatch --requeue=expedite: a run that another start does not mend ends, one without its node begins again" {
  echo SlurmctldParameters=enable_expedited_requeue >"$BATS_TEST_TMPDIR/conf"
  inside 3 --conf "$BATS_TEST_TMPDIR/conf" <<'TEXT'
driven() { sbatch --parsable --requeue=expedite --no-kill --exclusive -N2 -o "$1.log" --wrap "exec ms-driver run --run-dir $PWD/$1 --max-requeues 1 -- $2"; }
if ! sbatch --help | grep -q 'requeue\[=expedite'; then
  no driven refused true 2>said
  grep -q -- --requeue said
  exit 0
fi
job=$(driven mistake 'sh -c "exit 93"')
wait-until 60 state_is $job FAILED
[[ $(field $job Restarts) == 0 && $(field $job ExitCode) == 93:0 ]]
job=$(driven lost 'sh -c "if [ \$MS_ATTEMPT = 1 ]; then touch ran; sleep 1000; fi"')
wait-until 60 test -e ran
kill-node node02
wait-until 90 state_is $job COMPLETED
[[ $(field $job Restarts) == 1 ]]
TEXT
}
