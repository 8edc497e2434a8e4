#!/usr/bin/env bats
# ms-driver inspect: a job that prepared nothing is looked at from outside, and is not changed.

bats_require_minimum_version 1.5.0
load inside

setup() {
  kit=$BATS_FILE_TMPDIR/kit
  cat >"$kit/inspected.sh" <<'BASH'
begin() { # KIND [LOG]: submits the job, and waits until its ranks are there
  rm -f ready.*
  cat >job.sh <<TEXT
#!/bin/bash
export NCCL_INSPECTOR_DUMP_DIR=$PWD TORCH_FR_DUMP_TEMP_FILE=$PWD/trace_ TORCH_NCCL_DEBUG_INFO_PIPE_FILE=$PWD/ask_
srun --ntasks-per-node=1 python3 -B ranks.py $1
TEXT
  sbatch --parsable --exclusive --nodes="$work" --ntasks-per-node=1 -o "${2-job-%j.log}" job.sh >job.id
  all_ready() { [[ $(find . -name 'ready.*' | wc -l) == "$work" ]]; }
  export -f all_ready
  export work
  wait-until 40 all_ready
}
# says EXPRESSION: of the document `it` that inspect printed.
says() { python3 -c 'import json, sys; it = json.load(open("it.json")); sys.exit(not eval(sys.argv[1]))' "$1" || { cat it.json && return 1; }; }
pids() { for node in node01 node02 node03; do on-node "$node" pgrep -f ranks.py; done; }
BASH
}

@test "inspect names the rank and the node of a job that hangs, and leaves it alone" {
  inside 3 0 <<'BASH'
  . ./inspected.sh
  begin recorder
  before=$(pids)
  time ms-driver inspect --json "$(<job.id)" >it.json
  says 'it["verdict"]["state"] == "hang" and it["verdict"]["suspects"][0]["rank"] == 1'
  says 'it["verdict"]["suspects"][0]["host"] == "node02"'
  says '[(n["ranks"], n["step"]) for n in it["nodes"]] == [(1, 0)] * 3'
  says 'any(m["what"].startswith("NCCL") and len(m["nodes"]) == 3 for m in it["missing"])'
  says 'not any(m["what"].startswith("flight") for m in it["missing"])'
  [ "$(pids)" = "$before" ]
  [ "$(squeue -h -j "$(<job.id)" -o %T)" = RUNNING ]
  ms-driver inspect --dir again "$(<job.id)" | grep -q 'suspect [89][0-9] %: rank 1 node02'
  scancel "$(<job.id)"
BASH
}

@test "inspect reads what the job prints where Slurm writes it" {
  inside 3 0 <<'BASH'
  . ./inspected.sh
  begin fails
  ms-driver inspect --json "$(<job.id)" >it.json
  says 'it["verdict"]["suspects"][0]["rank"] == 2 and it["verdict"]["suspects"][0]["reason"] == "failed"'
  says 'it["verdict"]["suspects"][0]["fault"] == "device" and it["verdict"]["suspects"][0]["confidence"] >= 0.8'
  says 'not any(m["what"].startswith("a log") for m in it["missing"])'
  scancel "$(<job.id)"
  wait-until 40 bash -c '[[ -z $(squeue -h -t running,completing) ]]'
  begin fails /dev/null
  ms-driver inspect --json "$(<job.id)" >it.json
  says 'any(m["what"].startswith("a log") for m in it["missing"])'
  says 'not any(s["reason"] == "failed" for s in it["verdict"]["suspects"])'
  scancel "$(<job.id)"
BASH
}

@test "inspect says what it could not have, of a job without recorders and of a node that does not answer" {
  inside 3 0 <<'BASH'
  . ./inspected.sh
  begin silent
  ms-driver inspect --json "$(<job.id)" >it.json
  says 'it["verdict"]["state"] != "hang" or it["verdict"]["suspects"][0]["confidence"] < 0.8'
  says 'any(m["what"].startswith("flight") and len(m["nodes"]) == 3 for m in it["missing"])'
  says '[s["name"] for s in it["verdict"]["sources"]] == ["stacks", "NCCL\u0027s Inspector"]'
  rc=0; ms-driver inspect "$(<job.id)" 2>error || rc=$?
  [ "$rc" = 2 ] && grep -q 'exists' error
  rc=0; ms-driver inspect 999999 2>error || rc=$?
  [ "$rc" != 0 ]
  kill-node node03
  ms-driver inspect --dir cut --timeout 20s --json "$(<job.id)" >it.json
  says 'any(m["what"].startswith("an answer") and m["nodes"] == ["node03"] for m in it["missing"])'
  scancel "$(<job.id)"
  wait-until 40 bash -c '[[ -z $(squeue -h -t running,completing) ]]' || true
  rc=0; ms-driver inspect --dir late "$(<job.id)" 2>error || rc=$?
  [ "$rc" = 2 ] && grep -q 'does not run' error
BASH
}
