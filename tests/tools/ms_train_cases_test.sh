#!/usr/bin/env bash
# ms-train on situations that users of other programs reported: gradients over layouts, schedules, resumes, blends, exports.
# ../shared/cases/models has them with their right answers.
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
cases=$(realpath "$(dirname "$0")/../../../shared/cases/models")
[ -d "$cases" ] || { echo "../shared/cases/models is not here" && exit 77; }
bin=$(dirname "$tool")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
cp "$cases/_common/tiny.toml" c.toml
"$bin/ms-data" encode -o docs "$cases/18-grad-accumulation/docs.jsonl" >/dev/null 2>err || fail "encode"

# train CODE OUTPUT KEY=VALUE...: a run in "run"; its metrics go to OUTPUT.
train() {
  local code=$1 output=$2
  shift 2
  rm -rf run
  local sets=()
  for key in data.train=docs "$@"; do sets+=(--set "$key"); done
  "$tool" run c.toml "${sets[@]}" >out 2>err
  local got=$?
  [ $got -eq "$code" ] || fail "train $*: exit code $got, expected $code"
  cp run/metrics.jsonl "$output" 2>/dev/null
}
# holds EXPRESSION FILE...: of the metrics of files, a, b, ...: lists of steps.
holds() {
  python3 - "$@" 2>err <<'PYTHON' || fail "$1: $(tail -n 1 err)"
import json, sys
names = dict(zip("abc", ([row for row in map(json.loads, open(file)) if "loss" in row] for file in sys.argv[2:])))
def near(a, b, key, most):
    other = {row["step"]: row[key] for row in a}
    return len(b) > 0 and all(abs(row[key] - other[row["step"]]) <= most for row in b)
assert eval(f"({sys.argv[1]})", {"near": near} | names), {name: (len(rows), rows[:1]) for name, rows in names.items()}
PYTHON
}

# 18: the gradient does not depend on microbatches and layouts.
for reset in false true; do
  train 0 one optim.clip=0.5 data.reset_attention=$reset train.microbatch=1
  for sets in train.microbatch=8 "train.microbatch=2 mesh.dp=2" "mesh.dp=4 optim.zero=2" "mesh.pp=2 train.microbatch=2"; do
    # shellcheck disable=SC2086
    train 0 other optim.clip=0.5 data.reset_attention=$reset $sets
    # Sums of single precision in another order, over 20 steps.
    holds 'len(b) == 20 and near(a, b, "loss", 1e-6) and near(a, b, "grad_norm", 1e-5)' one other
  done
done

# 19: a batch that ramps up, and WSD: the decay ends with the run, also behind a resume.
wsd=(train.steps=40 train.global_batch=16 train.rampup_start=8 train.rampup_increment=8 train.rampup_samples=80
  optim.schedule=wsd optim.warmup_steps=4 optim.decay_steps=8 optim.min_lr_ratio=0 optim.lr=1e-3)
train 0 whole "${wsd[@]}"
holds '[round(x["lr"] * 1e3, 3) for x in a] == [.25, .5, .75] + [1] * 30 + [.857, .714, .571, .429, .286, .143, 0]' whole
MS_FAULT='step=30 rank=0 exit' train 1 first "${wsd[@]}" checkpoint.dir=ck checkpoint.every_steps=7 checkpoint.async=false
train 0 second "${wsd[@]}" checkpoint.dir=ck checkpoint.every_steps=7
holds 'b[0]["step"] == 29 and all(near(a, b, key, 0) for key in ("loss", "lr"))' whole second

# 20: killed in the second epoch, and resumed in another layout: the same samples, rates and losses.
head -n 120 "$cases/18-grad-accumulation/docs.jsonl" >short.jsonl
"$bin/ms-data" encode -o short short.jsonl >/dev/null 2>err || fail "encode"
epochs=(data.train=short train.steps=45 train.global_batch=64 train.microbatch=4 checkpoint.async=false)
train 0 whole "${epochs[@]}"
for layouts in "mesh.dp=1 mesh.dp=1" "mesh.dp=2 mesh.dp=4" "mesh.dp=4 mesh.tp=2" "mesh.pp=2 mesh.tp=2"; do
  rm -rf ck
  MS_FAULT='step=27 rank=0 exit' train 1 first "${epochs[@]}" "${layouts% *}" checkpoint.dir=ck checkpoint.every_steps=5
  train 0 second "${epochs[@]}" "${layouts#* }" checkpoint.dir=ck checkpoint.every_steps=5
  holds '[x["step"] for x in b] == list(range(26, 46)) and near(a, b, "lr", 0) and near(a, b, "loss", 1e-6) and
         all(x["data_chain"] == a[x["step"] - 1]["data_chain"] for x in b)' whole second
done

# 22: a finished cosine that goes on has the rate of the longer run.
rm -rf ck
cosine=(optim.lr=1e-3 optim.warmup_steps=4 optim.min_lr_ratio=0.1 checkpoint.dir=ck)
train 0 first train.steps=20 "${cosine[@]}"
train 0 second train.steps=40 "${cosine[@]}"
grep -q 'train.steps was 20, is 40' err || fail "the longer run does not name the change"
train 0 whole train.steps=40 "${cosine[@]:0:3}"
holds 'b[0]["step"] == 21 and near(a, b, "lr", 0)' whole second

# 23: a blend has its weights, down to a source of one sample; too short is an error.
documents() {
  python3 -c 'import sys; print(("{\"text\": \"" + sys.argv[1] * int(sys.argv[2]) + "\"}\n") * int(sys.argv[3]))' "$@"
}
for source in a:A:63:60 b:B:63:60 tiny:T:40:1 t33:U:32:1 t32:V:31:1; do
  IFS=: read -r name letter length count <<<"$source"
  documents "$letter" "$length" "$count" >"$name.jsonl"
  "$bin/ms-data" encode -o "$name" "$name.jsonl" >/dev/null 2>err || fail "$name"
done
# shares STEPS BATCH SOURCES EXPECTED
shares() {
  local all=() step
  for ((step = 1; step <= $1; ++step)); do
    "$bin/ms-data" sample c.toml --step "$step" --json --set train.global_batch="$2" --set train.steps=1000 \
      --set data.train="$3" >"s$step" 2>err || { fail "sample of $3" && return; }
    all+=("s$step")
  done
  python3 - "$4" "${all[@]}" 2>err <<'PYTHON' || fail "shares of $3: $(tail -n 1 err)"
import collections, json, sys
count = collections.Counter(sample["source"] for file in sys.argv[2:] for sample in json.load(open(file))["samples"])
assert dict(count) == json.loads(sys.argv[1]), count
PYTHON
}
shares 10 64 '["3 a","1 b"]' '{"a": 480, "b": 160}'
shares 10 64 '["1 a","1 tiny"]' '{"a": 320, "tiny": 320}'
shares 30 64 '["0.001 a","0.999 b"]' '{"a": 2, "b": 1918}'
shares 2 8 t33 '{"t33": 16}'
expect 2 't32.bin has 32 tokens' check c.toml --set data.train=t32
expect 2 "the weight of 'a' is never above 0" check c.toml --set 'data.train=["0 a","1 b"]'

# 24, 25: what is exported is complete. The vocabulary has its size in every layout, and the tokenizer goes along with the
# token that ends its documents, that of --files and the byte tokenizer, too.
for layout in mesh.tp=1 mesh.tp=2 "mesh.tp=2 mesh.pp=2"; do
  rm -rf ck hf
  # shellcheck disable=SC2086
  train 0 one checkpoint.dir=ck train.steps=3 $layout
  "$bin/ms-ckpt" export ck -o hf >out 2>err || fail "export of $layout"
  python3 - <<'PYTHON' || fail "export of $layout"
import json, struct
data = open("hf/model.safetensors", "rb").read()
header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
assert header["model.embed_tokens.weight"]["shape"] == header["lm_head.weight"]["shape"] == [257, 32]
config, tokenizer = json.load(open("hf/config.json")), json.load(open("hf/tokenizer.json"))
assert config["vocab_size"] == 257 and config["eos_token_id"] == 256 and len(tokenizer["model"]["vocab"]) == 257
PYTHON
done
c=$cases/25-export-tokenizer
mkdir words
"$bin/ms-data" train-tokenizer --vocab 600 -o words/tokenizer.json "$c/text.txt" >/dev/null 2>err || fail "train-tokenizer"
"$bin/ms-data" encode --tokenizer words/tokenizer.json -o words/tok "$c/text.txt" >/dev/null 2>err || fail "encode"
rm -rf ck hf
train 0 one data.train=words/tok model.vocab=600 checkpoint.dir=ck train.steps=3
cmp -s words/tokenizer.json ck/hf/tokenizer.json || fail "the tokenizer does not lie beside the checkpoints"
exported() {
  cmp -s words/tokenizer.json "$1/tokenizer.json" || fail "$1: the tokenizer is not exported"
  grep -q '"eos_token_id": 0' "$1/config.json" || fail "$1: eos_token_id is not the token that ends documents"
  grep -q '"eos_token": "<|endoftext|>"' "$1/tokenizer_config.json" || fail "$1: the tokenizer's end is not named"
}
mkdir mine && cp words/tokenizer.json mine
"$bin/ms-ckpt" export ck -o hf1 >out 2>err || fail "export"
"$bin/ms-ckpt" export ck -o hf2 --files mine >out 2>err || fail "export --files"
mv ck/hf kept
"$bin/ms-ckpt" export ck -o hf3 >out 2>err || fail "export of a run of before"
for out in hf1 hf2 hf3; do exported $out; done
mv words/tokenizer.json .
"$bin/ms-ckpt" export ck -o hf4 >out 2>err || fail "export without a tokenizer"
grep -q 'tokenizer.json has gone or changed' err || fail "an export without its tokenizer does not warn"
mv words gone
mv kept ck/hf
"$bin/ms-ckpt" export ck -o hf5 >out 2>err || fail "export without the data"
mv gone words && mv tokenizer.json words
exported hf5
# Import: generate knows the tokenizer beside it; a run on it needs no [model], and what it exports has all of it again.
"$bin/ms-ckpt" import -o imported "$c/base" >out 2>err || fail "import"
expect 0 '"text": ' generate imported --prompt The --max-tokens 3 --json
expect 0 '"text": ' generate ck --prompt The --max-tokens 3 --json
"$bin/ms-data" encode --tokenizer "$c/base/tokenizer.json" -o tuning "$c/text.txt" >/dev/null 2>err || fail "encode"
sed '/^\[model\]/,/^\[train\]/{/^\[train\]/!d}' c.toml >bare.toml
expect 0 'step 2 of 2' run bare.toml --set checkpoint.load=imported --set checkpoint.dir=tuned --set data.train=tuning \
  --set train.steps=2
"$bin/ms-ckpt" export tuned -o hf6 >out 2>err || fail "export of a tuned model"
for file in tokenizer.json tokenizer_config.json generation_config.json; do
  cmp -s "$c/base/$file" hf6/$file || fail "$file is not exported with a tuned model"
done
python3 -c 'import json; assert json.load(open("hf6/config.json"))["eos_token_id"] == [1, 2]' || fail "the tuned model's end"

# 21: the disk of the checkpoints is full in the middle of a run. Older ones stay sound, it says what to do, and with room the
# run resumes to the state of one that was never disturbed.
saves=(--set data.train=docs --set checkpoint.every_steps=10 --set checkpoint.async=false --set train.steps=80)
if [ "$(id -u)" -ne 0 ] || ! unshare -m true 2>/dev/null; then
  echo "left out: 21, which needs root and a mount namespace"
else
  rm -rf run && mkdir full left
  cat >inner.sh <<'SH'
mount -t tmpfs -o size=2500k none full || exit 77
train=$1 && shift
for attempt in 1 2; do
  "$train" run c.toml "$@" --set checkpoint.dir=full/ck >left/out$attempt 2>left/err$attempt
  echo $? >left/code$attempt
done
cp -r full/ck left/ck
cp run/verdict.json left
rm -rf full/ck/step-00000010
"$train" run c.toml "$@" --set checkpoint.dir=full/ck --set checkpoint.keep_last=2 >left/out3 2>left/err3
echo $? >left/code3
cp -r full/ck left/last
SH
  unshare -m sh inner.sh "$tool" "${saves[@]}" >out 2>err </dev/null || fail "21: the runs on a full disk"
  [ "$(cat left/code?)" = "$(printf '74\n74\n0')" ] || fail "21: the runs ended with $(cat left/code?)"
  for attempt in 1 2; do
    cp left/err$attempt err
    [ "$(grep -c 'error: ' err)" -eq 1 ] || fail "21: not one message"
    grep -q 'No space left on device' err || fail "21: no word of the full disk"
    grep -q 'ms-ckpt prune.*checkpoint.keep_last' err || fail "21: no word of what to do"
  done
  grep -q '"code": 74' left/verdict.json || fail "21: the verdict has another code"
  "$bin/ms-ckpt" verify --json left/ck >out 2>err || fail "21: older checkpoints are not sound"
  [ "$(grep -c '"sound": true' out)" -ge 4 ] || fail "21: fewer than three checkpoints are left"
  grep -q 'step-00000080"' out && fail "21: all checkpoints found room: this tests nothing"
  rm -rf run
  expect 0 . run c.toml "${saves[@]}" --set checkpoint.dir=undisturbed
  for dir_of in undisturbed left/last; do "$bin/ms-ckpt" hash $dir_of 2>>err | tee out; done | cut -d ' ' -f 1 | uniq | wc -l >states
  [ "$(cat states)" -eq 1 ] || fail "21: the resumed run has another state"
fi

[ "$failures" -eq 0 ] && echo "all as expected"
[ "$failures" -eq 0 ]
