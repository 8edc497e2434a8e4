"""A PyTorch DDP loop over gloo, as somebody writes one who knows nothing of ms: trains a small network on data that depends
on the step alone, saves every fifth step, resumes, prints losses, and says after every step how far it is. FAULT in the
environment: "RANK STEP mismatch" has one rank leave out a collective in the first attempt.   usage: ddp.py DIR STEPS"""
import os
import pathlib
import socket
import sys

import torch
import torch.distributed as dist

directory, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
rank, world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
attempt = os.environ["MS_ATTEMPT"]
beats = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)


def beat(step, loss):
    try:
        beats.sendto(f"rank={rank} step={step} loss={loss:.9g}".encode(), os.environ["MS_HEARTBEAT"])
    except OSError:
        pass


torch.manual_seed(0)
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{directory}/rendezvous.{attempt}", rank=rank, world_size=world)
model = torch.nn.parallel.DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
saved = directory / "saved.pt"
first = 0
if saved.exists():
    state = torch.load(saved)
    first = state["step"]
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
fault = os.environ.get("FAULT", "").split()
for step in range(first, steps):
    inputs = torch.randn(64, 64, generator=torch.Generator().manual_seed(1000 * step + rank))
    loss = (model(inputs) - inputs.sum(dim=1, keepdim=True)).square().mean()
    if fault and attempt == "1" and [str(rank), str(step)] == fault[:2]:
        print(f"rank {rank} leaves out a collective", flush=True)
        torch.tensor([0.0]).add_(1)
        while True:  # waits for what the others do not send
            dist.recv(torch.zeros(1), src=(rank + 1) % world, tag=7)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total = loss.detach().clone()
    dist.all_reduce(total)
    if rank == 0:
        with open(directory / "losses", "a") as losses:
            losses.write(f"{step} {total.item()!r}\n")
        if step % 5 == 4:
            torch.save({"step": step + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, directory / "new")
            os.replace(directory / "new", saved)
    beat(step + 1, total.item())
dist.destroy_process_group()
