#!/usr/bin/env bash
# Runs an example and checks what it promises. usage: check.sh EXAMPLE BIN WORK: EXAMPLE is a folder of examples/, BIN the
# folder of the programs, WORK a directory in which it may make another one (nodes of a test cluster see no /tmp of ours).
set -u
example=$1
bin=$2
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
mkdir -p "$3"
work=$(realpath "$(mktemp -d "$3/XXXXXX")")
trap 'rm -rf "$work"' EXIT
export PATH=$bin:$PATH MS_EXAMPLES=$work
failures=0

fail() {
  echo "FAILED: $1"
  failures=$((failures + 1))
}
run() { # [COMMAND...]: the example, started by COMMAND
  "$@" bash "$repo/examples/$example/run.sh" >"$work/out" 2>&1 </dev/null
  local code=$?
  cat "$work/out"
  if [ $code -eq 77 ]; then exit 77; fi
  [ $code -eq 0 ] || fail "run.sh: exit code $code"
  cd "$work/$example" || exit 1
}
prints() { grep -Eq -- "$1" "$work/out" || fail "expected to see '$1'"; } # PATTERN
steps() { [ "$(wc -l <"$1/metrics.jsonl")" -eq "$2" ] || fail "$1/metrics.jsonl has not $2 lines"; } # RUN COUNT
json() { python3 -c "import json; j = json.load(open('$1')); assert $2, j" || fail "$1: not so: $2"; } # FILE EXPRESSION

check_01-threads() {
  run
  steps run 60
  json run/verdict.json 'j["code"] == 0 and j["step"] == 60'
  python3 -c 'import json
losses = [json.loads(line)["loss"] for line in open("run/metrics.jsonl")]
assert losses[-1] < losses[0] - 0.5, losses' || fail "the loss did not fall"
}

check_02-mpi() {
  run
  steps threads 20
  steps processes 20
  prints 'the losses of 20 steps are equal'
}

check_03-slurm() {
  "$repo/tests/cluster/run" --check || exit 77
  run "$repo/tests/cluster/run" 2 --build "$(dirname "$bin")" -- env "MS_EXAMPLES=$work"
  steps run 60
  json run/verdict.json 'j["code"] == 0'
  prints 'node01.* 4 on this node'
}

check_10-driver() {
  "$repo/tests/cluster/run" --check || exit 77
  run "$repo/tests/cluster/run" 3 --build "$(dirname "$bin")" -- env "MS_EXAMPLES=$work"
  steps run 60
  json run/driver/ledger.json '[a["cause"] for a in j["attempts"]] == ["rank_died", "done"]'
  json run/driver/ledger.json 'j["attempts"][0]["suspects"] == ["node02"]'
  json loop/driver/ledger.json '[a["cause"] for a in j["attempts"]] == ["hang", "done"]'
  json loop/driver/ledger.json 'j["attempts"][0]["suspects"] == ["node01", "node02"]'
}

check_04-resume() {
  run
  steps run 60
  prints 'step-00000060: sound'
  ms-ckpt ls --json checkpoints >ls.json || fail "ms-ckpt ls"
  json ls.json '[c["step"] for c in j["checkpoints"]] == [20, 40, 60]'
}

check_11-bpe-llama() {
  run
  steps run 300
  json run/verdict.json 'j["code"] == 0'
  prints 'since that checkpoint: mesh.dp was 2, is 4'
  for source in manuals licences python; do prints "^$source +[0-9]+ +[0-9]+\\.[0-9]+ "; done
  told=$(sed -n 's/^data_chain after step 300: //p' "$work/out")
  [ -n "$told" ] || fail "no data_chain is told"
  prints "^data_chain of the run: \"data_chain\":\"$told\""
}

check_12-loan() {
  run
  prints '^48 jobs over .*, 11 elastic'
  awk '$1 == "fifo" { queued = $2 } $1 == "loaning" { loaned = $2 } END { exit queued == "" || queued == loaned }' "$work/out" ||
    fail "the loan changes nothing"
  [ "$(head -n 1 samples.csv | cut -d, -f1)" = scheduler ] || fail "there are no samples"
}

check_13-hang() {
  run
  prints '^rank 5 \(dp 0 pp 1 tp 1, node .* never issued '
  prints 'A peer was lost'
  prints 'resuming from checkpoints/step-'
  steps run 60
  json run/verdict.json 'j["code"] == 0 and j["step"] == 60'
}

check_05-export() {
  run
  json hf/config.json 'j["architectures"] == ["LlamaForCausalLM"] and j["num_key_value_heads"] == 2'
  python3 -c 'import json, struct
file = open("hf/model.safetensors", "rb").read()
size = struct.unpack("<Q", file[:8])[0]
tensors = json.loads(file[8:8 + size])
assert tensors["lm_head.weight"]["shape"] == [257, 64], tensors
assert max(t["data_offsets"][1] for t in tensors.values() if "data_offsets" in t) == len(file) - 8 - size' ||
    fail "model.safetensors is not as the format says"
  prints '^text +[0-9]+ +[0-9.]+ +[0-9.]+$'
  prints '^The run .'
  cmp hf/model.safetensors again/model.safetensors || fail "written again, the model is another one"
  prints 'beginning at step 0 with the weights of imported/step-00000000 and a fresh optimizer'
  python3 -c 'import json
losses = [json.loads(line)["loss"] for line in open("run/metrics.jsonl")]
assert len(losses) == 10 and losses[0] < 4.5, losses' || fail "fine-tuning does not begin with what was learned"
}

check_16-experts() {
  run
  prints 'parameters .*, of which a token passes '
  steps run 60
  python3 -c 'import json
rows = [json.loads(line) for line in open("run/metrics.jsonl")]
loads = [row["expert_load"] for row in rows if "expert_load" in row]
assert len(loads) == 3 and [len(layer) for layer in loads[-1]["layers"]] == [8] * 4, loads
assert all(abs(sum(layer) - 8) < 0.01 for load in loads for layer in load["layers"]), loads
assert rows[-1]["loss"] < rows[0]["loss"] - 1, rows' || fail "the load of experts, or the loss"
  json hf/config.json 'j["architectures"] == ["MixtralForCausalLM"] and j["num_local_experts"] == 8'
  prints '^The run .'
}

check_06-slow-rank() {
  run
  ms-tracepp stragglers --json run/trace >stragglers.json || fail "ms-tracepp stragglers"
  json stragglers.json 'j["suspects"][0]["rank"] == 5'
  gzip -dc run.json.gz >run.json || fail "run.json.gz"
  json run.json 'len(j["traceEvents"]) > 1000'
}

check_14-pytorch-trace() {
  run
  ms-tracepp report --json "$repo/examples/$example/traces" >report.json || fail "ms-tracepp report"
  json report.json 'j["look_first"][0]["cause"] == "slow_rank" and j["look_first"][0]["rank"] == 2'
  json report.json '("synchronises", 2, "train.py(52): log_metrics") in [(a["cause"], a["rank"], a["line"]) for a in j["look_first"]]'
  grep -q '<section id="kernels">' report.html || fail "report.html has no kernels"
  mkdir again
  python3 -B "$repo/tests/pytorch/gpu_jobs.py" item_one 4 5 again
  for rank in 0 1 2 3; do
    cmp <(gzip -dc "again/rank$rank.json.gz") <(gzip -dc "$repo/examples/$example/traces/rank$rank.json.gz") ||
      fail "rank $rank is not as README.md says it was made"
  done
}

check_15-pytorch-data() {
  run
  local chain
  chain=$(PYTHONPATH=$repo/python python3 -B -c 'import ms_loader
with ms_loader.Loader("text", seq=128, global_batch=24, steps=12) as loader:
    for _ in loader: pass
    print(loader.chain)')
  prints "^step 12 loss [0-9.]* chain $chain$"
  prints '^packed: '
  [ "$(grep -c '^step 12 loss [0-9.]* chain' "$work/out")" -eq 2 ] || fail "no second job"
}

check_07-check-node() {
  run
  prints 'critical disk.mounts /mnt/no-such-disk'
  prints '^CRITICAL - disk.mounts'
  [ "$(grep -c '^exit status 2$' "$work/out")" -eq 2 ] || fail "the missing mount is not critical"
}

check_08-check-fabric() {
  run
  prints '^world of 4 +all_reduce +262144 .* 0$'
  if [ $failures -eq 0 ] && grep '^skipped: no network namespaces' "$work/out"; then exit 77; fi
  prints 'critical net.slow n3'
  grep -q '<svg' map.html || fail "map.html has no heat map"
}

check_09-simulate() {
  run
  prints '12288 x A100'
  ms-tracepp stragglers --json traces >stragglers.json || fail "ms-tracepp stragglers"
  json stragglers.json 'j["suspects"][0]["rank"] == 5'
  # The first word of a number in "iteration   6.538 s", for Megatron-LM and for MegaScale.
  awk '/^iteration/ { time[++n] = $2 } END { exit !(time[2] < 0.9 * time[1]) }' "$work/out" ||
    fail "MegaScale's step is not a tenth shorter than Megatron-LM's"
}

"check_$example"
[ "$failures" -eq 0 ]
