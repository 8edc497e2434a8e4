#!/usr/bin/env bash
# ms-tracepp on kept traces of situations that users of torch.profiler reported, each with its right answer.
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
cases=$(realpath "$(dirname "$0")/../../../shared/cases/traces")
[ -d "$cases" ] || { echo "../shared/cases/traces is not here" && exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

# Calls ms-tracepp COMMAND --json on a case, and compares what the expression finds in its document.
expect_json() {  # COMMAND CASE EXPRESSION
  [ -e "$cases/$2" ] || { fail "the case $2 is not here" && return; }
  "$tool" "$1" --json "$cases/$2" >document 2>err || { fail "$1 $2: $(cat err)" && return; }
  python3 -c "import json; d = json.load(open('document')); assert $3" 2>err || fail "$1 $2: $3: $(tail -n 1 err)"
}
slow='[f["ranks"] for f in d["findings"]] == [[2]]'

for name in 23-control-slow-rank 25-comm-kernel-names-lowercase 25-comm-kernel-names-msccl 25-comm-kernel-names-oneccl \
  25-comm-kernel-names-rccl 26-inf-bandwidth \
  27-backslashes-and-na 27b-na-in-distributed-info 28-brackets-in-trace-name 29-ts-as-strings 35-base-times-differ; do
  expect_json stragglers "$name" "$slow and d['findings'][0]['confidence'] >= 0.8 and len(d['by_rank']) == 4"
  expect_json report "$name" "$slow and d['info']['mesh'] == {'dp': 4, 'pp': 1, 'tp': 1} and d['info']['mesh_why']"
done
expect_json stragglers 36-host-late-one-rank "$slow and d['by_rank'][0]['idle_s'] > 5 * d['by_rank'][1]['idle_s']"
# Without the trace of the slow rank nobody stands out, and what is missing is said.
mkdir lacks-slow && cp "$cases"/36-host-late-one-rank/rank[013]* lacks-slow
"$tool" stragglers --json lacks-slow >document 2>err || fail "stragglers without the slow rank: $(cat err)"
python3 -c 'import json; d = json.load(open("document")); assert d["untraced_ranks"] == 1 and not d["findings"]' 2>err ||
  fail "stragglers without the slow rank: $(tail -n 1 err)"
expect_json stragglers 33-no-profiler-step "$slow"
expect_json info 33-no-profiler-step 'd["first_step"] == -1'
# Numbers of ranks are made up: the host tells which it is.
expect_json stragglers 24-no-rank-host-names "$slow and d['by_rank'][0]['host'] == 'r1t05'"
expect_json info 24-no-rank-host-names 'any("number" in problem for problem in d["problems"])'
# No JSON: nothing is accused.
expect_json report 31-nccl-profiler-plugin 'd["findings"] == [] and d["look_first"] == [] and d["info"]["problems"]'
expect_json report 38-nsys-exports/report1.json 'd["kernels"]["names"]'
expect 2 'a report of Nsight Systems: give what nsys export' report "$cases/38-nsys-exports/report1.nsys-rep"
# Rank 1 has no events: who is slow is in doubt.
expect_json stragglers 34-metadata-only "$slow and d['findings'][0]['confidence'] <= 0.5 and d['findings'][0]['doubt']"
expect_json report 34-metadata-only 'any("rank1" in file for file in d["info"]["gaps"]["files"])'
# The newest of two recordings, and it says which.
expect_json stragglers 32-torchtitan-iterations "$slow"
expect_json info 32-torchtitan-iterations \
  'd["first_step"] == 13 and "iteration_20" in d["recording"] and "iteration_10" in d["other_recordings"][0]'
expect_json report 37-legacy-array 'd["breakdown"]["mean"]["busy_s"] > 0'
for dumps in dumps dumps-only-pg-id; do
  expect_json hang 41-no-pg-config/$dumps 'd["suspects"][0]["rank"] == 3'
done
expect_json hang 43-uneven-batches/dumps 'd["suspects"][0]["rank"] == 1 and d["suspects"][0]["confidence"] >= 0.8'
expect_json hang 50-gloo-loader 'd["suspects"][0]["rank"] == 1 and d["suspects"][0]["reason"] == "not_issuing"'
# The ranks part at a call behind the one that is open first; of two ranks nothing tells which is wrong.
expect_json hang 02-two-ranks-diverge/dumps \
  '[(s["rank"], s["reason"], s["confidence"]) for s in d["suspects"]] == [(r, "wrong_size", 0.5) for r in (0, 1)]'
expect_json hang 02-two-ranks-diverge/dumps-4-ranks \
  '[(s["rank"], s["reason"]) for s in d["suspects"]] == [(0, "wrong_size")] and d["groups"][0]["sequence"] == 32'
first='(d["suspects"][0]["rank"], d["suspects"][0]["reason"])'
expect_json hang 06-zero3-skipped-module "$first == (3, 'missing_call')"
expect_json hang 50-gloo-async "$first == (1, 'wrong_order') and d['suspects'][1]['confidence'] <= 0.2"
expect_json hang 40-pickle-in-pickle 'd["suspects"][0]["file"].endswith("/trace_1.pkl")'
expect_json hang 18-watchdog-log-only "$first == (0, 'not_issuing') and d['groups'][0]['sequence'] == 4486"
expect_json hang 18-watchdog-log-only/slurm-4711.out "$first == (0, 'not_issuing')"
# RAS does not tell which of 30 ranks holds up all; the two that are ahead are not accused.
expect_json hang 17-ras-mismatch 'd["state"] == "unknown" and d["suspects"] == [] and "30 ranks" in d["sentence"]'
expect_json hang 50-gloo-loader "$first == (1, 'not_issuing') and any('job_loader (jobs.py:81)' in e for e in d['evidence'])"
# Two worlds in one directory are refused by name, and each is judged by itself.
"$tool" hang "$cases/22-torchft-replica-ranks" >document 2>err && fail "22: two worlds were read as one"
grep -q 'replica_a and .*replica_b both have a dump of rank 0' err || fail "22: $(cat err)"
expect_json hang 22-torchft-replica-ranks/dumps/replica_a "$first == (1, 'not_issuing')"
expect_json hang 22-torchft-replica-ranks/dumps/replica_b 'd["state"] == "cut_off"'
expect_json hang 42-a-node-without-dumps 'd["missing_ranks"] == list(range(16, 24))'

[ "$failures" -eq 0 ] && echo "all as expected"
[ "$failures" -eq 0 ]
