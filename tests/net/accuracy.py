#!/usr/bin/env python3
"""How often ms-netcheck locate names a fault that is put into a fabric of eight nodes in namespaces, and how often it accuses
anybody when nothing is wrong.   usage: tests/net/accuracy.py [--placements 20] [--healthy 100] [--only NAME,...] [--seconds 400ms]"""

import argparse
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import fabric as f

f.enter()
parser = argparse.ArgumentParser()
parser.add_argument("--build", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build/release"))
parser.add_argument("--placements", type=int, default=20)
parser.add_argument("--healthy", type=int, default=100)
parser.add_argument("--only", default="")
parser.add_argument("--seconds", default="400ms")
options = parser.parse_args()
fabric = f.Fabric(os.path.abspath(options.build))


def locate():
    status, out, err = fabric.netcheck("locate", "--json", "--seconds", options.seconds, "--topology", fabric.topology)
    try:
        document = json.loads(out)
    except ValueError:
        sys.exit(f"locate failed with status {status}: {err}{out}")
    return document, {(v["kind"], v["who"]): v for v in document["verdict"]}


def cannot_tell(document):
    """On a busy machine healthy paths are often slow as well; then locate says that it does not judge."""
    busy = os.getloadavg()[0] > 2 * os.cpu_count()
    return busy and document["not_judged"] > 0


wrong = 0
for name in f.faults(fabric, f.seeded(0)):
    if options.only and name not in options.only.split(","):
        continue
    right, open_ones, took = 0, 0, []
    for placement in range(options.placements):
        put_in, expected, symptom = f.faults(fabric, f.seeded(placement))[name]
        with f.broken(fabric, put_in):
            begin = time.time()
            document, found = locate()
            took.append(time.time() - begin)
        if set(found) == expected and any(symptom in v["symptoms"] for v in found.values()):
            right += 1
        elif not found and cannot_tell(document):
            open_ones += 1
        else:
            said = "; ".join(f"{v['kind']} {v['who']}: {v['evidence']}" for v in found.values()) or "nothing"
            print(f"  {name}, placement {placement}: expected {sorted(expected)}, found {said}", flush=True)
    wrong += options.placements - right - open_ones
    if options.placements:
        of = f"{right:3} of {options.placements} named right, {open_ones} not judged at load"
        print(f"{name:32} {of}, {sum(took) / len(took):5.1f} s each", flush=True)
accused = 0
for i in range(options.healthy):
    document, found = locate()
    if found or len(document["healthy"]) != f.NODES:
        accused += 1
        print(f"  healthy run {i}: {[(v['who'], v['evidence']) for v in found.values()]}", flush=True)
print(f"healthy: {accused} of {options.healthy} runs accused anybody", flush=True)
sys.exit(1 if wrong or accused else 0)
