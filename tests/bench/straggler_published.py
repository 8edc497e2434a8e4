#!/usr/bin/env python3
"""The published straggler analyses (ByteDance-Seed/StragglerAnalysis: traces AR, SE, ST) against ours, over the steps that
their results name. Of the 45 steps in SE's timeline two, 31 and 32, both whole, are not in trace-SE.parquet, which its
analysis read; its loader has no rule that leaves out a step. A step of which a rank lacks something is left out by ours:
then the first, the middle and the last step lose half of one rank's events, and the figures must be those without that step.
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


def analysed(events):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "timeline.json"
        path.write_text(json.dumps(events))
        said = subprocess.run([TOOL, "stragglers", "--json", path], check=True, capture_output=True, text=True).stdout
    return json.loads(said)


def step_of(event):
    return int(event["args"]["step"]) if event["ph"] == "X" else None


def halved(events, step):
    """Without every second event of the worker whose event is the last of `step`."""
    of_step = [event for event in events if step_of(event) == step]
    place = (of_step[-1]["pid"], of_step[-1]["tid"] // 5)
    gone = [id(event) for event in of_step if (event["pid"], event["tid"] // 5) == place][::2]
    return [event for event in events if id(event) not in gone]


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
        steps = sorted(int(step) for step in result["step_t_base"])
        there = {step_of(event) for event in events} - {None}
        events = [event for event in events if event["ph"] != "X" or step_of(event) in steps]
        ours = analysed(events)["slowdown"]
        for metric, value in published.items():
            far += abs(ours[metric] - value) > 1e-5
            print(f"{name:5} {len(steps):2} of {len(there):2} {metric:4} {value:10.6f} {ours[metric]:10.6f}")
        for step in (steps[0], steps[len(steps) // 2], steps[-1]):
            half = analysed(halved(events, step))
            without = analysed([event for event in events if step_of(event) != step])["slowdown"]
            far += any(abs(half["slowdown"][metric] - without[metric]) > 1e-5 for metric in published)
            far += [left["step"] for left in half["left_out"]] != [step]
            print(f"{name:5} half of step {step}: S {half['slowdown']['S']:.6f}, without it {without['S']:.6f}; "
                  f"{half['left_out'][0]['why'] if half['left_out'] else 'not left out'}")
    return far > 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
