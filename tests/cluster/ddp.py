"""A PyTorch DDP loop over gloo, as somebody writes one who knows nothing of ms: trains a small network on data that depends
on the step alone, saves every fifth step, resumes, prints losses, says after every step how far it is, and answers the driver
with its flight recorder. FAULT in the environment: "RANK STEP ATTEMPTS" has one rank call another collective than the others in
that step of so many attempts.   usage: ddp.py DIR STEPS"""
import os
import pathlib
import sys

import torch
import torch.distributed as dist

from heartbeat import answer_driver, beat

directory, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
rank, world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
attempt = os.environ["MS_ATTEMPT"]
torch.manual_seed(0)
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{directory}/rendezvous.{attempt}", rank=rank, world_size=world)
answer_driver()
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
wrong_rank, wrong_step, wrong_attempts = map(int, os.environ.get("FAULT", "-1 0 0").split())
for step in range(first, steps):
    inputs = torch.randn(64, 64, generator=torch.Generator().manual_seed(1000 * step + rank))
    loss = (model(inputs) - inputs.sum(dim=1, keepdim=True)).square().mean()
    if rank == wrong_rank and step == wrong_step and int(attempt) <= wrong_attempts:
        print(f"rank {rank} calls another collective", flush=True)
        dist.broadcast(torch.zeros(4), src=0)
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
    beat(step + 1, loss=total.item())
dist.destroy_process_group()
