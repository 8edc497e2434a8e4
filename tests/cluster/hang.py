"""A PyTorch loop over gloo that prepared nothing for a hang, of which rank 1 then does something else.   usage: hang.py DIR WAY"""
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist

directory, way = pathlib.Path(sys.argv[1]), sys.argv[2]
rank, world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{directory}/rendezvous.{os.environ['SLURM_JOB_ID']}", rank=rank, world_size=world)


def load_batch():
    with open(directory / "batches", "rb") as batches:  # a pipe into which nobody writes
        return batches.read()


def tokenize_forever():
    while True:
        sum(range(1000))


WAYS = {
    "sleeps": lambda: time.sleep(1000),
    "loops": tokenize_forever,
    "loads": load_batch,
    "stopped": lambda: os.kill(os.getpid(), 19),
}
total = torch.zeros(1000)
for step in range(30):
    if step == 20 and rank == 1:
        (directory / "hangs").touch()
        WAYS[way]()
    dist.all_reduce(total)
dist.destroy_process_group()
