#!/usr/bin/env bats
# A mixture of experts on four nodes that resumes on two, then on one: fewer ranks share the experts each time, and the run
# goes on from the same state.

bats_require_minimum_version 1.5.0

@test "experts over four nodes, then two, then one: the same state, and the losses of an undisturbed run" {
  export kit=$BATS_TEST_TMPDIR/kit
  mkdir -p "$kit"
  cp "$BATS_TEST_DIRNAME/../support/training.sh" "$kit"
  # shellcheck source=tests/support/training.sh
  . "$kit/training.sh"
  tiny_config 'model.family="llama"' model.experts=8 model.expert_ffn_hidden=64 train.steps=12 train.global_batch=16 \
    train.microbatch=1 train.eval_every=0 'optim.schedule="constant"' optim.warmup_steps=0 checkpoint.every_steps=4 \
    checkpoint.async=false run.sample_tokens=0 >"$kit/c.toml"
  "$BATS_TEST_DIRNAME/run" 4 -- bash -euo pipefail -c "$(cat <<'BASH'
cp "$kit"/* "$CLUSTER_DIR/shared"
cd "$CLUSTER_DIR/shared"
. ./training.sh
trap '[[ $? -eq 0 ]] || tail -n 40 ./log*' EXIT
training_text 400
train() { # RANKS STEPS RUN
  srun --mpi=pmix --nodes="$1" --ntasks="$1" ms-train run c.toml --set mesh.dp="$1" --set mesh.ep="$1" --set train.steps="$2" \
    --set run.dir="$3" --set checkpoint.dir="$3/checkpoints" >"log.$3.$1" 2>&1
}
train 4 12 undisturbed
train 4 4 run
train 2 8 run
train 1 12 run
resumed() { sed -n 's/.*"step":\([0-9]*\),.*"resumed":{"step":\([0-9]*\),.*/\1 \2/p' run/metrics.jsonl | xargs; }
[[ $(resumed) == '5 4 9 8' ]]
# What another number of ranks loads is what was saved, bit by bit: parameters and moments.
state() { ms-ckpt hash "$1" 2>hash.err | cut -d ' ' -f 1; } # CHECKPOINT
for ranks in 2 1; do
  ms-ckpt reshard run/checkpoints/step-00000004 -o "on$ranks" --dp $ranks --set mesh.ep=$ranks
  ms-ckpt diff run/checkpoints/step-00000004 "on$ranks" | grep -q 'the same training state'
  [[ $(state run/checkpoints/step-00000004) == "$(state "on$ranks")" ]]
done
[[ $(state run/checkpoints/step-00000004) == "$(state undisturbed/checkpoints/step-00000004)" ]]
# The order of sums over dp is another one: losses are equal but for their last bits.
python3 - <<'PYTHON'
import json
losses = [[json.loads(line)["loss"] for line in open(f"{run}/metrics.jsonl")] for run in ("undisturbed", "run")]
assert len(losses[0]) == len(losses[1]) == 12 and losses[0][:4] == losses[1][:4], losses
assert max(abs(a - b) for a, b in zip(*losses)) < 1e-6, losses
PYTHON
BASH
)"
}
