#!/usr/bin/env python3
"""Time and memory of ms-tracepp report on traces of torch.profiler: 64 ranks of 100 MB, and one beside HTA.

profiler_traces.py MS_TRACEPP TRACE [--ranks 64] [--mb 100] [--dir DIR] [--hta-python PYTHON]

Files of the wanted size repeat TRACE (.json.gz), later in time and with further steps and correlations. HTA is Holistic
Trace Analysis; it is asked for its temporal breakdown, overlap and idle time, on TRACE and on one file of that size.
"""
import argparse
import gzip
import json
import math
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HTA = """
import sys, warnings, logging
warnings.filterwarnings("ignore"); logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="/")
analysis.get_temporal_breakdown(visualize=False)
analysis.get_comm_comp_overlap(visualize=False)
analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
"""


def repeat(events, times):
    """The JSON text of the events, repeated one behind the other."""
    begin = min(event["ts"] for event in events if "ts" in event)
    length = max(event["ts"] + event.get("dur", 0) for event in events if "ts" in event) - begin
    numbers = [int(event["name"][13:]) for event in events if event.get("name", "").startswith("ProfilerStep#")]
    steps = max(numbers) - min(numbers) + 1 if numbers else 0
    most = 1 + max(event.get("args", {}).get("correlation", 0) for event in events)
    parts = []
    for i in range(times):
        for event in events:
            if event["ph"] == "M" and i > 0:
                continue
            copy = dict(event)
            if "ts" in copy:
                copy["ts"] += i * length
            if copy.get("name", "").startswith("ProfilerStep#"):
                copy["name"] = f"ProfilerStep#{int(copy['name'][13:]) + i * steps}"
            if copy.get("args", {}).get("correlation", 0) > 0:
                copy["args"] = {**copy["args"], "correlation": copy["args"]["correlation"] + i * most}
            parts.append(json.dumps(copy))
    return ",\n".join(parts)


def write_files(path, folder, ranks, size_mb):
    """Writes the files of all ranks. In a process of its own: the memory of this one counts as its children's."""
    with gzip.open(path, "rt") as file:
        trace = json.load(file)
    events = [event for event in trace["traceEvents"] if not event.get("name", "").startswith("PyTorch Profiler")]
    body = repeat(events, math.ceil(size_mb * 1e6 / len(json.dumps(events))))
    for rank in range(ranks):
        header = {"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks}}
        with open(folder / f"rank{rank}.json", "w", encoding="utf-8") as file:
            file.write(json.dumps(header)[:-1] + ', "traceEvents": [' + body + "]}")


def best(command, times=3):
    return min(measure(command) for _ in range(times))


def measure(command):
    """Wall-clock seconds, processor seconds, which depend less on what else runs, and largest memory in MB of a command."""
    begin = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    errors = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{command[0]} ended with {child.returncode}: {errors[-500:]}")
    return time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def row(name, measured, base=None):
    seconds, processors, memory = measured
    ratio = "".join(f"  {one / other:7.1f} x" for one, other in zip(measured, base)) if base else ""
    print(f"{name:40} {seconds:8.2f} s {processors:8.2f} s {memory:8.0f} MB{ratio}", flush=True)
    return measured


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tracepp")
    parser.add_argument("trace")
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--mb", type=int, default=100)
    parser.add_argument("--dir")
    parser.add_argument("--hta-python")
    args = parser.parse_args()
    with open("/proc/cpuinfo", encoding="ascii") as info:
        model = next(line.split(":")[1].strip() for line in info if line.startswith("model name"))
    print(f"{model}, {os.cpu_count()} cores")
    folder = Path(tempfile.mkdtemp(dir=args.dir))
    try:
        writer = multiprocessing.Process(target=write_files, args=(args.trace, folder, args.ranks, args.mb))
        writer.start()
        writer.join()
        size = (folder / "rank0.json").stat().st_size / 1e6
        ours = row(f"ms-tracepp, {Path(args.trace).name}", best([args.tracepp, "report", args.trace]))
        large = row(f"ms-tracepp, 1 x {size:.0f} MB", best([args.tracepp, "report", folder / "rank0.json"]))
        row(f"ms-tracepp, {args.ranks} x {size:.0f} MB", measure([args.tracepp, "report", folder]))
        if args.hta_python:
            row(f"HTA, {Path(args.trace).name}", best([args.hta_python, "-c", HTA, args.trace]), ours)
            row(f"HTA, 1 x {size:.0f} MB", best([args.hta_python, "-c", HTA, folder / "rank0.json"]), large)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
