#!/usr/bin/env bash
# TensorBoard reads our event files: a run that is stopped and resumed has every step once, with the values of metrics.jsonl.
# Nightly: installs the tensorboard package in a virtual environment.   usage: tensorboard_peer.sh MS-TRAIN
set -euo pipefail
train=$(realpath "$1")
# shellcheck disable=SC2034 # read by training.sh
bin=$(dirname "$train")
# shellcheck source=tests/support/training.sh
. "$(dirname "$0")/../support/training.sh"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
if ! { python3 -m venv venv && venv/bin/pip install --quiet tensorboard; } >log 2>&1; then
  tail -n 3 log
  echo "skipped: the tensorboard package cannot be installed"
  exit 77
fi

training_text 200 >log 2>&1
tiny_config train.steps=9 train.eval_every=3 metrics.tensorboard=true metrics.grad_norms_every=1 'checkpoint.dir="ckpt"' \
  checkpoint.every_steps=3 'run.dir="run"' >c.toml
"$train" run c.toml --set train.steps=6 >log 2>&1 || { cat log; exit 1; }
mv ckpt/step-00000006 away # resumes from step 3: steps 4 to 6 are made again
"$train" run c.toml >log 2>&1 || { cat log; exit 1; }
[ "$(find run/tensorboard -type f | wc -l)" -eq 2 ] || { echo "not two event files"; exit 1; }

venv/bin/python - <<'END'
import json
import math
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator("run/tensorboard", size_guidance={"scalars": 0})
events.Reload()
lines = [json.loads(line) for line in open("run/metrics.jsonl", encoding="ascii")]
assert [line["step"] for line in lines] == list(range(1, 10)), lines
tags = events.Tags()["scalars"]
for key, of in (("train/loss", lambda line: line["loss"]), ("train/grad_norm", lambda line: line["grad_norm"]),
                ("grad_norms/layers.0.attn", lambda line: line["grad_norms"]["layers.0.attn"]),
                ("train/valid_loss", lambda line: line.get("valid_loss"))):
    want = [(line["step"], of(line)) for line in lines if of(line) is not None]
    have = [(point.step, point.value) for point in events.Scalars(key)]
    assert [step for step, _ in have] == [step for step, _ in want], (key, have)
    for (_, a), (_, b) in zip(have, want):
        assert math.isclose(a, b, rel_tol=1e-6), (key, have, want)
print(len(tags), "tags of", len(lines), "steps as TensorBoard reads them")
END
