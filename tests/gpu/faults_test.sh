#!/usr/bin/env bash
# What a user reads when a GPU fails: no driver, no GPU, kernels for another one, memory that is full or breaks. Runs on
# the emulated GPU, which can inject these. usage: tests/gpu/faults_test.sh MS_TRAIN EMULATED_LIB_DIRECTORY
set -uo pipefail
# shellcheck source=tests/support/training.sh
. "$(dirname "$0")/../support/training.sh"
ms_train=$1 emulated=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0 fresh=(--fresh)
"${ms_train%train}data" encode --tokenizer byte --output "$work/text" /usr/share/common-licenses/GPL-3 >/dev/null || exit 1
tiny_config model.hidden=64 model.heads=8 mesh.dp=2 train.steps=3 train.global_batch=4 train.microbatch=1 \
  'train.dtype="bf16"' train.eval_every=0 train.eval_samples=4 "data.train=[\"$work/text\"]" 'run.device="cuda"' \
  "run.dir=\"$work/run\"" run.sample_tokens=0 'run.comm_timeout="20s"' >"$work/gpu.toml"

# expect NAME CODE TEXT [VARIABLE=VALUE...] [-- MS_TRAIN_OPTION...]: checks the exit code and the text on standard
# error.
expect() {
  local name=$1 code=$2 text=$3 variables=() got
  shift 3
  while (($# > 0)) && [[ $1 != -- ]]; do variables+=("$1") && shift; done
  shift
  rm -rf "$work/run"
  timeout 150 env "${variables[@]}" "$ms_train" run "$work/gpu.toml" "${fresh[@]+"${fresh[@]}"}" "$@" >"$work/out" 2>"$work/err"
  got=$?
  if ((got != code)) || ! grep -qF "$text" "$work/err"; then
    echo "FAILED: $name: exit code $got, not $code, or not said: $text"
    tail -n 5 "$work/err"
    failed=1
  fi
  if ((code != 0)) && [[ -d $work/run ]] && ! grep -q "\"code\": *$code" "$work/run/verdict.json"; then
    echo "FAILED: $name: the verdict is not of code $code" && cat "$work/run/verdict.json"
    failed=1
  fi
}
here=LD_LIBRARY_PATH=$emulated:${LD_LIBRARY_PATH:-}
expect "a healthy GPU" 0 "" "$here" --
expect "GPU memory that the host must not access" 0 "" "$here" MS_EMULATED_GPU_GUARD=1 -- --set mesh.dp=1 --set train.steps=2
expect "four ranks" 0 "" "$here" -- --set mesh.tp=2
expect "no GPU" 69 "no CUDA-capable device" "$here" MS_EMULATED_GPU_COUNT=0 --
expect "kernels for another GPU" 69 "no kernel image" "$here" MS_EMULATED_GPU_FAULT=image --
expect "memory that is too small" 2 "out of memory" "$here" MS_EMULATED_GPU_MEMORY=1000000 --
expect "memory that is too small, before matmuls are autotuned" 2 "this rank takes" "$here" MS_EMULATED_GPU_MEMORY=30000000 -- --set run.matmul_choices="$work/none" --set mesh.dp=1
[[ ! -e $work/none ]] || { echo "FAILED: matmuls were autotuned for a run that does not fit" && failed=1; }
expect "memory that breaks" 69 "uncorrectable ECC error" "$here" MS_EMULATED_GPU_FAULT=ecc@500 --
expect "an illegal address, which accuses the program and no node" 70 "(700)" "$here" MS_EMULATED_GPU_FAULT=700@500 --
expect "a GPU whose driver does not serve it" 69 "(802)" "$here" MS_EMULATED_GPU_FAULT=802@1 --
expect "an error that no table knows" 69 "(999)" "$here" MS_EMULATED_GPU_FAULT=999@500 --
for part in matmul plan attention; do
  expect "memory that breaks in a library's $part" 69 "uncorrectable ECC error" "$here" MS_EMULATED_GPU_FAULT=ecc@$part --
  expect "memory that is full in a library's $part" 2 "out of memory" "$here" MS_EMULATED_GPU_FAULT=full@$part --
done
expect "attention in f32" 2 "train.dtype" "$here" -- --set train.dtype=fp32
expect "fp8 matmuls, split for overlap" 0 "" "$here" -- --set train.fp8=true --set mesh.tp=2 --set overlap.tp=true --set train.recompute=full
expect "fp8 matmuls, split backward" 0 "" "$here" -- --set train.fp8=true --set mesh.dp=1 --set mesh.pp=2 --set mesh.schedule=zb-h1
expect "fp8 matmuls in f32" 2 "train.fp8" "$here" -- --set train.fp8=true --set train.dtype=fp32
expect "rows wider than the norms" 2 "32768 columns at most" "$here" -- --set model.hidden=65536
expect "heads that are no multiple of eight" 2 "multiples of 8" "$here" -- --set model.heads=16
# A run saved after two steps and resumed computes what an uninterrupted one does; the host reads no GPU memory.
losses() { sed -n 's/^{"step":[0-9]*,"loss":\([^,]*\),.*/\1/p' "$work/run/metrics.jsonl"; }
expect "four steps" 0 "" "$here" -- --set train.steps=4 --set mesh.dp=1 --set optim.warmup_steps=0 --set optim.schedule=constant
losses >"$work/whole"
saved=(--set mesh.dp=1 --set optim.warmup_steps=0 --set optim.schedule=constant --set checkpoint.dir="$work/checkpoints")
expect "two steps, saved" 0 "" "$here" MS_EMULATED_GPU_GUARD=1 -- "${saved[@]}" --set train.steps=2
losses >"$work/parts"
fresh=()
expect "two more" 0 "" "$here" MS_EMULATED_GPU_GUARD=1 -- "${saved[@]}" --set train.steps=4
losses >>"$work/parts"
[[ $(wc -l <"$work/whole") == 4 ]] || { echo "FAILED: four steps have not four losses" && failed=1; }
diff "$work/whole" "$work/parts" || { echo "FAILED: a run that was saved computes something else" && failed=1; }
# Likewise with autotuned algorithms: from a file, and from the checkpoint once the file is gone.
slow_first=MS_EMULATED_SLOW_FIRST=1 fresh=(--fresh)
chosen=("${saved[@]}" --set run.matmul_choices="$work/choices")
expect "four steps, timed" 0 "forms of GEMMs timed" "$here" "$slow_first" -- "${chosen[@]}" --set train.steps=4
losses >"$work/whole"
cmp -s "$work/whole" "$work/parts" && echo "FAILED: other algorithms, same losses: this tests nothing" && failed=1
expect "two steps, saved" 0 "" "$here" "$slow_first" -- "${chosen[@]}" --set train.steps=2
losses >"$work/parts"
grep -qF "GEMMs timed" "$work/err" && echo "FAILED: algorithms in the file were autotuned again" && failed=1
rm "$work/choices"
fresh=()
expect "two more" 0 "" "$here" -- "${saved[@]}" --set train.steps=4
losses >>"$work/parts"
diff "$work/whole" "$work/parts" || { echo "FAILED: a run with chosen algorithms computes something else" && failed=1; }
fresh=(--fresh)
expect "a pipeline's stages" 0 "forms of GEMMs timed" "$here" "$slow_first" -- --set mesh.pp=2 --set mesh.dp=1 --set run.matmul_choices="$work/choices"
cp "$work/choices" "$work/before"
expect "a pipeline's stages again" 0 "" "$here" "$slow_first" -- --set mesh.pp=2 --set mesh.dp=1 --set run.matmul_choices="$work/choices"
cmp "$work/choices" "$work/before" || { echo "FAILED: choices that were made were made again" && failed=1; }
echo "library" >"$work/choices"
expect "a file of something else" 2 "is not a file of matmul algorithms" "$here" -- --set run.matmul_choices="$work/choices"
# Likewise from the copy in a node's memory, of a run that was killed.
longer=("${saved[@]}" --set train.steps=16)
copied=("${longer[@]}" --set checkpoint.memory_dir="$work/memory" --set checkpoint.every_steps=2 --set checkpoint.when_busy=wait)
rm -rf "$work/checkpoints" "$work/run"
env "$here" MS_EMULATED_GPU_GUARD=1 MS_FAULT="step=9 rank=0 hang" "$ms_train" run "$work/gpu.toml" --fresh "${copied[@]}" >"$work/out" 2>&1 &
while kill -0 $! 2>/dev/null && [[ $(echo "$work"/memory/*/*/step-*/mark) != */step-00000006/mark ]]; do sleep 0.1; done
kill -KILL $! 2>/dev/null
wait $! 2>/dev/null
fresh=()
expect "the rest, from memory" 0 "read 0 B from storage" "$here" MS_EMULATED_GPU_GUARD=1 -- "${copied[@]}"
losses >"$work/parts"
rest=$(wc -l <"$work/parts")
((rest == 10)) || { echo "FAILED: after memory came $rest steps" && failed=1; }
fresh=(--fresh)
expect "all of it" 0 "" "$here" -- "${longer[@]}"
losses | tail -n "$rest" | diff - "$work/parts" || { echo "FAILED: a run resumed from memory computes something else" && failed=1; }
exit $failed
