"""Traces that jobs on GPUs would leave that are slow for a known cause, or healthy: what causes.py plans. Each is a method
of Gpu. Ranks meet in their collectives: a rank that comes late makes the others' collectives long.

gpu_jobs.py JOB RANKS STEPS DIR   writes the traces of one, compressed
"""
import gzip
import json
import random
import sys
from pathlib import Path


class Gpu:
    """Writes the trace of a rank in microseconds: a host thread and two streams."""

    steps = 8

    def __init__(self, rank, ranks, ends):
        self.rank, self.ranks, self.events, self.now, self.free, self.calls = rank, ranks, [], 0.0, {7: 0.0, 20: 0.0}, 0
        self.ends, self.ready, self.step, self.random = ends, [], 0, random.Random(rank)

    def add(self, category, name, begin, end, pid=100, tid=100, **args):
        begin, end = round(begin, 3), round(end, 3)
        self.events.append({"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": begin,
                            "dur": round(end - begin, 3), "args": args})

    def python(self, function, line, body, *args, file="train.py"):
        begin = self.now
        self.now += 1
        body(*args)
        self.now += 1
        self.add("python_function", f"{file}({line}): {function}", begin, self.now)

    def host(self, us):
        self.now += us

    def launch(self, name, us, stream=7, category="kernel", call="cudaLaunchKernel", after=None, until=0, **args):
        self.calls += 1
        self.add("cuda_runtime", call, self.now, self.now + 4, correlation=self.calls)
        begin = max(self.free[stream], self.now + 6, self.free[after] if after else 0)
        self.free[stream] = max(begin + us, until)
        self.add(category, name, begin, self.free[stream], 0, stream, device=0, stream=stream, correlation=self.calls,
                 **args)
        self.now += 5
        return begin + us

    def reduce(self, us, after=7, kind="AllReduce"):
        number = len(self.ready)
        self.ready.append(self.launch(
            f"ncclDevKernel_{kind}_Sum_f32_RING_LL", us, 20, after=after,
            until=self.ends[number] if number < len(self.ends) else 0,
            **{"Collective name": kind.lower(), "Group size": self.ranks, "In msg nelems": 1 << 20, "dtype": "Float",
               "Process Group Name": "0", "Process Group Description": "default_pg",
               "Process Group Ranks": str(list(range(self.ranks)))}))

    def wait(self, call="cudaStreamSynchronize", stream=7, correlation=None):
        begin = self.now
        self.now = max(self.now, self.free[stream]) + 3
        self.add("cuda_runtime", call, begin, self.now, correlation=correlation or self.calls + 100_000)

    def layers(self, count, us, name="ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn", op="aten::mm"):
        for _ in range(count):
            shapes = {"Input Dims": [[4096, 1024], [1024, 4096]], "Input type": ["c10::BFloat16", "c10::BFloat16"],
                      "Concrete Inputs": ["", ""]} if op == "aten::mm" else {}
            self.add("cpu_op", op, self.now, self.now + 5, **shapes)
            self.launch(name, us * self.random.uniform(0.99, 1.01))

    def load(self, us):
        begin = self.now
        self.python("__next__", 700, self.host, us, file="torch/utils/data/dataloader.py")
        self.add("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin, self.now)

    def train(self, body):
        for self.step in range(self.steps):
            begin = self.now
            self.python("train_step", 90, body, self)
            self.now = max(self.now, self.free[7] - 600)  # the host is at most so far ahead
            self.add("user_annotation", f"ProfilerStep#{self.step}", begin, self.now)
        return self

    def document(self):
        groups = [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": self.ranks, "ranks": list(range(self.ranks))}]
        return {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}],
                "distributedInfo": {"backend": "nccl", "rank": self.rank, "world_size": self.ranks, "pg_config": groups},
                "traceEvents": self.names() + self.events}

    def names(self):
        threads = [(100, 100, "thread 100 (python)"), (0, 7, "stream 7 "), (0, 20, "stream 20 ")]
        return [{"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "ts": 0, "args": {"name": name}}
                for pid, tid, name in threads]

    # The jobs.

    def healthy(self):
        self.layers(20, 200)
        self.reduce(900, None)
        self.layers(20, 200)

    def pageable(self):
        def load_batch():
            self.launch("Memcpy HtoD (Pageable -> Device)", 900, category="gpu_memcpy", call="cudaMemcpyAsync")
            self.wait("cudaStreamSynchronize")
            self.host(700)
        self.python("load_batch", 20, load_batch)
        self.layers(10, 200)

    def log_loss(self, us=60):
        begin = self.now
        self.launch("Memcpy DtoH (Device -> Pinned)", 1, category="gpu_memcpy", call="cudaMemcpyAsync")
        self.wait()
        self.add("cpu_op", "aten::item", begin, self.now)
        self.host(us)

    def items(self):
        for _ in range(10):
            self.layers(1, 90)
            self.python("log_loss", 31, self.log_loss)

    def launches(self):
        def forward():
            for _ in range(200):
                self.host(12)
                self.launch("elementwise_kernel", 3)
        self.python("forward", 41, forward)

    def logs(self):
        self.layers(10, 200)
        if self.rank == 2:
            self.now = max(self.now, self.free[7] - 50)
            self.python("log_metrics", 52, self.host, 1500)
        self.layers(10, 200)

    def no_overlap(self):
        self.layers(10, 200)
        self.reduce(1500)
        self.free[7] = self.free[20]
        self.layers(2, 200)

    def copies(self):
        self.launch("Memcpy HtoD (Pinned -> Device)", 1500, category="gpu_memcpy", call="cudaMemcpyAsync")
        self.layers(10, 200)

    # Mixtures, and jobs that look slow and are not.

    def passes(self, us=200, count=20, transfer=400, **named):
        """Forward, backward with gradients that are reduced meanwhile, and the optimizer, which waits for them."""
        self.python("forward", 41, self.layers, count, us, *named.values())
        for _ in range(2):
            self.layers(count, us, *named.values())
            self.reduce(transfer)
        self.free[7] = max(self.free.values())
        self.launch("multi_tensor_apply_kernel", 50)

    def stall(self, function, line, us):
        """The host is held up when the device has nearly run dry."""
        self.now = max(self.now, self.free[7] - 50)
        self.python(function, line, self.host, us)

    def dry_load(self, us):
        self.now = max(self.now, self.free[7] - 50)
        self.load(us)

    def save(self, us):
        self.wait()
        self.python("save", 900, self.host, us, file="torch/serialization.py")

    def collect(self, us):
        self.now = max(self.now, self.free[7] - 50)
        self.add("python_function", "Python GC", self.now, self.now + us, phase=2)
        self.host(us)

    def item_one(self):
        """One rank reads values of the device while it trains."""
        for _ in range(10):
            self.layers(2, 200)
            if self.rank == 2:
                self.python("log_metrics", 52, self.log_loss, 300)
        self.passes(count=10)

    def loader_one(self):
        if self.rank == 1:
            self.dry_load(3000)
        self.passes()

    def loader_and_launches(self):
        if self.rank == 1:
            self.dry_load(3000)
        for _ in range(200):
            self.host(12)
            self.launch("elementwise_kernel", 3)
        self.passes(30)

    def loader_and_items(self):
        if self.rank == 0:
            self.dry_load(4000)
        for _ in range(10):
            self.layers(1, 90)
            self.python("log_loss", 31, self.log_loss, 200)
        self.passes(60)

    def compute_and_item(self):
        slow = self.rank == 3
        self.passes(300 if slow else 200)
        if self.rank == 1:
            self.python("log_loss", 31, self.log_loss, 2000)

    def imbalanced_experts(self):
        """Another rank has most tokens in every step."""
        self.layers(10, 200)
        hot = random.Random(self.step).randrange(self.ranks) == self.rank
        for _ in range(3):
            self.reduce(100, kind="AllToAll")
            self.free[7] = max(self.free.values())
            self.layers(4, 600 if hot else 200, "cutlass_grouped_gemm", "aten::_grouped_mm")
            self.reduce(100, kind="AllToAll")
            self.free[7] = max(self.free.values())
        self.passes()

    def hot_expert(self):
        """The same rank has most tokens in every step."""
        self.layers(10, 200)
        for _ in range(3):
            self.reduce(100, kind="AllToAll")
            self.free[7] = max(self.free.values())
            self.layers(4, 600 if self.rank == 2 else 200, "cutlass_grouped_gemm", "aten::_grouped_mm")
            self.reduce(100, kind="AllToAll")
            self.free[7] = max(self.free.values())
        self.passes()

    def collections(self):
        """Each rank collects garbage at another step: at times."""
        self.passes()
        if random.Random(self.step).randrange(self.ranks) == self.rank:
            self.collect(4000)

    def saves_and_loader(self):
        if self.rank == 3:
            self.dry_load(3000)
        self.passes()
        if self.rank == 0 and self.step % 4 == 3:
            self.save(20000)

    def item_at_end(self):
        """Prints the loss at the end of each step: costs nearly nothing."""
        self.passes()
        self.python("log_loss", 31, self.log_loss, 20)

    def launches_one(self):
        """The host of one rank is slow at everything."""
        for _ in range(150):
            self.host(30 if self.rank == 1 else 3)
            self.launch("elementwise_kernel", 15)
        self.passes(100)

    def throttled(self):
        self.passes(260 if self.rank == 1 else 200)

    def other_kernel(self):
        """One rank chose a slow kernel for one of its operators."""
        self.layers(10, 200)
        self.layers(4, 900 if self.rank == 2 else 200, "cutlass_conv_slow" if self.rank == 2 else "cudnn_conv",
                    "aten::convolution")
        self.passes()

    def slow_network(self):
        self.passes(transfer=6000)

    def pageable_and_loader(self):
        self.dry_load(2500)
        self.pageable()
        self.passes(100)

    def validates(self):
        """Rank 0 evaluates in every step."""
        if self.rank == 0:
            self.python("validate", 140, self.layers, 20, 200)
        self.passes()

    def first_is_long(self):
        if self.step == 0:
            self.now = max(self.now, self.free[7] - 50)
            self.python("__call__", 1200, self.host, 60000, file="torch/_dynamo/convert_frame.py")
        self.passes()

    def saves_in_thread(self):
        """Another thread writes a checkpoint meanwhile: costs nothing."""
        begin = self.now
        self.passes()
        self.add("python_function", "torch/serialization.py(900): save", begin, self.now, tid=101)

    def loads_in_thread(self):
        begin = self.now
        self.passes()
        self.add("python_function", "torch/utils/data/dataloader.py(700): __next__", begin, self.now, tid=101)
        self.add("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin, self.now, tid=101)

    def loader_hidden(self):
        """A slow loader that the host hides, being ahead."""
        self.passes(400)
        self.load(500)

    def graphs(self):
        """One launch starts many kernels."""
        self.launch("graph_kernel", 100, call="cudaGraphLaunch")
        for _ in range(40):
            begin = self.free[7] + 1
            self.free[7] = begin + 100
            self.add("kernel", "graph_kernel", begin, begin + 100, 0, 7, device=0, stream=7, correlation=self.calls)
        self.reduce(300)
        self.free[7] = max(self.free.values())


def meet(ranks, body, steps=None):
    """Returns the ranks of a job, whose collectives begin together: each pass knows when those of the last one could end."""
    ends = []
    while True:
        job = [Gpu(rank, ranks, ends) for rank in range(ranks)]
        for gpu in job:
            gpu.steps = steps or gpu.steps
            gpu.train(body)
        reached = [max(ready) for ready in zip(*(gpu.ready for gpu in job))]
        if reached == ends:
            return job
        ends = reached


def main():
    _, job, ranks, steps, directory = sys.argv
    for gpu in meet(int(ranks), getattr(Gpu, job), int(steps)):
        text = json.dumps(gpu.document(), separators=(",", ":"))
        Path(directory, f"rank{gpu.rank}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
