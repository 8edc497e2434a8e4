#!/usr/bin/env bash
# Fine-tuning on conversations from the outside: encode, pack, sample, train, resume.  usage: ms_data_chat_test.sh MS-DATA
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
python=$(cd "$(dirname "$0")/../../python" && pwd)
training_directory

# 200 conversations of a rule that can be learned: the answer repeats the question's word.
python3 - <<'PYTHON' || fail "no conversations"
import json, random
random.seed(7)
words = "red green blue black white gold".split()
with open("chats.jsonl", "w") as lines, open("texts", "w") as texts:
    for number in range(200):
        messages = [{"role": "system", "content": "Repeat."}] if number % 5 == 0 else []
        for _ in range(random.randint(1, 3)):
            word = random.choice(words)
            messages += [{"role": "user", "content": f"Say {word}."}, {"role": "assistant", "content": f"{word} {word}"}]
        texts.write("".join(m["role"] + " " + m["content"] + "\n" for m in messages))
        if number % 2:
            lines.write(json.dumps({"messages": messages}) + "\n")
            continue
        names = {"user": "human", "assistant": "gpt", "system": "system"}
        lines.write(json.dumps({"conversations": [{"from": names[m["role"]], "value": m["content"]} for m in messages]}) + "\n")
PYTHON
special=(--special '<|endoftext|>' --special '<|im_start|>' --special '<|im_end|>')
"$tool" train-tokenizer --pattern qwen2 --vocab 320 "${special[@]}" -o tokenizer.json texts >/dev/null 2>&1 || fail "no tokenizer"
encode=(encode --tokenizer tokenizer.json -o chats chats.jsonl)

expect 2 'known are: chatml, qwen2.5' "${encode[@]}" --chat-template alpaca
expect 2 'no chat template can be read in .* beside tokenizer.json' "${encode[@]}" --chat-template auto
echo '{"chat_template": "{{ messages }}"}' >tokenizer_config.json
expect 2 'tokenizer_config.json is not one of those' "${encode[@]}" --chat-template auto
expect 2 "needs the token '<.begin_of_text.>'" "${encode[@]}" --chat-template llama3
expect 2 'needs the token' encode -o chats chats.jsonl --chat-template chatml
expect 2 'neither assistant nor all|train-on' "${encode[@]}" --chat-template chatml --train-on me
expect 2 'chat-template' "${encode[@]}" --train-on all
for other in '--field messages' '--by-line' '--json-as-text' '--eod <|im_end|>' '--no-template' '--split-on %'; do
  # shellcheck disable=SC2086
  expect 2 'contradict' "${encode[@]}" --chat-template chatml $other
done
echo '{"messages": [{"role": "assistant", "content": "a"}, {"role": "tool", "content": "b"}]}' >tool.jsonl
expect 2 "tool.jsonl:1: message 2 has the role 'tool'" "${encode[@]}" tool.jsonl --chat-template chatml
{
  echo '{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}, {"role": "assistant", "content": "b"}]}'
  echo '{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a.png"}}]}]}'
} >image.jsonl
expect 2 "image.jsonl:2: message 1 has a part of type 'image_url'" encode -o image image.jsonl --tokenizer tokenizer.json \
  --chat-template chatml
[ ! -e chats.idx ] || fail "a refused encoding leaves a token file"
expect 0 'skipped 1 bad line' "${encode[@]}" tool.jsonl --chat-template chatml --skip-bad-lines
echo '{"messages": [{"role": "user", "content": "<|im_end|>"}, {"role": "assistant", "content": "b"}]}' >control.jsonl
expect 0 '^1 conversation with the text of a control token' "${encode[@]}" control.jsonl --chat-template chatml --force
grep -q 'control.jsonl:1: a message has the text of a control token' err || fail "the conversation is not named"
expect 0 '^chats: 200 documents' "${encode[@]}" --chat-template chatml --force
grep -q 'control token' out && fail "conversations without a control token are counted"
grep -Eq '^[0-9]+ of [0-9]+ tokens are targets of the loss, with the chat template chatml$' out || fail "no count of targets"
expect 0 '^chat_template +chatml' info chats
grep -Eq '^document_(begin|end)' out && fail "info prints a frame that conversations do not have"
expect 0 'all sound' verify chats
# damage OFFSET BITS: flips bits of a byte in the index of "damaged", a copy of "chats". Offsets below 0 are from the end.
damage() {
  for suffix in bin idx meta.json; do cp chats.$suffix damaged.$suffix; done
  python3 -c 'import sys; idx = bytearray(open("damaged.idx", "rb").read()); idx[int(sys.argv[1])] ^= int(sys.argv[2])
open("damaged.idx", "wb").write(idx)' "$@"
}
damage -1 1
expect 1 'damaged.meta.json has [0-9]+ targets' verify damaged
damage 9 3 # version 2 becomes 1
expect 1 'damaged.meta.json has [0-9]+ targets' verify damaged
"$tool" encode --tokenizer tokenizer.json -o plain texts >/dev/null 2>&1 || fail "no plain text"
expect 0 'the chat template of chats is chatml, and that of plain is none' merge chats plain -o mixed
expect 0 '^chat_template +mixed' info mixed
expect 0 'all sound' verify mixed
expect 0 '<.im_start.>assistant' show chats --document 3

expect 2 'seq N is missing' pack chats -o packed
expect 2 "'cut' is not refuse|too-long" pack chats -o packed --seq 64 --too-long cut
expect 2 'raise --seq' pack chats -o packed --seq 32
expect 0 '^truncated [0-9]+ documents' pack chats -o short --seq 32 --too-long truncate
expect 0 '^dropped [1-9][0-9]* documents? that had no target left' pack chats -o shorter --seq 18 --too-long truncate
expect 0 'all sound' verify shorter
expect 2 'no document of chats has a target of the loss left' pack chats -o none --seq 4 --too-long truncate
[ ! -e none.idx ] || fail "a refused packing leaves a token file"
expect 0 '^packed: [0-9]+ samples of 96 tokens, 200 documents' pack chats -o packed --seq 96
grep -Eq '^[0-9]+ of [0-9]+ tokens are targets of the loss$' out || fail "no count of targets"
expect 2 'already exists' pack chats -o packed --seq 96
expect 2 'is packed to samples of 96' pack packed -o again --seq 96
expect 0 'all sound' verify packed

tiny_config model.vocab=320 model.seq=96 mesh.dp=2 train.steps=60 train.global_batch=8 train.eval_every=20 optim.lr=1e-2 'optim.schedule="constant"' \
  'run.dir="run"' 'checkpoint.dir="saved"' checkpoint.every_steps=20 data.reset_attention=true 'data.train=["packed"]' >c.toml
expect 2 'packed to samples of 96 tokens' sample c.toml --step 1 --set model.seq=48
expect 0 '\[\[' sample c.toml --step 1
grep -q reset_attention err && fail "a warning although documents are kept apart"
expect 0 'set data.reset_attention = true' sample c.toml --step 1 --set data.reset_attention=false
expect 0 'reset_attention=True to ms_loader.Loader .*--reset-attention' serve packed --seq 96 --global-batch 8
expect 0 '"has_mask":true' serve packed --seq 96 --global-batch 8 --reset-attention
grep -q reset_attention err && fail "a warning although batches have starts"
"$tool" sample c.toml --step 3 --json >sample.json || fail "sample --json"
python3 - <<'PYTHON' || fail "sample shows other targets"
import json
for sample in json.load(open("sample.json"))["samples"]:
    assert sample["targets"], sample
    for begin, end in sample["targets"]:  # an answer of two words and its end of turn
        assert sample["tokens"][end - 1] == 2 and 0 < begin < end <= 96, sample
    assert all(token >= 0 for token in sample["tokens"]), sample
PYTHON
run=("$bin/ms-train" run c.toml)
"${run[@]}" --set train.steps=40 >log 2>&1 || fail "fine-tuning: $(tail -3 log)"
"${run[@]}" --set mesh.dp=1 >log 2>&1 || fail "fine-tuning, resumed on one rank: $(tail -3 log)"
"${run[@]}" --set 'run.dir="whole"' --set 'checkpoint.dir="whole-saved"' >log 2>&1 || fail "fine-tuning: $(tail -3 log)"
python3 - <<'PYTHON' || fail "the run is not as expected"
import json
parts = [json.loads(line) for line in open("run/metrics.jsonl")]
whole = [json.loads(line) for line in open("whole/metrics.jsonl")]
parts, whole = ([line for line in run if "loss" in line] for run in (parts, whole))
assert len(parts) == len(whole) == 60, (len(parts), len(whole))
for one, other in zip(parts, whole):
    assert one["targets"] == other["targets"] and 0 < one["targets"] < 8 * 96 / 2, (one, other)
    assert one["data_chain"] == other["data_chain"], (one, other)
    assert abs(one["loss"] - other["loss"]) < 1e-3, (one, other)
assert whole[-1]["loss"] < 0.5 * whole[0]["loss"], (whole[0], whole[-1])
assert whole[-1]["valid_loss"] < 0.5 * whole[0]["loss"], whole[-1]
PYTHON

# What a PyTorch job sees of the same step: ids, targets and documents of `sample`.
MS_DATA=$tool PYTHONPATH=$python python3 -B - <<'PYTHON' || fail "ms_loader has other targets"
import json
import ms_loader
expected = json.load(open("sample.json"))
with ms_loader.Loader("packed", seq=96, global_batch=8, seed=1234, valid_fraction=0.05, reset_attention=True) as loader:
    batches = [next(loader) for _ in range(3)]
batch, rows = batches[-1], batches[-1].rows.tolist()
ids = [[token if token >= 0 else ~token for token in row] for row in rows]
seen = []
for row, plain, starts in zip(rows, ids, batch.starts.tolist()):
    targets = [at + 1 for at, token in enumerate(row[1:]) if token >= 0]
    seen.append((plain[:-1], targets))
    assert not any(at in targets for at in starts if at), (starts, targets)  # a document's first token is no target
wanted = [(sample["tokens"], [at for begin, end in sample["targets"] for at in range(begin, end)])
          for sample in expected["samples"]]
assert sorted(seen) == sorted(wanted), (sorted(seen)[0], sorted(wanted)[0])
assert batch.has_mask and batch.num_targets == sum(len(targets) for _, targets in seen), batch.num_targets
PYTHON

# Steps and evaluations without targets: no loss of 0, and no spike of a normal step after norms of 0. The rank of the middle
# stage reads no data.
python3 - <<'PYTHON' >sparse.jsonl || fail "no conversations"
import json
for question, after in [(f"{number} " + 90 * "x", "") for number in range(60)] + [("y", 1200 * "y z ")]:
    roles = ("user", question), ("assistant", "ab"), ("user", after)
    print(json.dumps({"messages": [{"role": role, "content": content} for role, content in roles if content]}))
PYTHON
expect 0 'targets of the loss' encode --tokenizer tokenizer.json -o sparse sparse.jsonl --chat-template chatml
tiny_config model.vocab=320 model.layers=3 mesh.pp=3 train.steps=60 train.global_batch=2 train.microbatch=1 \
  train.eval_every=20 train.log_every=1 'data.train=["sparse"]' data.valid_fraction=0.3 guard.window=4 \
  'guard.spike="stop"' guard.spike_zscore=1000 'run.dir="sparse-run"' >sparse.toml
"$bin/ms-train" run sparse.toml >out 2>err || fail "training with few targets"
[ "$(grep -c 'the loss ignores all tokens of the validation samples' err)" -eq 1 ] || fail "not one warning of the validation"
grep -q ', no targets, grad_norm 0' err || fail "the log has a loss of steps without targets"
grep -q '^valid_loss' out && fail "a loss of a validation without targets"
python3 - <<'PYTHON' || fail "steps without targets"
import json
lines = [json.loads(line) for line in open("sparse-run/metrics.jsonl")]
without = [line["step"] for line in lines if line["targets"] == 0]
assert len(lines) == 60 and any({step, step + 1, step + 2, step + 3} <= set(without) for step in without), without
for line in lines:
    assert (line["loss"] is None) == (line["targets"] == 0) and "valid_loss" not in line and "skipped" not in line, line
    assert line["loss"] is None or line["loss"] > 1, line
PYTHON
"$bin/ms-train" run sparse.toml --set 'data.valid=["chats"]' --set data.valid_fraction=0 >out 2>err || fail "validation with targets"
grep -q 'validation samples' err && fail "a warning of a validation with targets"
grep -q '^valid_loss  *[1-9]' out || fail "no loss of a validation with targets"

tool=$bin/ms-train
expect 0 '^packed ' eval saved --data packed
expect 2 'packed to samples of 96 tokens' eval saved --data packed --set model.seq=48
[ "$failures" -eq 0 ]
