#!/usr/bin/env bats
# Storage that is full or stalls under a run, on a real Slurm: no fault of a node.

bats_require_minimum_version 1.5.0
load inside

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
  truncate -s 512M image && mkfs.ext4 -q image # room for all 30 checkpoints, however few the stall holds up
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
