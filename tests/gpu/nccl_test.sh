#!/usr/bin/env bash
# Ranks as processes, each with a GPU, over NCCL: they compute what threads that share a GPU compute, and the survivors
# name a lost rank, one that hangs, and a stalled NCCL. Runs on the emulated GPU with an emulated NCCL. usage:
# tests/gpu/nccl_test.sh MPIEXEC MS_TRAIN EMULATED_LIB_DIRECTORY
set -uo pipefail
# shellcheck source=tests/support/training.sh
. "$(dirname "$0")/../support/training.sh"
mpiexec=$1 ms_train=$2 emulated=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export LD_LIBRARY_PATH=$emulated:${LD_LIBRARY_PATH:-}
failed=0
"${ms_train%train}data" encode --tokenizer byte --output "$work/text" /usr/share/common-licenses/GPL-3 >/dev/null || exit 1
tiny_config model.layers=4 model.hidden=64 model.heads=8 mesh.dp=2 mesh.tp=2 mesh.pp=2 train.steps=4 \
  train.microbatch=1 'train.dtype="bf16"' train.eval_every=0 train.eval_samples=4 \
  "checkpoint.dir=\"$work/checkpoints\"" "data.train=[\"$work/text\"]" 'run.device="cuda"' run.sample_tokens=0 \
  'run.comm_timeout="15s"' >"$work/gpu.toml"
fail() {
  echo "FAILED: $*"
  failed=1
}
losses() { sed -n 's/^{"step":[0-9]*,"loss":\([^,]*\),.*/\1/p' "$work/$1/metrics.jsonl"; }
settings=()
# ranks NAME [VARIABLE=VALUE...]: runs eight processes; returns their exit code.
ranks() {
  local name=$1
  shift
  timeout 240 "$mpiexec" --oversubscribe --bind-to none -np 8 env "$@" "$ms_train" run "$work/gpu.toml" --fresh \
    --set run.dir="$work/$name" "${settings[@]+"${settings[@]}"}" >"$work/$name.log" 2>&1
}
# verdict NAME KIND RANK TEXT: checks the verdict; KIND and TEXT are patterns
verdict() {
  local file=$work/$1/verdict.json
  if ! grep -qE "\"kind\": \"$2\"" "$file" || ! grep -q "\"rank\": $3" "$file" || ! grep -qE "$4" "$file"; then
    fail "$1: the verdict is not $2 of rank $3, '$4':"
    cat "$file"
    tail -n 5 "$work/$1.log"
  fi
}

MS_EMULATED_CUDNN_COUNTS=1 "$ms_train" run "$work/gpu.toml" --fresh --set run.dir="$work/threads" >"$work/threads.log" 2>&1 ||
  fail "threads: $?"
grep -q '"device":[1-9][0-9]*,"device_total":' "$work/threads/metrics.jsonl" || fail "threads: no memory of the GPU"
# The model is worth the same on the GPU and on the CPU, but for the order in which bf16 GEMMs sum.
for device in cuda cpu; do
  "$ms_train" eval "$work/checkpoints" --set run.device="$device" --samples 8 --set run.comm_timeout=60s \
    >"$work/eval-$device" 2>"$work/eval.log" ||
    fail "eval on $device: $(tail -n 3 "$work/eval.log")"
done
paste "$work/eval-cuda" "$work/eval-cpu" | awk 'END { d = $3 / $7 - 1; exit !($3 > 1 && d < 1e-3 && d > -1e-3) }' ||
  fail "eval: $(tail -qn 1 "$work"/eval-c*)"
# multiprocessors NAME LEFT...: checks that each of the eight processes has GEMMs planned for these numbers, and no others
multiprocessors() {
  local name=$1 found
  shift
  found=$(sed -n 's/^emulated cuBLASLt: \([0-9]*\) SMs for [1-9][0-9]* GEMMs$/\1/p' "$work/$name.log" |
    sort -n | uniq -c | xargs)
  [[ $found == "$(printf '8 %s ' "$@" | xargs)" ]] || fail "$name: GEMMs of so many processes for so many SMs: $found"
}
# Each stage receives in one direction, by two channels; the GEMMs have the other multiprocessors.
ranks processes MS_EMULATED_NCCL_COUNTS=1 MS_EMULATED_CUBLASLT_COUNTS=1 MS_EMULATED_CUDNN_COUNTS=1 ||
  fail "processes: $(tail -n 3 "$work/processes.log")"
# NCCL makes no thread for an operation.
[[ $(grep -c '^emulated NCCL: [1-9][0-9]* operations, 0 threads for them$' "$work/processes.log") == 8 ]] ||
  fail "processes: $(grep 'emulated NCCL' "$work/processes.log")"
multiprocessors processes 130
# Gradients of biases are apart from matmuls where nothing was timed: an H200 sums faster so.
[[ $(grep -c '^emulated cuBLASLt: 0 GEMMs summed an operand$' "$work/processes.log") == 8 ]] ||
  fail "processes: $(grep 'summed an operand' "$work/processes.log")"
# Ranks that share a GPU build each of attention's plans once, as one rank does.
plans() { sed -n 's/^emulated cuDNN: \([1-9][0-9]*\) plans$/\1/p' "$work/$1.log" | sort -u; }
[[ -n $(plans threads) && $(plans threads) == "$(plans processes)" ]] ||
  fail "threads: plans of attention: $(plans threads), those of a rank: $(plans processes)"
# The emulated NCCL sums in rank order, as threads do: the same bits.
[[ $(losses threads | wc -l) == 4 ]] || fail "threads: losses of $(losses threads | wc -l) steps, not 4"
diff <(losses threads) <(losses processes) || fail "processes compute something else than threads"

# Experts: NCCL sends the rows of each, as many as the router says. Three experts of four for a token: the emulation needs
# every rank in an exchange, so none may be without rows.
experts() {
  settings=(--set 'model.family="llama"' --set model.experts=4 --set model.experts_per_token=3 --set mesh.ep=2
    --set "train.moe_dispatch=\"$1\"")
  "$ms_train" run "$work/gpu.toml" --fresh --set run.dir="$work/$1" "${settings[@]}" >"$work/$1.log" 2>&1 ||
    fail "$1: $(tail -n 3 "$work/$1.log")"
  ranks "nccl_$1" || fail "$1 over NCCL: $(tail -n 3 "$work/nccl_$1.log")"
  [[ $(losses "nccl_$1" | wc -l) == 4 ]] || fail "$1 over NCCL: losses of $(losses "nccl_$1" | wc -l) steps, not 4"
  diff <(losses "$1") <(losses "nccl_$1") || fail "$1 over NCCL: other losses than threads have"
}
experts all_to_all
experts all_gather

# With every kind of group: rings of tp, pipelines that close to a ring, pairs that share an embedding. In memory that
# all members register, or none.
settings=(--set mesh.chunks=2 --set overlap.tp=true --set overlap.dp=true --set overlap.pp=true)
"$ms_train" run "$work/gpu.toml" --fresh --set run.dir="$work/rings" "${settings[@]}" >"$work/rings.log" 2>&1 || fail "rings: $?"
settings+=(--set run.nccl_register=true)
ranks registered MS_EMULATED_NCCL_ONLY_REGISTERED=1 MS_EMULATED_CUBLASLT_COUNTS=1 ||
  fail "registered: $(tail -n 3 "$work/registered.log")"
# With chunks the pipeline is a ring: every stage receives in both directions. The matmuls around a ring of tp leave
# multiprocessors to that, too.
multiprocessors registered 112 128
[[ $(losses rings | wc -l) == 4 ]] || fail "rings: losses of $(losses rings | wc -l) steps, not 4"
diff <(losses rings) <(losses registered) || fail "registered: other losses than threads have"
ranks refused MS_EMULATED_NCCL_REGISTERS_NOTHING=1 && fail "refused: no error"
verdict refused comm.nccl '[0-7]' "registering memory.*cannot be registered"
ranks killed MS_FAULT='step=2 rank=3 kill' && fail "killed: no error"
# Either the service notices the death, or NCCL does first, in a group of two.
verdict killed 'comm.(peer_lost|nccl)' 3 "rank 3|remote process"
# Nobody waits for a stopped process that would have to let go of memory.
ranks deregistering MS_FAULT='step=2 rank=3 kill' MS_EMULATED_NCCL_DEREGISTER_WAITS=1 && fail "deregistering: no error"
verdict deregistering 'comm.(peer_lost|nccl)' 3 "rank 3|remote process"
grep -q "an abort ends a deregistration" "$work/deregistering.log" || fail "deregistering: no abort came of it"
# Groups fit on a smaller GPU too: the emulated NCCL refuses channels without a multiprocessor.
settings+=(--set train.steps=1)
ranks small MS_EMULATED_GPU_PROCESSORS=40 MS_EMULATED_CUBLASLT_COUNTS=1 || fail "small: $(tail -n 3 "$work/small.log")"
multiprocessors small 32 38
settings=()

ranks hung MS_FAULT='step=2 rank=5 hang' && fail "hung: no error"
verdict hung comm.deadline 5 "rank 5"
# Survivors end even if aborting NCCL hangs.
ranks stuck MS_FAULT='step=2 rank=3 kill' MS_EMULATED_NCCL_ABORT_HANGS=1
code=$?
((code != 0 && code != 124)) || fail "stuck: ended with $code"
verdict stuck 'comm.(peer_lost|nccl)' 3 "rank 3|remote process"
# Likewise one that has finished its run.
settings=(--set train.steps=1)
ranks completed MS_EMULATED_NCCL_ABORT_HANGS=1 || fail "completed: $? $(tail -n 5 "$work/completed.log")"
grep -q "^steps  *1$" "$work/completed.log" || fail "completed: it does not say what came of it"
grep -q '"code": 0' "$work/completed/verdict.json" || fail "completed: $(cat "$work/completed/verdict.json")"
grep -q "the run is done, but this process does not exit" "$work/completed.log" || fail "completed: nothing is said of it"
# After NCCL refuses a call, nothing calls it again.
settings=()
ranks refused_call MS_EMULATED_NCCL_REFUSES=60@5 && fail "refused call: no error"
verdict refused_call comm.nccl 5 "operation [0-9]* of group .*: NCCL: internal error .it was to be refused"
# A rank's tensors and ops would fit, were it not for NCCL's buffers.
ranks room MS_EMULATED_GPU_MEMORY=42000000 || fail "room: $(tail -n 3 "$work/room.log")"
ranks crowded MS_EMULATED_GPU_MEMORY=37000000 && fail "crowded: no error"
verdict crowded tensor.memory '[0-7]' "out of memory: .* of the GPU's .* are free, and this rank takes"
exit $failed
