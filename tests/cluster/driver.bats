#!/usr/bin/env bats
# ms-driver on a real Slurm: what ends an attempt, who is left out, and that nothing is lost. driver_faults.sh has the
# whole table of faults.

bats_require_minimum_version 1.5.0

load inside

# scontrol that hangs costs the driver nothing but the job's comment.
@test "a rank that dies is replaced by a spare, and the losses are those of an undisturbed run" {
  inside 2 1 <<'BASH'
  driven_config
  undisturbed
  printf '#!/bin/sh\ntouch %q\nexec sleep 1000\n' "$PWD/asked" >scontrol
  chmod +x scontrol
  drive_training --comment
  wait-until 30 at_step 2
  on-node node01 mount --bind "$PWD/scontrol" "$(command -v scontrol)"
  wait-until 30 at_step 12
  on-node node02 pkill -KILL -x ms-train
  ends_with 0
  [ "$(attempt 1 cause)" = '"rank_died"' ]
  [ "$(attempt 1 suspects)" = '["node02"]' ]
  [ "$(attempt 2 nodes)" = '["node01", "node03"]' ]
  [ "$(attempt 2 to_step)" = 60 ]
  losses_agree
  [ -e asked ]
  ms-driver report r | grep -q 'rank_died'
  ms-driver status r | grep -q 'ended'
BASH
}

@test "a node that is gone, and then a driver that is killed" {
  inside 2 1 <<'BASH'
  driven_config
  undisturbed
  drive_training
  wait-until 30 at_step 8
  kill-node node02
  wait-until 30 grep -q 'attempt 2 trains' job.log
  on-node node01 bash -c 'kill -KILL "$(pgrep -f "^ms-driver run" | tail -n 1)"'
  ends_with 0
  [ "$(attempt 1 cause)" = '"node_lost"' ]
  [ "$(attempt 1 suspects)" = '["node02"]' ]
  grep -q 'resuming its attempt 2' job.log
  [ "$(attempt 2 to_step)" = 60 ]
  losses_agree
BASH
}

# Whoever has processes on two nodes sees the directory of heartbeats on one, and lays it on the other before its agent starts.
@test "another user's directory in the place of heartbeats costs them, and neither the node nor the run" {
  inside 2 0 <<'BASH'
  driven_config train.steps=400
  drive_training
  wait-until 30 at_step 2
  path=$(on-node node02 bash -c 'echo /tmp/ms-driver-*')
  on-node node02 bash -c "rm -r $path && setpriv --reuid 65534 --regid 65534 --clear-groups mkdir -m 777 $path &&
    pkill -KILL -f 'ms-driver agen[t]'"
  wait-until 60 grep -q 'no heartbeats of node02' job.log
  wait-until 10 grep -q '"unheard"' r/driver/status.json
  ends_with 0
  [ "$(python3 -c 'import json; l = json.load(open("r/driver/ledger.json")); print(len(l["attempts"]), *l["excluded"], *l["strikes"], *l["unheard"])')" = '1 node02' ]
  [ "$(on-node node02 stat -c %u "$path")" = 65534 ]
BASH
}

@test "a guard that rolls back gets another attempt without the data that spoiled the run" {
  inside 2 0 <<'BASH'
  driven_config train.steps=30 'guard.nonfinite="rollback"'
  export MS_FAULT='step=12 rank=1 restart=0 nan'
  drive_training
  ends_with 0
  [ "$(attempt 1 cause)" = '"rollback"' ]
  [ "$(attempt 1 suspects)" = '[]' ]
  [ "$(attempt 2 to_step)" = 30 ]
  chain=$(ms-data sample c.toml --step 30 --chain | tail -n 1 | cut -d ' ' -f 5)
  grep -q "^{\"step\":30,.*\"data_chain\":\"$chain\"" r/metrics.jsonl
BASH
}

@test "a rank that hangs is told from those that wait for it" {
  inside 3 1 <<'BASH'
  driven_config
  export MS_FAULT='step=12 rank=1 restart=0 hang'
  drive_training
  ends_with 0
  [ "$(attempt 1 cause)" = '"hang"' ]
  [ "$(attempt 1 suspects)" = '["node02"]' ]
  [ "$(attempt 2 to_step)" = 60 ]
  grep -q '"stack"' r/driver/attempt-1.evidence.json
BASH
}

@test "people may take a node out, and stop the run with a checkpoint; intruders may not" {
  inside 2 1 <<'BASH'
  driven_config train.steps=2000
  drive_training --comment
  wait-until 30 at_step 5
  wait-until 10 grep -q '^ms_run_loss ' r/driver/metrics.prom # the driver reads the run's numbers every second
  grep -q '^ms_driver_training 1' r/driver/metrics.prom
  ms-driver status r >out
  grep -q 'attempt 1: trains' out
  # Another user: the run's directory is refused, and a copy of it is of no use without this user's credential.
  mkdir -p copy/driver && cp r/driver/state.json copy/driver && chmod -R a+rX copy
  evicts_as_another() { local status=0; setpriv --reuid=65534 --regid=65534 --clear-groups ms-driver evict --run-dir copy node02 || status=$?; echo $status; }
  [ "$(evicts_as_another)" = 2 ]
  chown -R 65534 copy
  [ "$(evicts_as_another)" = 76 ]
  port=$(sed -n 's/.*"port": \([0-9]*\).*/\1/p' r/driver/state.json)
  for text in '{}' '{"role":"client","node":"","nonce":"x","credential":"MUNGE:abc:"}' 'GET / HTTP/1.1'; do
    exec 9<>"/dev/tcp/10.77.0.11/$port" && echo "$text" >&9 && exec 9>&-
  done
  ms-driver evict --run-dir r node99 | grep -q 'not a node of this job'
  ms-driver evict --run-dir r node02 | grep -q 'continues without it'
  wait-until 30 grep -q 'attempt 2 trains' job.log
  [ "$(attempt 2 nodes)" = '["node01", "node03"]' ]
  wait-until 10 bash -c "squeue -h -O comment:200 | grep -q 'ms-driver: attempt 2 trains'"
  wait-until 10 grep -q 'proved nothing' job.log
  excluded() { ms-driver report --json r | python3 -c 'import json, sys; print(*json.load(sys.stdin)["excluded"])'; }
  [ "$(excluded)" = node02 ]
  ms-driver readmit --run-dir r node01 | grep -q 'is not excluded'
  ms-driver readmit --run-dir r node02 | grep -q 'is checked'
  wait-until 10 bash -c "$(declare -f excluded); [ -z \"\$(excluded)\" ]"
  ms-driver readmit --run-dir r node02 | grep -q 'is not excluded'
  ms-driver stop --run-dir r
  ends_with 75
  grep -q 'is committed' job.log
BASH
}

@test "intruders at the port cost two lines of log at most, and the run nothing" {
  inside 2 1 <<'BASH'
  driven_config train.steps=400
  undisturbed
  drive_training
  wait-until 30 at_step 5
  port=$(sed -n 's/.*"port": \([0-9]*\).*/\1/p' r/driver/state.json)
  python3 intruders.py 10.77.0.11 "$port" "$CLUSTER_DIR/munge/socket" >intruders.log 2>&1 || { cat intruders.log && false; }
  (($(steps_done) < 400)) # they came while it trained
  ends_with 0 400
  [ "$(grep -c 'proved nothing' job.log)" -le 2 ]
  grep -q 'proved nothing' job.log
  [ "$(attempt 1 cause)" = '"done"' ]
  losses_agree
BASH
}

@test "checks before the first attempt, and a smaller run where nodes are too few" {
  inside 3 0 <<'BASH'
  driven_config
  cat >diag <<'SH'
#!/bin/sh
if [ -e bad ] && [ "$(hostname)" = node03 ]; then
  printf '{\n  "findings": [{"code": "test.bad", "severity": "critical", "entity": "node03", "message": "it is broken"}]\n}\n' && exit 2
fi
SH
  chmod +x diag
  drive_training --diag "$PWD/diag" --preflight 1 --shrink
  wait-until 40 at_step 12
  [ "$(attempt 1 nodes)" = '["node01", "node02", "node03"]' ]
  kill-node node03
  ends_with 0
  grep -q '2 nodes of 2 train with mesh.dp=2' job.log
  [ "$(attempt 2 nodes)" = '["node01", "node02"]' ]
  [ "$(attempt 2 from_step)" -ge 5 ]
  [ "$(attempt 2 to_step)" = 60 ]
  start-node node03
  wait-until 30 srun -w node03 true # Slurm may call it idle before its slurmd listens
  rm -r r job.log ckpt
  touch bad
  drive_training --diag "$PWD/diag" --preflight 1
  ends_with 76
  grep -q 'node03 is left out: test.bad node03: it is broken' job.log
  [ ! -e r/driver/attempt-1.log ]
  rm -r r job.log
  drive --shrink -- sh -c true
  ends_with 2
BASH
}

@test "it ends where another attempt would end the same way" {
  inside 2 0 <<'BASH'
  driven_config train.stepz=3
  drive_training
  ends_with 2
  [ "$(attempt 1 cause)" = '"usage"' ]
  rm -r r job.log
  # A program that is not ours, without heartbeats: tried again, and given up.
  drive --max-idle 2 -- sh -c 'echo attempt $MS_ATTEMPT of rank $SLURM_PROCID; exit 5'
  ends_with 93
  grep -q '^attempt 2 of rank' job.log # the other one may be ended before it says so
  [ "$(attempt 2 code)" = 5 ]
  rm -r r job.log
  drive -- sh -c 'test $MS_ATTEMPT -gt 1 || exit 5; echo well'
  ends_with 0
  [ "$(grep -c '^well' job.log)" = 2 ]
BASH
}

# Slurm would hold the job for ever if it were queued again before slurmctld has seen that the node is gone.
@test "a job without a spare for a lost node begins again when the node is back" {
  inside 2 0 <<'BASH'
  driven_config
  drive_training --max-requeues 1
  wait-until 30 at_step 8
  kill-node node02
  wait-until 60 bash -c "[[ \$(squeue -h -j $(<job.id) -o '%T %r') == 'PENDING Nodes required'* ]]"
  grep -q '"phase": *"queued again"' r/driver/status.json
  start-node node02
  wait-until 90 grep -q '^driver rc 0$' job.log
  [ "$(attempt 2 nodes)" = '["node01", "node02"]' ]
  grep -q '"phase": *"ended"' r/driver/status.json
BASH
}
