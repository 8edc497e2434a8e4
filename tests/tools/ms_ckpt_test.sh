#!/usr/bin/env bash
# ms-ckpt from the outside: what it shows of checkpoints that a run made, what it finds wrong with damaged ones, what it
# changes and what it refuses, with the exit codes.  usage: ms_ckpt_test.sh MS-CKPT
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
# shellcheck source=tests/support/training.sh
. "$(dirname "$0")/../support/training.sh"
bin=$(cd "$(dirname "$tool")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

# json EXPRESSION: of the document in `out`, as Python sees it.
json() {
  python3 -c 'import json, sys; d = json.load(open("out")); print(eval(sys.argv[1]))' "$1" 2>&1
}

# expect_json VALUE EXPRESSION
expect_json() {
  local got
  got=$(json "$2")
  [ "$got" = "$1" ] || fail "$2 is '$got', expected '$1'"
}

expect_names() { # DIR NAMES: the directory holds exactly these, besides the locks
  local found
  found=$(find "$1" -mindepth 1 -maxdepth 1 ! -name lock ! -name pin.lock -printf '%f\n' | sort | tr '\n' ' ')
  [ "$found" = "$2" ] || fail "$1 holds '$found', expected '$2'"
}

flip() { # FILE OFFSET: turns one bit
  local byte
  byte=$(od -An -tu1 -j"$2" -N1 "$1")
  printf '%b' "\\x$(printf %02x $((byte ^ 4)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

training_text 300 >/dev/null 2>&1 || fail "ms-data encode"
tiny_config model.layers=4 model.seq=16 mesh.dp=2 mesh.pp=1 mesh.tp=2 train.steps=6 'train.dtype="bf16"' \
  train.eval_every=0 'checkpoint.dir="ck"' checkpoint.every_steps=2 'checkpoint.when_busy="wait"' 'run.dir="runs/a"' \
  train.microbatch= >c.toml
"$bin/ms-train" run c.toml >out 2>err || {
  grep -q 'has no HDF5' err && echo "skipped: this build has no HDF5" && exit 77
  fail "the run that makes the checkpoints"
}
expect_names ck 'step-00000002 step-00000004 step-00000006 '

# Help and misuse.
expect 0 'prune' --help
for command in ls show verify diff hash reshard import export prune pin unpin repair bench; do
  expect 0 "$command" "$command" --help
done
expect 2 'command is missing'
expect 2 'frobnicate' frobnicate
for command in ls show verify hash prune\ --keep-last\ 1 repair bench; do
  # shellcheck disable=SC2086
  expect 2 'nowhere' $command nowhere
done
expect 2 'not a directory' show c.toml
# Where the directory that was named may be entered and not listed, that the checkpoint is not there is what counts.
mkdir -m 111 closed
other=()
[ "$(id -u)" -ne 0 ] || other=(setpriv --reuid 65534 --regid 65534 --clear-groups)
chmod 711 "$dir"
if "${other[@]}" "$tool" --version >/dev/null 2>&1; then
  "${other[@]}" "$tool" show closed/step-00000077 >out 2>&1
  [ $? -eq 2 ] || fail "a checkpoint that is not there, in a directory that may not be listed, is not the user's error"
  grep -q 'cannot open closed/step-00000077: No such file' out || fail "what is not there is not named"
fi
mkdir empty
expect 2 'no complete checkpoint' show empty
expect 2 'no complete checkpoint' hash empty
expect 2 'no committed checkpoint' verify empty
expect 0 'holds no checkpoint' ls empty
expect 0 '"schema": 1' ls --json empty
expect_json '[] None' 'str(d["checkpoints"]) + " " + str(d["resume_from"])'
expect 2 'is a checkpoint, expected a directory' ls ck/step-00000002
expect 2 'output DIR is missing' reshard ck
expect 2 'output DIR is missing' export ck
expect 2 "'onnx' is not known: hf" export --format onnx -o x ck
expect 2 'not a size' export --max-shard-size much -o x ck

# ls and show.
expect 0 'a run resumes from ck/step-00000006' ls ck
grep -Eq '^ +4 .* 2 x 1 x 1 x 2 +complete' out || fail "ls shows the mesh and the state"
expect 0 '"schema": 1' ls --json ck
expect_json '[2, 4, 6] True ck/step-00000006' \
  'str([c["step"] for c in d["checkpoints"]]) + " " + str(all(c["complete"] for c in d["checkpoints"])) + " " + d["resume_from"]'
expect 0 'the newest complete one is ck/step-00000006' show ck
grep -Eq '^step +6$' out || fail "show tells the step"
grep -Eq '^data +48 samples' out || fail "show tells the data position"
expect 0 '^mesh +4 ranks: dp 2 x cp 1 x pp 1 x tp 2' show ck/step-00000004/
expect 0 'weight, master, exp_avg, exp_avg_sq' show --params ck/step-00000004
expect 0 'every_steps = 2' show --config ck
expect 0 '"has_optimizer": true' show --json ck

# verify.
expect 0 'ck/step-00000002: sound' verify ck
[ "$(grep -c ': sound' out)" -eq 3 ] || fail "verify reads all of a directory"
expect 0 'step-00000006: sound' verify --newest ck
[ "$(grep -c ': sound' out)" -eq 1 ] || fail "verify --newest reads one"
expect 0 '"sound": true' verify --json ck/step-00000002

# Any flipped bit is found; a cut file, a missing one, a strange one, and a damaged manifest too.
damaged() { # PATTERN: `bad` is not sound, and is put back
  expect 1 "$1" verify bad
  rm -rf bad
  cp -r ck/step-00000004 bad
}
cp -r ck/step-00000004 bad
size=$(stat -c %s bad/rank-00001.h5)
for offset in 0 7 $((size / 3)) $((size / 2)) $((size - 1)); do
  flip bad/rank-00001.h5 "$offset"
  damaged 'rank-00001.h5'
done
size=$(stat -c %s bad/manifest.json)
for offset in 0 $((size / 2)) $((size - 4)); do
  flip bad/manifest.json "$offset"
  damaged 'manifest'
done
truncate -s -1 bad/rank-00000.h5
damaged 'rank-00000.h5'
rm bad/rank-00000.h5
damaged 'rank-00000.h5'
touch bad/rank-00009.h5
damaged 'rank-00009.h5'
# What the system refuses to read is not judged; beside it, damage is still damage.
ln -sf rank-00000.h5 bad/rank-00000.h5
expect 74 'not judged' verify bad
"$bin/ms-train" explain 74 | grep -q 'ms-ckpt: ' || fail "ms-train explain 74 does not say what it means of verify"
flip bad/rank-00001.h5 7
damaged 'rank-00001.h5'
rm bad/manifest.json
expect 2 'no committed checkpoint' verify bad
rm -rf bad

# diff: the same state in any layout, and what differs.
expect 0 'the same training state' diff ck/step-00000004 ck/step-00000004
expect 1 'different training states' diff ck/step-00000002 ck/step-00000004
grep -Eq '^  step +2 \| 4$' out || fail "diff tells the steps"
grep -Eq 'exp_avg ' out || fail "diff tells the states"
expect 1 '"equal": false' diff --json ck/step-00000002 ck
expect 2 'nowhere' diff ck nowhere

# reshard: there and back.
expect 0 '^there/step-00000006$' reshard ck -o there --dp 1 --pp 2 --tp 1 --chunks 2 --zero 0
expect 0 'sound' verify there
expect 0 'the same training state' diff ck there
grep -Eq '^  mesh.pp +1 \| 2$' out || fail "the configuration of the new one has the new mesh"
expect 0 '^mesh +2 ranks: dp 1 x cp 1 x pp 2 x tp 1, 2 chunks a rank, zero 0' show there
expect 0 '^back/step-00000006$' reshard there -o back --dp 2 --pp 1 --tp 2 --chunks 1
expect 0 'the same training state' diff --all ck back
expect 0 ' ck/step-00000006$' hash ck
hash=$(cut -d ' ' -f 1 out)
for layout in there back; do expect 0 "^$hash  $layout/step-00000006\$" hash $layout; done
expect 0 ' ck/step-00000004$' hash ck/step-00000004
[ "$(cut -d ' ' -f 1 out)" != "$hash" ] || fail "the hash of another step is the same"
# A tensor for each state of each parameter, and the line of the checkpoint.
expect 0 '^embed.tokens.weight.exp_avg float32 ' hash --tensors ck
expect_states=$(grep -c . out)
expect 0 . hash --json ck
expect_json "$((expect_states - 1)) $hash" 'str(len(d["tensors"])) + " " + d["hash"]'
expect 2 'already has step-00000006' reshard there -o back
expect 2 'mesh.tp = 3' reshard ck -o no --tp 3
expect 2 'layers' reshard ck -o no --set model.layers=2
expect 2 'fp32|f32' reshard ck -o no --set train.dtype=fp32
[ ! -e no ] || fail "a refused reshard leaves nothing"

# A run goes on from what was resharded.
sed -e 's/dir = "ck"/dir = "there"/; s/train.steps = 6/train.steps = 7/; s/dp = 2/dp = 1/; s/pp = 1/pp = 2/; s/tp = 2/tp = 1/' \
  c.toml >d.toml
"$bin/ms-train" run d.toml --set run.dir=runs/d >out 2>err || fail "a run from a resharded checkpoint"
expect_names there 'step-00000006 step-00000007 '

# export and import: the weights, and only they.
expect 0 '^hf$' export --format hf -o hf ck/step-00000004
[ -s hf/config.json ] || fail "export writes config.json"
expect 0 ' hf$' hash hf
hash=$(cut -d ' ' -f 1 out)
expect 0 "^$hash  hf/model.safetensors\$" hash hf/model.safetensors
expect 0 '^shards$' export --max-shard-size 8KB -o shards ck/step-00000004
[ "$(find shards -name 'model-*.safetensors' | wc -l)" -gt 1 ] || fail "export writes one file, and several are wanted"
expect 0 "^$hash  shards\$" hash shards
expect 0 '^new/parents/hf$' export -o new/parents/hf ck/step-00000004
expect 2 'hf' export -o hf ck
expect 0 '^im/step-00000000$' import hf -o im
expect 0 'sound' verify im
expect 0 'without an optimizer' show im
expect 2 'nowhere' import nowhere -o im2
# What never ends, and numbers that no model has.
cp -r hf odd
rm odd/config.json && mkfifo odd/config.json
expect 2 'odd/config.json is not a regular file' import odd -o im2
rm odd/config.json && ln -s /dev/zero odd/config.json
expect 2 'odd/config.json is not a regular file' import odd -o im2
rm odd/config.json && sed -E 's/"(n_embd|hidden_size)": [0-9]+/"\1": 9223372036854775808/' hf/config.json >odd/config.json
expect 2 "'odd/config.json': .* = 9223372036854775808 is not a whole number below 2.63" import odd -o im2
# A full disk, by the name of the directory that was asked for.
if [ "$(id -u)" -eq 0 ] && unshare -m true 2>/dev/null; then
  mkdir full
  # shellcheck disable=SC2016
  unshare -m sh -c 'mount -t tmpfs -o size=4k none full && exec "$0" export -o full/out ck/step-00000004' "$tool" >out 2>err
  [ $? -eq 74 ] || fail "an export to a full disk does not end with 74"
  grep -q "cannot write '.*/full/out/" err || fail "an export to a full disk names '$(cat err)'"
fi
[ ! -e im2 ] || fail "a refused import leaves nothing"
expect 0 'step-00000000' reshard im -o im2 --dp 2
expect 0 'the same training state' diff im im2

# prune and pin.
cp -r ck kept
expect 2 'no rule' prune ck
expect 2 'keep-last' prune --keep-last 0 ck
expect 0 'would remove ck/step-00000002' prune --keep-last 2 --dry-run ck
expect_names ck 'step-00000002 step-00000004 step-00000006 '
expect 0 'is pinned' pin ck/step-00000002
expect 2 'not a committed checkpoint' pin ck
expect 2 'nowhere' pin ck/nowhere
expect 0 ' pinned' ls ck
expect 0 'removed ck/step-00000004, ' prune --keep-last 1 ck
expect_names ck 'step-00000002 step-00000002.pin step-00000006 '
expect 0 'not pinned' unpin ck/step-00000002
expect 0 '"freed_bytes"' prune --keep-every 6 --json ck
expect_json '[2] 1' 'str([c["step"] for c in d["removed"]]) + " " + str(d["kept"])'
expect 0 '0 checkpoints gone' prune --keep-every 100 ck
expect_names ck 'step-00000006 '
rm -rf ck
mv kept ck
size=$(stat -c %s ck/step-00000006/rank-00000.h5)
flip ck/step-00000006/rank-00000.h5 $((size - 9))
expect 74 'nothing was removed' prune --keep-last 1 ck
expect 74 'nothing was removed' prune --keep-last 1 --dry-run ck
expect 0 'would remove' prune --keep-last 1 --no-verify --dry-run ck
expect_names ck 'step-00000002 step-00000004 step-00000006 '

# repair: what a killed save left goes, what is damaged is kept under another name.
mkdir ck/saving-step-00000008 ck/deleting-step-00000001-1
expect 0 ' 8 .* saving .* a save that was killed' ls ck
expect 0 'would be removed ck/saving-step-00000008' repair --dry-run ck
expect 0 'removed ck/deleting-step-00000001-1' repair ck
expect_names ck 'step-00000002 step-00000004 step-00000006 '
expect 0 'nothing to repair' repair ck
expect 0 'set to damaged ck/step-00000006' repair --verify ck
grep -q 'a run resumes from ck/step-00000004' out || fail "repair says what a run resumes from"
expect_names ck 'damaged-step-00000006-1 step-00000002 step-00000004 '
expect 1 'block' verify ck/damaged-step-00000006-1
expect 0 'damaged' ls ck

# While a run has the lock nothing is changed, but everything can be looked at.
exec 9<>ck/lock
flock -n 9 || fail "the lock is free"
expect 2 'ck' repair ck
expect 2 'ck' prune --keep-last 1 ck
expect 0 'would remove' prune --keep-last 1 --dry-run ck
expect 0 'resumes' ls ck
exec 9>&-
expect_names ck 'damaged-step-00000006-1 step-00000002 step-00000004 '

# A directory that cannot be written to.
if [ "$(id -u)" -ne 0 ]; then
  chmod 555 ck
  expect 2 '[Pp]ermission denied' prune --keep-last 1 ck
  chmod 755 ck
fi

# bench leaves nothing behind.
expect 0 'checkpoint write' bench --size 4MiB empty
expect 0 '"against": "plain write"' bench --size 1MiB --json empty
expect_names empty ''
expect 2 'not a size' bench --size 0 empty

[ "$failures" -eq 0 ] && echo "all passed"
[ "$failures" -eq 0 ]
