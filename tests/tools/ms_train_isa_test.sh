#!/usr/bin/env bash
# The instruction set that a run computes on: in the log, the plan, the checkpoint and the trace; what a resume on another
# one and ranks with unequal ones are told. AVX2 stands for the other machine.
# usage: ms_train_isa_test.sh MS-TRAIN
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
training_directory
tiny_config mesh.dp=2 train.steps=2 train.eval_every=0 'checkpoint.dir="ckpt"' 'run.dir="run"' >c.toml

usual=$("$tool" plan c.toml --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["instruction_set"])')
case $usual in
  avx512 | avx512-bf16 | amx-bf16) ;;
  *) echo "not tried, not on this machine: an instruction set above AVX2, beside '$usual'" && exit 0 ;;
esac
limited() { ONEDNN_MAX_CPU_ISA=AVX2 "$@"; }

limited expect 0 '"instruction_set": "avx2"' plan c.toml --json
limited expect 0 '^device .*avx2' plan c.toml
limited expect 0 '2 ranks as threads, .*, avx2$' run c.toml
saved() { "$bin/ms-ckpt" show ckpt --json 2>err | python3 -c 'import json, sys; print(json.load(sys.stdin)["instruction_set"])'; }
[ "$(saved)" = avx2 ] || fail "the checkpoint does not name the instruction set"
"$bin/ms-tracepp" info run/trace >out 2>err
grep -q 'cpu avx2' out || fail "the trace does not name it"

# The same instruction set again is no news; another one is.
limited expect 0 'resuming from' run c.toml --set train.steps=3
if grep -q 'bits may differ' err; then fail "a resume on the same instruction set is warned"; fi
expect 0 'was computed on avx2, this run computes on '"$usual"': bits may differ' run c.toml --set train.steps=4
[ "$(saved)" = "$usual" ] || fail "the newest checkpoint names another instruction set"

# Unequal ranks: the first of those that differ from rank 0 says so, and no other.
mpi=(mpirun --allow-run-as-root --oversubscribe)
rank=("$tool" run c.toml --fresh --set mesh.dp=4 --set train.global_batch=8)
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "${mpi[@]}" -np 2 "${rank[@]}" : \
  -np 2 env ONEDNN_MAX_CPU_ISA=AVX2 "${rank[@]}" >out 2>err </dev/null || fail "a run of unequal ranks"
[ "$(cat out err | grep -c 'computes on avx2, rank 0 on')" -eq 1 ] || fail "unequal ranks are not warned once"
[ "$failures" -eq 0 ] && echo "all as expected" || exit 1
