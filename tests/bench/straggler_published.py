#!/usr/bin/env python3
"""The published straggler analyses (ByteDance-Seed/StragglerAnalysis: traces AR, SE, ST) against ours, over the steps that
their results name: of the 45 steps in SE's timeline two, 31 and 32, are not in the trace that its analysis read.
usage: tests/bench/straggler_published.py CHECKOUT    (exits 1 where a figure is off by more than 1e-5)"""

import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = os.environ.get("MS_TRACEPP", ROOT / "build/release/bin/ms-tracepp")


def main(checkout):
    data = pathlib.Path(checkout) / "data"
    far = 0
    print(f"{'trace':5} {'steps':>7} {'':4} {'published':>10} {'ours':>10}")
    for name in ("AR", "SE", "ST"):
        with gzip.open(data / f"timeline-{name}.json.gz") as file:
            events = json.load(file)
        result = json.loads((data / f"result-{name}.json").read_text())
        published = {"S": result["blocking_slowdown"]}
        for metric in ("w", "s"):
            published[f"M_{metric.upper()}"] = json.loads((data / f"m{metric}-{name}.json").read_text())[f"M{metric}"]
        steps = {int(step) for step in result["step_t_base"]}
        there = {int(event["args"]["step"]) for event in events if event["ph"] == "X"}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "timeline.json"
            path.write_text(json.dumps([event for event in events
                                        if event["ph"] != "X" or int(event["args"]["step"]) in steps]))
            said = subprocess.run([TOOL, "stragglers", "--json", path], check=True, capture_output=True, text=True).stdout
        ours = json.loads(said)["slowdown"]
        for metric, value in published.items():
            far += abs(ours[metric] - value) > 1e-5
            print(f"{name:5} {len(steps):2} of {len(there):2} {metric:4} {value:10.6f} {ours[metric]:10.6f}")
    return far > 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
