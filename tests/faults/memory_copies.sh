#!/usr/bin/env bash
# Copies of checkpoints in memory, whatever has become of them: a run that goes on has the losses of an undisturbed one.
# Ranks are threads here; what several nodes are to each other is tests/cluster/checkpoint.bats.
# usage: memory_copies.sh BIN: the folder of the programs.
set -euo pipefail
bin=$1
# shellcheck source=tests/support/training.sh
. "$(dirname "$0")/../support/training.sh"
dir=$(realpath "$(mktemp -d)")
trap 'cd / && rm -rf "$dir"' EXIT
cd "$dir"

fail() {
  echo "FAILED: $1"
  sed 's/^/  err: /' err | tail -n 30
  exit 1
}

training_text 400 >/dev/null 2>err || fail "ms-data encode"
tiny_config mesh.dp=2 mesh.tp=2 train.steps=12 'train.dtype="bf16"' train.eval_every=0 'checkpoint.dir="ck"' \
  checkpoint.every_steps=4 checkpoint.async=false 'checkpoint.memory_dir="memory"' 'run.dir="run"' >c.toml
train() { # [ARGUMENT...]: sets code
  code=0
  timeout 900 "$bin/ms-train" run c.toml "$@" >out 2>err </dev/null || code=$?
}
losses() { sed -nE 's/^\{"step":([0-9]+),"loss":([^,]*),.*/\1 \2/p' "$1/metrics.jsonl"; }
copies() { find memory -name 'rank-*' 2>/dev/null | wc -l; }

train --set checkpoint.dir= --set run.dir=undisturbed
[[ $code -eq 0 && $(losses undisturbed | wc -l) -eq 12 ]] || fail "the undisturbed run ended with $code"
# Stands still after the checkpoint of step 8, until its copies are all there is, and is killed.
MS_FAULT="step=9 rank=3 hang" "$bin/ms-train" run c.toml >out 2>err </dev/null &
for _ in $(seq 600); do
  if [[ $(copies) -eq 4 && $(echo memory/*/*/step-*/mark) == */step-00000008/mark ]]; then break; fi
  sleep 0.1
done
kill -KILL $!
wait $! 2>/dev/null || true
[[ -d ck/step-00000008 && $(copies) -eq 4 ]] || fail "the struck run left $(copies) copies"
mkdir struck
mv ck memory run struck

again() { # everything as the struck run left it
  rm -rf ck memory run
  cp -r struck/* .
  step=$(echo memory/*/*/step-00000008)
}
says() { grep -q -e "$1" err || fail "it does not say '$1'"; }
ends_well() { # WHAT
  [[ $code -eq 0 ]] || fail "$1: it ended with $code"
  diff <(losses undisturbed) <(losses run) >/dev/null || fail "$1: other losses"
  [[ $(copies) -eq 0 ]] || fail "$1: a run that is done left $(copies) copies"
  echo "$1: as expected"
}
flip() { printf '\xa5\x5a\xa5' | dd of="$1" bs=1 seek=50000 conv=notrunc status=none; } # FILE

again
train
says 'resuming from ck/step-00000008: step 8, .* from memory in .* read 0 B from storage'
ends_well "used"

again
for file in ck/step-00000008/rank-*.h5; do flip "$file"; done
train
says 'step 8, .* from memory in .* read 0 B from storage'
ends_well "used where storage is damaged"

from_storage() { # WHAT WHY
  train
  says "step 8 is not loaded from memory but from storage: $2"
  says 'resuming from ck/step-00000008: step 8, .* from storage in .* read [1-9]'
  ends_well "$1"
}
again
flip "$step/rank-00002.h5"
from_storage "damaged" 'a copy cannot be read, or is damaged'
again
truncate -s -1 "$step/rank-00002.h5"
from_storage "torn" '1 of 4 files are in no node.s memory'
again
rm "$step"/rank-0000[03].h5
from_storage "gone in part" '2 of 4 files'
again
rm "$step/mark"
from_storage "never committed" '4 of 4 files'
again
rm -r memory
from_storage "gone" '4 of 4 files'
again
mv "$step" "${step%8}4"
from_storage "of another step" '4 of 4 files'
again
rm -r memory
echo "a file" >memory
from_storage "no directory" '4 of 4 files'
says 'lacks copies in this node.s memory .logged once.'

again
train --set mesh.dp=4 --set mesh.tp=1
says 'from storage: it was saved in another layout'
[[ $code -eq 0 ]] || fail "another layout: it ended with $code"

again
mkdir -p "$(dirname memory/*/*)/0123456789abcdef/step-00000001"
MS_FAULT="step=2 rank=0 exit" train --fresh
says 'the checkpoints that were in ck are now in '
[[ $(copies) -eq 0 && -d $(echo memory/*/0123456789abcdef/step-00000001) ]] || fail "--fresh left copies, or took those of others"
echo "--fresh: as expected"

# A neighbour who was there first lays links under the names of the copies: the user's own file and the losses stay as they were,
# and the run says why it has no copies. Where the directory is the user's, nobody else reads them.
if [[ $(id -u) -eq 0 ]]; then
  user=4242 neighbour=4243
  chmod 755 .
  rm -rf ck run memory
  mkdir -m 1777 shm ck run
  mkdir -m 700 home && echo precious >home/file && chmod 600 home/file && chown -R $user home
  as_user() { code=0; setpriv --reuid $user --regid $user --clear-groups "$@" >out 2>err </dev/null || code=$?; }
  touch out err
  struck="run c.toml --set checkpoint.memory_dir=$dir/shm --set run.dir=run/a --set checkpoint.dir=ck/a"
  # shellcheck disable=SC2086 # words
  MS_FAULT="step=9 rank=3 exit" as_user "$bin/ms-train" $struck
  [[ $(find shm -name 'rank-*' -user $user -perm 600 | wc -l) -ge 4 ]] || fail "the user has no copies"
  [[ -z $(find shm/ms-$user -perm /077) ]] || fail "others may enter: $(find shm/ms-$user -perm /077 -ls)"
  names=$(cd shm && find . -name 'rank-*' | sed 's/$/.part/')
  rm -rf shm/ms-$user
  # shellcheck disable=SC2016 # for the neighbour's shell
  setpriv --reuid $neighbour --regid $neighbour --clear-groups bash -c '
    for name in $1; do mkdir -p shm/"$(dirname $name)" && ln -s ../../../../home/file shm/$name; done' - "$names"
  [[ -n $(find shm -type l -name 'rank-00000.h5.part') ]] || fail "the neighbour has laid no link"
  # shellcheck disable=SC2086 # words
  as_user "$bin/ms-train" $struck
  [[ $code -eq 0 ]] || fail "with a neighbour it ended with $code"
  diff <(losses undisturbed | tail -n 4) <(losses run/a | tail -n 4) >/dev/null || fail "with a neighbour: other losses"
  [[ $(cat home/file) == precious ]] || fail "the user's file was overwritten"
  says "copies in memory: .*shm/ms-$user. belongs to user $neighbour, not to us"
  echo "a neighbour's links: as expected"
else
  echo "a neighbour's links: left out, as this is not root"
fi
