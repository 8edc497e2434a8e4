#!/usr/bin/env python3
"""Traces of PyTorch jobs that are slow for a known cause, or healthy, and what ms-tracepp must answer.

causes.py make DIR [CASE ...]   runs the jobs of cause_jobs.py over gloo; DIR/CASE/ gets each rank's trace
causes.py plan DIR              writes the traces that such jobs on GPUs would leave
causes.py judge MS_TRACEPP DIR  asks ms-tracepp report about every case of DIR

Right: every cause that is expected is among the first three answers, with its rank and its Python function, and no
answer with a confidence of 0.8 or more blames anything else. Exits 1 if fewer than nine in ten are right, or one of
these is wrong. Only making needs PyTorch.
"""
import json
import subprocess
import sys
from pathlib import Path

SURE = 0.8
MUCH = 0.1  # of the time: an answer below says nothing of a job that is healthy otherwise
# name: job, ranks, and what is expected: (causes, rank, function). Rank None: no one rank; function None: none.
CASES = {
    "loader-one": ("SlowLoader", 3, [("data", 1, "work")]),
    "loader-all": ("SlowLoaders", 3, [("data", None, "work")]),
    "loader-workers": ("SlowWorkers", 2, [("data", 0, "train")]),
    "compute-last": ("SlowCompute", 3, [("slow_rank", 2, None)]),
    "compute-first": ("SlowFirst", 2, [("slow_rank", 0, None)]),
    "items": ("Items", 2, [("outside", None, "<genexpr>")]),
    "uneven": ("Uneven", 3, [("communication", None, None)]),
    "saves-one": ("Saves", 3, [("save", 0, "save_model")]),
    "saves-all": ("SavesAll", 2, [("save", None, "save_model")]),
    "exposed": ("Exposed", 3, [("communication", None, None)]),
    "collects-one": ("Collects", 3, [("collection", 1, "free_memory")]),
    "collects-all": ("CollectsAll", 2, [("collection", None, "free_memory")]),
    "recompiles-all": ("Recompiles", 2, [("compilation", None, "before_step")]),
    "recompiles-one": ("RecompilesOne", 3, [("compilation", 1, "before_step")]),
    "logs": ("Logs", 3, [("outside", 0, "log_metrics")]),
    "augments": ("Augments", 3, [("outside", 2, "work")]),
    "sleeps": ("Sleeps", 2, [("outside", None, "throttle")]),
    "loader-and-saves": ("LoaderAndSaves", 3, [("data", 1, "work"), ("save", None, "save_model")]),
    "collects-and-logs": ("CollectsAndLogs", 3, [("collection", 1, "free_memory"), ("outside", 1, "log_metrics")]),
    "healthy-2": ("Job", 2, []),
    "healthy-3": ("Job", 3, []),
    "healthy-computes": ("Computes", 2, []),
}

# The same of planned jobs on GPUs: a function of Gpu.
PLANNED = {
    "gpu-pageable": ("pageable", 2, [("synchronises", None, "load_batch")]),
    "gpu-items": ("items", 2, [("synchronises", None, "log_loss")]),
    "gpu-launches": ("launches", 2, [("late", None, "forward"), ("launch", None, "forward")]),
    "gpu-logs": ("logs", 4, [("late", 2, "log_metrics")]),
    "gpu-no-overlap": ("no_overlap", 2, [("communication", None, None)]),
    "gpu-copies": ("copies", 2, [("copies", None, None)]),
    "gpu-healthy": ("healthy", 4, []),
}


class Gpu:
    """Writes the trace of a rank in microseconds: a host thread and two streams."""

    def __init__(self, rank, ranks):
        self.rank, self.ranks, self.events, self.now, self.free, self.calls = rank, ranks, [], 0.0, {7: 0.0, 20: 0.0}, 0

    def add(self, category, name, begin, end, pid=100, tid=100, **args):
        self.events.append({"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": round(begin, 3),
                            "dur": round(end - begin, 3), "args": args})

    def python(self, function, line, body, *args):
        begin = self.now
        self.now += 1
        body(*args)
        self.now += 1
        self.add("python_function", f"train.py({line}): {function}", begin, self.now)

    def host(self, us):
        self.now += us

    def launch(self, name, us, stream=7, category="kernel", call="cudaLaunchKernel", after=None):
        self.calls += 1
        self.add("cuda_runtime", call, self.now, self.now + 4, correlation=self.calls)
        begin = max(self.free[stream], self.now + 6, self.free[after] if after else 0)
        self.free[stream] = begin + us
        more = {"Collective name": "allreduce", "Group size": self.ranks, "In msg nelems": 1 << 20, "dtype": "Float",
                "Process Group Name": "0", "Process Group Description": "default_pg",
                "Process Group Ranks": str(list(range(self.ranks)))} if name.startswith("nccl") else {}
        self.add(category, name, begin, begin + us, 0, stream, device=0, stream=stream, correlation=self.calls, **more)
        self.now += 5

    def reduce(self, us, after=7):
        self.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", us, 20, after=after)

    def wait(self, call="cudaStreamSynchronize", stream=7, correlation=None):
        begin = self.now
        self.now = max(self.now, self.free[stream]) + 3
        self.add("cuda_runtime", call, begin, self.now, correlation=correlation or self.calls + 100_000)

    def layers(self, count, us):
        for _ in range(count):
            self.add("cpu_op", "aten::mm", self.now, self.now + 6)
            self.launch("ampere_sgemm_128x64", us)

    def write(self, body, path):
        for step in range(8):
            begin = self.now
            self.python("train_step", 90, body, self)
            self.now = max(self.now, self.free[7] - 600)  # the host is at most so far ahead
            self.add("user_annotation", f"ProfilerStep#{step}", begin, self.now)
        groups = [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": self.ranks, "ranks": list(range(self.ranks))}]
        path.write_text(json.dumps({
            "schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": self.rank, "world_size": self.ranks,
                                                    "pg_config": groups}, "traceEvents": self.events}))

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

    def items(self):
        def log_loss():
            begin = self.now
            self.launch("Memcpy DtoH (Device -> Pinned)", 1, category="gpu_memcpy", call="cudaMemcpyAsync")
            self.wait()
            self.add("cpu_op", "aten::item", begin, self.now)
            self.host(60)
        for _ in range(10):
            self.layers(1, 90)
            self.python("log_loss", 31, log_loss)

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


def plan(directory):
    for name, (body, ranks, _) in PLANNED.items():
        place = Path(directory) / name
        place.mkdir(parents=True, exist_ok=True)
        for rank in range(ranks):
            Gpu(rank, ranks).write(getattr(Gpu, body), place / f"trace_rank{rank}.json")
    return 0


def make(directory, wanted):
    import multiprocessing

    import cause_jobs
    context = multiprocessing.get_context("fork")
    for name, (job, ranks, _) in CASES.items():
        if wanted and name not in wanted:
            continue
        place = Path(directory) / name
        place.mkdir(parents=True, exist_ok=True)
        store = place / ".store"
        store.unlink(missing_ok=True)
        running = [context.Process(target=cause_jobs.rank_main, args=(job, rank, ranks, str(store), str(place)))
                   for rank in range(ranks)]
        for process in running:
            process.start()
        for process in running:
            process.join(240)
        for left in [store, *place.glob("model_*.pt"), place / "log"]:
            left.unlink(missing_ok=True)


def is_met(expected, answer):
    cause, rank, function = expected
    line = answer["line"] or ""
    return (answer["cause"] == cause and answer["rank"] == rank and
            (function is None or line.endswith("): " + function)))


def blames(answer, expected):
    """Whether the answer is a wrong one: sure, of a cost that matters, and of another cause or rank than is there."""
    if answer["confidence"] is None or answer["confidence"] < SURE or answer["cost_share"] < MUCH:
        return False
    if answer["cause"] == "slow_rank":
        return not any(answer["rank"] == rank for _, rank, _ in expected)
    return not any(is_met(one, answer) for one in expected)


def judge(program, directory):
    right = wrong = count = 0
    for name, (_, _, expected) in {**CASES, **PLANNED}.items():
        place = Path(directory) / name
        if not place.is_dir():
            continue
        count += 1
        done = subprocess.run([program, "report", "--json", place], capture_output=True, text=True, timeout=60, check=True)
        answers = json.loads(done.stdout)["look_first"]
        missed = [one for one in expected if not any(is_met(one, answer) for answer in answers)]
        blamed = [answer for answer in answers if blames(answer, expected)]
        right += not missed and not blamed
        wrong += bool(blamed)
        if missed or blamed:
            print(f"{name}: {'WRONG' if blamed else 'not found'}, expected {expected}")
            for answer in answers:
                print(f"    {answer['cause']} rank {answer['rank']} line {answer['line']} share {answer['cost_share']:.2f} "
                      f"confidence {answer['confidence']}: {answer['sentence']}")
    print(f"{right} of {count} right, {wrong} wrong")
    return 0 if count and right >= 0.9 * count and wrong == 0 else 1


def main():
    if sys.argv[1:2] == ["make"] and len(sys.argv) > 2:
        return make(sys.argv[2], sys.argv[3:])
    if sys.argv[1:2] == ["plan"] and len(sys.argv) == 3:
        return plan(sys.argv[2])
    if sys.argv[1:2] == ["judge"] and len(sys.argv) == 4:
        return judge(sys.argv[2], sys.argv[3])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
