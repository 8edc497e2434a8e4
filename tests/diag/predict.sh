#!/usr/bin/env bash
# ms-diag predict as an operator uses it: evaluate, train and score on the published faults of 400 nodes and on generated
# telemetry; and all that it must refuse to know.
# usage: predict.sh MS-DIAG SHARED-DIR
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/../tools/expect.sh"
trace=$2/data/faults/infinitehbd_days_0_260.json
data=$(realpath "$(dirname "$0")/../bench/predict_data.py")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

# true_of EXPRESSION: of the JSON document j in out; by(MODEL) is a row of its models.
true_of() {
  python3 - "$1" <<'EOF' || fail "not so: $1"
import json, sys
j = json.load(open("out"))
by = lambda name: next(row for row in j["models"] if row["model"].startswith(name))
sys.exit(not eval(sys.argv[1]))
EOF
}

# The year of faults: what a rule without a model gets is known from it, whoever computes it.
if [ -r "$trace" ]; then
  python3 "$data" nodes "$trace" 400 >nodes.csv
  expect 0 'precision_at_k' predict evaluate --faults "$trace" --nodes nodes.csv --models logistic --seeds 3 --json
  true_of 'j["units"] == 400 and 0.05 < j["base_rate"] < 0.12'
  true_of 'by("failed recently")["precision_at_k"]["value"] > 1.5 * j["base_rate"]'
  true_of 'by("logistic")["precision_at_k"]["value"] > 1.5 * j["base_rate"]'
  true_of 'by("shuffled")["pr_auc"]["low"] < j["base_rate"] < by("shuffled")["pr_auc"]["high"]'
  true_of 'by("ceiling: the future")["pr_auc"]["value"] == 1'
  true_of 'all(m[f]["low"] <= m[f]["high"] for m in j["models"] for f in ("precision_at_k", "pr_auc"))'
  true_of 'by("logistic")["skill"]'
  expect 0 'failed recently' predict evaluate --faults "$trace" --nodes 400 --models logistic --seeds 1
  expect 0 'of the 20 likeliest' predict train model --faults "$trace" --nodes nodes.csv --models logistic
  expect 0 'no chance is above what that allows' predict score model --faults "$trace" --nodes 400 --top 5
  expect 0 'faults in the last|the course of faults' predict score model --faults "$trace" --nodes nodes.csv --top 5
  expect 0 '^unit,chance,reasons' predict score model --faults "$trace" --nodes nodes.csv --top 5 --csv
  expect 0 '"evaluated"' predict score model --faults "$trace" --nodes nodes.csv --top 5 --json
  true_of 'len(j["units"]) == 5 and all(0 <= u["chance"] <= j["evaluated"]["high"] for u in j["units"])'
  true_of 'j["skill"] and j["evaluated"]["low"] > j["evaluated"]["base_rate"]'
  expect 3 'cannot know: all [0-9]+ units of the files have failed' predict evaluate --faults "$trace" --models logistic
  sed 's/"target":"\*"/"target":"x"/' model >changed
  expect 3 'is damaged: its checksum differs' predict score changed --faults "$trace"
  head -c 1000 model >short
  expect 3 'is damaged' predict score short --faults "$trace"
fi

# Generated telemetry: what the nodes show can be learned, and the ceiling is above it.
python3 "$data" generate made --nodes 1000 --days 90 >/dev/null
made=(--faults made/faults.csv --nodes made/nodes.csv --telemetry made/telemetry.csv --oracle oracle)
short=(--horizon 14d --window 45d --step 3d --top 30 --seeds 1)
expect 0 'cascade' predict evaluate "${made[@]}" "${short[@]}" --models logistic,cascade --json
true_of 'by("ceiling: oracle")["pr_auc"]["value"] > 2 * j["base_rate"]'
true_of 'by("logistic")["precision_at_k"]["value"] > 1.5 * max(j["base_rate"], by("shuffled")["precision_at_k"]["value"])'
expect 0 'mlp of 1000 units' predict train net "${made[@]}" "${short[@]}" --models mlp
expect 0 'UNIT +(CHANCE +)?WHAT RAISES' predict score net "${made[@]}" --ranking
grep -q oracle out && fail 'the model saw what the generator knew'
expect 0 'sigma (above|below) the median' predict score net "${made[@]}" --ranking
expect 3 '\-\-horizon 7d is not the model.s: it is about failures within 14 days' predict score net "${made[@]}" --horizon 7d
expect 3 '\-\-models gbdt is not the model.s: it is mlp' predict score net "${made[@]}" --models gbdt
expect 3 '\-\-horizon 14 needs a unit' predict evaluate "${made[@]}" --horizon 14
expect 3 '\-\-out 4 needs a unit' predict evaluate "${made[@]}" "${short[@]}" --models logistic --out 4
expect 3 "cannot know: the data have no metric" predict score net --faults made/faults.csv --nodes made/nodes.csv --ranking
grep -v ',n000[0-9],' made/telemetry.csv >part.csv
expect 0 'cannot know: [0-9]+ units without a sample in the last week: n000[01], ' \
  predict score net --faults made/faults.csv --nodes made/nodes.csv --telemetry part.csv --ranking

# Noise: whoever fails is drawn by lot, and no model may say that it knows.
python3 "$data" noise noise.csv --nodes 100 --days 365 >/dev/null
noise=(--faults noise.csv --nodes 100 --models logistic)
expect 0 'no skill shown: logistic' predict evaluate "${noise[@]}" --seeds 1
expect 0 'no skill shown: score gives no chances' predict train luck "${noise[@]}"
expect 3 'cannot know: the model showed no skill: of its 20 likeliest .* by shuffled labels' predict score luck "${noise[@]}"
expect 0 'an order of which no skill was shown' predict score luck "${noise[@]}" --ranking
grep -q CHANCE out && fail 'a model without skill gave chances'
expect 0 '"skill": false' predict score luck "${noise[@]}" --ranking --json
true_of 'j["units"] and all(u["chance"] is None for u in j["units"])'
cp out order.json
expect 3 'does not say that the model showed skill' avoid order.json
sed '1!s/^n/x.n/' noise.csv >long.csv
(echo node; cut -d, -f1 noise.csv | sed 1d | sort -u) >short.csv
expect 3 'units that --faults names are not in --nodes' predict evaluate --faults long.csv --nodes short.csv --models logistic
expect 0 'by models of all units. past, 1 fold, 1 seed' predict evaluate "${noise[@]}" --folds 1 --seeds 1
mkfifo pipe
expect 3 'pipe is no regular file' predict evaluate --faults pipe --nodes 100
expect 3 '/dev/zero is no regular file' predict evaluate --faults noise.csv --nodes /dev/zero
expect 3 '/dev/zero' predict score /dev/zero --faults noise.csv

# What cannot be known.
printf 'node,time,kind\na,2026-01-01 00:00:00,GPU\nb,2026-03-01 00:00:00,GPU\n' >few.csv
expect 3 'cannot know: the data are of 59 days' predict evaluate --faults few.csv --nodes 40 --models logistic
expect 3 'cannot know: .* only [01] units? failed' predict train none --faults few.csv --nodes 40 --models logistic
[ -e none ] && fail 'a model of nothing was written'
printf 'node,time,kind\n' >empty.csv
expect 3 'cannot know: there is not one fault' predict evaluate --faults empty.csv --models logistic
# What is wrong.
printf 'node,time,kind\na,x,GPU\n' >bad.csv
expect 3 "bad.csv:2: time 'x' is neither" predict evaluate --models logistic --faults bad.csv
expect 3 '\-\-faults is missing' predict evaluate --models logistic
expect 3 "no model 'lstm'" predict evaluate --faults few.csv --models lstm
expect 3 'there is no action' predict guess
expect 3 'train takes one model' predict train model --faults few.csv --models logistic,mlp
expect 3 'name the file of the model' predict score --faults few.csv

exit $((failures > 0))
