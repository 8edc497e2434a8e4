#!/usr/bin/env bash
# ms-data sample from the outside: what it shows is what the ranks read.  usage: ms_data_sample_test.sh MS-DATA
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
training_directory
"$tool" encode --by-line -o lines text >/dev/null 2>&1 || fail "ms-data encode --by-line"
tiny_config mesh.dp=2 mesh.tp=2 train.steps=20 'data.train=[{path = "text", weight = 3}, {path = "lines", weight = 1}]' >c.toml

expect 2 'step N is missing' sample c.toml
expect 2 '0' sample c.toml --step 0
expect 2 '21' sample c.toml --step 21
expect 2 '4' sample c.toml --step 1 --rank 4
expect 2 'missing' sample c.toml --step 1 --set 'data.train=["missing"]'
expect 0 'sample 8: dp rank 0, microbatch 0, (text|lines) from token [0-9]+ on' sample c.toml --step 2
grep -q 'quick brown fox' out || fail "no text is shown"
[ "$(grep -c '^sample ' out)" -eq 8 ] || fail "the batch has not 8 samples"
expect 0 'sample 12: dp rank 1' sample c.toml --step 2 --rank 2
[ "$(grep -c '^sample ' out)" -eq 4 ] || fail "a dp rank has not 4 samples"

"$tool" sample c.toml --step 2 --json >all.json || fail "sample --json"
"$tool" sample c.toml --step 2 --rank 1 --json >rank.json || fail "sample --rank 1 --json"
"$tool" show text --tokens >text.tokens
"$tool" info lines --json >lines.json
python3 - <<'PYTHON' || fail "the JSON is not as expected"
import json
every, rank = json.load(open("all.json")), json.load(open("rank.json"))
assert every["schema"] == 1 and every["step"] == 2, every
samples = every["samples"]
assert [s["sample"] for s in samples] == list(range(8, 16)), samples
assert [s["dp"] for s in samples] == [0] * 4 + [1] * 4 and [s["microbatch"] for s in samples] == [0, 0, 1, 1] * 2
assert rank["samples"] == samples[:4]  # rank 1 is the second tp rank of dp rank 0
assert sorted(s["source"] for s in samples) == ["lines"] * 2 + ["text"] * 6
tokens = [int(line) for line in open("text.tokens")]
for s in samples:
    assert len(s["tokens"]) == 32, s
    if s["source"] == "text":
        before = [256] + tokens  # 256 ends a document
        begins = [i for i in range(32) if before[s["first_token"] + i] == 256]
        assert s["document_starts"] == begins, (s, begins)
        assert s["tokens"] == tokens[s["first_token"]:s["first_token"] + 32], s
        assert s["text"].encode() == bytes(t for t in s["tokens"] if t < 256)
PYTHON

# Weights that change by step. What a run was fed with is known without it, and a resume with another dp changes nothing.
changing='data.train=[{path = "text", weight = [[0, 3], [3, 1]]}, {path = "lines", weight = [[0, 0], [3, 1]]}]'
tiny_config mesh.dp=2 train.steps=8 train.eval_every=0 'run.dir="run"' 'checkpoint.dir="saved"' "$changing" >m.toml
expect 2 'from step 3 on all weights of data.train are 0' sample m.toml --step 1 \
  --set 'data.train=[{path = "text", weight = [[0, 1], [3, 0]]}, {path = "lines", weight = [[0, 0], [9, 1]]}]'
for step in 3 4; do
  expect 0 . sample m.toml --step $step
  grep -o 'microbatch [0-9]*, [a-z]*' out | cut -d ' ' -f 3 | sort | uniq -c | xargs >sources-$step
done
[ "$(cat sources-3)" = '8 text' ] || fail "lines is read before its weight is above 0"
[ "$(cat sources-4)" = '4 lines 4 text' ] || fail "the weights do not change after step 3"
"$bin/ms-train" run m.toml --set train.steps=5 >log 2>&1 || fail "a run with weights that change"
"$bin/ms-train" run m.toml --set mesh.dp=4 >log 2>&1 || fail "a run with weights that change, resumed"
for step in 1 5 6 8; do
  expect 0 "^data_chain after step $step: [0-9a-f]{16}$" sample m.toml --step $step --chain
  chain=$(tail -n 1 out | cut -d ' ' -f 5)
  grep -q "^{\"step\":$step,.*\"data_chain\":\"$chain\"" run/metrics.jsonl ||
    fail "the run has another chain after step $step"
done
"$bin/ms-ckpt" show saved --json | grep -q "\"chain\": *\"$chain\"" || fail "the checkpoint has another chain"
[ "$failures" -eq 0 ]
