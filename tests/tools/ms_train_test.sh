#!/usr/bin/env bash
# ms-train from the outside: a run in 3D, what it leaves behind, and refusals: one clear message, the right exit code,
# nothing half-written.  usage: ms_train_test.sh MS-TRAIN
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
# shellcheck source=tests/support/training.sh
. "$(dirname "$0")/../support/training.sh"
bin=$(dirname "$tool")
support=$(cd "$(dirname "$0")/../support" && pwd)
configs=$(cd "$(dirname "$0")/../../configs" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

# refuse CODE PATTERN ARGS...: as expect, and exactly one error, and no run directory.
refuse() {
  expect "$@"
  [ "$(grep -c 'error:' err)" -eq 1 ] || fail "ms-train ${*:3}: not exactly one error message"
  [ ! -e runs ] || fail "ms-train ${*:3}: left a run directory behind"
  rm -rf runs
}

training_text 400 >/dev/null 2>&1 || fail "ms-data encode"
tiny_config model.layers=4 model.tied_embeddings=false mesh.dp=2 mesh.pp=2 mesh.tp=2 train.steps=4 \
  train.eval_every=2 train.eval_samples=8 optim.lr=1e-3 'run.dir="runs/a"' >c.toml

# Refusals.
expect 0 'run' --help
expect 0 'ranks' run --help
expect 2 'command is missing'
refuse 2 'nowhere.toml' run nowhere.toml
refuse 2 "did you mean 'model.layers'" run c.toml --set model.layer=3
refuse 2 'model.heads = 4 is not divisible by mesh.tp = 3' run c.toml --set mesh.tp=3
refuse 2 'each needs at least one layer' run c.toml --set mesh.pp=8
refuse 2 'not divisible by mesh.dp x train.microbatch' run c.toml --set train.microbatch=3
refuse 2 'multiple of mesh.pp' run c.toml --set mesh.chunks=2 --set train.global_batch=12
refuse 2 'needs mesh.pp > 1' run c.toml --set mesh.chunks=2 --set mesh.pp=1
refuse 2 'ranks 4, but .* = 8' run c.toml --ranks 4
refuse 2 'mesh' plan c.toml --world 6
refuse 2 'missing.idx' run c.toml --set data.train=missing
refuse 2 'model.vocab|vocabulary' run c.toml --set model.vocab=60
refuse 2 'CONFIG' run
"$tool" run c.toml --set mesh.tp=3 --set optim.zero=7 --set train.dtype=fp8 >out 2>err
[ "$(grep -c -E 'mesh.tp|optim.zero|train.dtype' err)" -ge 3 ] || fail "not all problems were reported at once"
cp text.bin short.bin
cp text.idx short.idx
truncate -s -10 short.bin
refuse 74 'short.bin' run c.toml --set data.train=short
truncate -s 20 short.idx
refuse 74 'short.idx' run c.toml --set data.train=short

# A build without CUDA, asked for it: the configuration is wrong, and no node is at fault.
mkdir without
cp "$bin"/../lib/libms.so* without
LD_LIBRARY_PATH=$dir/without expect 2 'this ms was built without CUDA' run c.toml --set run.dir=without/run --set run.device=cuda --set train.dtype=bf16

# A run in three dimensions, twice: the same losses to the last digit.
expect 0 'valid_loss' run c.toml
losses() { grep -o '^{"step":[0-9]*,"loss":[^,]*,"grad_norm":[^,]*' "$1/metrics.jsonl"; }
[ "$(wc -l <runs/a/metrics.jsonl)" -eq 4 ] || fail "metrics.jsonl has not one line a step"
[ "$(grep -c valid_loss runs/a/metrics.jsonl)" -eq 2 ] || fail "not every second step was evaluated"
grep -q '"code": 0' runs/a/verdict.json || fail "the verdict of a good run is not 0"
expect 0 . run runs/a/config.toml --set run.dir=runs/b --ranks 8
[ "$(losses runs/a)" = "$(losses runs/b)" ] || fail "the resolved configuration does not reproduce the run"
expect 0 . run c.toml --set run.dir=runs/c --set mesh.chunks=2 --set optim.clip=0
expect 0 . run c.toml --set run.dir=runs/d --set mesh.pp=1 --set optim.clip=0
[ "$(losses runs/c)" = "$(losses runs/d)" ] || fail "the pipeline changed the losses"
expect 0 . run c.toml --set run.dir=runs/e --set model.family=llama --set train.dtype=bf16 --set train.recompute=full

# One step has a rate, too.
expect 0 '^tokens_per_s +[1-9]' run c.toml --set run.dir=runs/one --set train.steps=1
# Keys that have no effect, and a warm-up that is longer than the run.
expect 0 'W .*model.rotary_base has no effect: a gpt' check c.toml --set model.rotary_base=500000
expect 0 'W .*optim.warmup_steps = 2000 is clamped to train.steps = 4' run c.toml --set run.dir=runs/warm \
  --set optim.warmup_steps=2000
[ "$(grep -c clamped err)" -eq 1 ] || fail "the clamped warm-up is not told once"
grep -q '^warmup_steps = 4 ' runs/warm/config.toml || fail "the saved configuration does not have the clamped warm-up"
# Memory that the node does not have.
expect 2 '8 ranks as threads would take .* and this process may have' run c.toml --set run.dir=runs/huge \
  --set model.hidden=8192 --set model.heads=64 --set model.layers=4000
[ ! -e runs/huge ] || fail "a run that is refused for its memory left a directory"
# Threads and processes that the system refuses, early and late: no bug, and ranks that run already do not wait for those that do not.
as_nobody=(setpriv --reuid=65534 --clear-groups)
if [ "$(id -u)" -eq 0 ] && "${as_nobody[@]}" "$tool" --version >/dev/null 2>&1; then
  chmod 777 .
  for threads in 1 2 4 8 12; do
    timeout 300 "${as_nobody[@]}" prlimit --nproc="$threads" "$tool" run c.toml --set run.dir="nobody-$threads" >out 2>err
    [ $? -eq 2 ] || fail "not 2 where the system has $threads threads"
    grep -Eq "error: .*cannot start (another thread|the loader's process): " err || fail "no word of what cannot be started"
    grep -q 'hint: .*ulimit -u' err || fail "no hint about the limit"
  done
fi
# A batch that grows from 8 to 24 sequences, with groups of parameters and a z-loss: resumed in the middle, the same losses.
grow=(run c.toml --set train.eval_every=0 --set train.steps=8 --set train.global_batch=24 --set train.rampup_start=8
  --set train.rampup_increment=8 --set train.rampup_samples=48 --set train.z_loss=1e-3 --set optim.schedule=inverse-sqrt
  --set 'optim.groups=embed.* lr=0.5')
expect 0 . "${grow[@]}" --set run.dir=runs/grow
expect 0 . "${grow[@]}" --set run.dir=runs/grown --set checkpoint.dir=saved --set train.steps=4
expect 0 . "${grow[@]}" --set run.dir=runs/grown --set checkpoint.dir=saved
[ "$(losses runs/grow)" = "$(losses runs/grown)" ] || fail "resuming changed the losses of a batch that grows"
[ "$(grep -o '"tokens":[0-9]*' runs/grow/metrics.jsonl | xargs)" = "$(for n in 8 16 24 40 56 80 104 128; do
  echo "\"tokens\":$((n * 32))"; done | xargs)" ] || fail "the batch does not grow as asked"
python3 - runs/grow/metrics.jsonl >out 2>err <<'END' || fail "the rates of a batch that grows are not of its tokens"
import json, math, sys
before = 0
for line in map(json.loads, open(sys.argv[1])):
    assert math.isclose(line["tokens_per_s"] * line["step_s"], line["tokens"] - before, rel_tol=1e-9), line
    before = line["tokens"]
END
OMP_NUM_THREADS=two expect 2 'OMP_NUM_THREADS is .two., not a number of threads from 1 to 1024' run c.toml --set run.dir=runs/none
expect 0 '8 ranks as threads, 1 worker, 1 thread an op' run c.toml --set run.dir=runs/pinned --set run.cpu_threads=1
# What is written about a step: for people, and for TensorBoard. Curves do not change a run.
expect 0 'grad_norm [0-9]' run c.toml --set run.dir=runs/m --set metrics.tensorboard=true --set metrics.grad_norms_every=2 \
  --set run.peak_tflops=0.01 --set train.log_every=1
[ "$(losses runs/a)" = "$(losses runs/m)" ] || fail "metrics changed the losses"
python3 -B "$support/event_file.py" check runs/m/tensorboard/events.out.tfevents.* runs/m/metrics.jsonl >out 2>err ||
  fail "the event file does not hold the numbers of metrics.jsonl"
python3 - runs/m/metrics.jsonl >out 2>err <<'END' || fail "a line of metrics.jsonl is not as it should be"
import json, math, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
for line in lines:
    assert ("grad_norms" in line) == (line["step"] % 2 == 0), line
    if "grad_norms" in line:
        assert {"embed", "layers.0.attn", "layers.3.mlp", "final_norm", "head"} < line["grad_norms"].keys(), line
        assert math.isclose(math.hypot(*line["grad_norms"].values()), line["grad_norm"], rel_tol=1e-6), line
    memory = line["memory_bytes"]
    assert 0 < memory["tensors"] < memory["process"] <= memory["process_peak"], line  # 8 ranks are threads of one process
    assert math.isclose(line["mfu"]["reported"], line["tflops"] / 0.01, rel_tol=1e-9), line
END

# The demo's configuration, shortened.
expect 0 'The model writes' run "$configs/tiny-3d.toml" --set data.train=text --set run.dir=runs/tiny --set train.steps=5 \
  --set optim.warmup_steps=2 --set run.sample_tokens=10

# A directory that was used before: what this run is refused for is its verdict, not the old one's; one run at a time.
expect 2 'nowhere' run c.toml --set data.train=nowhere
grep -q '"code": 2' runs/a/verdict.json || fail "the verdict of an earlier run stands for a refused one"
exec {held}>>runs/b/lock
flock "$held"
expect 2 'another run is at work' run c.toml --set run.dir=runs/b
exec {held}>&-
# Sizes at their smallest, a run that diverges, texts that are no configuration.
expect 0 'writes' run c.toml --set run.dir=runs/f --set model.seq=1 --set mesh.tp=1 --set run.sample_tokens=3
expect 2 'diverged' run c.toml --set run.dir=runs/g --set optim.lr=1000 --set train.dtype=bf16 --set train.steps=100 \
  --set train.eval_every=0 --set model.init_std=5
python3 -c "print('a = ' + '[' * 100000)" >deep.toml
expect 2 'nested' check deep.toml
expect 2 'regular' check /dev/zero
expect 2 'no schedule is called' check c.toml --set mesh.schedule=zip
expect 2 'nowhere.csv' check c.toml --set mesh.schedule=nowhere.csv
expect 2 'too large' check c.toml --set model.hidden=1000000 --set model.vocab=100000000 --set model.heads=100000 --set model.layers=10000
expect 0 '8 ranks' check c.toml --set run.sample_tokens=9 --set model.vocab=300
mv text.meta.json note
expect 2 'the tokenizer of text is not known' check c.toml --set run.sample_tokens=9 --set model.vocab=300
mv note text.meta.json
expect 2 'set model.vocab = 257' check c.toml --set model.vocab=256
# What needs no run.
expect 0 '8 ranks' check c.toml
expect 2 'missing.idx' check c.toml --set data.train=missing
expect 0 '8 ranks' check c.toml --set data.train=missing --no-files
expect 2 'checkpoint.load: cannot open nowhere' check c.toml --set checkpoint.load=nowhere
expect 0 'stage' plan c.toml
expect 0 '"schema": 1' plan c.toml --json
printf 'n1 slots=4\nn[2-3]:2\n' >hosts
echo 'SwitchName=a Nodes=n[1-3]' >switches
expect 0 'SLURM_HOSTFILE=order SLURM_JOB_NUM_NODES=3 srun .* -n 8 ' plan c.toml --hostfile hosts --topology switches --order order
[ "$(xargs <order)" = 'n1 n1 n1 n1 n2 n2 n3 n3' ] || fail "the order of ranks is '$(xargs <order)'"
expect 0 '"order": ' plan c.toml --hostfile hosts --topology switches --json
expect 2 'standard input names no host' plan c.toml --hostfile -
expect 2 'have 8 slots, but .* takes 16' plan c.toml --hostfile hosts --topology switches --set mesh.dp=4
expect 2 'switches:1: ' plan c.toml --hostfile switches
expect 2 'hosts:1: ' plan c.toml --hostfile hosts --topology hosts
expect 2 'nowhere' plan c.toml --hostfile nowhere
expect 2 'no Slurm job' plan c.toml --hostfile slurm
expect 2 '--order needs --hostfile' plan c.toml --order order
# Paths that a user named and nobody can write to.
expect 2 "cannot create 'nowhere/order': No such file" plan c.toml --hostfile hosts --topology switches --order nowhere/order
expect 2 '/proc' run c.toml --set run.dir=/proc/nowhere/run
expect 2 "cannot make the directory 'hosts': Not a directory" run c.toml --set run.dir=hosts
expect 2 "'hosts/run': Not a directory" run c.toml --set run.dir=hosts/run
expect 2 "'hosts/trace': Not a directory" run c.toml --set run.dir=runs/h --set trace.enabled=true --set trace.dir=hosts/trace
expect 2 "'hosts/ck': Not a directory" run c.toml --set run.dir=runs/h --set checkpoint.dir=hosts/ck
# Habits of other programs.
expect 2 "a command is missing before 'c.toml'" c.toml
expect 2 "unknown option '--micro-batch-size'; keys .* with --set SECTION.KEY=VALUE" run c.toml --micro-batch-size 2
expect 2 "did you mean '--set train.steps=5'" run c.toml train.steps=5
expect 2 'expected an integer, without a point or an exponent: 1000, got' check c.toml --set train.steps=1e3
expect 2 "hint: checkpoint.dir in runs/a/config.toml names" eval runs/a
TORCHELASTIC_RUN_ID=x WORLD_SIZE=2 RANK=0 expect 2 'torchrun has started several processes' run c.toml
# What is odd, and no reason to refuse a run.
expect 0 'W .*1000 compute threads .*, but this process may use only ' run c.toml --set run.dir=runs/odd \
  --set run.cpu_threads=1000
expect 0 "W .*checkpoint.memory_dir = '$dir/mem/a' is not in memory" run c.toml --set run.dir=runs/odd \
  --set checkpoint.dir=ck-odd --set checkpoint.memory_dir="$dir/mem/a"

# Two live runs: the second is refused, and told who has the directory; one that was killed is in nobody's way.
live=(run c.toml --set train.steps=1000000 --set train.eval_every=0 --set train.log_every=100000)
all=(--set run.dir=runs/live --set trace.enabled=true --set trace.dir=live-trace --set checkpoint.dir=live-ck)
launcher=()
begin() { # ARGS...: a run in the background, at work
  "${launcher[@]}" "$tool" "${live[@]}" "$@" >live.out 2>live.err </dev/null &
  run=$!
  for _ in $(seq 1200); do
    [ -s runs/live/metrics.jsonl ] && break
    sleep 0.1
  done
}
rm -rf runs/live
begin "${all[@]}"
who="process $run on $(uname -n)"
expect 2 "another run is at work in runs/live: $who" run c.toml "${all[@]}"
expect 2 "another run is at work in live-trace: $who" run c.toml "${all[@]}" --set run.dir=runs/second
[ ! -e runs/second ] || fail "a refused run left a directory"
expect 2 "another run, or ms-ckpt, is at work in 'live-ck': $who" run c.toml --set run.dir=runs/second --set checkpoint.dir=live-ck
kill -9 "$run"
wait "$run" 2>/dev/null
rm -f runs/live/metrics.jsonl

# A run that is asked to stop says what is saved, and how to go on.
begin "${all[@]}"
kill "$run"
wait "$run"
[ $? -eq 75 ] || fail "a stopped run with checkpoints does not end with 75"
grep -q 'stopped on purpose after step .* (SIGTERM): live-ck/step-.* is committed, and the same command resumes' live.err ||
  fail "no word of what was saved: $(cat live.err)"
rm -rf runs/live
begin --set run.dir=runs/live
kill "$run"
wait "$run"
[ $? -eq 93 ] || fail "a stopped run without checkpoints does not end with 93"
grep -q 'nothing is saved, because checkpoint.dir is not set' live.err || fail "no word that nothing was saved: $(cat live.err)"

# A stop ends an evaluation, too, of threads and of processes. The line of step 1 is written once step 2 is issued, which
# an evaluation of hours follows.
endless=(--set run.dir=runs/live --set checkpoint.dir=live-eval --set train.eval_every=2 --set train.eval_samples=1000000)
stops_evaluating() { # ARGS...
  rm -rf runs/live live-eval
  begin "${endless[@]}" "$@"
  # mpirun ends its processes where it is killed itself.
  if [ ${#launcher[@]} -eq 0 ]; then kill "$run"; else touch runs/live/stop; fi
  wait "$run"
  [ $? -eq 75 ] || fail "a run that is stopped in an evaluation does not end with 75: $(tail -n 5 live.err)"
  grep -q 'the evaluation after step 2 is left out' live.err || fail "no word of an evaluation that is left out"
  [ -d live-eval/step-00000002 ] || fail "not saved after the step that was evaluated: $(ls live-eval)"
}
stops_evaluating
expect 0 'steps         3' run c.toml "${endless[@]}" --set train.steps=3 --set train.eval_every=0
if command -v mpirun >/dev/null; then
  launcher=(mpirun -q --allow-run-as-root --oversubscribe -np 2)
  stops_evaluating --set mesh.pp=1 --set mesh.tp=1
fi

[ "$failures" -eq 0 ] && echo "all as expected" || exit 1
