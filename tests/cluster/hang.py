"""A PyTorch loop over gloo that prepared nothing for a hang, of which rank 1 then does something else.   usage: hang.py DIR WAY"""
import os
import pathlib
import sys
import threading
import time

import torch
import torch.distributed as dist

# Absolute, because the host part of a file URL is ignored: file://d/x is /x, which outlives the cluster.
directory, way = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
rank, world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{directory}/rendezvous.{os.environ['SLURM_JOB_ID']}", rank=rank, world_size=world)
second = dist.new_group(list(range(world)))
total = torch.zeros(1000)


def read_batch():
    with open(directory / "batches", "rb") as batches:  # a pipe into which nobody writes
        return batches.read()


def tokenize_forever():
    while True:
        sum(range(1000))


def take_lock():
    lock = threading.Lock()
    with lock:
        lock.acquire()


class Batches(torch.utils.data.Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return read_batch()


def load_batch():
    return next(iter(torch.utils.data.DataLoader(Batches(), num_workers=1)))


def save_checkpoint():
    torch.save(total, directory / "batches")  # storage that does not answer


def swap_groups():
    dist.all_reduce(total, group=second)


def receive():
    dist.recv(total, src=0)


WAYS = {
    "sleeps": lambda: time.sleep(1000),
    "loops": tokenize_forever,
    "reads": read_batch,
    "locks": take_lock,
    "loads": load_batch,
    "saves": save_checkpoint,
    "stopped": lambda: os.kill(os.getpid(), 19),
    "swaps": swap_groups,
    "receives": receive,
}
for step in range(30):
    if step == 20 and rank == 1:
        (directory / "hangs").touch()
        WAYS[way]()
    dist.all_reduce(total)
    dist.all_reduce(total, group=second)
dist.destroy_process_group()
