#!/usr/bin/env bash
# What the techniques that change the training do to its loss: a small Llama on real text (the demo's), byte by byte, over
# the same tokens:
#   optimizers  AdamW at batch 1x, AdamW at 4x, LAMB at 4x; each tuned over the same learning rates with the first seed,
#               its best one then run with every seed. 1x is 256 tokens, 12800 steps
#   blocks      the parallel block, the sliding window of a quarter of the sequence, and both, against the serial block
#               with full attention, at the learning rate that suits that
#   experts     eight experts of half the width, of which a token passes two: the same work, against one MLP
# The numbers (CSV) and the plots (SVG) go to OUT; what is already there of WORK is not run again. With `experts`, only the
# runs of experts: what they are compared with, and its learning rate, are those that OUT has.
# usage: tests/bench/losses.sh [all|experts [WORK [OUT]]], WORK build/losses, OUT tests/bench/losses. About an hour on two
# cores, for experts alone ten minutes.
# BUILD, TEXT (a prefix of token files), JOBS (runs at once, each on a core of its own) may be set.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
what=${1:-all}
work=${2:-build/losses}
out=${3:-tests/bench/losses}
build=${BUILD:-build/release}
text=${TEXT:-build/demo/text}
jobs=${JOBS:-$(nproc)}
rates=(1e-3 2e-3 4e-3 8e-3 16e-3)
seeds=(1 2 3)
tokens=3276800
seq=128
batch=2 # sequences: 1x

if [[ $what != all && $what != experts ]]; then
  echo "losses.sh: '$what' is not known: all, experts" >&2
  exit 2
fi
if [[ ! -e $text.idx ]]; then
  echo "losses.sh: there is no $text.idx: run ./bootstrap demo first, or set TEXT" >&2
  exit 2
fi
mkdir -p "$work" "$out"
cat >"$work/base.toml" <<TOML
[model]
family = "llama"
layers = 4
hidden = 64
heads = 4
vocab = 257
seq = $seq
tied_embeddings = false
init_std = 0.06

[train]
dtype = "bf16"
eval_samples = 512

[optim]
min_lr_ratio = 0.05
beta2 = 0.99

[data]
train = ["$text"]
valid_fraction = 0.05

[run]
sample_tokens = 0
TOML

# run_one NAME CORE OPTION...: one training run; NAME is VARIANT_RATE_SEED. An eighth of the tokens between evaluations, a
# twentieth of them to warm up, whatever the batch.
run_one() {
  local name=$1 core=$2 rate seed factor=1 steps
  shift 2
  if [[ -e $work/$name/done ]]; then return; fi
  IFS=_ read -r _ rate seed <<<"$name"
  if [[ $name == *-4x_* ]]; then factor=4; fi
  steps=$((tokens / seq / batch / factor))
  rm -rf "${work:?}/$name"
  OMP_WAIT_POLICY=passive nice -n 19 taskset -c "$core" "$build/bin/ms-train" run "$work/base.toml" \
    --set "run.dir=$work/$name" --set "train.seed=$seed" --set "optim.lr=$rate" --set "train.steps=$steps" \
    --set "train.global_batch=$((batch * factor))" --set "train.microbatch=$((batch * factor))" \
    --set "train.eval_every=$((steps / 8))" --set "optim.warmup_steps=$((steps / 20))" "$@" >"$work/$name.log" 2>&1 ||
    { tail -n 5 "$work/$name.log" >&2 && return 1; }
  touch "$work/$name/done"
  echo "losses.sh: $name: $(tail -n 1 "$work/$name/metrics.jsonl" | grep -o '"valid_loss":[0-9.]*')"
}

# run_all: the runs on standard input, one a line: NAME OPTION...
run_all() {
  local lines job i pids=()
  mapfile -t lines
  for ((job = 0; job < jobs; ++job)); do
    (for ((i = job; i < ${#lines[@]}; i += jobs)); do
      read -r -a words <<<"${lines[i]}"
      run_one "${words[0]}" "$job" "${words[@]:1}"
    done) &
    pids+=($!)
  done
  for job in "${pids[@]}"; do wait "$job"; done
}

declare -A options=(
  [adamw-1x]="" [adamw-4x]="" [lamb-4x]="--set optim.name=lamb" [parallel]="--set model.parallel_block=true"
  [window]="--set model.window=$((seq / 4))"
  [experts]="--set model.experts=8 --set model.expert_ffn_hidden=128 --set train.moe_aux_loss=1e-2"
)
options[both]="${options[parallel]} ${options[window]}"
optimizers=(adamw-1x adamw-4x lamb-4x)

best() { /usr/bin/env python3 -B tests/bench/losses.py best "$work" "$out" "$1" "${seeds[0]}"; }
variants=(experts)
if [[ $what == all ]]; then
  for rate in "${rates[@]}"; do
    for variant in "${optimizers[@]}"; do echo "${variant}_${rate}_${seeds[0]} ${options[$variant]}"; done
  done | run_all
  for variant in "${optimizers[@]}"; do
    for seed in "${seeds[@]:1}"; do echo "${variant}_$(best "$variant")_${seed} ${options[$variant]}"; done
  done | run_all
  variants=(parallel window both experts)
fi
for variant in "${variants[@]}"; do # at the learning rate that suits what they are compared with
  for seed in "${seeds[@]}"; do echo "${variant}_$(best adamw-1x)_${seed} ${options[$variant]}"; done
done | run_all
/usr/bin/env python3 -B tests/bench/losses.py report "$work" "$out"
