#!/usr/bin/env python3
"""Expected against observed: runs of 8 ranks on this machine's cores, healthy ones and ones with an injected slowdown, and
what ms-tracepp report --brief --expected says of each, with a cluster file that ms-train calibrate has just written. Prints
the sentence, and counts: healthy runs within a tenth and without an accusation, faults whose rank is named or that say why
nobody is, other ranks that are named. Nothing else may run on the machine: what takes cores away is time that nobody expects.
usage: tests/bench/expected_runs.py [HEALTHY]     (3 healthy runs; with 8 faults they take about five minutes)"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / os.environ.get("BUILD", "build/release") / "bin"
FAULTS = [(0, "step=3 rank=0 slow=1.5"), (3, "step=3 rank=3 slow=1.5"), (5, "step=3 rank=5 slow=2"),
          (6, "step=3 rank=6 slow=2"), (1, "step=3 rank=1 slow=1.25"), (4, "step=3 rank=4 slow=1.25"),
          (7, "step=60 rank=7 pause=3"), (2, "data=60 rank=2 pause=3")]
RUN = ["mesh.dp=2", "mesh.pp=2", "mesh.tp=2", "model.hidden=160", "train.microbatch=2", "train.steps=110",
       "train.dtype=\"fp32\"", "train.eval_every=0", "run.sample_tokens=0", "optim.warmup_steps=4"]


def ms(tool, *args, fault=""):
    environment = {**os.environ, "MS_FAULT": fault} if fault else None
    return subprocess.run([BIN / tool, *args], check=True, capture_output=True, text=True, env=environment).stdout


def sentence(directory, fault):
    run, cluster = f"{directory}/run", f"{directory}/cluster.toml"
    subprocess.run(["rm", "-rf", run], check=True)
    sets = [word for pair in (*RUN, f"data.train={directory}/text", f"run.dir={run}") for word in ("--set", pair)]
    ms("ms-train", "run", str(ROOT / "configs/tiny-3d.toml"), *sets, fault=fault)
    said = ms("ms-tracepp", "report", "--brief", "--expected", cluster, f"{run}/trace").strip()
    return said.replace(f" of {cluster}", "")


def accused(said):
    return [int(rank) for rank in re.findall(r"\brank (\d+)", said)]


def main():
    healthy = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with tempfile.TemporaryDirectory() as directory:
        with open(f"{directory}/text", "w", encoding="ascii") as text:
            for i in range(1, 401):
                text.write(f"line {i}: the quick brown fox jumps over the lazy dog, {i * 7919 % 1000} times\n")
        ms("ms-data", "encode", "--tokenizer", "byte", "--output", f"{directory}/text", f"{directory}/text")
        ms("ms-train", "calibrate", "--busy", "--ranks", "8", "--dtype", "fp32", "--output", f"{directory}/cluster.toml")
        as_expected = quiet = named = unknown = others = 0
        for _ in range(healthy):
            said = sentence(directory, "")
            as_expected += "as expected" in said
            quiet += not accused(said)
            print(f"{'healthy':28} {said}", flush=True)
        for rank, fault in FAULTS:
            said = sentence(directory, fault)
            named += rank in accused(said)
            unknown += not accused(said) and re.search("nothing stands out|nothing is sure|cannot be known", said) is not None
            others += len(set(accused(said)) - {rank})
            print(f"{fault:28} {said}", flush=True)
    print(f"\nhealthy: {as_expected} of {healthy} within a tenth, {quiet} without an accusation")
    print(f"faults: the rank is named in {named} of {len(FAULTS)}, {unknown} say why nobody is; {others} other ranks are")


if __name__ == "__main__":
    main()
