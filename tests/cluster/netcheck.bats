#!/usr/bin/env bats
# ms-netcheck on a real cluster whose nodes all send and receive at most 100 Mbit/s, one of them less.

# shellcheck disable=SC2016 # what is in single quotes is for the inner shell
bats_require_minimum_version 1.5.0

setup() {
  cluster=$BATS_TEST_DIRNAME/run
  build=${CLUSTER_BUILD:-$BATS_TEST_DIRNAME/../../build/release}
}

inside() { # N <SCRIPT
  "$cluster" "$1" --build "$build" -- bash -euxo pipefail -c "cd \$CLUSTER_DIR/shared; $(cat)"
}

@test "the slow node of four is named, by agents and over MPI, and a node that is cut off" {
  inside 4 <<'TEXT'
for n in 1 2 3 4; do limit-rate node0$n 100mbit; done
limit-rate node03 30mbit
verdict() { sed -n '/"verdict"/,/"healthy"/s/^ *"who": "\(.*\)",$/\1/p' out; }
status=0; salloc -Q -N 4 ms-netcheck locate --json >out || status=$?
sed '/"pairs"/,$d' out
[[ $status == 2 && $(verdict) == node03 ]]
status=0; salloc -Q -N 4 ms-netcheck locate --transport mpi --json >out || status=$?
sed '/"pairs"/,$d' out
[[ $status == 2 && $(verdict) == node03 ]]
status=0; salloc -Q -N 4 ms-netcheck locate --transport mpi --by groups --json >out || status=$?
sed '/"pairs"/,$d' out
[[ $status == 2 && $(verdict) == node03 ]]
salloc -Q -N 3 -x node03 ms-netcheck collectives --what all_reduce --from 64KiB --to 64KiB --iterations 3 >out
cat out
grep -Eq '^world +all_reduce +65532' out || grep -Eq 'all_reduce +655' out
status=0; salloc -Q -N 2 -w node01,node02 ms-netcheck locate --nodes node04 >out 2>&1 || status=$?
[[ $status == 3 ]]
grep -q 'node04 is not a node of this job' out
limit-rate node03 100mbit
cat >job <<'JOB'
#!/bin/bash
cut-link node02
ms-netcheck locate --wait 10s --json >out
echo $? >status
mend-link node02
JOB
chmod +x job
salloc -Q -N 4 --no-kill ./job # else Slurm ends the job with its first dead node
cat out
[[ $(cat status) == 2 && $(verdict) == node02 ]]
TEXT
}
