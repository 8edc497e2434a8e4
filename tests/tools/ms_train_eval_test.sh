#!/usr/bin/env bash
# ms-train eval and generate from the outside: the numbers of training and of transformers, the same in every layout, and
# refusals.   usage: ms_train_eval_test.sh MS-TRAIN
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
# shellcheck source=tests/support/training.sh
. "$(dirname "$0")/../support/training.sh"
bin=$(dirname "$tool")
golden=$(cd "$(dirname "$0")/../golden/hf" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

training_text 400 >/dev/null 2>&1 || fail "ms-data encode"
head -c 1024 text >held # 32 sequences of 32 tokens, each with the token that follows
"$bin/ms-data" encode --tokenizer byte --output held held >/dev/null 2>&1 || fail "ms-data encode"
tiny_config model.layers=4 mesh.dp=2 mesh.pp=2 mesh.tp=2 train.steps=30 train.eval_samples=32 optim.lr=1e-2 \
  'data.valid=["held"]' 'checkpoint.dir="ckpt"' 'run.dir="run"' >c.toml
expect 0 'valid_loss' run c.toml
rm -rf before && cp -r run before
llama=(--set model.family=llama --set model.kv_heads=2 --set model.tied_embeddings=false --set model.window=24)
expect 0 'valid_loss' run c.toml "${llama[@]}" --set checkpoint.dir=llama --set run.dir=run-llama --set train.dtype=bf16

# refuse CODE PATTERN ARGS...: as expect, and exactly one error.
refuse() {
  expect "$@"
  [ "$(grep -c 'error:' err)" -eq 1 ] || fail "ms-train ${*:3}: not exactly one error message"
}
# json KEY FILE: a member of a JSON document, by a Python expression on d.
json() { python3 -c "import json, sys; d = json.load(open(sys.argv[1])); print($1)" "$2"; }
# near A B TOLERANCE: relative.
near() { python3 -c "import math, sys; sys.exit(not math.isclose(*map(float, sys.argv[1:3]), rel_tol=float(sys.argv[3])))" "$@"; }

# The validation loss that training saw, in its own layout: the same sequences.
valid=$(tail -n 1 run/metrics.jsonl | grep -o '"valid_loss":[^,]*' | cut -d: -f2)
expect 0 'held +1024 ' eval ckpt
expect 0 '"schema": 1' eval ckpt --json
near "$(json 'd["sets"][0]["loss"]' out)" "$valid" 1e-6 || fail "the loss is not that of training, $valid"
near "$(json 'd["sets"][0]["perplexity"]' out)" "$(json '__import__("math").exp(d["sets"][0]["loss"])' out)" 1e-9 ||
  fail "the perplexity is not the loss's"

# A run whose tokens see their own document only is evaluated so.
head -c 1000 text | split -b 40 - part- # 25 documents of 41 tokens, over the same 32 sequences
"$bin/ms-data" encode --tokenizer byte --output parts part-* >/dev/null 2>&1 || fail "ms-data encode"
expect 0 'both name .parts.: ' run c.toml --set data.reset_attention=true --set data.train=parts --set data.valid=parts \
  --set model.init_std=0.3 --set run.dir=run-parts --set checkpoint.dir=ckpt-parts
masked=$(tail -n 1 run-parts/metrics.jsonl | grep -o '"valid_loss":[^,]*' | cut -d: -f2)
expect 0 'parts +1024 ' eval ckpt-parts
expect 0 'parts' eval ckpt-parts --json
near "$(json 'd["sets"][0]["loss"]' out)" "$masked" 1e-6 || fail "the loss is not that of training, $masked"
expect 0 'parts' eval ckpt-parts --json --set data.reset_attention=false
near "$(json 'd["sets"][0]["loss"]' out)" "$masked" 1e-4 && fail "documents make no difference"

# One loader reads for all ranks; the middle stages of a longer pipeline need no tokens.
MS_LOG=info,data:debug expect 0 'data: loads for 8 ranks, 2 dp ranks' eval ckpt
MS_LOG=info,data:debug expect 0 'data: loads for 2 ranks, 1 dp ' eval ckpt --set mesh.dp=1 --set mesh.pp=4 --set mesh.tp=1

# Every layout computes the same, whatever share of a batch the last sequences fill; two data sets by name, one of a part.
one=(--set mesh.dp=1 --set mesh.pp=1 --set mesh.tp=1)
sets=(--data text=text --data held --samples 37)
expect 0 '"text"' eval ckpt "${one[@]}" "${sets[@]}" --json
cp out want
[ "$(json '[s["tokens"] for s in d["sets"]]' want)" = '[1184, 1024]' ] || fail "not the tokens that were asked for"
for layout in 'dp=2 pp=1 tp=1' 'dp=1 pp=2 tp=1' 'dp=1 pp=1 tp=2' 'dp=3 pp=1 tp=1' 'dp=2 pp=2 tp=2' 'dp=1 pp=2 tp=1 chunks=2' \
  'dp=1 pp=2 tp=1 cp=2 cp_type=all-gather' 'dp=2 pp=1 tp=1 cp=4 cp_type=all-to-all' 'dp=1 pp=1 tp=2 cp=4 cp_type=ring'; do
  options=()
  for axis in $layout; do options+=(--set "mesh.$axis"); done
  expect 0 '"text"' eval ckpt "${options[@]}" --set train.microbatch=3 "${sets[@]}" --json
  for i in 0 1; do # f32: GEMMs of another shape add up in another order
    near "$(json "d['sets'][$i]['loss']" out)" "$(json "d['sets'][$i]['loss']" want)" 1e-6 || fail "another loss in $layout"
  done
done
if command -v mpirun >/dev/null; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  mpirun --oversubscribe -np 2 "$tool" eval ckpt "${one[@]}" --set mesh.tp=2 "${sets[@]}" --json >out 2>err
  code=$?
  if ! grep -q 'built without MPI' err; then
    [ "$code" -eq 0 ] || fail "eval under mpirun"
    near "$(json 'd["sets"][0]["loss"]' out)" "$(json 'd["sets"][0]["loss"]' want)" 1e-6 || fail "another loss under mpirun"
  fi
fi

# Text. At temperature 0, or from a nucleus of one token, it is the same in every layout, and prompt comes first.
expect 0 '^line 7' generate ckpt --prompt 'line 7' --temperature 0 --max-tokens 20 "${one[@]}"
cp out want
expect 0 . generate ckpt --prompt 'line 7' --top-p 1e-6 --max-tokens 20 --set mesh.dp=2
cmp -s out want || fail "a nucleus of one token is not the likeliest one"
expect 0 . generate ckpt --prompt 'line 7' --temperature 0 --max-tokens 20
cmp -s out want || fail "another text in the layout of the run"
expect 0 'W .*the prompt has 40 tokens, and model.seq is 32: only the last 16' generate ckpt --max-tokens 2 \
  --prompt 'a prompt of forty characters, exactly so'
for seed in 1 1 2; do
  expect 0 . generate llama --prompt 'line 7' --seed "$seed" --max-tokens 60 --temperature 1 "${one[@]}"
  mv out "seed-$seed-${before:-}"
  before=$seed
done
cmp -s seed-1- seed-1-1 || fail "one seed, two texts"
cmp -s seed-1- seed-2-1 && fail "two seeds, one text"
expect 0 . generate llama --prompt 'line 7' --seed 1 --max-tokens 60 --temperature 1 --set mesh.pp=4 --set mesh.tp=1
cmp -s out seed-1- || fail "another text over a pipeline"
# A context as long as the text computes what one of model.seq does, shorter than the window too; and 70 tokens are longer.
for model in ckpt llama; do
  expect 0 . generate "$model" --prompt 'line 7' --temperature 0 --max-tokens 3 "${one[@]}"
  cp out short
  expect 0 . generate "$model" --prompt 'line 7' --temperature 0 --max-tokens 26 "${one[@]}"
  [ "$(head -c 9 out)" = "$(head -c 9 short)" ] || fail "$model writes another text in a shorter context"
done
expect 0 'held +1024 ' eval ckpt --set model.seq=16 --data held
refuse 2 'embed.positions.weight is 32 x 32 there, 64 x 32 here' eval ckpt --set model.seq=64 --data held
expect 0 '"finish": "length"' generate ckpt --prompt 'line 7' --max-tokens 70 --temperature 0 --stop-token 3 --json "${one[@]}"
[ "$(json 'len(d["tokens"])' out)" = 70 ] || fail "not 70 tokens"
stop=$(json 'd["tokens"][4]' out)
first=$(json "d['tokens'].index($stop)" out)
expect 0 '"finish": "stop"' generate ckpt --prompt 'line 7' --temperature 0 --stop-token "$stop" --json "${one[@]}"
[ "$(json 'len(d["tokens"])' out)" = "$first" ] || fail "a text is not stopped by its token"
expect 0 '^108 105 [0-9 ]+$' generate ckpt --tokens 108,105 --max-tokens 3 "${one[@]}"
expect 0 . generate ckpt --max-tokens 3

# Models of transformers, with its logits.
for model in gpt2 llama; do
  "$bin/ms-ckpt" import -o "hf-$model" "$golden/$model" >/dev/null 2>err || fail "import of $model"
  python3 - "$golden/$model/golden.json" tokens >numbers 2>err <<'END' || fail "golden numbers of $model"
import json, math, struct, sys
golden = json.load(open(sys.argv[1]))
tokens, logits = golden["tokens"], golden["logits"]
vocab = len(logits) // len(tokens)
rows = [logits[i * vocab:(i + 1) * vocab] for i in range(len(tokens))]
loss = sum(math.log(sum(map(math.exp, row))) - row[token] for row, token in zip(rows, tokens[1:])) / (len(tokens) - 1)
with open(sys.argv[2] + ".bin", "wb") as file:
    file.write(struct.pack(f"<{len(tokens)}H", *tokens))
with open(sys.argv[2] + ".idx", "wb") as file:
    file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQiqqq", 1, 8, 1, 2, len(tokens), 0, 0, 1))
print(loss, ",".join(map(str, tokens[:-1])), rows[-2].index(max(rows[-2])))
END
  read -r loss prompt next <numbers
  expect 0 '"tokens": 8' eval "hf-$model" --data tokens --set train.dtype=fp32 --json
  near "$(json 'd["sets"][0]["loss"]' out)" "$loss" 1e-5 || fail "the loss of $model is not that of transformers, $loss"
  expect 0 '"tokens"' generate "hf-$model" --tokens "$prompt" --max-tokens 1 --temperature 0 --json \
    --set train.dtype=fp32
  [ "$(json 'd["tokens"]' out)" = "[$next]" ] || fail "$model does not go on as in transformers, with $next"
done

# Nothing was written.
diff -r run before >out || fail "eval or generate wrote into the run's directory"

# Refusals.
refuse 2 'nowhere' eval nowhere
refuse 2 'is a Hugging Face model' eval "$golden/llama" --data text
grep -q 'hint: .ms-ckpt import' err || fail "not said how to import a model"
refuse 2 'missing.idx' eval ckpt --data missing
refuse 2 "two data sets are called 'held'" eval ckpt --data held --data held
refuse 2 'samples' eval ckpt --samples 0
refuse 2 'model.heads = 4 is not divisible by mesh.tp = 3' eval ckpt --set mesh.tp=3
refuse 2 'has another model: model.layers is 4 there, 2 here' eval ckpt --set model.layers=2 "${one[@]}"
refuse 2 "did you mean 'model.layers'" eval ckpt --set model.layrs=1
refuse 2 'names no validation data' eval hf-gpt2
refuse 2 'set model.vocab = 257' eval hf-gpt2 --data held
refuse 2 'no tokenizer is known for a vocabulary of 17' generate hf-gpt2 --prompt a
refuse 2 "'byte' has 257 tokens, and model.vocab is 17" generate hf-gpt2 --tokenizer byte --prompt a
refuse 2 "unknown tokenizer 'bpe'" generate ckpt --tokenizer bpe
refuse 2 'vocabulary is 0 to 16' generate hf-gpt2 --tokens 17
refuse 2 "'x' is not a token id" generate hf-gpt2 --tokens 1,x
refuse 2 'two prompts' generate ckpt --tokens 1 --prompt a
refuse 2 'top-p 0: expected' generate ckpt --top-p 0
refuse 2 'top-p 1.5: expected' generate ckpt --top-p 1.5
refuse 2 'temperature -1: expected' generate ckpt --temperature -1
refuse 2 'max-tokens' generate ckpt --max-tokens 0
refuse 2 'stop-token' generate ckpt --stop-token 257
mkdir damaged && cp -r ckpt/step-00000030 damaged
data_file=$(find damaged -name 'rank-*.h5' | sort | head -n 1)
printf 'x' | dd of="$data_file" bs=1 seek=$(($(stat -c %s "$data_file") / 2)) conv=notrunc 2>/dev/null
refuse 74 'damaged' eval damaged
truncate -s -9 "$data_file"
refuse 74 'damaged' generate damaged/step-00000030

[ "$failures" -eq 0 ] && echo "all as expected" || exit 1
