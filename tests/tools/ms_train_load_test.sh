#!/usr/bin/env bash
# A run that begins with another run's checkpoint, checkpoint.load: what it takes from there, and that it leaves it alone.
# usage: ms_train_load_test.sh MS-TRAIN
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
training_directory
tiny_config mesh.dp=2 mesh.pp=2 train.steps=6 train.eval_every=0 optim.lr=1e-2 'optim.schedule="constant"' \
  checkpoint.every_steps=3 'checkpoint.when_busy="wait"' 'checkpoint.dir="first"' 'run.dir="run"' >c.toml
losses() { sed -nE 's/^\{"step":([0-9]+),"loss":([^,]*),.*/\1 \2/p' run/metrics.jsonl; }
names() { find "$1" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | paste -s -d ' '; }
# Every name, size and time of change in a directory; its lock says who had it last.
state() { find "$1" ! -name lock -printf '%p %s %T@\n' | sort; }
again=(run c.toml --set checkpoint.dir=second)
weights=(--set checkpoint.load=first/step-00000003 --set checkpoint.weights_only=true)

expect 0 'beginning at step 0' run c.toml
losses >first.losses
state first >first.state

# All of the state: the steps that follow have the bits of the run that it comes from; they are saved elsewhere.
expect 0 'resuming from first/step-00000003: step 3, ' "${again[@]}" --set checkpoint.load=first/step-00000003
diff <(tail -n +4 first.losses) <(losses | tail -n +4) || fail "the loaded state does not continue as its own run did"
[ "$(names second)" = 'lock step-00000006' ] || fail "the run left '$(names second)' in its directory"
# A directory stands for its newest checkpoint. Nothing is left to do then, and the log says what to do instead.
expect 0 'checkpoint.weights_only' run c.toml --set checkpoint.dir=third --set checkpoint.load=first

# The weights only: step 0, a fresh optimizer, the first sample. The same as from weights that were exported and imported.
rm -rf second
expect 0 'beginning at step 0 with the weights of first/step-00000003' "${again[@]}" "${weights[@]}"
losses >weights.losses
[ "$(wc -l <weights.losses)" -eq 6 ] || fail "a run from weights does not begin at step 0"
[ "$(head -n 1 weights.losses)" != "$(head -n 1 first.losses)" ] || fail "the weights are those of initialization"
"$bin/ms-ckpt" export -o hf first/step-00000003 >/dev/null 2>err || fail "ms-ckpt export"
"$bin/ms-ckpt" import -o imported hf >/dev/null 2>err || fail "ms-ckpt import"
expect 0 'imported/step-00000000' run c.toml --set checkpoint.dir= --set checkpoint.load=imported
losses | diff weights.losses - || fail "weights only is not what imported weights are"
expect 2 'hint: .ms-ckpt import --output DIR hf' run c.toml --set checkpoint.load=hf --set checkpoint.dir=from-hf
[ ! -e from-hf ] || fail "a refused run made its checkpoint.dir"
# [model] is that of the checkpoint, if the configuration has none, also where the run resumes and what it began with is gone.
# Keys that are set stay.
grep -v '^model\.' c.toml >bare.toml
expect 0 'imported/step-00000000' run bare.toml --set checkpoint.dir=bare --set checkpoint.load=imported
losses | diff weights.losses - || fail "[model] of a checkpoint is not the one that was typed"
grep -q '^layers = .*# set by checkpoint' run/config.toml || fail "the configuration does not say who set [model]"
mv imported gone
expect 0 'resuming from bare/step-00000006' run bare.toml --set checkpoint.dir=bare --set checkpoint.load=imported --set train.steps=7
mv gone imported
expect 2 'model.norm_eps is .* there' run bare.toml --set checkpoint.load=imported --set checkpoint.dir= --set model.norm_eps=0.5
# Tokenizer and generation files go along with the weights, to be exported with what becomes of them.
mkdir -p imported/hf && echo '{"version": "1.0"}' >imported/hf/tokenizer.json
expect 0 'imported/step-00000000' run c.toml --set checkpoint.dir=tuned --set checkpoint.load=imported
cmp -s imported/hf/tokenizer.json tuned/hf/tokenizer.json || fail "the tokenizer does not follow checkpoint.load"
"$bin/ms-ckpt" export -o tuned-hf tuned >/dev/null 2>err || fail "ms-ckpt export"
cmp -s imported/hf/tokenizer.json tuned-hf/tokenizer.json || fail "the tokenizer is not exported with a tuned model"
"$bin/ms-ckpt" import -o first hf >out 2>err && fail "ms-ckpt import wrote into a directory of checkpoints"
grep -q 'hint: use another directory for --output; .*checkpoint.load' err || fail "ms-ckpt import does not say what to do"

# The same command resumes the run, whatever has become of what it began with; --fresh begins as before.
mv first moved
expect 0 'resuming from second/step-00000006: step 6, .*' "${again[@]}" "${weights[@]}" --set train.steps=7
second=$(names second)
expect 2 'checkpoint.load: cannot open first/step-00000003' "${again[@]}" "${weights[@]}" --fresh
[ "$(names second)" = "$second" ] || fail "a refused run changed its directory"
mv moved first
expect 0 'now in second/set-aside-1' "${again[@]}" "${weights[@]}" --fresh
losses | diff weights.losses - || fail "--fresh is not the first run again"
state first | diff first.state - || fail "a run changed the directory that it loaded from"

# Refusals, before anything is written.
rm -rf run second
mkdir empty
refuse() { # PATTERN KEY=VALUE...
  local sets=()
  for key in "${@:2}"; do sets+=(--set "$key"); done
  expect 2 "$1" "${again[@]}" "${sets[@]}"
  if [ -e run ] || [ -e second ]; then fail "${*:2}: a refused run left something"; fi
}
refuse 'checkpoint.load: cannot open nowhere' checkpoint.load=nowhere
refuse 'checkpoint.load: no complete checkpoint in empty' checkpoint.load=empty
refuse 'checkpoint.load: .*another model: model.layers is 2 there, 4 here' checkpoint.load=first model.layers=4
refuse 'checkpoint.load: .* on 24 samples of other data: train.seed' checkpoint.load=first/step-00000003 train.seed=7
refuse "resumes from checkpoint.dir = 'first' by itself" checkpoint.load=first/step-00000003 checkpoint.dir=first
refuse 'about checkpoint.load, which is empty' checkpoint.weights_only=true

[ "$failures" -eq 0 ] && echo "all as expected" || exit 1
