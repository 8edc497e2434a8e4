#!/usr/bin/env bats
# The plugin and the plain prolog programs in a real Slurm, with a script in ms-diag's place that does what a test says:
# one answer sends a job away from a node, and whatever else happens no job is hurt.

# shellcheck disable=SC2016 # what is in single quotes is for the inner shell
bats_require_minimum_version 1.5.0

shared=/run/cluster/shared # on every node; the cluster's own
config=/etc/ms/ms-diag.toml

setup() {
  plugin="$CLUSTER_BUILD/lib/ms_spank.so program=$shared/ms-diag"
  [[ -e $CLUSTER_BUILD/lib/ms_spank.so ]] || skip "the plugin is not built"
}

# What every script begins with. The stand-in notes how it was called and then does what say NODE COMMANDS told it.
preamble='
cd '"$shared"'
cat >ms-diag <<"TEXT"
#!/bin/sh
echo "$1 $2 $3 job $SLURM_JOB_ID restarts $SLURM_JOB_RESTART_COUNT preflight $MS_PREFLIGHT." >>/run/fake/calls
[ "$1" = epilog ] || [ ! -e /run/fake/prolog ] || . /run/fake/prolog
exit 0
TEXT
chmod 755 ms-diag
for ((i = 1; i <= CLUSTER_NODES; i++)); do
  on-node node0$i sh -c "echo >'"$config"'; mkdir -m 755 /run/ms-diag"
done
say() { on-node "$1" sh -c "cat >/run/fake/prolog" <<<"$2"; }
calls() { on-node "$1" sh -c "cat /run/fake/calls; rm /run/fake/calls"; }
no() { if "$@"; then return 1; fi; } # bash -e does not see a "!"
user() { setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/ "$@"; }
of_job() { scontrol -o show job "$1" | grep -oE " $2=[^ ]*" | cut -d= -f2-; }
is() { [[ $(of_job "$1" "$2") == "$3" ]]; }
export -f of_job is
all_idle() { [[ $(sinfo -h -N -o %T | sort -u) == idle ]]; }
export -f all_idle
drained='\''/usr/bin/scontrol update nodename=$SLURMD_NODENAME state=drain reason="ms-diag:gpu.ecc gpu 3"; exit 69'\''
'

# inside OPTION... <SCRIPT: the script runs on the controller of a cluster of its own; any failing line fails the test.
inside() { "$BATS_TEST_DIRNAME/run" "$@" -- bash -euo pipefail -c "$preamble set -x; $(cat)"; }

sent_away() { # required|optional
  inside 4 --plugstack "$1 $plugin config=$config" <<<'
    say node02 "$drained"
    for node in node01 node03 node04; do
      on-node $node sh -c "printf \"node02 was dropped, 100%%n \\033[1m\n\" >/run/ms-diag/job-1"
    done
    job=$(user sbatch --parsable --open-mode=append -N2 -o out --wrap "echo start \$SLURM_RESTART_COUNT; srun hostname; srun true")
    wait-until 10 is $job Restarts 1
    [[ $(sinfo -h -n node02 -o "%T %E") == "drain"*" ms-diag:gpu.ecc gpu 3" ]] # draining, for a moment
    wait-until 10 is $job JobState PENDING
    [[ $(of_job $job Reason) == BeginTime ]] # waiting, not held
    wait-until 20 is $job JobState COMPLETED
    cat out
    grep -qx "start 1" out
    [[ $(grep -c "^node0[134]$" out) == 2 ]]
    # Once from the script on its node, and once from the first step on the other. The first start may have begun before Slurm
    # took it back, and left a line, too.
    [[ $(grep -x -B1 -A99 "start 1" out | grep -cxF "node02 was dropped, 100%n ?[1m") == 2 ]]
    [[ $(calls node02) == "prolog --config /etc/ms/ms-diag.toml job $job restarts 0 preflight ."* ]]'
}

@test "exit status 69: the job is requeued, not held, the node keeps our reason, the job finishes elsewhere (optional)" {
  sent_away optional
}

@test "the same with the plugin required" {
  sent_away required
}

@test "whatever else ms-diag does, jobs run and nodes stay" {
  inside 2 --plugstack "optional $plugin config=$config deadline=1" <<<'
    for commands in "exit 1" "exit 70" "kill -SEGV \$\$" "kill -KILL \$\$" "exec sleep 100" "yes" "exec /nonexistent" \
      "trap \"\" TERM; while :; do sleep 1 & done" "sleep 100 & exit 0"; do
      say node02 "$commands"
      user srun -N2 true
      no on-node node02 pgrep -f "ms-diag prolog|sleep 100"
    done
    say node02 "exit 69"
    on-node node02 chown 65534 /etc/ms/ms-diag.toml # not root own, so root does not go by it
    user srun -N2 true
    on-node node02 rm /etc/ms/ms-diag.toml
    user srun -N2 true
    chmod 777 ms-diag
    user srun -N2 true
    rm ms-diag
    user srun -N2 true
    wait-until 10 all_idle
    for text in "exit status 1;" "exit status 70;" "signal 11" "signal 9" "did not end in time" "127" "does not belong to root" \
      "ms-diag.toml: No such file" "may be written by others" "ms-diag: No such file"; do
      grep -q "ms_spank: .*$text.*the job starts without a check" ../log/node02.log
    done'
}

@test "an epilog that fails drains nothing" {
  inside 1 --plugstack "required $plugin config=$config" <<<'
    sed -i "s/^exit 0/exit 69/; s/^\[/[ \"\$1\" = epilog ] || exit 0; [/" ms-diag
    user srun true
    wait-until 10 grep -q "epilog ended with exit status 69" ../log/node01.log
    wait-until 10 all_idle'
}

@test "a line of plugstack.conf with a mistake, a missing plugin, a plugin for another Slurm: jobs run" {
  local line
  echo SlurmdDebug=verbose >"$BATS_TEST_TMPDIR/conf" # Slurm 26.05 says no less loudly that an optional one is missing
  for line in "required $plugin config=$config colour=blue" "required $plugin" "optional /nowhere/ms_spank.so config=$config" \
    "optional $CLUSTER_BUILD/tests/spank/ms_spank_wrong_abi.so config=$config"; do
    inside 2 --conf "$BATS_TEST_TMPDIR/conf" --plugstack "$line" <<<'
      say node02 "exit 69"
      user srun -N2 true
      job=$(user sbatch --parsable -N2 -o out --wrap "srun hostname")
      wait-until 10 is $job JobState COMPLETED
      [[ $(grep -x "node0[12]" out | sort | xargs) == "node01 node02" ]]
      wait-until 10 all_idle
      no on-node node02 test -e /run/fake/calls
      grep -q "unknown argument .colour=blue.\|config=FILE is missing\|Dlopen of plugin file failed\|Incompatible plugin version\|Incompatible Slurm plugin .*wrong_abi\|dlopen(.nowhere.ms_spank.so)" ../log/node02.log'
  done
}

@test "the option and its twin reach the prolog, for sbatch, srun and salloc" {
  inside 1 --plugstack "optional $plugin config=$config" <<<'
    told() { # WORD COMMAND...: what the prolog of the job that the command submits is told
      local word=$1
      shift
      user "$@" </dev/null
      wait-until 10 sh -c "[ -z \"\$(squeue -h)\" ]"
      calls node01 | grep -q "^prolog .* preflight $word\.$"
    }
    told "" srun true
    for word in on off require; do
      told $word srun --ms-preflight=$word true
      told $word sbatch -o out --ms-preflight=$word --wrap true
      told $word env MS_PREFLIGHT=$word srun true
    done
    told require salloc --ms-preflight=require true
    told off env MS_PREFLIGHT=off salloc true
    told on srun --ms-preflight true
    # Not NONE: that also asks for the environment of a login, which user 65534 cannot have. Slurm 26.05 holds such a job.
    told require env MS_PREFLIGHT=off sbatch --export=NIL -o out --ms-preflight=require --wrap true
    told "" env SPANK_MS_PREFLIGHT=off SPANK__SLURM_SPANK_OPTION_ms_spank_ms_preflight=off srun true'
}

@test "a word that is none is refused at submission, and in the environment ignored with a warning" {
  inside 1 --plugstack "optional $plugin config=$config" <<<'
    for submit in "srun true" "salloc true" "sbatch --wrap true"; do
      no user ${submit%% *} --ms-preflight=$'"'\\033%n'"' ${submit#* } 2>err
      grep -q "error: --ms-preflight takes on, off or require, not .?%n.$" err
      user env MS_PREFLIGHT=ON $submit 2>err
      grep -q "warning: MS_PREFLIGHT=.ON. is ignored" err
    done
    wait-until 10 sh -c "[ -z \"\$(squeue -h)\" ]"
    [[ $(calls node01 | grep -c ^prolog) == 3 ]]
    user env MS_PREFLIGHT=require salloc sh -c "MS_PREFLIGHT=nonsense srun true" 2>err # a step, not a submission
    no grep -q ignored err
    user sbatch -o out --ms-preflight=off --wrap "sbatch -o inner --wrap true"
    wait-until 10 test -e inner
    wait-until 10 sh -c "[ -z \"\$(squeue -h)\" ]"
    [[ $(calls node01 | grep -c "^prolog.* preflight off\.") == 2 ]] # a job submitted by a job inherits'
}

@test "plain Prolog= and Epilog= programs do the same, and are told the option where the plugin only submits" {
  printf '%s\n' "Prolog=$shared/ms-prolog" "Epilog=$shared/ms-epilog" >"$BATS_TEST_TMPDIR/conf"
  inside 3 --conf "$BATS_TEST_TMPDIR/conf" --plugstack "optional ${plugin/ms-diag/none} config=$config" <<<'
    cp "$CLUSTER_BUILD"/libexec/ms/ms-* .
    user srun -N3 --ms-preflight=require true
    wait-until 10 all_idle
    [[ $(calls node02) == "prolog --config /etc/ms/ms-diag.toml job 1 restarts 0 preflight require."*epilog* ]]
    say node02 "exit 70"
    user srun -N3 true
    say node02 "$drained"
    job=$(user sbatch --parsable -N2 -w node02 -o out --wrap "srun hostname")
    wait-until 10 is $job Restarts 1
    wait-until 10 is $job JobState PENDING
    [[ $(sinfo -h -n node02 -o "%T %E") == "drain"*" ms-diag:gpu.ecc gpu 3" ]] # draining, for a moment'
}
