#!/usr/bin/env bats
# Nodes that Slurm drains or that get slow under a run, on a real Slurm.

bats_require_minimum_version 1.5.0
load inside

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
