#!/usr/bin/env bats
# Situations in which runs were lost, or healthy nodes accused, played on a real Slurm.

bats_require_minimum_version 1.5.0
load inside

@test "what ended is never said to run: requeued, cancelled, its driver killed without a word" {
  inside 2 0 <<'BASH'
  reports() { ms-driver report r >report && ms-driver status r >status && [ "$(grep -c '(runs)' report)" = 0 ]; }
  export STUBBORN=1
  drive_loop 100000
  wait-until 40 looped 5
  ms-driver report r | grep -q '(runs)'
  scontrol requeue "$(<job.id)"
  wait-until 30 bash -c '[[ -z $(squeue -h -t running,completing) ]]'
  reports
  wait-until 60 looped 25
  scancel "$(<job.id)"
  wait-until 30 bash -c '[[ -z $(squeue -h -t running,completing) ]]'
  reports
  [ "$(grep -c 'driver_killed\|stopped' report)" -ge 2 ]
  python3 -c '
import json, subprocess
ledger = json.loads(subprocess.run(["ms-driver", "report", "--json", "r"], capture_output=True, check=True).stdout)
assert all(0 < a["began_s"] <= a["ended_s"] for a in ledger["attempts"]), ledger'
BASH
}

@test "the clock of a node or of the driver is set: named, and no time is negative" {
  inside 2 0 <<'BASH'
  export LD_PRELOAD=$CLUSTER_BUILD/lib/libset_clock.so
  drive_loop 100000
  unset LD_PRELOAD
  wait-until 40 looped 5
  on-node node02 bash -c 'echo 3600 >/run/fake/clock'
  noted() { [[ $(notes) == *"clock $1"* ]]; }
  export -f noted notes
  wait-until 30 noted node02
  on-node node01 bash -c 'echo -3600 >/run/fake/clock'
  wait-until 30 noted node01
  ms-driver stop --run-dir r
  wait-until 60 ended
  [ "$(attempt 1 cause)" = '"stopped"' ]
  python3 -c '
import json
ledger = json.load(open("r/driver/ledger.json"))
for a in ledger["attempts"]: assert ledger["began_s"] <= a["began_s"] <= a["first_step_s"] <= a["ended_s"], ledger'
BASH
}

@test "a worker and the spare are lost together: the spare that is gone is not chosen" {
  inside 2 2 <<'BASH'
  drive_loop 150
  wait-until 40 looped 5
  kill-node node02 & kill-node node03
  wait
  ends_with 0
  [ "$(attempt 1 cause) $(attempt 1 suspects)" = '"node_lost" ["node02"]' ]
  [ "$(attempt 2 nodes)" = '["node01", "node04"]' ]
  [ "$(attempt 2 cause)" = '"done"' ]
BASH
}

@test "a run directory that is full keeps its reason, and the run goes on when there is space" {
  inside 2 1 <<'BASH'
  mkdir r
  on-node node01 mount -t tmpfs -o size=2m,nr_inodes=300,mode=755 tmpfs "$PWD/r"
  says() { [[ $(squeue -h -j "$(<job.id)" -O comment:200) == *"$1"* ]]; }
  export -f says
  drive_loop 150
  wait-until 40 looped 5
  on-node node01 bash -c 'mkdir r/files; for ((i = 0; i < 300; ++i)); do : >"r/files/$i"; done; head -c 9m /dev/zero >r/full' 2>/dev/null || true
  on-node node02 pkill -KILL -f loop.py
  wait-until 60 says 'does not begin'
  on-node node01 rm -rf r/files r/full
  ends_with 0
  [ "$(grep -c "node02 is not looked at" job.log)" = 1 ]
  mkdir seen
  on-node node01 cp -r r seen
  cd seen
  [ "$(attempt 1 cause)" = '"rank_died"' ]
  [ "$(attempt 2 cause) $(attempt 2 code)" = '"storage" 74' ]
  python3 -c '
import json
ledger = json.load(open("r/driver/ledger.json"))
assert ledger["attempts"][-1]["cause"] == "done" and not ledger["strikes"], ledger'
BASH
}

@test "a drained node at work is left at the next checkpoint, and is never undrained" {
  inside 2 1 <<'BASH'
  drained() { scontrol -o show node node02 | grep -q 'State=[A-Z+]*DRAIN.*Reason=fan is loud'; }
  driven_config train.steps=100000
  drive_training --health-every 2s
  wait-until 40 at_step 8
  scontrol update nodename=node02 state=drain reason='fan is loud'
  wait-until 60 grep -q 'attempt 2 trains' job.log
  [ "$(attempt 1 cause) $(attempt 1 suspects)" = '"stopped" []' ]
  [ "$(attempt 2 nodes)" = '["node01", "node03"]' ]
  saved=$(attempt 1 to_step) # attempt 2 begins there, whichever of its steps is heard first
  grep -q "resuming from ckpt/step-$(printf %08d "$saved"):" job.log
  [ "$(notes)" = 'drain node02' ]
  ms-driver status r | grep -q '^node02 .*drained by root: fan is loud'
  wait-until 20 bash -c '[[ $(sinfo -h -n node02 -o %T) == drained ]]' # the job has let go of it
  drained
  ms-driver stop --run-dir r
  ends_with 75
  drained
  python3 -c '
import json
ledger = json.load(open("r/driver/ledger.json"))
assert not ledger["strikes"] and not ledger["excluded"], ledger'
BASH
}

@test "a drained node without a spare: the job is queued again behind a save, or the node is kept" {
  inside 2 0 <<'BASH'
  drain() { scontrol update nodename=node02 state=drain reason='fan is loud'; }
  export SECTIONS=1
  drive_loop 100000 --health-every 2s
  wait-until 40 looped 5
  drain
  wait-until 40 grep -q 'the run keeps node02' job.log
  at=$(wc -l <loop/log)
  wait-until 40 looped $((at + 15))
  [ "$(attempt 1 cause)" = '""' ]
  scancel "$(<job.id)"
  wait-until 30 bash -c '[[ -z $(squeue -h) ]]'
  wait-until 30 bash -c '! on-node node01 pgrep -f "^ms-driver run"' # it would write to the new directory
  scontrol update nodename=node02 state=resume
  rm -r r loop job.log
  drive_loop 100000 --health-every 2s --max-requeues 1
  wait-until 40 looped 5
  drain
  wait-until 60 bash -c "[[ \$(squeue -h -j $(<job.id) -o %T) == PENDING ]]"
  [ "$(attempt 1 cause)" = '"resizes"' ]
  [ "$(tail -n 1 loop/log | cut -d ' ' -f 1)" -le $(($(<loop/step) + 9)) ] # it was left right behind a save
  scontrol -o show node node02 | grep -q 'State=IDLE+DRAIN'
  scontrol update nodename=node02 state=resume
  wait-until 60 bash -c 'grep -q " 2$" loop/log'
  [ "$(attempt 2 nodes)" = '["node01", "node02"]' ]
  scancel "$(<job.id)"
BASH
}

@test "a node gets slow: the run says how much, whose fault, and replaces it if that is wanted" {
  inside 2 1 <<'BASH'
  slowed() { [[ $(notes) == 'slow node02'* ]]; }
  export -f slowed notes
  export SECTIONS=1 DT=0.05
  drive_loop 100000 --replace-slow
  wait-until 60 looped 250
  # shellcheck disable=SC2016
  on-node node02 bash -c 'while p=$(pgrep -f "[l]oop.py"); do kill -STOP $p; sleep 0.9; kill -CONT $p; sleep 0.1; done' &
  wait-until 90 slowed
  wait-until 90 grep -q 'attempt 2 trains' job.log
  [ "$(attempt 1 cause) $(attempt 1 suspects)" = '"slow_node" []' ]
  [ "$(attempt 2 nodes)" = '["node01", "node03"]' ]
  ms-driver report r | grep -q ' to slow steps$'
  python3 -c '
import json
ledger = json.load(open("r/driver/ledger.json"))
assert ledger["attempts"][0]["slow_s"] > 5 and not ledger["strikes"] and not ledger["excluded"], ledger'
  scancel "$(<job.id)"
BASH
}

@test "a slow node without a spare stays, and the reason is told; the queue has another node" {
  inside 3 0 <<'BASH'
  stays() { [[ $(notes) == *'recovery.slow_stays node02'* ]]; }
  slow_down() { # until the loop of that node has ended
    # shellcheck disable=SC2016
    on-node node02 bash -c 'while p=$(pgrep -f "[l]oop.py"); do kill -STOP $p; sleep 0.9; kill -CONT $p; sleep 0.1; done' &
  }
  export -f stays notes
  export SECTIONS=1 DT=0.05 work=2
  drive_loop 100000 --replace-slow
  wait-until 60 looped 250
  slow_down
  wait-until 90 stays
  grep -q 'node02 stays: no spare is ready' job.log
  at=$(wc -l <loop/log)
  wait-until 60 looped $((at + 15))
  [ "$(attempt 1 cause)" = '""' ]
  scancel "$(<job.id)"
  wait-until 30 bash -c '[[ -z $(squeue -h) ]]'
  wait-until 30 bash -c '! on-node node01 pgrep -f "^ms-driver run"' # it would write to the new directory
  rm -r r loop job.log
  drive_loop 100000 --replace-slow --max-requeues 1
  wait-until 60 looped 250
  slow_down
  wait-until 120 bash -c "[[ \$(squeue -h -j $(<job.id) -o %T) == PENDING ]]"
  [ "$(attempt 1 cause) $(attempt 1 suspects)" = '"slow_node" []' ]
  wait-until 90 bash -c 'grep -q " 2$" loop/log'
  [ "$(attempt 2 nodes)" = '["node01", "node03"]' ]
  scancel "$(<job.id)"
BASH
}

@test "bugs of the program end the run, and hurt no node" {
  inside 3 1 <<'BASH'
  attempts_without_harm() { # NUMBER CAUSE
    python3 - "$@" <<'PYTHON'
import json, sys
ledger = json.load(open("r/driver/ledger.json"))
assert len(ledger["attempts"]) == int(sys.argv[1]) and not ledger["strikes"] and not ledger["excluded"], ledger
assert all(attempt["cause"] == sys.argv[2] for attempt in ledger["attempts"]), ledger
PYTHON
    rm -rf r loop job.log
  }
  for fault in exception:exception oom:job_memory memory:host_memory; do
    FAULT=${fault%:*}:1:12 drive_loop 40
    ends_with 93
    attempts_without_harm 2 "${fault#*:}"
  done
  # Each attempt comes further.
  for fault in leak:1:job_memory anywhere:any:exception; do
    FAULT=${fault%:*}:12 drive_loop 100 --max-same-error 3
    ends_with 93
    attempts_without_harm 3 "${fault##*:}"
  done
  NOBEAT=1 FAULT=hang:1:12:1 drive_loop 20 --hang-timeout 6s
  ends_with 0
  [ "$(attempt 1 cause) $(attempt 2 cause)" = '"hang" "done"' ]
BASH
}

@test "a quiet program and a network that is away for a while are no faults" {
  inside 2 1 <<'BASH'
  NOBEAT=1 drive_loop 40 --hang-timeout 30s
  ends_with 0
  [ "$(attempt 1 cause)" = '"done"' ]
  rm -r r loop job.log
  DT=3 drive_loop 6 # the ranks do not meet over the network
  wait-until 40 looped 2
  cut-link node02
  sleep 2.5
  mend-link node02
  ends_with 0
  [ "$(attempt 1 cause) $(attempt 1 nodes)" = '"done" ["node01", "node02"]' ]
BASH
}

@test "a run directory whose storage stalls is no fault of a node" {
  if [ ! -e /dev/loop-control ] || ! command -v fsfreeze mkfs.ext4 >/dev/null; then skip "there are no loop devices, or no fsfreeze"; fi
  inside 2 1 <<'BASH'
  truncate -s 32M image && mkfs.ext4 -q image
  mkdir r
  on-node node01 mount -o loop "$PWD/image" "$PWD/r"
  drive_loop 120
  wait-until 40 looped 5
  on-node node01 fsfreeze -f "$PWD/r"
  wait-until 60 looped 80 # steps are done meanwhile
  on-node node01 fsfreeze -u "$PWD/r"
  ends_with 0
  mkdir seen
  on-node node01 cp -r r seen
  cd seen
  [ "$(attempt 1 cause) $(attempt 1 nodes)" = '"done" ["node01", "node02"]' ]
BASH
}

@test "the storage of checkpoints stalls, that of the run does not: no attempt ends, no node is accused" {
  if [ ! -e /dev/loop-control ] || ! command -v fsfreeze mkfs.ext4 >/dev/null; then skip "there are no loop devices, or no fsfreeze"; fi
  inside 2 1 <<'BASH'
  truncate -s 32M image && mkfs.ext4 -q image
  device=$(losetup --show -f image)
  trap 'losetup -d "$device"' EXIT
  mkdir ckpt
  for node in node0{1..3}; do on-node "$node" mount "$device" "$PWD/ckpt"; done
  driven_config train.steps=150
  drive_training
  wait-until 40 at_step 8
  on-node node01 fsfreeze -f "$PWD/ckpt"
  sleep 20 # of frozen storage
  on-node node01 fsfreeze -u "$PWD/ckpt"
  ends_with 0
  [ "$(attempt 1 cause) $(attempt 1 to_step)" = '"done" 150' ]
BASH
}

@test "the node of the batch script dies: an agent has the job queued again, and it begins when the node is back" {
  inside 2 1 <<'BASH'
  waits() { [[ $(squeue -h -j "$(<job.id)" -o %T) == PENDING ]]; }
  export -f waits
  drive_loop 300 --max-requeues 1
  wait-until 40 looped 25
  kill-node node01
  wait-until 90 waits
  start-node node01
  wait-until 60 bash -c 'grep -q " [2-9]$" loop/log' # Slurm may refuse a first start on a node that is just back
  [ "$(attempt 1 cause)" = '"driver_killed"' ]
  python3 -c '
import json
ledger = json.load(open("r/driver/ledger.json"))
assert not ledger["strikes"] and not ledger["excluded"], ledger'
  scancel "$(<job.id)"
BASH
}
