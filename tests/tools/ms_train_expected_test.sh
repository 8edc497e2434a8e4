#!/usr/bin/env bash
# What ms-train run says of a step against what the simulator expects, where run.cluster says what the machines can do; and
# nothing where that is not known.  usage: ms_train_expected_test.sh MS-TRAIN
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
clusters=$(cd "$(dirname "$0")/../../configs/clusters" && pwd)
training_directory
tiny_config mesh.dp=2 train.eval_every=0 optim.warmup_steps=0 run.sample_tokens=0 >c.toml

# run_until PATTERN SET...: a run without an end, stopped once it has said that. It may take long on a busy machine.
run_until() {
  local pattern=$1
  shift
  "$tool" run c.toml --set run.dir=run --set train.steps=10000000 "$@" >out 2>err </dev/null &
  local run=$!
  for _ in $(seq 2000); do
    if grep -Eq -- "$pattern" err || ! kill -0 "$run" 2>/dev/null; then break; fi
    sleep 0.1
  done
  touch run/stop
  wait "$run"
  grep -Eq -- "$pattern" err || fail "the run did not say '$pattern'"
  rm -rf run
}

# Where the file is far from these cores, the run says so, and says it once.
sed 's/^step = .*/step = "30s"/' "$clusters/h100-8x400g.toml" >far.toml
run_until 'until step [0-9]+00, a step takes .* expected of .*far[.]toml; so far apart, the file does not describe these machines' \
  --set run.cluster=far.toml
[ "$(grep -c 'until step ' err)" -eq 1 ] || fail "it was said more than once"
# What cannot be simulated is told with the reason.
sed 's/^rate = .*/rate = 0/' "$clusters/h100-8x400g.toml" >apart.toml
run_until 'the expected time of a step is not known: exit status 2; .*cluster' --set run.cluster=apart.toml

# Without a file, or with one that nobody can read, there is no expectation.
expect 0 'step 120 of 120' run c.toml --set run.dir=quiet --set train.steps=120
grep -Eq 'until step|expected time' err && fail "an expectation without run.cluster"
expect 2 'nothing[.]toml' run c.toml --set run.dir=refused --set train.steps=120 --set run.cluster=nothing.toml
[ ! -e refused ] || fail "a run with a wrong run.cluster began"

[ "$failures" -eq 0 ] && echo "all as expected" || exit 1
