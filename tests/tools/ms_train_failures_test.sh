#!/usr/bin/env bash
# ms-train simulate --failures from the outside: tables, JSON, a published trace's form, refusals.
# usage: ms_train_failures_test.sh MS-TRAIN
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
configs=$(cd "$(dirname "$0")/../../configs" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
job=(simulate "$configs/megascale/175b-megascale.toml" --cluster "$configs/clusters/a100-8x200g.toml" --days 20 --seeds 3)
one_seed=("${job[@]:0:${#job[@]}-1}" 1)

# holds EXPRESSION: of the JSON in out, as j.
holds() { python3 -c "import json; j = json.load(open('out')); assert $1, j" || fail "not so: $1"; }

expect 0 "best" "${job[@]}" --failures 0.02:6h --spares 4
grep -q "by Daly's formula" out || fail "no interval by Daly's formula"
expect 0 '"effective"' "${job[@]}" --failures 0.02:6h --spares 4 --json
holds 'j["schema"] == 1 and j["nodes"] == 32 and j["spares"] == 4 and j["seeds"] == 3 and j["driver"]'
holds 'abs(sum(j["parts"].values()) - 1) < 1e-9 and j["parts"]["effective"] == j["effective"] and 0.5 < j["effective"] < 1'
holds 'max(r["effective"] for r in j["intervals"]) == max(r["effective"] for r in j["intervals"] if r["interval_s"] == j["best_interval_s"])'
with=$(python3 -c "import json; print(json.load(open('out'))['effective'])")
cp out first
expect 0 '"effective"' "${job[@]}" --failures 0.02:6h --spares 4 --json
cmp -s first out || fail "the same seeds give other numbers"
expect 0 '"effective"' "${job[@]}" --failures 0.02:6h --spares 4 --json --without-driver
holds "j['effective'] < $with and not j['driver']"
expect 0 '"effective"' "${job[@]}" --failures 0 --json
holds 'j["interruptions"] == 0 and "daly" not in j and j["parts"]["lost"] == 0'

expect 0 'of the time; --seeds 2 or more gives errors' "${one_seed[@]}" --failures 0.02:6h
expect 0 '"effective_error": null' "${one_seed[@]}" --failures 0.02:6h --json

# The trace's form, as published.
cat >trace.json <<'EOF'
[{"node_id":"a","event_time":3.5,"event_type":"fault_start","fault_type":{"Level":"Hardware Failure","Class":"GPU","Desc":"GPU Lost"}},
{"node_id":"b","event_time":4.25,"event_type":"fault_start","fault_type":{"Level":"Hardware Failure","Class":"NIC","Desc":"NIC Lost"}},
{"node_id":"a","event_time":5,"event_type":"fault_end","fault_type":{"Level":"Hardware Failure","Class":"GPU","Desc":"GPU Lost"}}]
EOF
expect 0 '"per_node_day"' "${job[@]}" --failures trace.json --trace-nodes 10 --json
holds 'abs(j["faults"]["per_node_day"] - 2 / 50) < 1e-9'
printf 'kind,per_node_day,repair\ncrash,0.01,0.5\nslow,0.01,1\n' >hazards.csv
expect 0 '"slow"' "${job[@]}" --failures hazards.csv --json --recovery recovery.slow_factor=1.5
holds 'j["parts"]["slow"] > 0'

# Storage that is away, and a job that shrinks.
expect 0 'no time for repair' "${job[@]}" --failures 0.02 --storage-outages 1:2h
grep -q '^storage .*1 outages per day, 2h00m on average' out || fail "no word of the outages"
expect 0 '"effective"' "${job[@]}" --failures 0.02:6h --json
plain=$(python3 -c "import json; print(json.load(open('out'))['effective'])")
expect 0 '"effective"' "${job[@]}" --failures 0.02:6h --storage-outages 2:3h --json
holds "j['effective'] < $plain and j['parts']['storage'] > 0 and j['storage_outages'] == {'per_day': 2, 'mean_s': 10800}"
expect 0 '"effective"' "${job[@]}" --failures 0.02:6h --shrink --json
holds "j['effective'] > $plain and j['parts']['shrunk'] > 0 and j['shrinks'] > 0 and j['smaller_sizes'][0]['nodes'] < 32"
holds 'abs(sum(j["parts"].values()) - 1) < 1e-9 and all(s["slower"] > 1 for s in j["smaller_sizes"])'
expect 0 '^smaller .*times as long a step' "${job[@]}" --failures 0.02:6h --shrink

# Refusals: one message that says what to do.
expect 2 '--storage-outages 2: it is 0 to 1000 a day' "${job[@]}" --failures 0.1 --storage-outages 2
expect 2 '--shrink is what ms-driver does' "${job[@]}" --failures 0.1 --shrink --without-driver
expect 2 '--shrink needs --failures' simulate "${job[@]:1:3}" --shrink
expect 2 'allows no smaller mesh.dp' "${job[@]}" --failures 0.1 --shrink --set mesh.dp_min=4
expect 2 '--failures needs --days N' simulate "${job[@]:1:3}" --failures 0.1
expect 2 '--spares needs --failures' simulate "${job[@]:1:3}" --spares 3
expect 2 '--trace is about one step' "${job[@]}" --failures 0.1 --trace t
expect 2 'with --trace-nodes N' "${job[@]}" --failures trace.json
expect 2 'nowhere.csv' "${job[@]}" --failures nowhere.csv
expect 2 "did you mean 'recovery.launch'" "${job[@]}" --failures 0.1 --recovery recovery.lunch=3s
expect 2 'recovery.located' "${job[@]}" --failures 0.1 --recovery recovery.located=2
expect 2 'checkpoint.every is 0' "${job[@]}" --failures 0.1 --set checkpoint.every=0
expect 2 'above 0 and at most 3650' simulate "${job[@]:1:3}" --failures 0.1 --days 0
printf 'node,begin,repair\na,1,-2\n' >bad.csv
expect 2 "bad.csv:2: repair '-2'" "${job[@]}" --failures bad.csv
expect 0 'recovery.save_stall' --man

[ "$failures" -eq 0 ] && echo "all as expected" || exit 1
