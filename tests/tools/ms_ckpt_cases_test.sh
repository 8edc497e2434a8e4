#!/usr/bin/env bash
# ms-ckpt import on models that users of other programs reported: tied weights, files beside the weights, rotary settings,
# windows, heads. ../shared/cases/models has them; the losses are those of a forward in numpy, in double precision.
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
cases=$(realpath "$(dirname "$0")/../../../shared/cases/models")
[ -d "$cases" ] || { echo "../shared/cases/models is not here" && exit 77; }
train=$(dirname "$tool")/ms-train
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
python3 - <<'PYTHON' || fail "tokens"
import struct
ids = [64, 77, 2, 77, 45, 49, 60, 27, 94, 5, 26, 36, 54, 39, 12, 4, 0, 4, 14, 95, 18, 62, 72, 22, 27, 41, 25, 93, 17, 86,
       76, 81, 11, 37, 60, 47, 63, 64, 63, 5, 92, 53, 86, 26, 34, 84, 17, 6, 35, 65, 11, 83, 32, 21, 52, 85, 84, 83, 29, 1,
       74, 67, 74, 0, 3]
open("tok.bin", "wb").write(struct.pack(f"<{len(ids)}H", *ids))
open("tok.idx", "wb").write(b"MMIDIDX\0\0" + struct.pack("<QBQQiqqq", 1, 8, 1, 2, len(ids), 0, 0, 1))
PYTHON

# loss MODEL EXPECTED: the model is read, and its loss is within the rounding of single precision.
loss() {
  rm -rf read
  "$tool" import -o read "$1" >out 2>err || { fail "import $1" && return; }
  "$train" eval read --data x=tok --json --set train.dtype=fp32 >out 2>err || { fail "eval $1" && return; }
  python3 -c 'import json, sys; sys.exit(abs(json.load(open("out"))["sets"][0]["loss"] - float(sys.argv[1])) > 1e-6)' "$2" ||
    fail "$1: expected a loss of $2"
}
refused() { expect 2 "$2" import -o no "$1"; }

c=$cases/07-tied-weights
loss "$c/untied" 4.985537797441944
for form in tied tied-both tied-only-head; do loss "$c/$form" 4.971738290174018; done
refused "$c/tied-other-head" 'hint: tie_word_embeddings = false'
for form in untied-no-head no-key-no-head; do refused "$c/$form" 'hint: tie_word_embeddings = true'; done

# Files beside the weights are not read; which of two sets was taken is in the log.
c=$cases/08-stray-safetensors
for form in shards consolidated aux index-single oddnames extras noprefix; do loss "$c/$form" 4.985537797441944; done
loss "$c/mixed" 4.985500629701835
refused "$c/noshard" 'model-00002-of-00002.safetensors'
refused "$c/badindex" 'model.ghost'
refused "$c/extras2" "masked_bias' is not part of the model"
refused "$c/prefix" "'model.embed_tokens.weight' is missing"
refused "$c/fp8" 'F8_E4M3'
refused "$c/f64" 'F64'
cp -r "$c/shards" both && chmod u+w both && cp "$cases/07-tied-weights/untied/model.safetensors" both
expect 0 'both model.safetensors and model.safetensors.index.json: model.safetensors is read' import -o both.ckpt both

c=$cases/09-rope-parameters
for form in top v5 v5both int; do loss "$c/$form" 4.991549015167777; done
for form in null missing; do loss "$c/$form" 4.985537797441944; done
for form in lin lin5; do loss "$c/$form" 5.0082653424536705; done
for form in l3 l35; do loss "$c/$form" 5.004276669497106; done
for form in yarn yarn5; do loss "$c/$form" 4.986513363127179; done # of transformers in double precision
refused "$c/dyn" 'type = "dynamic" is not supported'
refused "$c/partial" 'partial_rotary_factor = 0.5 is not supported'
refused "$c/bylayer" 'by layer type .full_attention. is not supported'

c=$cases/10-sliding-window
for form in qoff qnone q2 qa; do loss "$c/$form" 5.045118156167993; done
loss "$c/q0" 5.0087071771227745
loss "$c/q3" 4.896111394123842
loss "$c/q3s" 4.866348603324472
loss "$c/m8" 4.985332400392053
for form in mn ln; do loss "$c/$form" 4.985537797441944; done
refused "$c/q1" '1 of 2 layers have a sliding window'

c=$cases/11-head-dim
loss "$c/h16" 4.938332680848812
loss "$c/hnull" 4.985537797441944
loss "$c/kvnull" 4.929530718575149
for form in h365 m365; do loss "$c/$form" 5.037745101438146; done
loss "$c/q365" 4.8745646945823
loss "$c/v97" 4.985304627114727
refused "$c/v95" 'is .96, 32., expected .95, 32.'

[ "$failures" -eq 0 ] && echo "all as expected"
[ "$failures" -eq 0 ]
