#!/usr/bin/env bash
# The gpt-124m shape (batch 4 x 512) on this machine: tokens/s in bf16 and fp32, the share of time in GEMMs and
# a table of the rest, start-up time, and memory against the plan.  usage: tests/bench/first_look.sh [STEPS]
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=build/release/bin
steps=${1:-8}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Random bytes of text are enough: speed does not depend on what the tokens say.
head -c 3000000 /dev/urandom | base64 -w 0 >"$work/noise"
"$bin/ms-data" encode --tokenizer byte --output "$work/text" "$work/noise" >/dev/null 2>&1
# Start-up: a whole run of one step on eight ranks, from exec to exit; the best of five.
/usr/bin/env python3 - "$bin/ms-train" "$work" <<'PY'
import subprocess, sys, time
best = 1e9
for _ in range(5):
    start = time.perf_counter()
    subprocess.run([sys.argv[1], "run", "configs/tiny-3d.toml", "--set", f"data.train={sys.argv[2]}/text", "--set",
                    f"run.dir={sys.argv[2]}/start", "--set", "train.steps=1", "--set", "train.eval_every=0", "--set",
                    "optim.warmup_steps=0", "--set", "run.sample_tokens=0"], check=True, capture_output=True)
    best = min(best, time.perf_counter() - start)
print(f"start-up: one step on eight ranks and out again in {best:.3f} s")
PY
for dtype in bf16 fp32; do
  args=(configs/gpt-124m.toml --set data.train="$work/text" --set train.dtype="$dtype" --set train.steps="$steps"
    --set train.eval_every=0 --set optim.warmup_steps=0)
  "$bin/ms-train" plan "${args[@]}" --json >"$work/plan.json"
  /usr/bin/env python3 - "$bin/ms-train" "$work" "$dtype" "${args[@]}" <<'PY'
import json, resource, subprocess, sys
tool, work, dtype, args = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
run = f"{work}/{dtype}"
subprocess.run([tool, "run", *args, "--set", f"run.dir={run}"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
plan = json.load(open(f"{work}/plan.json"))["stages"][0]["memory_bytes"]["total"]
rows = [json.loads(line) for line in open(f"{run}/metrics.jsonl")][2:]  # the first steps make primitives and touch pages
total = sum(r["step_s"] for r in rows)
tokens = sum(r["tokens_per_s"] * r["step_s"] for r in rows)
print(f"{dtype}: {tokens / total:.0f} tokens/s, memory {peak / 1e9:.2f} GB, plan {plan / 1e9:.2f} GB ({peak / plan:.3f} x)")
seconds = {}
for r in rows:
    for name, value in r["seconds"].items():
        seconds[name] = seconds.get(name, 0) + value
for name, value in sorted(seconds.items(), key=lambda item: -item[1]):
    print(f"  {name:<12} {100 * value / total:5.1f} %")
print(f"  {'other':<12} {100 * (1 - sum(seconds.values()) / total):5.1f} %")
PY
done
