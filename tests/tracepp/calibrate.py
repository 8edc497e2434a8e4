#!/usr/bin/env python3
"""How often ms-tracepp stragglers is right: real runs with and without a slow rank, on a machine loaded one to six fold.

calibrate.py run MS_TRAIN MS_DATA DIR [--cases N] [--seed S]   trains; DIR/NAME/trace are the traces, DIR/truth.json the truth
calibrate.py judge MS_TRACEPP DIR                               a table of right findings by confidence; exits 1 where
                                                                those of 0.9 and more are right in fewer than nine of ten

Eight ranks are threads of one process. A load of 2 on a machine of two cores is two more processes that spin. A run has
no fault, or one rank whose operations take 1.5 to 3 times as long. Takes ten minutes for forty runs on two cores.
"""
import argparse
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

LAYOUTS = [(2, 2, 2), (4, 2, 1), (2, 4, 1), (8, 1, 1), (4, 1, 2), (2, 2, 1)]  # dp, pp, tp
CONFIG = """
[model]
family = "gpt"
layers = 4
hidden = 96
heads = 4
vocab = 257
seq = 64
tied_embeddings = false
[train]
steps = 14
global_batch = 16
microbatch = 2
[optim]
warmup_steps = 4
"""


def spin(count):
    return [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]


def run(options):
    directory = Path(options.directory)
    directory.mkdir(parents=True, exist_ok=True)
    text = directory / "text.txt"
    text.write_text("\n".join(f"{i} times {i % 97} is {i * (i % 97)}" for i in range(40000)))
    subprocess.run([options.ms_data, "encode", "--tokenizer", "byte", "--output", directory / "text", text], check=True,
                   stdout=subprocess.DEVNULL)
    config = directory / "config.toml"
    config.write_text(CONFIG)
    chance = random.Random(options.seed)
    truth = []
    for number in range(options.cases):
        dp, pp, tp = LAYOUTS[number % len(LAYOUTS)]
        load = 1 + number % 6
        slow = chance.randrange(dp * pp * tp) if chance.random() < 0.6 else None
        factor = chance.choice([1.5, 2, 3])
        name = f"run{options.seed}-{number:02d}"
        environment = dict(os.environ)
        if slow is not None:
            environment["MS_FAULT"] = f"step=0 rank={slow} slow={factor}"
        spinning = spin((load - 1) * os.cpu_count())
        try:
            done = subprocess.run(
                [options.ms_train, "run", config, "--set", f"data.train=[\"{directory / 'text'}\"]",
                 "--set", f"mesh.dp={dp}", "--set", f"mesh.pp={pp}", "--set", f"mesh.tp={tp}",
                 "--set", f"run.dir=\"{directory / name}\""], env=environment, capture_output=True, text=True, timeout=600)
        finally:
            for process in spinning:
                process.kill()
                process.wait()
        if done.returncode != 0:
            print(f"{name}: ms-train ended with {done.returncode}: {done.stderr.strip()[-300:]}", file=sys.stderr)
            continue
        truth.append({"name": name, "load": load, "mesh": [dp, pp, tp], "slow": slow, "factor": factor})
        (directory / f"truth-{options.seed}.json").write_text(json.dumps(truth, indent=1))
        print(truth[-1], flush=True)


def is_right(case, finding):
    """Whether a finding is right; None: nobody knows, as a loaded machine does stop ranks.

    The last stage has the head of the model, which is a tenth to a third of its work here.
    """
    code, slow, stages = finding["code"], case["slow"], case["mesh"][1]
    if code in ("pause", "launch_delay", "data_stall"):
        return None
    if code == "slow_rank":
        return slow is not None and finding["ranks"][0] == slow
    if code == "last_stage":
        longer = float(re.search(r"computes ([0-9.]+) %", finding["evidence"]).group(1))
        return stages > 1 and 3 < longer < 35
    return False


def judge(options):
    bins = {}
    quiet = [0, 0]  # statements that nothing is wrong: right, all
    named = faulty = 0
    for path in sorted(Path(options.directory).glob("truth-*.json")):
        for case in json.loads(path.read_text()):
            trace = path.parent / case["name"] / "trace"
            done = subprocess.run([options.ms_tracepp, "stragglers", "--json", trace], capture_output=True, text=True)
            found = json.loads(done.stdout)
            faulty += case["slow"] is not None
            hit = False
            for finding in found["findings"]:
                right = is_right(case, finding)
                if right is None:
                    continue
                bin_of = min(9, int(finding["confidence"] * 10))
                one = bins.setdefault(bin_of, [0, 0])
                one[0] += right
                one[1] += 1
                hit = hit or (right and finding["code"] == "slow_rank" and finding["confidence"] >= 0.5)
                if not right and finding["confidence"] >= 0.5:
                    print(f"{case['name']} load {case['load']} mesh {case['mesh']} slow {case['slow']} x{case['factor']}: "
                          f"{finding['code']} {finding['ranks'][:4]} {finding['confidence']:.2f} {finding['evidence']}")
            named += hit
            if found["quiet_confidence"] >= 0.9 and not any(finding["fault"] for finding in found["findings"]):
                quiet[1] += 1
                quiet[0] += case["slow"] is None
                if case["slow"] is not None:
                    print(f"{case['name']} load {case['load']} mesh {case['mesh']} slow {case['slow']} x{case['factor']}: "
                          "is sure that nothing stands out")
    print("confidence   right   of")
    for bin_of in sorted(bins):
        print(f"{bin_of / 10:.1f} to {bin_of / 10 + 0.1:.1f} {bins[bin_of][0]:7} {bins[bin_of][1]:4}")
    print(f"is sure that nothing stands out: right in {quiet[0]} of {quiet[1]}; names {named} of {faulty} slow ranks")
    sure = bins.get(9, [0, 0])
    return 0 if sure[0] >= 0.9 * sure[1] and quiet[0] >= 0.9 * quiet[1] else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("run")
    one.add_argument("ms_train")
    one.add_argument("ms_data")
    one.add_argument("directory")
    one.add_argument("--cases", type=int, default=40)
    one.add_argument("--seed", type=int, default=1)
    one.set_defaults(call=run)
    other = commands.add_parser("judge")
    other.add_argument("ms_tracepp")
    other.add_argument("directory")
    other.set_defaults(call=judge)
    options = parser.parse_args()
    return options.call(options)


if __name__ == "__main__":
    sys.exit(main())
