#!/usr/bin/env bash
# How near ms-train simulate comes to runs on this machine, with a cluster file that ms-train calibrate has just written:
# seconds of a step, in turns of three runs each.   usage: tests/bench/calibration.sh    (about five minutes)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bin=${BUILD:-build/release}/bin
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for i in $(seq 400); do echo "line $i: the quick brown fox jumps over the lazy dog, $((i * 7919 % 1000)) times"; done >"$dir/text"
"$bin/ms-data" encode --tokenizer byte --output "$dir/text" "$dir/text" >/dev/null 2>&1

run=(--set data.train="$dir/text" --set run.dir="$dir/run" --set train.steps=30 --set train.eval_every=0
  --set run.sample_tokens=0 --set optim.warmup_steps=4)
middle() { sort -g | sed -n 2p; }

echo "ranks dtype  what                              predicted  measured      off"
for of in "8 fp32 dp=2 pp=2 tp=2" "8 bf16 dp=2 pp=2 tp=2" "2 fp32 dp=1 pp=1 tp=2" "1 fp32 dp=1 pp=1 tp=1"; do
  read -r ranks dtype mesh <<<"$of"
  "$bin/ms-train" calibrate --ranks "$ranks" --dtype "$dtype" --output "$dir/cluster.toml" 2>/dev/null
  for model in hidden=160 hidden=320; do
    set=(--set train.dtype="$dtype" --set "model.$model" --set train.microbatch=2)
    for axis in $mesh; do set+=(--set "mesh.$axis"); done
    predicted=$("$bin/ms-train" simulate configs/tiny-3d.toml --cluster "$dir/cluster.toml" "${set[@]}" --json |
      python3 -c 'import json, sys; print(json.load(sys.stdin)["tokens_per_s"])')
    measured=$(for _ in 1 2 3; do
      "$bin/ms-train" run configs/tiny-3d.toml "${run[@]}" "${set[@]}" 2>/dev/null | sed -n 's/^tokens_per_s *//p'
    done | middle)
    python3 -c "
predicted, measured = 2048 / $predicted, 2048 / $measured
print(f'{$ranks:5} {\"$dtype\":6} {\"$mesh $model\":32} {predicted:9.4f}s {measured:8.4f}s {100 * (predicted / measured - 1):+7.1f} %')"
  done
done
