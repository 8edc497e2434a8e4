#!/usr/bin/env bash
# ms-netcheck collectives beside a plain loop over MPI's own, on a Slurm cluster in namespaces whose nodes all send and
# receive at most RATE, so that both are bound by the same links.   usage: collectives_peer.sh [BUILD] [RATE] [NODES]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(realpath "${1:-$here/../../build/release}") rate=${2:-200mbit} nodes=${3:-4}
loop=$(mktemp -d)
trap 'rm -rf "$loop"' EXIT
mpicxx -std=c++20 -O2 -DOMPI_SKIP_MPICXX -o "$loop/mpi_loop" "$here/mpi_loop.cpp"
cat >"$loop/job" <<'JOB'
set -euo pipefail
build=$1 rate=$2 nodes=$3 loop=$4
cp "$loop/mpi_loop" "$CLUSTER_DIR/shared/"
for ((n = 1; n <= nodes; ++n)); do limit-rate "node0$n" "$rate"; done
for turn in 1 2 3; do
  srun --mpi=pmix -N "$nodes" "$build/bin/ms-netcheck" collectives --from 256KiB --to 4MiB --iterations 5 --json >"$CLUSTER_DIR/shared/ours$turn"
  srun --mpi=pmix -N "$nodes" "$CLUSTER_DIR/shared/mpi_loop" 5 262144 1048576 4194304 >"$CLUSTER_DIR/shared/plain$turn"
done
python3 - "$CLUSTER_DIR/shared" <<'TABLE'
import json, statistics, sys
ours, plain = {}, {}
for turn in "123":
    for row in json.load(open(f"{sys.argv[1]}/ours{turn}"))["rows"]:
        if row["split"] == "world":
            ours.setdefault((row["what"], row["bytes"]), []).append(row["p50_us"])
    for line in open(f"{sys.argv[1]}/plain{turn}"):
        name, size, us = line.split()
        plain.setdefault((name, int(size)), []).append(float(us))
print(f"{'collective':<16} {'bytes':>8} {'ours us':>10} {'MPI us':>10}   off   (medians of 3 turns)")
for key in sorted(plain, key=lambda k: (k[1], k[0])):
    a, b = statistics.median(ours[key]), statistics.median(plain[key])
    print(f"{key[0]:<16} {key[1]:>8} {a:10.0f} {b:10.0f} {100 * (a / b - 1):+5.1f} %")
TABLE
JOB
"$here/../cluster/run" "$nodes" --build "$build" -- bash "$loop/job" "$build" "$rate" "$nodes" "$loop"
