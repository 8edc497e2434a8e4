#!/usr/bin/env bats
# What a user could try so that root runs or believes something of his: none of it does. The user is nobody (65534); whatever
# of his runs as root leaves a mark in $CLUSTER_DIR/shared/owned.

# shellcheck disable=SC2016 # what is in single quotes is for the inner shell
bats_require_minimum_version 1.5.0

setup() {
  cluster=$BATS_TEST_DIRNAME/run
  build=${CLUSTER_BUILD:-$BATS_TEST_DIRNAME/../../build/release}
  [[ -e $build/lib/ms_spank.so ]] || skip "the plugin was not built: there is no slurm/spank.h"
}

# inside N <SCRIPT: in act mode, GPUs healthy, with a folder $evil of programs and a library that mark what root runs.
inside() {
  "$cluster" "$1" --gres 8 --build "$build" --plugstack "optional $build/lib/ms_spank.so config=/etc/ms/ms-diag.toml deadline=40" -- \
    bash -euxo pipefail -c ". '$BATS_TEST_DIRNAME/preflight.sh'; policy </dev/null; all_gpus
user() { setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/ \"\$@\"; }
shared=\$CLUSTER_DIR/shared
evil=\$shared/evil
mkdir \$evil
for program in sh bash scontrol squeue ms-diag ms-prolog ssh; do
  printf '#!/bin/bash\n[[ \$(/usr/bin/id -u) -ne 0 ]] || echo \"\$0 \$*\" >>%s/owned\nexec /bin/true\n' \"\$shared\" >\$evil/\$program
done
chmod 755 \$evil/*
cp '$BATS_FILE_TMPDIR/evil.so' \$evil/evil.so
no_job_left() { [[ -z \$(squeue -h) ]]; }
export -f no_job_left
nothing_owned() { [[ ! -e \$shared/owned ]] || { cat \$shared/owned; false; }; }
$(cat)"
}

setup_file() {
  # A library that marks, once, the root process that it is loaded into.
  cat >"$BATS_FILE_TMPDIR/evil.c" <<'TEXT'
#include <fcntl.h>
#include <unistd.h>
__attribute__((constructor)) static void mark(void) {
  if (geteuid() == 0) close(open("/run/cluster/shared/owned", O_CREAT | O_WRONLY, 0666));
}
TEXT
  cc -shared -fPIC -o "$BATS_FILE_TMPDIR/evil.so" "$BATS_FILE_TMPDIR/evil.c"
  echo 'int main(void) { *(volatile int *)0 = 1; }' >"$BATS_FILE_TMPDIR/crash.c"
  cc -o "$BATS_FILE_TMPDIR/crash" "$BATS_FILE_TMPDIR/crash.c"
}

@test "the twin: root that did load the library would be noticed" {
  inside 1 <<'TEXT'
LD_PRELOAD=$evil/evil.so /bin/true
[[ -e $shared/owned ]]
TEXT
}

@test "PATH, LD_PRELOAD, MS_* and OMPI_* of a job reach nothing of root's" {
  inside 2 <<'TEXT'
gpus node02 "gpu 3 ecc_uncorrectable=4" # so that the prolog goes all its way: checks, scontrol, drain
hostile=(PATH=$evil:/usr/bin:/bin "LD_PRELOAD=$evil/evil.so" "LD_LIBRARY_PATH=$evil" MS_LOG=debug MS_FAULT=x MS_PREFLIGHT=on
  MS_CONFIG=$evil/c OMPI_MCA_mca_base_component_path=$evil SPANK_MS_PREFLIGHT=off SLURM_CONF_SERVER=evil
  SPANK_LD_PRELOAD=$evil/evil.so BASH_ENV=$evil/bash GCONV_PATH=$evil SLURMD_NODENAME=node01 SLURM_SCRIPT_CONTEXT=epilog_slurmd)
job=$(job_script | user env "${hostile[@]}" /usr/bin/sbatch --parsable --output "$shared/job-%j" --export=ALL -N2)
wait-until 20 drained_for node02 gpu.ecc
[[ $(ours) == 1 ]]
wait-until 20 state_is "$job" PENDING # Slurm forgets a cancellation that comes between the drain and the requeue
scancel "$job"
job=$(printf '#!/bin/bash\nexit 69\n' | user env "${hostile[@]}" /usr/bin/sbatch --parsable --output /dev/null --export=ALL -N1)
wait-until 30 no_job_left
nothing_owned
TEXT
}

@test "any exit code of any job, and any verdict it writes, drains nothing" {
  inside 1 <<'TEXT'
looked() { on-node node01 grep -q '"last_epilog_wall_s":[1-9]' /var/lib/ms-diag/state.json; }
export -f looked
for code in 69 70 74 75 76 93 137; do
  on-node node01 rm -rf /var/lib/ms-diag # so that every epilog looks
  job=$(printf '#!/bin/bash\nmkdir -p run; echo \x27{"code":69,"blame":"node","node":"node01"}\x27 >%s/verdict.json; exit %s\n' "$shared" $code |
    user sbatch --parsable --output /dev/null -D "$shared" -N1)
  wait-until 20 state_is "$job" FAILED
  wait-until 20 looked
done
wait-until 20 all_are idle
[[ $(ours) == 0 ]]
nothing_owned
TEXT
}

@test "hostile names, comments and options" {
  inside 3 <<'TEXT'
gpus node02 "gpu 3 ecc_uncorrectable=4"
# A job that cannot be requeued, and says in its own words that it can.
job=$(job_script | user sbatch --parsable --no-requeue --output "$shared/job-%j" -N1 -w node02 \
  --job-name $'x Requeue=1 BatchFlag=1 AdminComment=y\n Restarts=0' --comment $'; rm -rf / $(touch '"$shared"$'/owned) Requeue=1\x01\xff' \
  -D "$shared")
completed "$job"
output "$job" | grep -q '^end'
drained_for node02 gpu.ecc
[[ $(squeue -h -t all -j "$job" -O RestartCnt:8 | xargs) == 0 ]]
for word in '$(touch '"$shared"'/owned)' '../../x' $'on\x01' $'\xff\xfe' 'off;on' "$(printf 'A%.0s' {1..5000})"; do
  no user sbatch --parsable --output /dev/null --ms-preflight="$word" -N1 < <(job_script) 2>"$shared/said"
  grep -q 'takes on, off or require' "$shared/said"
  job=$(job_script | user env MS_PREFLIGHT="$word" sbatch --parsable --output "$shared/job-%j" -N1 -w node01 2>"$shared/said")
  grep -q 'is ignored' "$shared/said"
  completed "$job"
done
no grep -F $'\x01' "$shared/said" "$CLUSTER_DIR"/log/*.log
nothing_owned
TEXT
}

@test "off does not count where the site does not allow it, however it is said" {
  inside 1 <<'TEXT'
gpus node01 "gpu 3 ecc_uncorrectable=4"
job=$(job_script | user env MS_PREFLIGHT=off SPANK_MS_PREFLIGHT=off sbatch --parsable --ms-preflight=off --output /dev/null -N1)
wait-until 20 drained_for node01 gpu.ecc
nothing_owned
TEXT
}

@test "links and files in places that root writes to" {
  inside 2 <<'TEXT'
# The user got hold of the directories before ms-diag was installed, say.
for dir in /var/lib/ms-diag /var/spool/ms-diag /run/ms-diag; do
  on-node node01 sh -c "rm -rf $dir; mkdir $dir; chown 65534 $dir; ln -s /etc/passwd $dir/state.json; ln -s /etc/passwd $dir/history.jsonl;
    ln -s /etc/passwd $dir/job-1; ln -s /etc/passwd $dir/job-2; ln -s /etc/passwd $dir/lock"
done
before=$(on-node node01 sha256sum /etc/passwd)
gpus node01 "gpu 3 ecc_uncorrectable=4"
job=$(submit -N1 -w node01 --no-requeue)
completed "$job"
[[ $(on-node node01 sha256sum /etc/passwd) == "$before" ]]
drained_for node01 gpu.ecc
for dir in /var/lib/ms-diag /var/spool/ms-diag /run/ms-diag; do on-node node01 test -L $dir/job-1; done # nobody followed or replaced them
no grep -q root:x "$shared/job-$job"
nothing_owned
TEXT
}

@test "the kernel's log with a user's words in it, echoed by a daemon of root's" {
  inside 1 <<'TEXT'
fallen='NVRM: Xid (PCI:0000:10:00): 79, pid=1, GPU has fallen off the bus.'
critical() { # ms-diag's own exit status is 2 then, and 3 where it has nothing to say
  grep -q '"severity": "critical"' <(on-node node01 ms-diag run --only gpu.xid --json --config /etc/ms/ms-diag.toml)
}
echo "<3>$fallen" >/dev/kmsg
grep -qF "$fallen" <(dmesg)
no critical
job=$(submit -N1)
completed "$job"
[[ $(ours) == 0 && $(field "$job" Restarts) == 0 ]]
# The twin: had the kernel said it (facility 0 instead of 1), it would count.
policy <<<'[paths]
sysroot = "/run/fake/root"'
said_by() { on-node node01 install -D /dev/stdin /run/fake/root/dev/kmsg <<<"$(($1 * 8 + 3)),1,1000,-;$fallen"; }
said_by 1
no critical
job=$(submit -N1)
completed "$job"
[[ $(ours) == 0 ]]
said_by 0
critical
job=$(submit -N1)
wait-until 20 drained_for node01 gpu.xid
TEXT
}

@test "the kernel's log with a user's words in it, as the name of a program that crashes" {
  [[ $(cat /proc/sys/debug/exception-trace) == 1 ]] || skip "this kernel does not log crashes"
  crash=$BATS_FILE_TMPDIR/crash inside 1 <<'TEXT'
findings() { sed -n '/"findings"/,/"checks"/p' <(on-node node01 ms-diag run --only gpu.xid,host.mce --json --config /etc/ms/ms-diag.toml); }
before=$(findings)
# The kernel's own line begins with the name, of which 15 bytes count: what hardware's errors begin with.
for name in 'NVRM: Xid (PCI:' 'EDAC MC0: 1 UE ' 'mce: [Hardware '; do
  cp "$crash" "$shared/$name"
  lines=$(grep -cF "] $name[" <(dmesg) || true)
  no on-node node01 setpriv --reuid=65534 --regid=65534 --clear-groups "$shared/$name"
  [[ $(grep -cF "] $name[" <(dmesg)) == $((lines + 1)) ]]
done
[[ -n $before && $(findings) == "$before" ]]
job=$(submit -N1)
completed "$job"
[[ $(ours) == 0 && $(field "$job" Restarts) == 0 ]]
TEXT
}
