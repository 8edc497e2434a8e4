#!/usr/bin/env bash
# ms-loan from the outside: replays, what it refuses, its exit codes.  usage: ms_loan_test.sh MS-LOAN
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

cat >policy.toml <<'TEXT'
cluster = {train_nodes = 2, inference_nodes = 4, gpus_per_node = 8}
loan = {lend_interval = "1m", reserve_window = "0s", headroom_percent = 0}
TEXT
printf 'submit,duration,gpus,max_gpus\n0,1000,16,32\n0,500,8,8\n900,10,1,1\n' >jobs.csv
printf 'time_s,nodes\n0,2\n205,4\n' >demand.csv
gzip -k jobs.csv
replay() { # CODE PATTERN ARGS...: of a replay of the files above
  local code=$1 pattern=$2
  shift 2
  expect "$code" "$pattern" simulate --jobs jobs.csv.gz --demand demand.csv --policy policy.toml "$@"
}

replay 0 '^fifo .* 0s'
for scheduler in fifo sjf backfill slurm loaning elastic both both-equal; do
  grep -q "^$scheduler " out || fail "the table has no $scheduler"
done
replay 0 '"queue_mean_s"' --json --scheduler loaning --scheduler sjf --samples samples.csv
python3 - <<'PYTHON' || fail "the JSON is not as expected"
import json
document = json.load(open("out"))
assert document["schema"] == 1 and document["jobs"] == 3 and document["elastic_jobs"] == 1, document
loaning, sjf = document["schedulers"]
assert [loaning["scheduler"], sjf["scheduler"]] == ["loaning", "sjf"]
for key in "queue_mean_s", "queue_p95_s", "jct_mean_s", "jct_p95_s", "usage", "preemptions":
    assert key in sjf, key
assert sjf["preemptions"] == 0 and sjf["queue_p95_s"] == 600, sjf  # the last job waits for the large one
assert loaning["queue_mean_s"] < sjf["queue_mean_s"], (loaning, sjf)
assert 0 < loaning["request_wait_max_s"] <= 90, loaning
PYTHON
head -n 1 samples.csv | grep -q '^scheduler,time_s,own_busy_gpus' || fail "the samples have no names"
[ "$(grep -c '^sjf,' samples.csv)" -eq 4 ] || fail "the samples of 900 s are not four"

replay 2 "did you mean 'both'" --scheduler boht
replay 2 'there is no scheduler' --scheduler xyzzyxyzzy
expect 2 'policy FILE is missing' simulate --jobs jobs.csv --demand demand.csv
expect 2 'cannot open nowhere' simulate --jobs nowhere --demand demand.csv --policy policy.toml
head -c 40 jobs.csv.gz >cut.gz
expect 2 'cut.gz.*cut off' simulate --jobs cut.gz --demand demand.csv --policy policy.toml
printf 'submit,duration,gpus\n0,1000,99\n' >large.csv
expect 2 'large.csv:2: the job needs 99 GPUs, training has 16' simulate --jobs large.csv --demand demand.csv --policy policy.toml
printf 'submit,duration,gpus\n0,1000,8\n-5,1000,8\n' >early.csv
expect 2 "early.csv:3: submit '-5' is negative" simulate --jobs early.csv --demand demand.csv --policy policy.toml
printf 'time_s,nodes\n0,5\n' >much.csv
expect 2 'inference needs 5 nodes at 0 s, and has 4' simulate --jobs jobs.csv --demand much.csv --policy policy.toml
# Jobs that come all at once leave no time to count usage in, and no range of demand.
printf 'submit,duration,gpus\n5,1000,8\n5,1000,8\n' >once.csv
expect 0 'all jobs come at once: load and usage' simulate --jobs once.csv --demand demand.csv --policy policy.toml
expect 0 '"usage": null' simulate --jobs once.csv --demand demand.csv --policy policy.toml --json
sed '$a demand = {low_percent = 20, high_percent = 100}' policy.toml >stretched.toml
expect 2 'demand is 16 GPUs all the time in which jobs come, 0s' simulate --jobs once.csv --demand demand.csv --policy stretched.toml
expect 0 '^fifo ' simulate --jobs jobs.csv --demand demand.csv --policy stretched.toml
head -c 3000 /dev/urandom >noise
expect 2 'noise' simulate --jobs noise --demand demand.csv --policy policy.toml
expect 2 'noise' simulate --jobs jobs.csv --demand demand.csv --policy noise
printf 'loan.grace = "1s"\nloan.pol = 1\n' >bad.toml
expect 2 "did you mean 'loan.poll'" simulate --jobs jobs.csv --demand demand.csv --policy bad.toml
replay 2 'nowhere' --samples nowhere/samples.csv

# Without a Slurm that answers nothing is done, and it is said.
mkdir bin
printf '#!/bin/sh\necho "slurm_load_partitions: Unable to contact slurm controller" >&2\nexit 1\n' >bin/scontrol
chmod +x bin/scontrol
cp bin/scontrol bin/squeue
echo 1 >demand
cat >live.toml <<TEXT
demand.file = "demand"
slurm = {nodes = "n[1-4]", state = "$dir/state", scontrol = "$dir/bin/scontrol"}
TEXT
expect 2 'policy FILE is missing' observe
expect 76 'Unable to contact slurm controller' observe --policy live.toml
expect 76 'Unable to contact slurm controller' act --once --policy live.toml
expect 2 'neither demand.file nor demand.command' observe --policy policy.toml
expect 2 'neither demand.file nor demand.command' act --policy policy.toml
sed 's/n\[1-4\]/n[1-/' live.toml >list.toml
expect 2 'n\[1-' observe --policy list.toml
sed 's/^demand.file.*/demand.command = ["false"]/' live.toml >command.toml
expect 2 'demand.command false: exit status 1' observe --policy command.toml
sed 's|^demand.file.*|demand.command = ["/nope"]|' live.toml >command.toml
expect 2 "demand.command '/nope' of the policy: No such file" observe --policy command.toml
echo '{"time":' >state/state.json
expect 74 'is not a state of ms-loan' act --once --policy live.toml
expect 0 'nothing was done to n1' explain n1 --policy live.toml
expect 0 'why job 4711 does not start, if it waits, cannot be said: .*Unable to contact slurm controller' explain 4711 --policy live.toml
for name in 12.7 1e3 0 4294967296; do
  expect 0 "^nothing was done to $name$" explain "$name" --policy live.toml
  [ "$(wc -l <out)" -eq 1 ] || fail "explain takes $name for a job"
done
sed 's|state = "[^"]*"|state = "/nope"|' live.toml >nowhere.toml
expect 2 'there is no log of decisions: /nope is not there' explain n1 --policy nowhere.toml
expect 2 'the policy is named with --policy FILE' explain n1 live.toml
printf '%s\n' '{"object":"n1"}' '{"object":5,"time":5}' '[]' 'cut {' >state/decisions.jsonl
expect 0 ':' explain n1 --policy live.toml
[ "$failures" -eq 0 ]
