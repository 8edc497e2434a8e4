#!/usr/bin/env bats
# What ms-driver does about its suspects on a real Slurm while the others train, and about a Slurm that does not answer.

bats_require_minimum_version 1.5.0
load inside

# shellcheck disable=SC2016 # for the shell on the controller
@test "a suspect is measured with spares: cleared it is a spare, at fault it stays out" {
  inside 3 3 <<'BASH'
  says() { wait-until 150 grep -q "$1" job.log || { grep ' driver: ' job.log | tail -n 40 && return 1; }; }
  driven_config train.steps=1000000 train.log_every=100 train.global_batch=6 model.seq=32
  # The second node hangs, and then, in its place, the third one, which loses packets: few enough for everything else.
  export MS_FAULT='step=12 rank=1 restart=0 hang; step=60 rank=1 restart=1 hang'
  drive_training --diagnose 1
  says 'attempt 2 trains'
  lose-packets node03 1
  says 'node02 is found well; its network comes next'
  says 'ms-netcheck locate, over TCP, 16MiB a stream at most, 1 Gbit/s'
  says 'node03 is left out: ms-netcheck between .* of datagrams lost'
  says 'node02 is found well: a spare'
  [ "$(attempt 1 suspects)" = '["node02"]' ]
  ms-driver status --json r >status.json
  python3 -c '
import json
roles = {node["node"]: node["role"] for node in json.load(open("status.json"))["nodes"]}
assert roles["node03"] == "excluded" and roles["node02"] in ("spare", "works"), roles'
  ms-driver report r | grep -q 'node03 is left out: ms-netcheck'
  ms-driver stop --run-dir r
  ends_with 75
BASH
}

# srun --kill-on-bad-exit loses them in more than half of such runs.
@test "the last words of a rank are kept, and name the program" {
  inside 3 1 <<'BASH'
  cat >27.sh <<'SH'
sleep 1
if [ "$SLURM_PROCID" = 1 ]; then
  echo "slurmstepd: error: Detected 1 oom_kill event in StepId=11300781.0. Some of the step tasks have been OOM Killed." >&2
  kill -KILL $$
fi
sleep 1000
SH
  cat >26.sh <<'SH'
sleep 1
if [ "$SLURM_PROCID" = 1 ]; then
  echo "node02:3063028:3066152 [0] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'" >&2
  echo "Last error: Failed to CUDA calloc 6291456 bytes" >&2
  exit 1
fi
echo "node01:3063025:3066048 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer" >&2
sleep 1000
SH
  for try in 1 2 3; do
    drive -- bash 27.sh
    ends_with 93
    [ "$(attempt 1 cause) $(attempt 2 cause)" = '"job_memory" "job_memory"' ]
    [ "$(attempt 1 code) $(attempt 1 suspects)" = '137 []' ]
    rm -r r job.log
    drive -- bash 26.sh
    ends_with 93
    [ "$(attempt 1 cause) $(attempt 2 cause)" = '"gpu_memory" "gpu_memory"' ]
    rm -r r job.log
  done
  # The option of the user counts.
  drive --srun=--kill-on-bad-exit=0 -- sh -c '[ $SLURM_PROCID = 1 ] && exit 5; sleep 3; echo still here; exit 93'
  ends_with 93
  grep -q '^still here' job.log
BASH
}

@test "who says that its GPU is broken is looked at before it works again: found well it does, at fault it stays out" {
  inside 2 0 <<'BASH'
  . ./preflight.sh
  policy </dev/null
  all_gpus
  cat >says.sh <<'SH'
[ "$MS_ATTEMPT" = 1 ] || exit 0
[ "$SLURM_PROCID" = 1 ] || exec sleep 1000
echo "RuntimeError: CUDA error: uncorrectable ECC error encountered" >&2
exit 1
SH
  drive --diagnose 1 -- bash says.sh
  ends_with 0
  [ "$(attempt 1 cause) $(attempt 1 suspects) $(attempt 1 excluded)" = '"gpu_ecc" ["node02"] []' ]
  grep -q 'node02 is found well: a spare' job.log
  python3 -c 'import json; assert not json.load(open("r/driver/ledger.json"))["strikes"]'
  rm -r r job.log
  gpus node02 'gpu 3 ecc_uncorrectable=4'
  drive --diagnose 1 -- bash says.sh
  wait-until 120 ended
  grep -q 'node02 is left out: .*gpu.ecc' job.log
  [ "$(attempt 1 cause)" = '"gpu_ecc"' ]
  [[ $(python3 -c 'import json; print(len(json.load(open("r/driver/ledger.json"))["attempts"]))') == 1 ]]
BASH
}

@test "a look at a suspect ends when its node must work again" {
  inside 2 0 <<'BASH'
  cat >diag <<'SH'
#!/bin/sh
case "$*" in *"--level 2"*) echo $$ >look; exec sleep 1000 ;; esac
SH
  chmod +x diag
  cat >says.sh <<'SH'
[ "$SLURM_PROCID" = 1 ] || exec sleep "$([ "$MS_ATTEMPT" = 1 ] && echo 1000 || echo 0)"
if [ "$MS_ATTEMPT" = 1 ]; then
  echo "RuntimeError: CUDA error: unspecified launch failure" >&2
  exit 1
fi
for ((i = 0; i < 600; ++i)); do
  kill -0 "$(cat look)" 2>/dev/null || exit 0
  sleep 0.1
done
exit 1
SH
  drive --diagnose 2 --diag "$PWD/diag" -- bash says.sh
  ends_with 0
  [ "$(attempt 1 cause) $(attempt 1 suspects)" = '"gpu_launch" ["node02"]' ]
  [ "$(attempt 2 nodes) $(attempt 2 cause)" = '["node01", "node02"] "done"' ]
  [ -s look ]
BASH
}

@test "scontrol that hangs before the driver begins delays it, and no more" {
  inside 1 1 <<'BASH'
  driven_config train.steps=20
  printf '#!/bin/sh\ntouch %q\nexec sleep 1000\n' "$PWD/asked" >scontrol
  chmod +x scontrol
  on-node node01 mount --bind "$PWD/scontrol" "$(command -v scontrol)"
  drive_training --comment
  ends_with 0 90
  [ -e asked ]
  grep -q 'Slurm does not say where munged listens' job.log
  [ "$(attempt 1 cause)" = '"done"' ]
  [ "$(attempt 1 to_step)" = 20 ]
BASH
}

@test "evidence of a run that hangs has the state of the GPUs, and waits for no driver that hangs" {
  inside 2 0 <<'BASH'
  . ./preflight.sh
  policy </dev/null
  gpus node01 'gpu 0 hang'
  gpus node02 'gpu 3 temperature_c=91 ecc_uncorrectable=4 clocks_event_reasons=0x48'
  driven_config run.dir='"r"' run.comm_timeout='"5s"'
  export MS_FAULT='step=12 rank=1 hang'
  # A machine that is busy may not have read the devices in time, which is said: it is asked again.
  for ((try = 0; try < 4; ++try)); do
    rm -rf r ckpt
    no srun --mpi=pmix --nodes=2 --ntasks=2 --ntasks-per-node=1 ms-train run c.toml >log 2>&1
    if grep -q '^gpu3: ' r/evidence/*/devices-node02.txt; then break; fi
  done
  ls r/evidence/*/devices-node0{1,2}.txt || { cat log && false; }
  grep -q '^gpu3: .*temperature_c 91.* ecc_uncorrected 4,.* throttle_reasons 72' r/evidence/*/devices-node02.txt
  grep -q '^not read: gpus: ' r/evidence/*/devices-node01.txt
  ms-tracepp hang r/trace >said
  grep -q 'what the devices of its node said is in .*devices-node02.txt' said
  grep -q '^    gpu3: .*temperature_c 91, .*ecc_uncorrected 4, ' said
BASH
}

@test "all evidence of a hang decides: who never called is accused, and no node where an exception tells why" {
  inside 3 1 <<'BASH'
  judged() { python3 -c 'import json, sys; it = json.load(open("r/driver/attempt-1.hang.json")); sys.exit(not eval(sys.argv[1]))' "$1"; }
  export TORCH_FR_DUMP_TEMP_FILE=$PWD/flight/rank_ TORCH_NCCL_DEBUG_INFO_PIPE_FILE=$PWD/flight/ask_
  mkdir flight
  drive --hang-timeout 6s -- python3 -B ranks.py recorder
  ends_with 0
  [ "$(attempt 1 cause) $(attempt 1 suspects)" = '"hang" ["node02"]' ]
  judged 'it["suspects"][0]["rank"] == 1 and it["suspects"][0]["fault"] == "host"'
  python3 -c '
import json
it = json.load(open("r/driver/ledger.json"))["attempts"][0]
assert it["began_s"] < it["alarm_s"] < it["ended_s"] and it["detect_s"] > 0, it'
  judged '{s["name"] for s in it["sources"]} >= {"flight recorder", "stacks"}'
  rm -r r flight job.log && mkdir flight
  drive --hang-timeout 6s -- python3 -B ranks.py raises
  ends_with 0
  [ "$(attempt 1 cause) $(attempt 1 suspects)" = '"hang" []' ]
  judged 'it["suspects"][0]["rank"] == 1 and it["suspects"][0]["fault"] == "program"'
  python3 -c '
import json
ledger = json.load(open("r/driver/ledger.json"))
assert not ledger["strikes"] and not ledger["excluded"], ledger'
BASH
}
