#!/usr/bin/env bash
# A demonstration: ms-train over MPI (TCP) between nodes that are network namespaces with links of a limited rate, with
# [overlap] off and on, in turns; and both with links without a limit, which is what communication that costs nothing takes.
# Exposed communication is the difference. dp 2 x pp 2 on 4 nodes of the test cluster, one rank and one core each (the
# machine's cores are shared out). Takes root; everything is gone at the end, however it ends.
# usage: tests/bench/overlap_netns.sh [RATE [ROUNDS [STEPS]]] (default 500mbit 3 8)
# ARGUMENTS holds more arguments for ms-train run: ARGUMENTS="--set mesh.chunks=2"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
nodes=4
skipped_steps=2 # make primitives and touch pages

if [[ ${1:-} != --inside ]]; then
  build=${BUILD:-build/release}
  cmake --build "$build" --target ms-train ms-data >/dev/null
  exec tests/cluster/run $nodes --cpus 1 --build "$build" -- bash tests/bench/overlap_netns.sh --inside \
    "${1:-500mbit}" "${2:-3}" "${3:-8}"
fi

# ---- on the controller

rate=$2 rounds=$3 steps=$4
read -r -a arguments <<<"${ARGUMENTS:-}"
cd "$CLUSTER_DIR/shared"
head -c 1000000 /dev/urandom | base64 -w 0 >noise
ms-data encode --tokenizer byte --output text noise >/dev/null 2>&1
cat >c.toml <<'TOML'
[model]
layers = 8
hidden = 256
heads = 4
vocab = 257
seq = 128
tied_embeddings = false
[mesh]
dp = 2
pp = 2
chunks = 4
[train]
global_batch = 32
microbatch = 2
dtype = "fp32"
eval_every = 0
[optim]
warmup_steps = 0
[data]
train = ["text"]
TOML
# Nothing but TCP between the nodes, on the limited link.
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self OMPI_MCA_btl_tcp_if_include=eth0
cat >rank.sh <<'BASH'
#!/usr/bin/env bash
exec taskset -c "$((SLURM_PROCID % $(nproc --all)))" "$@"
BASH

limit() { # RATE|none
  local i
  for ((i = 1; i <= nodes; i++)); do limit-rate "$(printf 'node%02d' "$i")" "$1"; done
}

run() { # NAME on|off: appends the seconds of its steps to NAME.steps
  local switch=false dir=run.$1
  if [[ $2 == on ]]; then switch=true; fi
  rm -rf "$dir"
  if ! srun -N $nodes --ntasks-per-node=1 bash ./rank.sh ms-train run c.toml --set "run.dir=$dir" --set "train.steps=$steps" \
    --set "overlap.pp=$switch" --set "overlap.dp=$switch" "${arguments[@]}" >"$1.log" 2>&1; then
    tail -n 20 "$1.log" >&2
    exit 1
  fi
  sed 's/.*"step_s": *\([0-9.e+-]*\).*/\1/' "$dir/metrics.jsonl" | tail -n +$((skipped_steps + 1)) >>"$1.steps"
}

median() { # NAME
  sort -g "$1.steps" | awk '{ s[NR] = $1 } END { printf "%.4f", (s[int((NR + 1) / 2)] + s[int(NR / 2) + 1]) / 2 }'
}

bytes() { # NODE: what its link has carried, either way
  on-node "$1" cat /sys/class/net/eth0/statistics/{r,t}x_bytes | awk '{ sum += $1 } END { printf "%.0f", sum }'
}

for ((round = 1; round <= rounds; round++)); do
  limit "$rate"
  before=$(bytes node01)
  run off-limited off
  sent=$((($(bytes node01) - before) / steps))
  run on-limited on
  limit none
  run off-free off
  run on-free on
  printf 'round %d of %d: off %s s a step, on %s s; without a limit off %s s, on %s s\n' "$round" "$rounds" \
    "$(median off-limited)" "$(median on-limited)" "$(median off-free)" "$(median on-free)"
done
awk -v rate="$rate" -v sent="$sent" -v off="$(median off-limited)" -v on="$(median on-limited)" \
  -v off_free="$(median off-free)" -v on_free="$(median on-free)" 'BEGIN {
    printf "\nmedians, links of %s, %.1f MB a step and node\n", rate, sent / 1e6
    printf "%-8s %10s %14s %12s\n", "overlap", "step", "without limit", "exposed"
    printf "%-8s %8.3f s %12.3f s %10.3f s\n", "off", off, off_free, off - off_free
    printf "%-8s %8.3f s %12.3f s %10.3f s\n", "on", on, on_free, on - on_free
    printf "the step takes %.0f %% less time", 100 * (1 - on / off)
    if (off > off_free) printf "; exposed communication falls by %.0f %%", 100 * (1 - (on - on_free) / (off - off_free))
    printf "\n"
  }'
