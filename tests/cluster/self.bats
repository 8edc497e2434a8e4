#!/usr/bin/env bats
# The test cluster tested: what it promises to tests (run --help), and that it leaves nothing behind however it ends.

bats_require_minimum_version 1.5.0

setup() {
  cluster=$BATS_TEST_DIRNAME/run
  wait_until=$BATS_TEST_DIRNAME/bin/wait-until
}

# inside OPTION... <SCRIPT: the script runs on the controller of a cluster of its own; any failing line fails the test.
inside() { "$cluster" "$@" -- bash -euxo pipefail -c "$(cat)"; }

# What the machine has and a cluster might leave behind. Processes are not in it: others start some too.
footprint() {
  ip -o link | sed 's/ state .*//'
  cut -d ' ' -f 3- /proc/self/mountinfo
  ls /run/netns /run/cluster /sys/fs/cgroup/* 2>/dev/null || true
}

private="/run /dev/shm /etc /var/lib /var/log /var/spool" # of the controller; a node has /tmp, too

# A script that writes all namespaces of the cluster to the file $namespaces, and litters.
# shellcheck disable=SC2016 # is for the inner shell
litter='for n in $(sinfo -h -N -o %N | sort -u); do
    on-node "$n" readlink /proc/1/ns/net /proc/1/ns/pid /proc/1/ns/mnt; done >"$namespaces"
  readlink /proc/1/ns/net /proc/1/ns/pid /proc/1/ns/mnt >>"$namespaces"
  for dir in $private; do touch "$dir/ms-cluster-litter"; done'

nobody_in() { # FILE: no process is in any namespace that the file lists
  if [[ $(wc -l <"$1") -ne 9 ]]; then return 1; fi # two nodes and the controller
  if readlink /proc/[0-9]*/ns/net /proc/[0-9]*/ns/pid /proc/[0-9]*/ns/mnt 2>/dev/null | grep -qFx -f "$1"; then return 1; fi
}
export -f nobody_in

@test "usage is explained, and what is wrong is refused" {
  run "$cluster" --help
  [[ $status -eq 0 && $output == *--slurm-root* ]]
  local wrong
  for wrong in "" "4" "4 --" "-- true" "0 -- true" "65 -- true" "2 --cpus many -- true" "2 --conf /nowhere -- true" \
    "2 --gres -- true" "2 --slurm-root /nowhere -- true" "2 --odd -- true"; do
    # shellcheck disable=SC2086 # words
    run "$cluster" $wrong
    echo "$wrong: $status $output"
    [[ $status -eq 2 && $output == *error:* ]]
  done
}

@test "without root there is no cluster: 77 and the reason" {
  cp -r "$BATS_TEST_DIRNAME" "$BATS_TEST_TMPDIR/cluster"
  chmod -R a+rX "$BATS_RUN_TMPDIR"
  run setpriv --reuid=65534 --regid=65534 --clear-groups bash "$BATS_TEST_TMPDIR/cluster/run" 1 -- true
  [[ $status -eq 77 && $output == *"it takes root"* ]]
}

@test "the command's exit code, folder, input and environment" {
  cd "$BATS_TEST_TMPDIR"
  # shellcheck disable=SC2016 # is for the inner shell
  run env SLURM_JOB_ID=7 pid=mine nodes=mine CLUSTER_BUILD=/nowhere/build "$cluster" 1 -- bash -c '
    read -r line
    wait-until 1 test $pid == mine
    echo $line $PWD $CLUSTER_NODES ${SLURM_JOB_ID-none} $pid $nodes $(on-node node01 bash -c "echo \$pid") $(hostname) ${PATH%%:/u*}
    exit 42' <<<"hello"
  echo "$output"
  [[ $status -eq 42 && $output == "hello $BATS_TEST_TMPDIR 1 none mine mine mine ctl $BATS_TEST_DIRNAME/bin:/nowhere/build/bin"* ]]
  run -127 "$cluster" 1 -- no-such-command
  run "$cluster" 1 -- bash -c 'kill -SEGV $$'
  [[ $status -eq 139 ]]
}

@test "four nodes run a job, are hosts of their own and do not see one another's files" {
  inside 4 <<'SH'
    [[ $(sinfo -h -o '%D %T') == "4 idle" ]]
    [[ $(srun -N4 hostname | sort | xargs) == "node01 node02 node03 node04" ]]
    [[ $(srun -N4 readlink /proc/self/ns/net /proc/self/ns/pid /proc/self/ns/ipc | sort -u | wc -l) -eq 12 ]]
    [[ $(srun -N4 cat /sys/class/net/eth0/address | sort -u | wc -l) -eq 4 ]]
    for dir in /tmp /dev/shm /run /run/fake /etc /etc/ms /var/lib/ms-diag /var/spool/ms-diag /var/log; do
      on-node node01 test -d $dir
      on-node node01 touch $dir/witness
      for there in "on-node node02" ""; do
        if $there test -e $dir/witness; then exit 1; fi
      done
    done
    top=$(command -v on-node | cut -d / -f 3) # of the repository, which may lie in /tmp
    [[ -z $(on-node node02 ls /etc/ms /run/fake /var/lib/ms-diag /var/spool/ms-diag /tmp | grep -v -e : -e "^$top$") ]]
    on-node node01 touch "$CLUSTER_DIR/shared/seen"
    on-node node02 test -e "$CLUSTER_DIR/shared/seen"
    on-node node01 test -x "$(command -v on-node)" # the repository is where it is
    if on-node node05 true; then exit 1; fi
    if on-node node01 false; then exit 1; fi
SH
}

@test "a job of an ordinary user" {
  inside 2 <<'SH'
    nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    "${nobody[@]}" sbatch -N2 -D / -o "$CLUSTER_DIR/shared/out" --wrap 'srun bash -c "echo \$(id -u) \$(hostname)"'
    wait-until 10 grep -q node02 "$CLUSTER_DIR/shared/out"
    wait-until 10 grep -q node01 "$CLUSTER_DIR/shared/out"
    [[ $(cut -d ' ' -f 1 "$CLUSTER_DIR/shared/out" | sort -u) == 65534 ]]
SH
}

@test "power loss ends the node's job, and the node comes back with its disk and its hardware" {
  inside 4 <<'SH'
    job=$(sbatch --parsable --no-requeue -D / -o /dev/null -w node02 --wrap 'sleep 300')
    wait-until 10 bash -c "squeue -h -j $job -o %T | grep -qx RUNNING"
    on-node node02 touch /etc/ms/disk /run/fake/hardware /tmp/memory
    kill-node node02
    if on-node node02 true; then exit 1; fi
    wait-until 40 bash -c "scontrol show job $job | grep -q JobState=NODE_FAIL"
    [[ $(sinfo -h -n node02 -o %T) == down* ]]
    start-node node02
    wait-until 10 bash -c '[[ $(sinfo -h -n node02 -o %T) == idle ]]'
    [[ $(srun -w node02 hostname) == node02 ]]
    on-node node02 test -e /etc/ms/disk
    on-node node02 test -e /run/fake/hardware
    if on-node node02 test -e /tmp/memory; then exit 1; fi
    if start-node node02; then exit 1; fi
    if start-node node05; then exit 1; fi
SH
}

@test "a cut link is seen by its node, and mends" {
  inside 2 <<'SH'
    changes() { on-node "$1" cat /sys/class/net/eth0/carrier_changes; }
    one=$(changes node01) two=$(changes node02)
    cut-link node01
    wait-until 5 on-node node01 grep -qx 0 /sys/class/net/eth0/carrier
    mend-link node01
    wait-until 5 on-node node01 grep -qx 1 /sys/class/net/eth0/carrier
    (($(changes node01) == one + 2 && $(changes node02) == two))
    [[ $(srun -w node01 hostname) == node01 ]]
SH
}

@test "a limited rate is felt in both directions, and ends" {
  inside 2 <<'SH'
    head -c 12000000 /dev/zero >"$CLUSTER_DIR/shared/zeros"
    took_ms() { # COMMAND...
      local begin=${EPOCHREALTIME/[.,]/}
      "$@" >/dev/null
      echo $(((${EPOCHREALTIME/[.,]/} - begin) / 1000))
    }
    from() { took_ms srun -w node01 cat "$CLUSTER_DIR/shared/zeros"; }
    limit-rate node01 32mbit # 12 MB take 3 s, less the burst; a launch takes up to a second
    slow=$(from)
    ((slow >= 2400))
    [[ $(on-node node01 tc qdisc show dev eth0) == *tbf*32Mbit* ]]
    [[ $(tc qdisc show dev vnode01) == *tbf*32Mbit* ]]
    limit-rate node01 none
    limit-rate node01 none
    [[ $(on-node node01 tc qdisc show dev eth0) != *tbf* && $(tc qdisc show dev vnode01) != *tbf* ]]
    if limit-rate node01 fast; then exit 1; fi
SH
}

@test "fake GPUs are given to jobs" {
  inside 2 --gres 4 --cpus 8 <<'SH'
    [[ $(sinfo -h -o '%G %c') == "gpu:h100:4 8" ]]
    [[ $(srun -N2 --gres=gpu:3 bash -c 'echo $CUDA_VISIBLE_DEVICES' | sort -u) == 0,1,2 ]]
    if srun -N1 --gres=gpu:5 true; then exit 1; fi
SH
}

@test "ssh among controller and nodes, without a question" {
  if ! "$cluster" --check --ssh; then skip "there is no sshd"; fi
  inside 3 --ssh <<'SH'
    [[ $(ssh node02 hostname) == node02 ]]
    [[ $(ssh node02 ssh node03 hostname) == node03 ]]
    [[ $(ssh -F "$CLUSTER_SSH_CONFIG" node01 sinfo -h -o %D) == 3 ]]
    if ssh node04 true; then exit 1; fi
SH
}

@test "a cluster in another tree, which is not written to" {
  if [[ $(stat -f -c %T /) == overlayfs ]]; then skip "overlays do not go that deep"; fi
  inside 2 --slurm-root / --ssh --gres 1 <<'SH'
    [[ $(srun -N2 --gres=gpu:1 stat -f -c %T / | sort -u) == overlayfs ]]
    [[ $(ssh node01 hostname) == node01 ]]
    touch /usr/ms-cluster-litter
SH
  [[ ! -e /usr/ms-cluster-litter ]]
}

@test "lines for slurm.conf and plugstack.conf" {
  printf 'prologFlags = Contain\nKillWait=9\n' >"$BATS_TEST_TMPDIR/conf"
  inside 1 --conf "$BATS_TEST_TMPDIR/conf" --conf <(echo MinJobAge=77) --plugstack "optional /nowhere/a.so x=y" \
    --plugstack "optional /nowhere/b.so" 2>"$BATS_TEST_TMPDIR/err" <<'SH'
    config=$(scontrol show config)
    grep -Eq 'PrologFlags *= .*Contain' <<<"$config"
    if grep -q DeferBatch <<<"$config"; then exit 1; fi
    grep -Eq 'KillWait *= 9 ' <<<"$config"
    grep -Eq 'MinJobAge *= 77 ' <<<"$config"
    srun true
SH
  run ! grep 'more than once' "$BATS_TEST_TMPDIR/err"
  grep '/nowhere/a.so' "$BATS_TEST_TMPDIR/err"
  grep '/nowhere/b.so' "$BATS_TEST_TMPDIR/err"
}

@test "wait-until waits, and says what it last saw" {
  (sleep 0.3 && touch "$BATS_TEST_TMPDIR/file") 3>&- &
  "$wait_until" 5 test -e "$BATS_TEST_TMPDIR/file"
  run "$wait_until" 1 bash -c 'echo seen; false'
  [[ $status -eq 1 && $output == *seen* ]]
  run "$wait_until" 1 sleep 60
  [[ $status -eq 1 ]]
}

@test "nothing is left after success, failure and signals" {
  footprint >"$BATS_TEST_TMPDIR/before"
  local how pid status signal dir
  for how in success failure INT TERM HUP KILL; do
    export namespaces=$BATS_TEST_TMPDIR/$how how private
    case $how in
      success | failure)
        run "$cluster" 2 --ssh -- bash -c "$litter; sleep 300 & setsid sleep 300 & [[ $how == success ]]"
        [[ $status -eq $([[ $how == success ]]; echo $?) ]]
        ;;
      *)
        env --default-signal "$cluster" 2 -- bash -c "$litter; touch '$namespaces.done'; sleep 300" 3>&- &
        pid=$!
        "$wait_until" 20 test -e "$namespaces.done"
        run ! nobody_in "$namespaces"
        kill -"$how" "$pid"
        status=0
        wait "$pid" || status=$?
        signal=$(kill -l "$how")
        echo "$how: $status"
        ((status == 128 + signal))
        ;;
    esac
    "$wait_until" 20 nobody_in "$namespaces" # killed processes leave once the kernel has let them run
  done
  footprint | diff "$BATS_TEST_TMPDIR/before" -
  for dir in $private; do [[ ! -e $dir/ms-cluster-litter ]]; done
}

@test "nothing is left after a cluster that does not boot, and it says why" {
  footprint >"$BATS_TEST_TMPDIR/before"
  run "$cluster" 2 --conf <(echo TopologyPlugin=topology/nonsense) --keep "$BATS_TEST_TMPDIR/logs" -- true
  echo "$output"
  [[ $status -eq 125 && $output == *"did not boot"* && $output == *topology* ]]
  [[ -s $BATS_TEST_TMPDIR/logs/slurmctld.log && -s $BATS_TEST_TMPDIR/logs/slurm.conf ]]
  footprint | diff "$BATS_TEST_TMPDIR/before" -
}

@test "two clusters at once do not meet" {
  export meet=$BATS_TEST_TMPDIR
  # shellcheck disable=SC2016 # is for the inner shell
  local script='set -e
    touch "$meet/$0"
    on-node node01 touch "/etc/ms/$0" "/run/$0"
    wait-until 20 test -e "$meet/one" -a -e "$meet/two"
    [[ $(on-node node01 ls /etc/ms) == "$0" ]]
    [[ $(srun -N2 hostname | sort | xargs) == "node01 node02" && $(sinfo -h -o %D) == 2 ]]
    touch "$meet/$0.done"
    wait-until 20 test -e "$meet/one.done" -a -e "$meet/two.done"'
  "$cluster" 2 -- bash -c "$script" one 3>&- &
  local first=$!
  "$cluster" 2 -- bash -c "$script" two
  wait "$first"
}
