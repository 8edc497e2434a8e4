#!/usr/bin/env python3
"""What ms-train simulate says of the rows of the MegaScale paper (arXiv 2402.15627): Table 2's by iteration time and MFU,
Table 3's by what each technique adds. usage: tests/bench/megascale_tables.py [--check] [ms-train option...]
With --check it exits 1 where a row of Table 2 is off by more than 2 points of MFU, or an increment by more than 1.5.
MS_TRAIN names another ms-train."""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = os.environ.get("MS_TRAIN", ROOT / "build/release/bin/ms-train")
CLUSTER = ROOT / "configs/clusters/a100-8x200g.toml"

# system, dp, batch, seconds, MFU in percent: the paper's Table 2
TABLE_2 = [
    ("megatron", 4, 768, 40.0, 53.0),
    ("megatron", 16, 768, 11.9, 44.7),
    ("megascale", 4, 768, 32.0, 65.3),
    ("megascale", 16, 768, 8.9, 59.0),
    ("megatron", 48, 6144, 29.02, 48.7),
    ("megatron", 192, 6144, 8.57, 41.2),
    ("megascale", 48, 6144, 23.66, 59.1),
    ("megascale", 192, 6144, 6.34, 55.2),
]

# step, settings that it adds to Megatron-LM's, MFU in percent: Table 3, 256 GPUs
TABLE_3 = [
    ("baseline", [], 47.7),
    ("parallel block", ["model.parallel_block=true"], 52.3),
    ("window", ["model.window=1229"], 53.3),
    ("tp overlap", ["overlap.tp=true"], 55.5),
    ("pp overlap", ["overlap.pp=true"], 58.0),
    ("dp overlap", ["overlap.dp=true"], 59.5),
    ("operators", ["model.fused=true"], 61.2),
    ("LAMB, batch x 3", ["optim.name=lamb", "train.global_batch=768"], 65.3),
]
MISC = 62.3 - 61.2  # "misc" of Table 3, between operators and LAMB: nothing that the engine has a switch for


def simulate(system, settings, options):
    command = [TOOL, "simulate", ROOT / f"configs/megascale/175b-{system}.toml", "--json"]
    if "--cluster" not in options:
        command += ["--cluster", CLUSTER]
    for setting in settings:
        command += ["--set", setting]
    return json.loads(subprocess.run(command + options, check=True, capture_output=True, text=True).stdout)


def main():
    options = [option for option in sys.argv[1:] if option != "--check"]
    far = 0
    print(f"{'':10} {'GPUs':>6} {'batch':>6} {'seconds':>8} {'paper':>6} {'MFU':>6} {'paper':>6} {'points':>7}  of it")
    for system, dp, batch, seconds, mfu in TABLE_2:
        got = simulate(system, [f"mesh.dp={dp}", f"train.global_batch={batch}"], options)
        reported = 100 * got["mfu"]["reported"]
        far += abs(reported - mfu) > 2
        parts = " ".join(f"{k} {v:.2f}" for k, v in got["parts_s"].items() if k != "world")
        print(f"{system:10} {dp * 64:6} {batch:6} {got['iteration_s']:8.2f} {seconds:6.2f} {reported:6.1f} {mfu:6.1f} "
              f"{reported - mfu:+7.1f}  {parts}")
    print(f"\n{'':16} {'MFU':>6} {'paper':>6} {'adds':>6} {'paper':>6} {'points':>7}")
    settings, before, paper_before = ["mesh.dp=4", "train.global_batch=256"], None, None
    for step, more, mfu in TABLE_3:
        settings = settings + more
        reported = 100 * simulate("megatron", settings, options)["mfu"]["reported"]
        if before is None:
            print(f"{step:16} {reported:6.1f} {mfu:6.1f}")
        else:
            paper = mfu - paper_before - (MISC if step.startswith("LAMB") else 0)
            far += abs(reported - before - paper) > 1.5
            print(f"{step:16} {reported:6.1f} {mfu:6.1f} {reported - before:+6.1f} {paper:+6.1f} "
                  f"{reported - before - paper:+7.1f}")
        before, paper_before = reported, mfu
    print(f"\n{far} of {len(TABLE_2) + len(TABLE_3) - 1} are off by more than 2 points (Table 2) or 1.5 (Table 3)")
    return far > 0 and "--check" in sys.argv


if __name__ == "__main__":
    sys.exit(main())
