#!/usr/bin/env bash
# The active checks of ms-diag beside the tools that everybody knows, in turns, every other round the other way round: perf.memory
# beside likwid-bench (STREAM's triad), perf.disk beside fio, perf.nic beside iperf3. What is not installed is left out. Prints the
# median of each side, and the median, lowest and highest ratio of the rounds.
# usage: tests/bench/diag_peers.sh [ROUNDS [DIRECTORY]] (default 5 rounds; the disk test writes into DIRECTORY, default build/)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=$(realpath "${BUILD:-build/release}")
rounds=${1:-5}
directory=$(realpath "${2:-$build}")
cmake --build "$build" --target ms-diag >/dev/null
work=$(mktemp -d)
disk=$(mktemp -d -p "$directory" diag-peers.XXXXXX)
server=''
trap 'if [[ -n $server ]]; then kill "$server"; fi; rm -rf "$work" "$disk"' EXIT
: >"$work/policy.toml"
cat >"$work/numbers.py" <<'PY'
# numbers.py ours CODE FILE: entity and value of what was measured; numbers.py fio|iperf3|likwid NAME FILE: likewise
import json, re, sys
kind, name, path = sys.argv[1:]
text = open(path).read()
if kind == "ours":
    for check in json.loads(text)["checks"]:
        if check["code"] == name:
            for measured in check["measured"]:
                print(measured["entity"], measured["value"])
elif kind == "likwid":
    print("triad", float(re.search(r"MByte/s:\s*([0-9.]+)", text).group(1)) / 1e3)
elif kind == "iperf3":
    print(name, json.loads(text)["end"]["sum_received"]["bits_per_second"] / 1e9)
elif name == "fdatasync":
    job = json.loads(text)["jobs"][0]
    print(name, 1e9 / (job["sync"]["lat_ns"]["percentile"]["50.000000"] + job["write"]["clat_ns"]["mean"]))
else:
    print(name, json.loads(text)["jobs"][0][name]["bw_bytes"] / 1e9)
PY
numbers() { python3 -B "$work/numbers.py" "$@"; }
has() { command -v "$1" >/dev/null || { echo "without $1" && false; }; }
nic=$(ip -o -4 address show scope global up | awk 'NR == 1 { print $2, $4 }')
address=${nic#* } interface=${nic% *}

ours() { # CODE ARGS...
  local code=$1
  shift
  "$build/bin/ms-diag" run --level 3 --only "$code" --json --config "$work/policy.toml" "$@" >"$work/out" || true
  numbers ours "$code" "$work/out"
}
memory_ours() { ours perf.memory; }
memory_peer() {
  # Arrays as large as ours, four times the last caches together, in huge pages as ours, and the best of short runs, as ours
  # is the best of its passes: likwid-bench gives the mean of a run.
  for ((run = 0; run < 8; run++)); do
    GLIBC_TUNABLES=glibc.malloc.hugetlb=1 likwid-bench -t stream_avx -i 4 -w "N:${megabytes}MB" >"$work/out" 2>/dev/null
    numbers likwid triad "$work/out"
  done | sort -g -k 2 | tail -n 1
}
disk_ours() { ours perf.disk --directory "$disk"; }
disk_peer() {
  # Threads, as ours: processes of fio's begin sessions of their own, and where sessions share the CPUs (autogroup) four of
  # them get four shares of a busy machine.
  local common=(--thread --directory="$disk" --direct=1 --ioengine=psync --group_reporting --output-format=json)
  fio --name=w --rw=write --bs=1M --size=1G --numjobs=4 --runtime=8 --end_fsync=1 "${common[@]}" >"$work/write"
  fio --name=w --rw=read --bs=1M --size=1G --numjobs=4 --runtime=8 "${common[@]}" >"$work/read"
  rm -f "$disk"/*
  # Written before, as ours soon is: a first write also makes the file's metadata durable.
  fio --name=s --rw=write --bs=4k --size=1M --overwrite=1 --fdatasync=1 --runtime=3 --time_based "${common[@]}" >"$work/fdatasync"
  rm -f "$disk"/*
  for name in write read fdatasync; do numbers fio "$name" "$work/$name"; done
}
nic_ours() { ours perf.nic | grep "^$interface "; }
nic_peer() {
  iperf3 --client "${address%/*}" --time 1 --length 256K --json >"$work/out"
  numbers iperf3 "$interface" "$work/out"
}

pairs=()
if has likwid-bench; then
  megabytes=$(("$(cat /sys/devices/system/cpu/cpu0/cache/index*/size | sed -n '$s/K//p')" * 12 / 1000))
  pairs+=(memory)
fi
if has fio; then pairs+=(disk); fi
if [[ -n $nic ]] && has iperf3; then
  iperf3 --server >/dev/null 2>&1 &
  server=$!
  sleep 1
  pairs+=(nic)
fi
for ((round = 1; round <= rounds; round++)); do
  for pair in "${pairs[@]}"; do
    if ((round % 2)); then sides=(ours peer); else sides=(peer ours); fi
    for side in "${sides[@]}"; do "${pair}_$side" | sed "s/^/$pair $side $round /" >>"$work/rows"; done
  done
done
python3 -B - "$work/rows" <<'PY'
import collections, statistics, sys
rows = collections.defaultdict(dict)
for line in open(sys.argv[1]):
    pair, side, round, what, value = line.split()
    rows[pair, what].setdefault(side, {})[round] = float(value)
for (pair, what), sides in rows.items():
    if len(sides) < 2 or not sides["ours"].keys() & sides["peer"].keys():  # a check that is late on a busy machine has no number
        print(f"{pair} {what}: no round in which both have a number")
        continue
    both = sorted(sides["ours"][r] / sides["peer"][r] for r in sides["ours"] if r in sides["peer"])
    print(f"{pair} {what}: ours {statistics.median(sides['ours'].values()):.4g}, peer "
          f"{statistics.median(sides['peer'].values()):.4g}, ratio {statistics.median(both):.3f} ({both[0]:.3f} to {both[-1]:.3f})")
PY
