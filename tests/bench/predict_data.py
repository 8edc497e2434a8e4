#!/usr/bin/env python3
"""Data for ms-diag predict: telemetry and faults that a generator makes, and tables of all nodes for the published traces.

  predict_data.py generate DIR [--nodes N] [--days D] [--seed S]   telemetry.csv, faults.csv, nodes.csv
  predict_data.py noise FILE [--nodes N] [--days D] [--seed S]     faults of nodes that are drawn by lot
  predict_data.py nodes TRACE.json N                               a nodes table for InfiniteHBD's trace, on standard output
  predict_data.py sample TITAN.csv.gz N SEED                       the rows of every N-th GPU of Titan's lives

The generator's nodes are healthy, or degrade in one of five ways and then fail or recover: what they show before is drowned in
the noise of their workload and in harmless episodes that look alike. Half of the failures come out of a healthy node. In the
middle of the trace a new driver counts differently, cooling changes, and so do the ways in which nodes degrade. What a
generator alone can know, the chance that a node fails within HORIZON days, is the metric "oracle": the ceiling. Shares of the
kinds are those of InfiniteHBD-Trace, rates too (4.18 faults in 1,000 node-days)."""

import argparse
import csv
import gzip
import json
import math
import pathlib
import random
import sys

HORIZON = 14
FAULTS_PER_DAY = 4.18e-3
FAIL, HEAL = 0.15, 0.015  # of a degrading node, a day
HARMLESS = 0.004  # harmless episodes, a node and day
SAMPLES = 2  # a day
# kind: its share of the failures with a precursor, before and after the shift; the metric that shows it
WAYS = {
    "DBE": (0.45, 0.15, "ecc"),
    "Fan": (0.15, 0.15, "temp"),
    "Cable": (0.15, 0.40, "replays"),
    "PSU": (0.15, 0.10, "power"),
    "NIC": (0.10, 0.20, "replays"),
}
SUDDEN = {"Xid": 0.2, "Lost": 0.1, "Unknown": 0.7}


def pick(random_, shares):
    return random_.choices(list(shares), weights=list(shares.values()))[0]


def poisson(random_, mean):
    if mean > 30:
        return max(0, round(random_.gauss(mean, math.sqrt(mean))))
    limit, count, value = math.exp(-mean), 0, random_.random()
    while value > limit:
        value *= random_.random()
        count += 1
    return count


def oracle(degrades, onset, sudden):
    """The chance of a failure within the horizon, of a node that degrades or does not."""
    out = FAIL + HEAL
    ends = FAIL / out * (1 - math.exp(-out * HORIZON))
    if degrades:
        return ends
    begins = onset * (HORIZON - (1 - math.exp(-out * HORIZON)) / out) * FAIL / out
    return 1 - math.exp(-sudden * HORIZON - begins)


class Node:
    def __init__(self, random_, name):
        self.random, self.name = random_, name
        self.age = random_.uniform(0, 900)
        self.rack = random_.randrange(20)
        self.frailty = random_.gammavariate(2, 0.5)  # few nodes have many of the faults
        self.load, self.heat = random_.random(), random_.gauss(0, 3)
        self.way, self.since, self.strength, self.end = None, 0.0, 0.0, 0.0
        self.harmless, self.harmless_until, self.harmless_strength = None, 0.0, 0.0
        self.down_until = 0.0

    def step(self, day, length, shifted):
        """Moves on by so many days; returns the kind of a fault that happened, or None."""
        r = self.random
        sudden = FAULTS_PER_DAY * self.frailty / 2
        onset = sudden * (FAIL + HEAL) / FAIL
        self.onset, self.sudden = onset, sudden
        if self.harmless and day >= self.harmless_until:
            self.harmless = None
        if not self.harmless and r.random() < HARMLESS * length:
            self.harmless = WAYS[r.choice(list(WAYS))][2]
            self.harmless_until = day + r.uniform(0.5, 4)
            self.harmless_strength = r.uniform(0.2, 1.0)
        if self.way is None and r.random() < onset * length:
            self.way = pick(r, {kind: row[1 if shifted else 0] for kind, row in WAYS.items()})
            self.since, self.strength = day, r.uniform(0.5, 1.3)
        if self.way is not None:
            if r.random() < HEAL * length:
                self.way = None
            elif r.random() < FAIL * length:
                return self.fail(day, self.way)
        return self.fail(day, pick(r, SUDDEN)) if r.random() < sudden * length else None

    def fail(self, day, kind):
        self.way = None
        self.down_until = day + self.random.expovariate(1 / 1.5)
        return kind

    def metrics(self, day, shifted):
        r = self.random
        shown = {"ecc": 0.0, "temp": 0.0, "replays": 0.0, "power": 0.0}
        if self.way is not None:
            shown[WAYS[self.way][2]] = self.strength * min(1, 0.3 + (day - self.since) / 4)
        if self.harmless is not None:
            shown[self.harmless] += self.harmless_strength
        self.load = min(1, max(0, 0.9 * self.load + 0.1 * r.random() + r.gauss(0, 0.08)))
        power = 250 + 400 * self.load * (1 - 0.18 * shown["power"]) + r.gauss(0, 12)
        temp = 38 + self.heat + power / 18 + 9 * shown["temp"] + r.gauss(0, 2) + 3 * math.sin(self.rack) - (7 if shifted else 0)
        return {
            "util": 100 * self.load,
            "power": power,
            "temp": temp,
            "fan": 40 + 0.6 * temp + 6 * shown["temp"] + r.gauss(0, 3),
            "ecc": poisson(r, (1.5 if shifted else 0.25) + 5 * shown["ecc"]),
            "replays": poisson(r, (0.3 if shifted else 1.2) + 4 * shown["replays"] * (0.5 if shifted else 1)),
            "oracle": oracle(self.way is not None, self.onset, self.sudden),
        }


def generate(args):
    random_ = random.Random(args.seed)
    nodes = [Node(random_, f"n{i:04}") for i in range(args.nodes)]
    args.dir.mkdir(parents=True, exist_ok=True)
    failures = precursors = 0
    with open(args.dir / "telemetry.csv", "w", encoding="ascii") as telemetry, open(
        args.dir / "faults.csv", "w", encoding="ascii"
    ) as faults:
        telemetry.write("time,node,metric,value\n")
        faults.write("node,time,kind,end\n")
        for tick in range(args.days * SAMPLES):
            day = tick / SAMPLES
            shifted = day >= args.days / 2
            for node in nodes:
                if day < node.down_until:
                    continue
                degraded = node.way
                kind = node.step(day, 1 / SAMPLES, shifted)
                if kind:
                    failures += 1
                    precursors += kind == degraded
                    faults.write(f"{node.name},{(day + 0.25) * 86400:.0f},{kind},{node.down_until * 86400 + 21600:.0f}\n")
                    continue
                for metric, value in node.metrics(day, shifted).items():
                    telemetry.write(f"{day * 86400:.0f},{node.name},{metric},{value:.4g}\n")
    with open(args.dir / "nodes.csv", "w", encoding="ascii") as table:
        table.write("node,age,rack\n")
        for node in nodes:
            table.write(f"{node.name},{node.age:.0f},{node.rack}\n")
    print(f"{args.nodes} nodes, {args.days} days, seed {args.seed}: {failures} failures, {precursors} of them with a precursor")


def noise(args):
    random_ = random.Random(args.seed)
    rows = sorted((random_.uniform(0, args.days), random_.randrange(args.nodes)) for _ in range(args.nodes * args.days // 150))
    with open(args.file, "w", encoding="ascii") as faults:
        faults.write("node,time,kind\n")
        for day, node in rows:
            faults.write(f"n{node:04},{day * 86400:.0f},GPU\n")


def nodes_table(args):
    names = sorted({row["node_id"] for row in json.loads(args.trace.read_text())})
    print("node")
    print("\n".join(names + [f"faultless-{i:03}" for i in range(args.nodes - len(names))]))


def sample(args):
    out = csv.writer(sys.stdout, lineterminator="\n")
    with gzip.open(args.lives, "rt") as lives:
        rows = csv.reader(lives)
        out.writerow(next(rows))
        kept = {}
        for row in rows:
            if kept.setdefault(row[0], random.Random(f"{args.seed} {row[0]}").random() < 1 / args.every):
                out.writerow(row)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("generate")
    one.add_argument("dir", type=pathlib.Path)
    one.add_argument("--nodes", type=int, default=1600)
    one.add_argument("--days", type=int, default=154)
    one.add_argument("--seed", type=int, default=1)
    one.set_defaults(run=generate)
    one = commands.add_parser("noise")
    one.add_argument("file", type=pathlib.Path)
    one.add_argument("--nodes", type=int, default=400)
    one.add_argument("--days", type=int, default=365)
    one.add_argument("--seed", type=int, default=1)
    one.set_defaults(run=noise)
    one = commands.add_parser("nodes")
    one.add_argument("trace", type=pathlib.Path)
    one.add_argument("nodes", type=int)
    one.set_defaults(run=nodes_table)
    one = commands.add_parser("sample")
    one.add_argument("lives", type=pathlib.Path)
    one.add_argument("every", type=int)
    one.add_argument("seed", type=int)
    one.set_defaults(run=sample)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
