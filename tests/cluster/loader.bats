#!/usr/bin/env bats
# The loaders of a run on several nodes: when one dies, its standby forks another, no sample is lost, and no rank is.

bats_require_minimum_version 1.5.0

setup() {
  kit=$BATS_TEST_TMPDIR/kit
  mkdir -p "$kit"
  cp "$BATS_TEST_DIRNAME/../support/training.sh" "$kit"
}

@test "loaders of two of four nodes are killed: the samples and losses are those of an undisturbed run" {
  # shellcheck disable=SC2016 # for the shell on the controller
  kit=$kit "$BATS_TEST_DIRNAME/run" 4 -- bash -euo pipefail -c 'cp "$kit"/* "$CLUSTER_DIR/shared"; cd "$CLUSTER_DIR/shared"
    . ./training.sh'$'\n'"$(cat <<'BASH'
  trap '[[ $? -eq 0 ]] || tail -n 40 log' EXIT
  training_text 400 >/dev/null
  # Until it is stopped: a busy machine must not let it end before the loaders are killed.
  tiny_config mesh.dp=4 mesh.tp=2 train.steps=100000 train.global_batch=32 train.eval_every=0 model.hidden=64 \
    optim.warmup_steps=0 'optim.schedule="constant"' >c.toml
  srun --mpi=pmix --nodes=4 --ntasks=8 --ntasks-per-node=2 ms-train run c.toml --set run.dir=run >log 2>&1 & job=$!
  steps_done() { tail -n 1 run/metrics.jsonl 2>/dev/null | sed -n 's/^{"step":\([0-9]*\).*/\1/p'; }
  three_more_steps() { # than now: after them a rank has read what the next loader filled
    local before
    before=$(steps_done || true) # there is no file yet
    wait-until 120 bash -c "[[ \$(steps_done) -ge $((${before:-0} + 3)) ]]"
  }
  loader() { on-node "$1" pgrep -x ms-loader; } # NODE
  another_loads() { # NODE BEFORE
    local now
    now=$(loader "$1")
    [[ -n $now && $now != "$2" ]]
  }
  export -f steps_done loader another_loads
  three_more_steps
  : >kills # the steps done before and after a kill; rank 0, on node01, says how long it waits for data
  for node in node01 node03; do
    killed=$(loader "$node")
    [[ $killed =~ ^[0-9]+$ ]] # one for both ranks
    before=$(steps_done)
    on-node "$node" kill -KILL "$killed"
    printf '%s %s\n' "${before:-0}" "$(steps_done)" >>kills
    wait-until 60 another_loads "$node" "$killed"
    three_more_steps
  done
  scancel 1
  wait "$job" || true
  printf 'node01\nnode03\n' >expected
  sed -n 's/^.* W \(node[0-9]*\) data: the loader, process [0-9]*, has ended: killed by signal 9.*another takes over.*/\1/p' log |
    sort | diff expected -

  # As threads of one process: the same bits.
  steps=$(steps_done)
  ms-train run c.toml --set run.dir=undisturbed --set train.steps="$steps" >undisturbed.log 2>&1
  python3 - <<'PYTHON'
import json, statistics
def lines(name):
    whole = (line for line in open(name + "/metrics.jsonl") if line.endswith("\n"))  # the end may have cut the last one
    return {line["step"]: line for line in map(json.loads, whole)}
run, undisturbed = lines("run"), lines("undisturbed")
assert len(run) >= 9 and sorted(run) == list(range(1, len(run) + 1)), sorted(run)
for step, line in run.items():
    for key in "loss", "grad_norm", "data_chain":
        assert line[key] == undisturbed[step][key], (step, key, line, undisturbed[step])
median = statistics.median(line["step_s"] for line in run.values())
after = set()  # what the loader had read lasts for two steps
for begin, *end in map(str.split, open("kills")):
    after.update(range(int(begin), int((end or [begin])[0]) + 5))
def longest(seconds_of, is_after):
    return max((seconds_of(line) for step, line in run.items() if step > 2 and (step in after) == is_after), default=0) / median
def step_s(line): return line["step_s"]
def data_wait_s(line): return line["seconds"]["data_wait"]
print(f"# {len(run)} steps. The longest after a kill takes {longest(step_s, True):.1f} times the median, of all others "
      f"{longest(step_s, False):.1f}; rank 0 waits for data {longest(data_wait_s, True):.2f} of a step at most after a kill, "
      f"{longest(data_wait_s, False):.2f} otherwise")
PYTHON
BASH
)" >&3
}
