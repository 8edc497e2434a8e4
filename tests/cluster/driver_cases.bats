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
