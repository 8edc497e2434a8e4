#!/usr/bin/env python3
"""What ms-tracepp report --follow costs while all files grow and one page asks: of 8 and of 1,000 ranks the seconds of a refresh,
the bytes of its page, how often it is made anew, and the CPU that the program takes meanwhile.
usage: tests/bench/follow_cost.py [BUILD] [--ranks N,N] [--steps N] [--seconds N]"""

import argparse
import glob
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "tools"))
from follow_visits import Followed  # noqa: E402  pylint: disable=wrong-import-position

UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}


def cpu_s(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_bytes(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return int(re.search(r"VmHWM:\s+(\d+) kB", file.read()).group(1)) << 10


def measure(build, ranks, steps, seconds):
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([f"{build}/bin/trace_scale", "write", directory, "--ranks", str(ranks), "--steps", str(steps)], check=True,
                       stdout=subprocess.DEVNULL)
        followed = Followed(f"{build}/bin/ms-tracepp", directory)
        files = glob.glob(os.path.join(directory, "*"))
        first, took, version = followed.state(), [], None
        begin, used = time.monotonic(), cpu_s(followed.process.pid)
        while time.monotonic() - begin < seconds:
            for file in files:
                os.utime(file)
            state = followed.state()
            if state["version"] not in (first["version"], version):
                version = state["version"]
                value, unit = re.search(r"reading takes ([0-9.]+)([a-z]+)", state["text"]).groups()
                took.append(float(value) * UNITS[unit])
                size = len(followed.get()[1])
            time.sleep(0.5)
        wall = time.monotonic() - begin
        share = (cpu_s(followed.process.pid) - used) / wall
        peak = peak_bytes(followed.process.pid)
        followed.end()
    print(f"{ranks:>6} ranks, {steps} steps: a refresh {statistics.median(took):.2f} s (median of {len(took)}), one every "
          f"{wall / len(took):.1f} s, {100 * share:.0f} % of one CPU, page {size / 1e6:.2f} MB, memory {peak / 1e6:.0f} MB")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", nargs="?", default="build/release")
    parser.add_argument("--ranks", default="8,1000")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=90)
    options = parser.parse_args()
    subprocess.run(["cmake", "--build", options.build, "--target", "trace_scale", "ms-tracepp"], check=True,
                   stdout=subprocess.DEVNULL)
    for ranks in options.ranks.split(","):
        measure(options.build, int(ranks), options.steps, options.seconds)


if __name__ == "__main__":
    main()
