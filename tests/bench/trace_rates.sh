#!/usr/bin/env bash
# How fast one core reads traces, and what they take in memory: a trace as PyTorch's profiler writes it, plain and packed,
# and the usual way to read it in Python (json and pandas), on the same file. The best of three for each.
# usage: tests/bench/trace_rates.sh [EVENTS]: 1000000, 280 MB of JSON
# PYTHON is one that may have pandas; without, that row is left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${BUILD:-build/release}
python=${PYTHON:-python3}
events=${1:-1000000}
work=$(mktemp -d -p "$build" trace-rates.XXXXXX)
trap 'rm -rf "$work"' EXIT
cmake --build "$build" --target trace_rates trace_scale >/dev/null

cat >"$work/peer.py" <<'PY'
import json, resource, sys, time

pandas = None
if sys.argv[1] == "pandas":
    import pandas

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
begin = time.process_time()
with open(sys.argv[2]) as file:
    events = json.load(file)["traceEvents"]
if pandas:
    events = pandas.DataFrame(events)
seconds = time.process_time() - begin
print(len(events), f"{seconds:.4f}", (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
PY

# row NAME COMMAND...: a line of the table. The command prints events, CPU seconds and bytes of memory.
row() {
  local name=$1 best="" count seconds bytes
  shift
  for _ in 1 2 3; do
    read -r count seconds bytes < <("$@")
    if [[ -z $best ]] || awk "BEGIN { exit !($seconds < ${best#* }) }"; then best="$count $seconds"; fi
  done
  awk -v name="$name" -v count="$count" -v seconds="${best#* }" -v bytes="$bytes" -v file="${size:-0}" 'BEGIN {
    printf "%-28s %10d %9.3f %12.2f %10.0f %12.0f\n", name, count, seconds, count / seconds / 1e6, file / seconds / 1e6, bytes / count }'
}

"$build/bin/trace_rates" make "$work/rank0.json" "$events"
size=$(stat -c %s "$work/rank0.json")
gzip -1 -k "$work/rank0.json"
printf '%-28s %10s %9s %12s %10s %12s\n' "" events "CPU s" "M events/s" "MB/s" "bytes/event"
row "JSON" "$build/bin/trace_rates" read "$work/rank0.json"
row "JSON, gzip" "$build/bin/trace_rates" read "$work/rank0.json.gz"
if command -v zstd >/dev/null; then
  zstd -q -k "$work/rank0.json"
  row "JSON, zstd" "$build/bin/trace_rates" read "$work/rank0.json.zst"
fi
"$build/bin/trace_scale" write "$work/own" --ranks 32 --steps "$((events / 5000))" >/dev/null
json_size=$size size=$(du -sB1 "$work/own" | cut -f1)
row "own format, 32 ranks" "$build/bin/trace_rates" read "$work/own"
size=$json_size
row "Python json" "$python" "$work/peer.py" json "$work/rank0.json"
if "$python" -c 'import pandas' 2>/dev/null; then
  row "Python json, pandas" "$python" "$work/peer.py" pandas "$work/rank0.json"
else
  echo "$python has no pandas: its row is left out"
fi
