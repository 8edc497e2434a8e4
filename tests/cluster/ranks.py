"""Ranks that hang, without PyTorch: rank 1 never calls what the others wait in.   usage: ranks.py KIND
recorder: they answer as PyTorch's flight recorder does; raises: the same, and rank 1 printed an exception before; fails: they
answer nothing, and rank 2 printed that its device is broken; silent: they answer nothing. Under ms-driver only the first
attempt hangs."""
import json
import os
import sys
import time

if os.environ.get("MS_ATTEMPT", "1") != "1":
    sys.exit(0)
kind, rank, count = sys.argv[1], int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
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

if kind == "raises" and rank == 1:
    print("[rank1]: ValueError: empty batch", flush=True)
if kind in ("recorder", "raises"):
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
        file.seek(300 << 20)  # as after a day
        print("\n" + json.dumps(record), file=file)
if kind == "fails" and rank == 2:
    print("[rank2]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered", flush=True)
open(f"ready.{rank}", "w").close()
time.sleep(1000)
