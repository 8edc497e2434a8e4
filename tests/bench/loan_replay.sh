#!/usr/bin/env bash
# Loans and elastic jobs on the busiest 15 days of Philly, scaled to the clusters of the paper on Aryl (3,544 and 4,160 GPUs):
# queueing, JCT, usage and preemptions by scheduler, and a picture of two days. The demand of inference is the published curve
# of Alibaba's instances, stretched to 42 - 95 % of its nodes; and, with a day's rhythm, a sine of the same range. Each with the
# default overheads of preemption and scaling, which loan_overheads.sh measures, without any, and with 600 and 300 s.
# usage: loan_replay.sh [BUILD] [DIRECTORY FOR THE RESULTS]        takes a minute
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${1:-build/release}")
data=$(realpath ../shared/data/cluster) || { echo "../shared/data/cluster is not here" && exit 77; }
out=${2:-$(mktemp -d)}
mkdir -p "$out"
cat >"$out/policy.toml" <<TEXT
[jobs]
days = 15
copies = 1.6       # 45,294 jobs
gpus_times = 4     # of 1 to 64 GPUs: 95 % of training's own
elastic_percent = 20
curves = ["$data/pollux_scalability_bert.csv", "$data/pollux_scalability_imagenet.csv",
          "$data/pollux_scalability_yolov3.csv", "$data/pollux_scalability_cifar10.csv"]
[demand]
low_percent = 42
high_percent = 95
TEXT
python3 -c '
import math
print("time_s,nodes")
for minute in range(0, 15 * 1440, 5):
    print(f"{60 * minute},{260 + 200 * math.cos(2 * math.pi * (minute / 1440 - 0.6)) + 7 * (minute * 7919 % 11):.0f}")
' >"$out/daily.csv"
overheads() { # SECONDS SECONDS: the policy with these, of a preemption and of scaling
  sed "/^\[jobs\]/a preempt_overhead = \"$1s\"\nscale_overhead = \"$2s\"" "$out/policy.toml"
}
overheads 0 0 >"$out/policy-none.toml"
overheads 600 300 >"$out/policy-large.toml"
for demand in "$data/alibaba_dlrm_inference.csv.gz" "$out/daily.csv"; do
  for policy in policy-none policy-large policy; do
    echo "== $(basename "$demand"), $policy"
    "$build/bin/ms-loan" simulate --jobs "$data/philly_days_0_70.csv.gz" --demand "$demand" --policy "$out/$policy.toml" \
      --samples "$out/samples.csv" | tee "$out/$(basename "$demand").$policy.table"
  done
done
python3 tests/bench/loan_usage.py "$out/samples.csv" both >"$out/usage.svg"
echo "the picture of two days: $out/usage.svg"
