#!/usr/bin/env python3
"""Traces of PyTorch's profiler, of gloo jobs on the CPU in which a rank is slow, or none is; and what they must tell.

profiler.py make DIR [CASE ...]   trains a few steps with DistributedDataParallel; DIR/CASE/ gets each rank's trace
profiler.py judge MS_TRACEPP DIR  asks ms-tracepp report about every case of DIR; exits 1 if an answer is wrong

Needs PyTorch.
"""
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

# name: ranks, the slow one, seconds that it sleeps in a step, extra matrix multiplications, whether steps are marked
CASES = {
    "sleeps-3-1": (3, 1, 0.05, 0, False),
    "sleeps-3-0-steps": (3, 0, 0.05, 0, True),
    "sleeps-4-3": (4, 3, 0.1, 0, False),
    "sleeps-4-2-steps": (4, 2, 0.1, 0, True),
    "computes-3-2": (3, 2, 0, 40, False),
    "computes-3-1-steps": (3, 1, 0, 40, True),
    "sleeps-2-1-steps": (2, 1, 0.05, 0, True),
    "even-3": (3, None, 0, 0, False),
    "even-4-steps": (4, None, 0, 0, True),
    "even-2-steps": (2, None, 0, 0, True),
}
STEPS = 12


def rank_main(case, rank, store, directory):
    ranks, slow, sleep_s, extra, marked = case
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.profiler import ProfilerActivity, profile, schedule
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks, store=dist.FileStore(store, ranks))
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    work = torch.randn(384, 384)
    plan = schedule(wait=0, warmup=2, active=STEPS) if marked else None
    path = str(directory / f"trace_rank{rank}.json")
    with profile(activities=[ProfilerActivity.CPU], schedule=plan,
                 on_trace_ready=lambda done: done.export_chrome_trace(path)) as profiler:
        for _ in range(STEPS + (2 if marked else 0)):
            if rank == slow:
                time.sleep(sleep_s)
                for _ in range(extra):
                    work @ work
            model(torch.randn(32, 256)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    dist.barrier()
    os._exit(0)


def make(directory, wanted):
    import multiprocessing
    import torch.distributed  # noqa: F401 - imported once, for all ranks that are forked
    context = multiprocessing.get_context("fork")
    for name, case in CASES.items():
        if wanted and name not in wanted:
            continue
        place = Path(directory) / name
        place.mkdir(parents=True, exist_ok=True)
        store = place / ".store"
        store.unlink(missing_ok=True)
        ranks = [context.Process(target=rank_main, args=(case, rank, str(store), place)) for rank in range(case[0])]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join(120)
        store.unlink(missing_ok=True)


def judge(program, directory):
    right = count = 0
    for name, (_, slow, *_) in CASES.items():
        place = Path(directory) / name
        if not place.is_dir():
            continue
        count += 1
        done = subprocess.run([program, "report", "--json", place], capture_output=True, text=True, timeout=60)
        faults = [one["sentence"] for one in json.loads(done.stdout)["look_first"] if one["is"] == "fault"]
        named = re.match(r"rank (\d+)", faults[0]) if faults else None
        is_right = not faults if slow is None else named is not None and int(named.group(1)) == slow
        right += is_right
        if not is_right:
            print(f"{name}: {faults or 'nothing'}")
    print(f"{right} of {count} right")
    return 0 if count and right == count else 1


def main():
    if sys.argv[1:2] == ["make"] and len(sys.argv) > 2:
        return make(sys.argv[2], sys.argv[3:])
    if sys.argv[1:2] == ["judge"] and len(sys.argv) == 4:
        return judge(sys.argv[2], sys.argv[3])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
