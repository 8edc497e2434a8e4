#!/usr/bin/env bash
# mesh.dp = "auto": runs take the ranks that they are given, resume at another size from any checkpoint with the same samples,
# and say what they chose.  usage: ms_train_elastic_test.sh MS-TRAIN
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
cluster=$(cd "$(dirname "$0")/../../configs/clusters" && pwd)/h100-8x400g.toml
training_directory
tiny_config mesh.dp='"auto"' mesh.dp_max=4 train.steps=9 train.eval_every=0 optim.warmup_steps=0 'optim.schedule="constant"' \
  'run.dir="run"' >c.toml

# What a run refuses, and what it says.
expect 2 'mesh.dp = "auto" needs a number of ranks' run c.toml
expect 2 'may be 1, 2 or 4, .* there are 3 ranks' run c.toml --ranks 3
grep -q 'hint: start 2 ranks, which leaves 1 over' err || fail "no hint what to start"
[ ! -e run ] || fail "a refused run left a directory"
expect 0 'mesh.dp = "auto" is 4, on 4 ranks: 4 x 1 microbatches of 2 a step; it may be 1, 2 or 4' plan c.toml
expect 0 '^mesh +2 ranks: ' plan c.toml --world 2
expect 0 '^dp = "auto"  # set by file' check c.toml --no-files --dump
expect 0 '"replica_ranks": 2' check c.toml --no-files --json --set mesh.dp=2 --set mesh.cp=2
expect 0 '"replica_ranks": 1' check c.toml --no-files --json --set mesh.dp=2
python3 -c 'import json; j = json.load(open("out")); assert (j["dp"], j["auto"], j["allowed_dp"]) == (2, False, [1, 2, 4]), j' ||
  fail "check --json says something else"
grep -q speed_up out && fail "check --json simulates without being asked"
expect 0 '"tokens_per_s"' check c.toml --no-files --json --speeds --set run.cluster="$cluster"
python3 -c 'import json; assert [row["dp"] for row in json.load(open("out"))["speed_up"]] == [1, 2, 4]' || fail "speeds are not of its sizes"
expect 2 '--speeds needs --json' check c.toml --no-files --speeds
expect 0 '^ *4 +4 ' simulate c.toml --cluster "$cluster" --curve curve.csv
[ "$(cut -d, -f1 curve.csv | xargs)" = 'num_replicas 1 2 4' ] || fail "the curve has not its three sizes"
expect 0 '"speed_up": \[' simulate c.toml --cluster "$cluster" --json
expect 2 'slow is about one layout' simulate c.toml --cluster "$cluster" --slow rank=0:2
expect 2 '--curve needs mesh.dp = "auto"' simulate c.toml --cluster "$cluster" --set mesh.dp=2 --curve curve.csv
printf 'submit,duration,gpus,max_gpus\n0,1000,1,4\n' >jobs.csv
printf 'time_s,nodes\n0,1\n' >demand.csv
printf 'jobs.curves = ["curve.csv"]\n' >policy.toml
"$bin/ms-loan" simulate --jobs jobs.csv --demand demand.csv --policy policy.toml --scheduler elastic >out 2>err ||
  fail "ms-loan does not take the curve"

# An undisturbed run at 4; then three steps each at 4, 2 and 4, processes among them.
expect 0 'dp 2, 2 ranks: [0-9]+ tokens/s by simulation' run c.toml --ranks 4 --set run.dir=whole --set run.cluster="$cluster"
part=(run c.toml --set checkpoint.dir=ck)
expect 0 . "${part[@]}" --ranks 4 --set train.steps=3 --set run.dir=part-1
mpi=()
command -v mpirun >mpirun.path && mpi=(mpirun -q --allow-run-as-root --oversubscribe -np 2)
threads=(--ranks 2)
[ ${#mpi[@]} -eq 0 ] || threads=()
"${mpi[@]}" "$tool" "${part[@]}" "${threads[@]}" --set train.steps=6 --set run.dir=part-2 >out 2>err </dev/null || fail "2 ranks"
grep -q 'mesh.dp = "auto" is 2, on 2 ranks: 2 x 2 microbatches' err || fail "2 ranks do not make dp 2"
expect 0 . "${part[@]}" --ranks 4 --set run.dir=part-3
python3 - <<'PYTHON' || fail "the samples or losses differ from an undisturbed run"
import json
def lines(name): return {line["step"]: line for line in map(json.loads, open(name + "/metrics.jsonl"))}
whole, parts = lines("whole"), {**lines("part-1"), **lines("part-2"), **lines("part-3")}
assert sorted(parts) == sorted(whole) == list(range(1, 10)), (sorted(parts), sorted(whole))
for step, line in parts.items():
    assert line["data_chain"] == whole[step]["data_chain"], step
    assert abs(line["loss"] - whole[step]["loss"]) < 1e-4, (step, line["loss"], whole[step]["loss"])
PYTHON
[ ${#mpi[@]} -eq 0 ] || { mpirun -q --allow-run-as-root --oversubscribe -np 3 "$tool" "${part[@]}" >out 2>err </dev/null; [ $? -eq 2 ]; } ||
  fail "3 processes are not refused"

[ "$failures" -eq 0 ] && echo "all as expected" || exit 1
