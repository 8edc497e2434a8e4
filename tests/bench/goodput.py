#!/usr/bin/env python3
"""Effective training time of a 175B model on 12,288 GPUs over 60 days with the faults of a trace (InfiniteHBD's), with and
without ms-driver, by spare nodes and time between checkpoints; and published jobs with their own rates of faults. Exits with 1
if the driver is worse than no driver at any number of spares.
usage: tests/bench/goodput.py TRACE.json [--trace-nodes N] [--seeds N] [--minutes N...] [--svg FILE]"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = os.environ.get("MS_TRAIN", ROOT / "build/release/bin/ms-train")
MINUTES = [5, 10, 15, 20, 30, 45, 60, 90, 120]
SPARES = [0, 8, 16, 32, 48, 64, 96]
COLOURS = ["#999933", "#cc6677", "#ddcc77", "#88ccee", "#117733", "#332288", "#aa4499"]
JOB = ["--set", "mesh.dp=192", "--set", "train.global_batch=6144", "--days", "60"]

# name, published share, options: faults a node and day, days, GPUs (dp x 64)
LLAMA_RATE = 466 / (16384 / 8 * 54)
PUBLISHED = [
    ("Llama 3, 16,384 GPUs, 466 interruptions in 54 days", "> 90 %",
     [f"--failures={LLAMA_RATE}:12h", "--days", "54", "--set", "mesh.dp=256", "--set", "train.global_batch=6144"]),
    ("MegaScale, 12,288 GPUs, 100 restarts in 4 weeks", "> 90 %",
     [f"--failures={100 / (12288 / 8 * 28)}:12h", "--days", "28", "--set", "mesh.dp=192", "--set", "train.global_batch=6144"]),
    ("ByteRobust, 9,600 GPUs, 90 days, Llama 3's faults", "97 %",
     [f"--failures={LLAMA_RATE}:12h", "--days", "90", "--set", "mesh.dp=150", "--set", "train.global_batch=4800"]),
]
# Every step's checkpoint in the memory of other nodes, as ByteRobust has it: the share of the steps that it publishes.
EVERY_STEP = ["--set", "checkpoint.every_steps=1", "--recovery", "recovery.save_stall=40ms", "--recovery",
              "recovery.save_write=40ms"]


def simulate(options):
    command = [TOOL, "simulate", ROOT / "configs/megascale/175b-megascale.toml", "--cluster",
               ROOT / "configs/clusters/a100-8x200g.toml", "--json", *options]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def table(trace, minutes_list, more):
    """[spares][minutes]: effective, its two standard errors"""
    def column(minutes):
        got = simulate([*JOB, *trace, "--set", f"checkpoint.every={minutes}m", *more])
        return {row["spares"]: (row["effective"], row["effective_error"]) for row in got["spare_choices"]}
    with ThreadPoolExecutor(2) as pool:
        columns = list(pool.map(column, minutes_list))
    return {spares: [column[spares] for column in columns] for spares in SPARES}


def print_table(title, minutes_list, rows):
    print(f"\n{title}: effective share in %, and two standard errors of it")
    print(f"{'spares':>6}", *(f"{minutes:>7} min" for minutes in minutes_list))
    for spares, row in rows.items():
        print(f"{spares:6}", *(f"{100 * mean:6.1f} {100 * error:4.1f}" for mean, error in row))


def svg(tables, minutes_list):
    width, height, left = 480, 330, 50
    shapes = []
    for number, (title, rows) in enumerate(tables.items()):
        base = number * width

        def x(minutes, base=base):
            return base + left + minutes / 120 * (width - left - 70)

        def y(share):
            return 290 - share * 250

        for share in (0, 0.25, 0.5, 0.75, 1):
            shapes.append(f'<path d="M{x(0)} {y(share)}H{x(120)}" stroke="#ddd"/>'
                          f'<text x="{x(0) - 6}" y="{y(share) + 4}" text-anchor="end">{100 * share:.0f} %</text>')
        for minutes in minutes_list[1::2]:
            shapes.append(f'<text x="{x(minutes)}" y="308" text-anchor="middle">{minutes}</text>')
        shapes.append(f'<text x="{x(60)}" y="325" text-anchor="middle">{title}: minutes between checkpoints</text>')
        label = height
        for colour, (spares, row) in zip(COLOURS, rows.items()):
            label = min(label - 13, y(row[-1][0]) + 4)  # of lines that meet, one above the other
            points = " ".join(f"{x(minutes):.1f},{y(mean):.1f}" for minutes, (mean, _) in zip(minutes_list, row))
            shapes.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
                          f'<text x="{x(120) + 4}" y="{label:.1f}" fill="{colour}">{spares} spares</text>')
    body = "\n".join(shapes)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * width}" height="{height}" font-family="sans-serif" '
            f'font-size="12">\n{body}\n</svg>\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace")
    parser.add_argument("--trace-nodes", default="400")
    parser.add_argument("--seeds", default="20")
    parser.add_argument("--minutes", type=int, nargs="+", default=MINUTES, help="between checkpoints")
    parser.add_argument("--svg")
    args = parser.parse_args()
    trace = ["--failures", args.trace, "--trace-nodes", args.trace_nodes, "--seeds", args.seeds]
    tables = {"with ms-driver": table(trace, args.minutes, []),
              "without a driver": table(trace, args.minutes, ["--without-driver"])}
    for title, rows in tables.items():
        print_table(title, args.minutes, rows)
    if args.svg:
        pathlib.Path(args.svg).write_text(svg(tables, args.minutes), encoding="ascii")
    print(f"\n{'published, 64 spares':52} {'published':>9} {'ours':>6} {'best':>6} {'at':>6} {'every step':>10}")
    for name, share, options in PUBLISHED:
        options = [*options, "--spares", "64", "--seeds", args.seeds]
        got, every = simulate(options), simulate([*options, *EVERY_STEP])
        best = max(row["effective"] for row in got["intervals"])
        print(f"{name:52} {share:>9} {100 * got['effective']:5.1f}% {100 * best:5.1f}% {got['best_interval_s'] / 60:3.0f}min "
              f"{100 * every['effective']:9.1f}%")
    worse = [spares for spares, row in tables["with ms-driver"].items()
             if any(mean < other for (mean, _), (other, _) in zip(row, tables["without a driver"][spares]))]
    if worse:
        sys.exit(f"worse than no driver with {worse} spares")


if __name__ == "__main__":
    main()
