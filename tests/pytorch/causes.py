#!/usr/bin/env python3
"""Traces of PyTorch jobs that are slow for a known cause, or healthy, and what ms-tracepp must answer.

causes.py make DIR [CASE ...]   runs the jobs of cause_jobs.py over gloo; DIR/CASE/ gets each rank's trace
causes.py plan DIR              writes the traces that such jobs on GPUs would leave
causes.py judge MS_TRACEPP DIR  asks ms-tracepp report about every case of DIR

Right: every cause that is expected is among the first three answers, with its rank and its Python function, and no
answer with a confidence of 0.8 or more blames anything else. In the VARIANTS only the latter. Exits 1 if fewer than nine in ten are right, or one of
these is wrong. Only making needs PyTorch.
"""
import json
import subprocess
import sys
from pathlib import Path

import gpu_jobs

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

# The same of planned jobs on GPUs: a method of gpu_jobs.Gpu.
PLANNED = {
    "gpu-pageable": ("pageable", 2, [("synchronises", None, "load_batch")]),
    "gpu-items": ("items", 2, [("synchronises", None, "log_loss")]),
    "gpu-launches": ("launches", 2, [("late", None, "forward"), ("launch", None, "forward")]),
    "gpu-logs": ("logs", 4, [("late", 2, "log_metrics")]),
    "gpu-no-overlap": ("no_overlap", 2, [("communication", None, None)]),
    "gpu-copies": ("copies", 2, [("copies", None, None)]),
    "gpu-healthy": ("healthy", 4, []),
}

# Mixtures of causes, and jobs that look slow and are not, each also as VARIANTS. There, nothing must be found.
MIXED = {
    "mix-item-one": ("item_one", 4, [("slow_rank", 2, None), ("synchronises", 2, "log_metrics")]),
    "mix-loader-one": ("loader_one", 4, [("slow_rank", 1, None), ("data", 1, None)]),
    "mix-loader-and-launches": ("loader_and_launches", 4, [("data", 1, None), ("late", None, "train_step")]),
    "mix-loader-and-items": ("loader_and_items", 4, [("data", 0, None), ("late", None, "log_loss")]),
    "mix-compute-and-item": ("compute_and_item", 4, [("slow_rank", 3, "train_step"), ("synchronises", 1, "log_loss")]),
    "mix-saves-and-loader": ("saves_and_loader", 4, [("data", 3, None), ("save", 0, None)]),
    "mix-pageable-and-loader": ("pageable_and_loader", 2, [("data", None, None), ("synchronises", None, "load_batch")]),
    "mix-launches-one": ("launches_one", 4, [("slow_rank", 1, None), ("late", 1, "train_step"), ("launch", 1, None)]),
    "mix-throttled": ("throttled", 4, [("slow_rank", 1, None)]),
    "mix-other-kernel": ("other_kernel", 4, [("slow_rank", 2, "train_step")]),
    "mix-validates": ("validates", 4, [("slow_rank", 0, "validate")]),
    "mix-hot-expert": ("hot_expert", 4, [("slow_rank", 2, "train_step")]),
    "mix-imbalanced-experts": ("imbalanced_experts", 4, [("communication", None, None)]),
    "mix-collections": ("collections", 4, [("collection", None, None)]),
    "mix-network": ("slow_network", 4, [("communication", None, None)]),
    "mix-first": ("first_is_long", 4, [("compilation", None, None)]),
    "mix-item-at-end": ("item_at_end", 4, []),
    "mix-saves-in-thread": ("saves_in_thread", 2, []),
    "mix-loads-in-thread": ("loads_in_thread", 2, []),
    "mix-loader-hidden": ("loader_hidden", 2, []),
    "mix-graphs": ("graphs", 2, []),
}


def without(key, *values):
    """The traces without events of which a field begins so."""
    def changed(documents):
        for document in documents:
            document["traceEvents"] = [event for event in document["traceEvents"]
                                       if not str(event.get(key, "")).startswith(values)]
        return documents
    return changed


def device_early(documents):
    """The clock of the device is behind: kernels begin before their launch."""
    for event in (event for document in documents for event in document["traceEvents"]):
        event["ts"] -= 300 if event["pid"] == 0 else 0
    return documents


def clocks_apart(documents):
    for index, document in enumerate(documents):
        for event in document["traceEvents"]:
            event["ts"] += 7777 * index
    return documents


def no_groups(documents):
    for document in documents:
        del document["distributedInfo"]["pg_config"]
        for event in document["traceEvents"]:
            event["args"] = {key: value for key, value in event["args"].items() if not key.startswith(("Process Group", "Group"))}
    return documents


# What is done to the traces, and how many steps they have.
VARIANTS = {
    "one-step": (list, 1),
    "two-steps": (list, 2),
    "without-first": (lambda documents: documents[1:], 8),
    "without-second": (lambda documents: documents[:1] + documents[2:], 8),
    "no-python": (without("cat", "python_function"), 8),
    "no-host": (without("cat", "python_function", "cpu_op", "cuda_runtime"), 8),
    "no-steps": (without("name", "ProfilerStep"), 8),
    "device-early": (device_early, 8),
    "clocks-apart": (clocks_apart, 8),
    "no-groups": (no_groups, 8),
}


def plan(directory):
    def write(name, documents):
        place = Path(directory) / name
        place.mkdir(parents=True, exist_ok=True)
        for document in documents:
            rank = document["distributedInfo"]["rank"]
            (place / f"trace_rank{rank}.json").write_text(json.dumps(document))

    def documents_of(body, ranks, steps):
        return [gpu.document() for gpu in gpu_jobs.meet(ranks, getattr(gpu_jobs.Gpu, body), steps)]
    for name, (body, ranks, _) in {**PLANNED, **MIXED}.items():
        write(name, documents_of(body, ranks, 8))
    for name, (body, ranks, _) in MIXED.items():
        for variant, (change, steps) in VARIANTS.items():
            write(f"{name}.{variant}", change(documents_of(body, ranks, steps)))
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


def blames(answer, expected, variant):
    """Whether the answer is a wrong one: sure, of a cost that matters, and of another cause or rank than is there."""
    if answer["confidence"] is None or answer["confidence"] < SURE or answer["cost_share"] < MUCH:
        return False
    if answer["cause"] == "slow_rank":
        return not any(answer["rank"] == rank for _, rank, _ in expected)
    if answer["cause"] == "launch":  # what comes of launches that are late
        answer = {**answer, "cause": "late"}
    return not any(is_met((cause, rank, None if variant else function), answer) for cause, rank, function in expected)


def judge(program, directory):
    right = wrong = count = 0
    cases = {**CASES, **PLANNED, **MIXED}
    for place in sorted(Path(directory).iterdir()):
        name, _, variant = place.name.partition(".")
        expected = cases[name][2]
        count += 1
        done = subprocess.run([program, "report", "--json", place], capture_output=True, text=True, timeout=60, check=True)
        answers = json.loads(done.stdout)["look_first"]
        missed = [one for one in expected if not variant and not any(is_met(one, answer) for answer in answers)]
        blamed = [answer for answer in answers if blames(answer, expected, variant)]
        right += not missed and not blamed
        wrong += bool(blamed)
        if missed or blamed:
            print(f"{place.name}: {'WRONG' if blamed else 'not found'}, expected {expected}")
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
