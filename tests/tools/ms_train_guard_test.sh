#!/usr/bin/env bash
# The guard in runs of ms-train: what a NaN and a spike do by policy, and that a guard with nothing to do changes no bit.
# usage: ms_train_guard_test.sh MS-TRAIN
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
training_directory
tiny_config mesh.dp=2 train.steps=12 train.eval_every=0 optim.lr=1e-3 'run.dir="runs/a"' >c.toml

# numbers RUN KEY: the key's values by step; a dash where a step has none.
numbers() {
  python3 -c 'import json, sys
print(*(json.loads(line).get(sys.argv[2], "-") for line in open(f"runs/{sys.argv[1]}/metrics.jsonl")))' "$1" "$2"
}
same_numbers() { # RUN RUN
  local key
  for key in loss grad_norm; do
    [ "$(numbers "$1" $key)" = "$(numbers "$2" $key)" ] || fail "$key of runs $1 and $2 differ"
  done
}

expect 0 'writes' run c.toml --set run.sample_tokens=3
expect 0 'writes' run c.toml --set run.sample_tokens=3 --set run.dir=runs/quiet --set guard.spike=stop --set guard.window=2 \
  --set guard.spike_zscore=1e6 --set guard.nonfinite=stop
same_numbers a quiet

# NaN on one rank: all ranks leave the step out, and the next one has the next data.
export MS_FAULT='step=5 rank=1 nan'
expect 0 'W .*step 6: the gradient norm is nan, the loss [0-9.]+; the step was skipped' run c.toml --set run.dir=runs/skip
[ "$(numbers skip skipped)" = "- - - - - True - - - - - -" ] || fail "skipped: $(numbers skip skipped)"
[ "$(numbers skip tokens)" = "$(numbers a tokens)" ] || fail "a skipped step has no data"
[ "$(numbers skip loss | cut -d ' ' -f -6)" = "$(numbers a loss | cut -d ' ' -f -6)" ] || fail "the losses up to the skipped step"
expect 2 "hint: 'ms-data sample CONFIG --step 6' shows" run c.toml --set run.dir=runs/stop --set guard.nonfinite=stop
grep -q 'error: rank [01]: step 6: the gradient norm is nan, the loss ' err || fail "it is not said why the run stops"
grep -q '"kind": "train.diverged"' runs/stop/verdict.json || fail "the verdict of a run that a NaN stops"
grep -q '"blame": "user"' runs/stop/verdict.json || fail "a NaN is blamed on somebody else than the user"
[ "$(numbers stop step)" = "1 2 3 4 5 6" ] || fail "metrics of the step that stops a run are missing: $(numbers stop step)"
MS_FAULT='step=5 rank=1 nan; step=6 rank=0 nan'
expect 2 '2 steps in a row were skipped' run c.toml --set run.dir=runs/many --set guard.max_skips=2
unset MS_FAULT

# Norms that vary at all have spikes by so small a measure.
few=(--set guard.window=2 --set guard.spike_zscore=1)
expect 0 'W .*: a spike, above' run c.toml --set run.dir=runs/warn "${few[@]}" --set guard.spike=warn
same_numbers a warn
expect 0 'a spike, above .*; the step was skipped' run c.toml --set run.dir=runs/spike "${few[@]}" --set guard.spike=skip
expect 2 'a spike, above' run c.toml --set run.dir=runs/spikes "${few[@]}" --set guard.spike=stop
grep -q '"kind": "train.spike"' runs/spikes/verdict.json || fail "the verdict of a run that a spike stops"

# A device that computes wrongly: of three dp ranks the one that differs is named, of two nobody can be. Where none does,
# replays change no bit, and the log says what they cost.
three=(--set mesh.dp=3 --set train.global_batch=12 --set train.steps=8 --set run.sample_tokens=0 --set guard.replay_every=2)
expect 0 'step 4: a microbatch of dp rank 1 has the same bits on all 3 dp ranks, in .* s, .* % of the time' \
  run c.toml --set run.dir=runs/three "${three[@]}"
expect 0 'writes' run c.toml --set run.sample_tokens=3 --set run.dir=runs/replayed --set guard.replay_every=3
same_numbers a replayed
export MS_FAULT='step=4 rank=2 flip'
expect 69 'step 6: .* has other bits on dp rank 2 than on all others: the device of rank 2, on .*, computes wrongly' \
  run c.toml --set run.dir=runs/flipped "${three[@]}"
grep -q 'hint: checkpoints after step 4 may hold its errors' err || fail "it is not said which checkpoints are doubtful"
grep -q '"rank": 2' runs/flipped/verdict.json || fail "the verdict of a device that computes wrongly"
grep -q '"kind": "replay.differs"' runs/flipped/verdict.json || fail "the kind of the verdict"
MS_FAULT='step=4 rank=1 flip'
expect 76 'one of the two computes wrongly; a third would show which' run c.toml --set run.dir=runs/tie --set guard.replay_every=3
unset MS_FAULT
expect 2 'there is no other dp rank to compare with: mesh.dp is 1' check c.toml --set mesh.dp=1 --set guard.replay_every=9
expect 0 'ok' check c.toml --set train.dtype=bf16 --set train.fp8=true --set guard.replay_every=9

expect 2 "guard.spike" check c.toml --set guard.spike=halt
expect 2 'guard.window' check c.toml --set guard.window=1
expect 2 'a rollback needs checkpoints to go back to: set checkpoint.dir' check c.toml --set guard.spike=rollback
expect 0 'guard.window has no effect: guard.spike is ignore' check c.toml --set guard.window=9

[ "$failures" -eq 0 ] && echo "all as expected" || exit 1
