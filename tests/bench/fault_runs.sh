#!/usr/bin/env bash
# Real runs on this machine's cores with a fault injected at a random rank, and whom ms-tracepp names: right at the first
# try, within two, other ranks that were accused, and how long the analysis took, reading included. Ranks are threads;
# hangs and deaths are processes under mpirun. Nothing else may run on the machine: what takes cores away is found too.
# usage: tests/bench/fault_runs.sh [RUNS-OF-EACH]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
runs=${1:-5}
build=${BUILD:-build/release}
cmake --build "$build" --target ms-train ms-data ms-tracepp >/dev/null
bin=$PWD/$build/bin
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
RANDOM=17
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

for i in $(seq 20000); do echo "line $i: the quick brown fox jumps over the lazy dog, $((i * 7919 % 1000)) times"; done >text
"$bin/ms-data" encode --tokenizer byte --output text text >/dev/null 2>&1
cat >c.toml <<'TOML'
[model]
layers = 8
hidden = 128
heads = 4
vocab = 257
seq = 128
tied_embeddings = false
[train]
steps = 40
microbatch = 1
dtype = "fp32"
eval_every = 0
[data]
train = ["text"]
valid_fraction = 0
[run]
dir = "run"
sample_tokens = 0
comm_timeout = "5s"
[trace]
flush = "0.2s"
TOML

# named CODES: of the first two findings with one of these codes, the ranks; then how many ranks others accuse.
cat >named.py <<'PY'
import json, subprocess, sys, time
tool, command, codes = sys.argv[1], sys.argv[2], sys.argv[3].split(",")
begin = time.time()
out = subprocess.run([tool, command, "--json", "run/trace"], capture_output=True, text=True, check=True).stdout
seconds = time.time() - begin
found = json.loads(out)
if command == "hang":
    ranks = [s["rank"] for s in found["suspects"]]
    stuck = found["state"] in ("hang", "failed")
    print(",".join(map(str, ranks[:2])) if stuck and ranks else "-", max(0, len(ranks) - 2), f"{seconds:.2f}")
else:
    # A stage with more work than others is a finding too, and true of this model: it accuses no rank.
    # A slow rank counts whatever it costs: on cores that all share it is little.
    worth = [f for f in found["findings"] if f["cost_share"] >= 0.01 or f["code"] == "slow_rank"]
    worth = [f for f in worth if f["code"] not in ("last_stage", "slow_stage")]
    named = [f["ranks"][0] for f in worth if f["code"] in codes and f["ranks"]]
    others = sum(1 for f in worth if f["code"] not in codes)
    print(",".join(map(str, named[:2])) if named else "-", others + max(0, len(named) - 1), f"{seconds:.2f}")
PY

# faults NAME COMMAND CODES MESH RANKS FAULT [mpi]: FAULT with RANK and STEP to be filled in.
faults() {
  local name=$1 command=$2 codes=$3 mesh=$4 ranks=$5 fault=$6 how=${7:-threads}
  local first=0 two=0 others=0 slowest=0 i rank text named extra seconds
  for i in $(seq "$runs"); do
    rank=$((RANDOM % ranks))
    text=${fault//RANK/$rank}
    text=${text//STEP/$((10 + RANDOM % 20))}
    rm -rf run
    # shellcheck disable=SC2086  # MESH is several words
    if [ "$how" = mpi ]; then
      MS_FAULT=$text mpirun --oversubscribe --bind-to none -np "$ranks" "$bin/ms-train" run c.toml $mesh >out 2>&1 || true
    else
      MS_FAULT=$text "$bin/ms-train" run c.toml $mesh >out 2>&1
    fi
    read -r named extra seconds < <(python3 named.py "$bin/ms-tracepp" "$command" "$codes")
    [ "${named%%,*}" != "$rank" ] || first=$((first + 1))
    [[ ,$named, != *,$rank,* ]] || two=$((two + 1))
    others=$((others + extra))
    if awk "BEGIN { exit !($seconds > $slowest) }"; then slowest=$seconds; fi
  done
  printf '%-36s %5d %8s %8s %8d %9s\n' "$name" "$ranks" "$first/$runs" "$two/$runs" "$others" "$slowest"
}
healthy() { # NAME MESH RANKS
  local others=0 i named extra seconds
  for i in $(seq "$runs"); do
    rm -rf run
    # shellcheck disable=SC2086
    "$bin/ms-train" run c.toml $2 >out 2>&1
    read -r named extra seconds < <(python3 named.py "$bin/ms-tracepp" stragglers slow_rank,slow_link,pause,data_stall,launch_delay)
    [ "$named" = - ] || others=$((others + 1 + extra))
  done
  printf '%-36s %5d %8s %8s %8d\n' "$1" "$3" "" "" "$others"
}

small="--set mesh.dp=2 --set mesh.pp=2 --set mesh.tp=2 --set train.global_batch=16"
large="--set mesh.dp=4 --set mesh.pp=4 --set mesh.tp=4 --set train.global_batch=32 --set train.steps=20"
printf '%-36s %5s %8s %8s %8s %9s\n' fault ranks first "in two" others seconds
for factor in 1.05 1.1 1.2 1.5; do
  faults "slow rank, $factor times" stragglers slow_rank "$small" 8 "step=3 rank=RANK slow=$factor"
done
faults "slow rank, 1.05 times, 100 steps" stragglers slow_rank "$small --set train.steps=100" 8 "step=3 rank=RANK slow=1.05"
faults "slow rank, 1.2 times, 64 ranks" stragglers slow_rank "$large" 64 "step=3 rank=RANK slow=1.2"
faults "host pause of 0.5 s" stragglers pause,launch_delay "$small" 8 "step=STEP rank=RANK pause=0.5"
faults "tokens 0.5 s late" stragglers data_stall "$small" 8 "data=STEP rank=RANK pause=0.5"
faults "host hangs" hang - "$small" 8 "step=STEP rank=RANK hang" mpi
faults "process killed" hang - "$small" 8 "step=STEP rank=RANK kill" mpi
healthy "healthy" "$small" 8
healthy "healthy, 100 steps" "$small --set train.steps=100" 8
healthy "healthy, 64 ranks" "$large" 64
