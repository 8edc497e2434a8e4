"""Jobs of PyTorch that are slow for a known cause, or healthy: what causes.py traces. Each is a few methods of Job."""
import gc
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEPS, WARMUP = 8, 2


def work(seconds):
    """Computes for so long, in few calls: each is an event of the trace."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(20_000))


class Samples(Dataset):
    def __init__(self, job):
        self.job = job

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return self.job.sample(index)


class Job:
    workers = 0

    def __init__(self, rank, ranks, directory):
        self.rank, self.ranks, self.directory, self.step = rank, ranks, directory, 0
        self.layers = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))
        self.model = nn.parallel.DistributedDataParallel(self.layers)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def sample(self, index):
        return torch.full((256,), float(index % 7))

    def forward(self, batch):
        for _ in range(6):
            batch = self.model.module(batch)
        return self.model(batch).square().mean()

    def before_step(self, batch):
        return batch

    def after_step(self, loss):
        pass

    def train(self, profiler):
        loader = DataLoader(Samples(self), batch_size=64, num_workers=self.workers)
        for self.step, batch in zip(range(STEPS + WARMUP), loader):
            loss = self.forward(self.before_step(batch))
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.after_step(loss)
            profiler.step()


class SlowLoader(Job):
    slow = (1,)

    def sample(self, index):
        return self.tokenize(index)

    def tokenize(self, index):
        if self.rank in self.slow:
            work(0.001)
        return torch.full((256,), float(index % 7))


class SlowLoaders(SlowLoader):
    slow = (0, 1, 2)


class SlowWorkers(SlowLoader):
    workers = 1
    slow = (0,)


class SlowCompute(Job):
    slow = 2

    def before_step(self, batch):
        if self.rank == self.slow:
            self.extra_layers(torch.randn(512, 512))
        return batch

    def extra_layers(self, matrix):
        for _ in range(40):
            matrix = torch.mm(matrix, matrix).clamp(-1, 1)


class SlowFirst(SlowCompute):
    slow = 0


class Items(Job):
    def after_step(self, loss):
        self.gather_scalars(torch.ones(6000))

    def gather_scalars(self, values):
        return sum(values[i].item() for i in range(len(values)))


class Uneven(Job):
    """Batches are long on another rank in every step."""

    def before_step(self, batch):
        return batch.repeat(24, 1) if self.step % self.ranks == self.rank else batch


class Saves(Job):
    savers = (0,)

    def after_step(self, loss):
        if self.step % 2 == 0 and self.rank in self.savers:
            self.save_model()

    def save_model(self):
        weights = {f"copy_{i}": torch.randn(1 << 20) for i in range(24)}
        torch.save(weights, os.path.join(self.directory, f"model_{self.rank}.pt"))


class SavesAll(Saves):
    savers = (0, 1, 2)


class Exposed(Job):
    """Gradients are reduced after the backward pass, and are large."""

    def __init__(self, *args):
        super().__init__(*args)
        self.model = self.Plain(self.layers)
        self.gradient = torch.ones(12 << 20)

    class Plain(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, batch):
            return self.module(batch)

    def after_step(self, loss):
        self.reduce_gradients()

    def reduce_gradients(self):
        dist.all_reduce(self.gradient)


class Collects(Job):
    collector = 1

    def __init__(self, *args):
        super().__init__(*args)
        self.kept = [{"value": [i]} for i in range(400_000)] if self.rank == self.collector else []

    def after_step(self, loss):
        if self.rank == self.collector:
            self.free_memory()

    def free_memory(self):
        gc.collect()


class CollectsAll(Collects):
    collector = 0

    def __init__(self, *args):
        super().__init__(*args)
        self.kept = [{"value": [i]} for i in range(300_000)]

    def after_step(self, loss):
        self.free_memory()


class Recompiles(Job):
    recompilers = (0, 1, 2)

    def __init__(self, *args):
        super().__init__(*args)
        torch._dynamo.config.recompile_limit = 1000
        self.compiled = torch.compile(self.normalize, dynamic=False, backend="aot_eager")

    def normalize(self, batch):
        return (batch - batch.mean()) / (batch.std() + 1)

    def before_step(self, batch):
        return self.compiled(batch[:64 - self.step if self.rank in self.recompilers else 64])


class RecompilesOne(Recompiles):
    recompilers = (1,)


class Logs(Job):
    logger = 0

    def after_step(self, loss):
        if self.rank == self.logger:
            self.log_metrics(loss)

    def log_metrics(self, loss):
        with open(os.path.join(self.directory, "log"), "a", encoding="utf-8") as log:
            for name, values in self.layers.state_dict().items():
                json.dump({"step": self.step, name: values.flatten()[:20_000].tolist()}, log)
                log.flush()


class Augments(Job):
    def before_step(self, batch):
        if self.rank == 2:
            self.augment()
        return batch

    def augment(self):
        work(0.06)


class Sleeps(Job):
    def after_step(self, loss):
        self.throttle()

    def throttle(self):
        time.sleep(0.05)


class LoaderAndSaves(SlowLoader):
    def after_step(self, loss):
        if self.step % 2 == 0:
            Saves.save_model(self)


class CollectsAndLogs(Collects, Logs):
    collector = 1
    logger = 1

    def after_step(self, loss):
        self.free_memory() if self.rank == 1 else None
        self.log_metrics(loss) if self.rank == 1 else None


class Computes(Job):
    """Large batches: the operators take nearly all of a step."""

    def before_step(self, batch):
        return batch.repeat(16, 1)


def rank_main(job, rank, ranks, store, directory):
    from torch.profiler import ProfilerActivity, profile, schedule
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks, store=dist.FileStore(store, ranks))
    path = os.path.join(directory, f"trace_rank{rank}.json")
    one = globals()[job](rank, ranks, directory)
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=WARMUP, active=STEPS),
                 with_stack=True, record_shapes=True,
                 on_trace_ready=lambda done: done.export_chrome_trace(path)) as profiler:
        one.train(profiler)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)
