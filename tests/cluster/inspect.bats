#!/usr/bin/env bats
# ms-driver inspect: a job that prepared nothing is looked at from outside, and is not changed.

bats_require_minimum_version 1.5.0
load inside

# A job of a rank on each node, of which rank 1 never calls what the others wait in. Ranks of "recorder" answer as PyTorch's
# flight recorder does.
setup() {
  kit=$BATS_FILE_TMPDIR/kit
  cat >"$kit/ranks.py" <<'PYTHON'
import json, os, sys, time

rank, count = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
now = time.time_ns() - 600 * 10**9

def entry(i, state):
    ended = state == "completed"
    return {"record_id": i, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": i + 1, "p2p_seq_id": 0,
            "profiling_name": "nccl:all_reduce", "state": state, "retired": ended, "time_created_ns": now + i,
            "time_discovered_started_ns": now + i, "time_discovered_completed_ns": now + i + 1 if ended else 0,
            "input_sizes": [[8]], "input_dtypes": ["Float"], "output_sizes": [[8]], "output_dtypes": ["Float"]}

def dump():
    entries = [entry(i, "completed") for i in range(5)] + ([] if rank == 1 else [entry(5, "started")])
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(count)))}}
    path = os.environ["TORCH_FR_DUMP_TEMP_FILE"] + str(rank)
    with open(path + ".new", "w") as file:
        json.dump({"pg_config": groups, "pg_status": {}, "entries": entries}, file)
    os.rename(path + ".new", path)

if sys.argv[1] == "recorder":
    pipe = os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] + f"{rank}.pipe"
    os.mkfifo(pipe)
    open(f"ready.{rank}", "w").close()
    reader = os.open(pipe, os.O_RDWR)
    while os.read(reader, 1):
        dump()
if "NCCL_INSPECTOR_DUMP_DIR" in os.environ:
    record = {"header": {"id": "0x1", "rank": rank, "n_ranks": count, "nnodes": count}, "coll_perf": {"coll": "AllReduce"},
              "metadata": {"inspector_output_format_version": "v4.0", "dump_timestamp_us": now // 1000,
                           "hostname": os.uname().nodename, "pid": os.getpid()}}
    with open(f"{os.environ['NCCL_INSPECTOR_DUMP_DIR']}/{os.uname().nodename}-pid{os.getpid()}.log", "w") as file:
        print(json.dumps(record), file=file)
open(f"ready.{rank}", "w").close()
time.sleep(1000)
PYTHON
  cat >"$kit/inspected.sh" <<'BASH'
begin() { # KIND: submits the job, and waits until its ranks are there
  rm -f ready.*
  cat >job.sh <<TEXT
#!/bin/bash
export NCCL_INSPECTOR_DUMP_DIR=$PWD TORCH_FR_DUMP_TEMP_FILE=$PWD/trace_ TORCH_NCCL_DEBUG_INFO_PIPE_FILE=$PWD/ask_
srun --ntasks-per-node=1 python3 -B ranks.py $1
TEXT
  sbatch --parsable --exclusive --nodes="$work" --ntasks-per-node=1 -o job.log job.sh >job.id
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
