#!/usr/bin/env bash
# ms-train simulate from the outside: what its JSON holds, the published shapes, traces that ms-tracepp reads, refusals.
# usage: ms_train_simulate_test.sh MS-TRAIN
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
tracepp=$(dirname "$tool")/ms-tracepp
configs=$(cd "$(dirname "$0")/../../configs" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
a100=$configs/clusters/a100-8x200g.toml

# holds EXPRESSION: of the JSON in out, as j.
holds() { python3 -c "import json; j = json.load(open('out')); assert $1, j" || fail "not so: $1"; }

# The names that others rely on, and numbers that belong together.
expect 0 '"iteration_s"' simulate "$configs/megascale/175b-megascale.toml" --cluster "$a100" --json \
  --set mesh.dp=192 --set train.global_batch=6144 --tokens 300e9
holds 'j["schema"] == 1 and j["world"] == 12288 and len(j["stages"]) == 8'
holds 'set(j["mfu"]) == {"gemm", "causal", "full", "reported"} and 0.4 < j["mfu"]["reported"] < 0.7'
holds 'abs(j["tokens_per_s"] * j["iteration_s"] - 6144 * 2048) < 1'
holds 'abs(sum(j["parts_s"].values()) - j["iteration_s"]) < 1e-6'
holds 'j["iteration_interval_s"][0] < j["iteration_s"] < j["iteration_interval_s"][1]'
holds 'abs(j["days"] - 300e9 / j["tokens_per_s"] / 86400) < 1e-6'
expect 0 '"iteration_s"' simulate "$configs/megascale/175b-megascale.toml" --cluster "$a100" --json --set-cluster noise.error=0
holds '"iteration_interval_s" not in j'
expect 2 'train.fp8' simulate "$configs/megascale/175b-megascale.toml" --cluster "$a100" --set train.fp8=true
for model in 175b 530b; do
  expect 0 '"tokens_per_s"' simulate "$configs/megascale/$model-megatron.toml" --cluster "$a100" --json
  slow=$(python3 -c "import json; print(json.load(open('out'))['iteration_s'])")
  expect 0 '"tokens_per_s"' simulate "$configs/megascale/$model-megascale.toml" --cluster "$a100" --json
  holds "j['iteration_s'] < 0.9 * $slow"
done
for config in "$configs"/*.toml; do
  expect 0 '^memory of a rank' plan "$config"
  expect 0 '^iteration' simulate "$config" --cluster "$configs/clusters/h100-8x400g.toml"
done
moe=(simulate "$configs/moe-small.toml" --cluster "$configs/clusters/h100-8x400g.toml" --set mesh.dp=8 --set mesh.ep=8
  --set-cluster node.step=0 --set train.global_batch=32)
expect 0 '"iteration_s"' "${moe[@]}" --json
even=$(python3 -c "import json; print(json.load(open('out'))['iteration_s'])")
expect 0 '"iteration_s"' "${moe[@]}" --json --expert-load zipf=1
holds "j['iteration_s'] > 1.05 * $even and j['stages'][0]['expert_load'] > 2"
expect 0 'even share of the rows' "${moe[@]}"
expect 2 'no line of' "${moe[@]}" --expert-load "$a100"
expect 2 'has no experts' simulate "$configs/tiny-3d.toml" --cluster "$a100" --expert-load uniform
expect 0 'of the stage that computes longest' simulate "$configs/tiny-3d.toml" --cluster "$a100"
for tokens in 0 -1 1e30; do
  expect 2 'tokens: must be 1 to 1e.18' simulate "$configs/tiny-3d.toml" --cluster "$a100" --tokens=$tokens
done
expect 0 'tokens take' simulate "$configs/tiny-3d.toml" --cluster "$a100" --tokens 1e9

# Collisions of flows, of a fabric whose leaf switches have 64 hosts as the cluster file says. The pipeline passes the spines.
fabric=$configs/fabrics/a100-tor-200g.toml
wide=(simulate "$configs/megascale/175b-megascale.toml" --cluster "$a100" --json --set mesh.dp=64 --set train.global_batch=1024)
expect 0 '"iteration_s"' "${wide[@]}"
without=$(python3 -c "import json; print(json.load(open('out'))['iteration_s'])")
holds '"network" not in j'
expect 0 '"network"' "${wide[@]}" --fabric "$fabric"
holds "j['network']['share']['pp'] < 1 and j['iteration_s'] >= $without"
holds "abs(j['iteration_s'] - j['network']['cost_s'] - $without) < 1e-9"
sed 's/^\[spine\]/[ecmp]\nhash = "adaptive"\n&/' "$fabric" >adaptive.toml
expect 0 '"network"' "${wide[@]}" --fabric adaptive.toml
holds "j['iteration_s'] == $without and j['network']['share']['pp'] == 1 and j['network']['cost_s'] == 0"
expect 0 '^network +collisions leave ' simulate "$configs/tiny-3d.toml" --cluster "$a100" --fabric "$fabric" \
  --set mesh.dp=8 --set train.global_batch=64
expect 2 'network.nodes_per_leaf=32' "${wide[@]}" --fabric "$configs/fabrics/h100-rails-400g.toml"
expect 2 'network.spine_share=1' "${wide[@]}" --fabric "$fabric" --set-cluster network.spine_share=0.5
expect 2 'nowhere.toml' "${wide[@]}" --fabric nowhere.toml

# The published rows.
MS_TRAIN=$tool python3 -B "$configs/../tests/bench/megascale_tables.py" --check >out 2>err || fail "MegaScale's tables"

# A rank that is made slow is found in the traces; a healthy run shows none.
tiny=("$configs/tiny-3d.toml" --cluster "$a100" --set-cluster noise.spread=0)
expect 0 'iteration' simulate "${tiny[@]}" --trace healthy
expect 0 'iteration' simulate "${tiny[@]}" --slow rank=5:1.2 --trace slow
# Each step of a trace is as long as an iteration, the host's part included, the first and the last one, too.
expect 0 'iteration +3[.]' simulate "${tiny[@]}" --set-cluster node.step=3s --trace host --steps 3
"$tracepp" report host >out 2>err || fail "ms-tracepp report: $(cat err)"
grep -q 'median 3.0s' out || fail "a step of the trace takes not what the simulator says: $(head -n 5 out)"
[[ $(find slow -name 'rank-*.mst' | wc -l) -eq 8 ]] || fail "not one trace a rank"
"$tracepp" stragglers --json slow >out 2>err || fail "ms-tracepp stragglers: $(cat err)"
holds 'j["suspects"][0]["rank"] == 5'
"$tracepp" stragglers --json healthy >out 2>err || fail "ms-tracepp stragglers: $(cat err)"
holds 'not any(f["fault"] for f in j["findings"])'

# Refusals: one message that says what to do.
expect 2 '--cluster FILE is missing' simulate "$configs/tiny-3d.toml"
expect 2 'nowhere.toml' simulate "$configs/tiny-3d.toml" --cluster nowhere.toml
expect 2 "^ms-train: error: --set-cluster network.rat=3: .*did you mean 'network.rate'" simulate "${tiny[@]}" --set-cluster network.rat=3
expect 2 '^ms-train: error: --recovery recovery.launch=8: recovery.launch: 8 needs a unit' simulate "${tiny[@]}" \
  --failures 0.01 --days 1 --recovery recovery.launch=8
expect 0 '^cluster +8 x A100.* on 1 node; a node has 8$' simulate "${tiny[@]}"
expect 2 'no link between nodes' simulate "${tiny[@]}" --set-cluster network.rate=0 --set-cluster node.ranks=4
expect 2 'no link inside a node' simulate "${tiny[@]}" --set-cluster node.rate=0
expect 2 'stage 0 of 8 needs' simulate "$configs/megascale/175b-megatron.toml" --cluster "$a100" \
  --set-cluster device.capacity=16GiB
grep -q 'hint: --set .* would need' err || fail "no hint of what would fit: $(cat err)"
expect 2 'there are ranks 0 to 7' simulate "${tiny[@]}" --slow rank=8:2
expect 2 '--steps needs --trace' simulate "${tiny[@]}" --steps 3
expect 2 'bf16 or fp32' calibrate --dtype fp16
expect 2 'no layout over 8 ranks fits' tune "${tiny[@]}" --set-cluster device.capacity=1MiB
expect 2 "the model cannot be sharded over 7 ranks: .*dp does not divide train.global_batch" tune "${tiny[@]}" --world 7
grep -q 'GiB' err && fail "memory is blamed for a world that does not divide"
timeout 300 "$tool" tune "${tiny[@]}" --output nowhere/best.toml >out 2>err
[ $? -eq 2 ] || fail "tune does not refuse where it cannot write"
grep -q "cannot create 'nowhere/best.toml': No such file" err || fail "tune does not say where it cannot write"
expect 0 'considered' tune "${tiny[@]}" --output best.toml
"$tool" check best.toml --set data.train=x --no-files >out 2>err || fail "the tuner's choice is no configuration: $(cat err)"
expect 0 'considered' tune "${tiny[@]}" --set train.dtype=bf16 --output gpus.toml
grep -q '^device = "cuda"$' gpus.toml || fail "a layout for A100s is to run on CPUs"
expect 2 'rank=17:1.2' simulate "${tiny[@]}" --slow quick
expect 0 'MS-CLUSTER' --man-cluster

[ "$failures" -eq 0 ] && echo "all as expected" || exit 1
