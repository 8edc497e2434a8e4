#!/usr/bin/env bash
# ms-tracepp on the command line: what it prints of traces of ours and of others, what it refuses, and how it exits.
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
dir=$(mktemp -d)
trap 'cd / && rm -rf "$dir"' EXIT
cd "$dir" || exit 1

# A run of our own.
for i in $(seq 3000); do echo "line $i of a text that is long enough to train on, $((i * 7919 % 1000))"; done >text
"${tool%/*}/ms-data" encode --tokenizer byte --output text text >/dev/null 2>&1 || fail "ms-data encode"
cat >c.toml <<'TOML'
[model]
layers = 2
hidden = 32
heads = 4
vocab = 257
seq = 32
[mesh]
dp = 2
pp = 2
[train]
steps = 30
global_batch = 8
dtype = "fp32"
eval_every = 0
[data]
train = ["text"]
[run]
sample_tokens = 0
TOML
for run in a b; do
  "${tool%/*}/ms-train" run c.toml --set run.dir=$run >out 2>err || fail "ms-train run"
done

expect 0 'ranks +4 of 4, on 1 host' info a/trace
expect 0 '"ranks": ?4' info --json a/trace
expect 0 'steps +0 to 29' info a/trace
expect 0 'part of a step' report a/trace
expect 0 '"look_first"' report --json a/trace
expect 0 'a step takes' stragglers a/trace
expect 0 '"M_W"' stragglers --json a/trace
expect 0 'ended well on 4 ranks' hang a/trace
expect 0 'ended well on 4 ranks' hang --check a/trace
expect 0 '"state": ?"ended"' hang --json a/trace
expect 0 'step' diff a/trace b/trace
expect 0 '"parts"' diff --json a/trace b/trace
expect 0 'wrote +run.json' export --format chrome -o run.json a/trace
python3 -c 'import json; assert len(json.load(open("run.json"))["traceEvents"]) > 1000' || fail "run.json is no Chrome trace"
expect 0 'ranks +4' info run.json
expect 0 'wrote +run.csv' export --format csv -o run.csv --ranks 1,3 --steps 3-4 a/trace
[ "$(cut -d, -f1 run.csv | sort -u | tr '\n' ' ')" = "1 3 rank " ] || fail "run.csv has other ranks"
[ "$(cut -d, -f6 run.csv | sort -u | tr '\n' ' ')" = "3 4 step " ] || fail "run.csv has other steps"
expect 0 'wrote +run.perfetto' merge -o run.perfetto a/trace
[ -s run.perfetto ] || fail "run.perfetto is empty"
expect 0 'wrote +run.json.gz' merge -o run.json.gz a/trace
gzip -t run.json.gz || fail "run.json.gz is no gzip"

# One file of many, one that is cut off, one that is not there.
expect 0 'ranks +1 of 4' info a/trace/rank-00002.mst
mkdir cut && cp a/trace/*.mst cut && truncate -s -9000 cut/rank-00001.mst
expect 0 'not used +page of events cut off' info cut
rm cut/rank-00003.mst
expect 0 'ranks +3 of 4' info cut

# Refusals.
expect 2 'cannot open' info absent
mkdir empty
expect 2 'empty' report empty
echo 'no trace' >words
expect 2 'words' info words
expect 2 '--output FILE is missing' merge a/trace
expect 2 "format 'png' is not known" export --format png -o x a/trace
expect 2 'ends before it begins' export -o x --steps 5-3 a/trace
expect 2 'is not a number' export -o x --ranks 1,b a/trace
expect 2 '.' report
expect 0 'stragglers' --help
expect 0 'ms-trace' --man
[ "$failures" -eq 0 ]
