"""Trains a small model with DistributedDataParallel on batches of ms_loader.   torchrun train.py STEPS TOKEN-FILE

It continues where the run before ended, on any number of ranks, with the samples that follow."""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

import ms_loader

dist.init_process_group("gloo")
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Embedding(320, 64), torch.nn.Linear(64, 64), torch.nn.GELU(),
                            torch.nn.Linear(64, 320))
trained = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = ms_loader.Loader(sys.argv[2], seq=128, global_batch=24, steps=int(sys.argv[1]))
if os.path.exists("state.pt"):
    state = torch.load("state.pt")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    loader.load_state_dict(state["loader"])

for batch in loader:
    tokens, targets = batch.to_torch()
    # The mean over all targets of the step: DDP averages over ranks, which may have unequal numbers of targets.
    loss = cross_entropy(trained(tokens).flatten(0, 1), targets.flatten(), reduction="sum")
    loss = loss * dist.get_world_size() / max(batch.num_targets, 1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dist.all_reduce(mean := loss.detach() / dist.get_world_size())
    if dist.get_rank() == 0:
        print(f"step {batch.step + 1} loss {mean:.4f} chain {loader.chain}")

if dist.get_rank() == 0:
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": loader.state_dict()},
               "state.pt")
loader.close()
dist.destroy_process_group()
