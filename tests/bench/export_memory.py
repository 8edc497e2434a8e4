#!/usr/bin/env python3
"""What ms-tracepp export needs for a run in one Perfetto file, and in shards of steps, of dp ranks, of both: seconds, the most
memory, bytes an event, and the largest file. The run is a simulated one.

usage: tests/bench/export_memory.py BUILD/bin DIR [RANKS [STEPS]]     (1000 ranks, 60 steps); a trace that is in DIR is used again"""

import json
import os
import shutil
import subprocess
import sys
import time

import report_scale

WAYS = {"one file": [], "2 steps": ["--shard-steps", "2"], "10 dp ranks": ["--shard-dp", "10"],
        "2 steps, 10 dp ranks": ["--shard-steps", "2", "--shard-dp", "10"]}


def measured(*command):
    """Seconds, and the most memory in MiB, of a command."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit status {process.returncode}")
    return time.monotonic() - begin, usage.ru_maxrss / 1024


def events_in(tracepp, trace):
    said = subprocess.run([tracepp, "info", "--json", trace], check=True, capture_output=True, text=True).stdout
    return json.loads(said)["events"]


def main():
    binaries, directory, *sizes = sys.argv[1:]
    ranks, steps = (int(size) for size in (*sizes, *("1000", "60")[len(sizes):]))
    tracepp, trace = os.path.join(binaries, "ms-tracepp"), os.path.join(directory, f"{ranks}-{steps}")
    if not os.path.isdir(trace):
        report_scale.simulate(os.path.join(binaries, "ms-train"), ranks, trace, steps)
    print("written as | files | events | s | MiB | bytes an event | largest file", flush=True)
    for name, options in WAYS.items():
        out = os.path.join(directory, "shards" if options else "whole.perfetto")
        shutil.rmtree(out, ignore_errors=True)
        seconds, memory = measured(tracepp, "export", *options, "-o", out, trace)
        if options:
            with open(os.path.join(out, "index.json"), encoding="utf-8") as file:
                files = json.load(file)["files"]
            events = sum(file["events"] for file in files)
            sizes = [file["bytes"] for file in files]
        else:
            sizes, events = [os.path.getsize(out)], events_in(tracepp, trace)
        print(f"{name} | {len(sizes)} | {events} | {seconds:.1f} | {memory:.0f} | {sum(sizes) / events:.1f} | {max(sizes)}", flush=True)


if __name__ == "__main__":
    main()
