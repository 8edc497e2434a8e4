#!/usr/bin/env bash
# Documents of long-tailed lengths, packed: how even attention's work is over dp ranks in the run's order and balanced, and how
# much faster steps are on two dp ranks that have a core each.
# usage: attention_balance.sh BUILD [ROUNDS]
# Exit status: 0 measured, 1 something failed, 2 usage.
set -euo pipefail
if (($# < 1)); then
  sed -n '2,4p' "$0" >&2
  exit 2
fi
bin=$(cd "$1" && pwd)/bin
rounds=${2:-5}
# shellcheck source=tests/support/training.sh
. "$(dirname "$0")/../support/training.sh"
dir=$(mktemp -d)
trap 'cd / && rm -rf "$dir"' EXIT
cd "$dir"

# Lognormal lengths, as those of pages of the web: the median is 400 tokens, and one in a hundred has more than 13,000.
python3 - >text.jsonl <<'PY'
import json, random
random.seed(1)
for _ in range(6000):
    print(json.dumps({"text": "a" * max(1, int(random.lognormvariate(6.0, 1.5)))}))
PY
"$bin/ms-data" encode --tokenizer byte --field text --output text text.jsonl >/dev/null
tiny_config model.seq=4096 model.max_positions= data.reset_attention=true train.global_batch=64 train.microbatch=1 mesh.dp=8 \
  train.steps=200 'run.dir="run"' run.sample_tokens=0 train.eval_every=0 data.valid_fraction=0 >c.toml

for step in 1 5 9 13 17; do
  "$bin/ms-data" sample c.toml --step $step --json
done | python3 -c '
import json, sys
decoder, text, rows = json.JSONDecoder(), sys.stdin.read().strip(), []
while text:
    row, end = decoder.raw_decode(text)
    rows.append(row["attention_max_over_mean"])
    text = text[end:].strip()
for name, key in (("in the order of the run", "run_order"), ("balanced", "fed")):
    values = [row[key] for row in rows]
    print(f"{name:24} max/mean over 8 dp ranks: mean {sum(values) / len(values):.3f}, worst {max(values):.3f}")
'

# In turns, since the machine is noisy: the last of a few steps.
seconds() {
  rm -rf run
  "$bin/ms-train" run c.toml --set mesh.dp=2 --set train.steps=6 --set train.global_batch=16 --set model.hidden=64 \
    --set model.layers=4 --set data.balance="$1" >/dev/null 2>log || { cat log >&2 && exit 1; }
  python3 -c 'import json; print(min(json.loads(line)["step_s"] for line in list(open("run/metrics.jsonl"))[1:]))'
}
for _ in $(seq "$rounds"); do echo "$(seconds true) $(seconds false)"; done | python3 -c '
import statistics, sys
ratios = [b / a for a, b in (map(float, line.split()) for line in sys.stdin)]
print(f"a step in the order of the run takes {statistics.median(ratios):.3f} times as long as balanced, {min(ratios):.3f} to {max(ratios):.3f}")
'
