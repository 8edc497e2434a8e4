"""A PyTorch job as somebody brings it: DDP over gloo by torchrun, a checkpoint every fifth step, and beat() of
examples/10-driver/heartbeat.py after each. In the first attempt rank 1 stops for ever at step 20 where HANG is set.
usage: train.py DIRECTORY STEPS"""
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from heartbeat import beat

directory, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
torch.manual_seed(0)
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = torch.nn.parallel.DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
saved, first = directory / "saved.pt", 0
if saved.exists():
    state = torch.load(saved)
    first = state["step"]
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
if rank == 0:
    print(f"{world} ranks begin at step {first}", flush=True)
for step in range(first, steps):
    if os.environ.get("HANG") and os.environ["MS_ATTEMPT"] == "1" and rank == 1 and step == 20:
        time.sleep(1e6)
    time.sleep(float(os.environ.get("STEP_S", "0")))
    inputs = torch.randn(64, 64, generator=torch.Generator().manual_seed(1000 * step + rank))
    loss = (model(inputs) - inputs.sum(dim=1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0 and step % 5 == 4:
        torch.save({"step": step + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, directory / "new")
        os.replace(directory / "new", saved)
    beat(step + 1, loss=loss.item())
if rank == 0:
    print("trained", flush=True)
dist.destroy_process_group()
