# shellcheck shell=bash disable=SC2154 # sourced by checkpoint.sh, which says what $bin, $shim and $dir are
# The small run that the cases of checkpoint.sh strike, and what must hold after every strike.

training_text 400 >/dev/null 2>err || fail "ms-data encode"
steps=12 # of the run; a checkpoint every two
tiny_config mesh.dp=2 mesh.tp=2 train.steps=12 'train.dtype="bf16"' train.eval_every=0 optim.warmup_steps=0 \
  'checkpoint.dir="ck"' checkpoint.every_steps=2 checkpoint.keep_last=2 'checkpoint.when_busy="wait"' \
  'run.dir="run"' >c.toml

# train [ARGUMENT...]: the run, undisturbed; output in out and err, exit code in code.
train() {
  timeout 900 "$bin/ms-train" run c.toml "$@" >out 2>err </dev/null
  code=$?
}
losses() { sed -nE 's/^\{"step":([0-9]+),"loss":([^,]*),.*/\1 \2/p' run/metrics.jsonl 2>/dev/null; }

# What an undisturbed run says of every step, and the checkpoint of its last one.
reference() {
  train
  [ "$code" -eq 0 ] || fail "the undisturbed run ended with $code"
  losses >losses.ref
  [ "$(wc -l <losses.ref)" -eq "$steps" ] || fail "the undisturbed run has no losses of $steps steps"
  [ "$(cut -d ' ' -f 2 losses.ref | sort -u | wc -l)" -gt 10 ] || fail "the losses do not differ: this tests nothing"
  look
  [ "$newest" -eq "$steps" ] || fail "the undisturbed run left step $newest as its newest checkpoint"
  rm -rf ck.ref
  mv ck ck.ref
}

# look: sets `newest`, the step of the newest complete checkpoint, -1 if there is none, and `complete`, the paths of all.
look() {
  local step path
  newest=-1
  complete=()
  [ -e ck ] || return 0 # killed before there was anything
  "$bin/ms-ckpt" ls --json ck >ls.json 2>verify.out || fail "ms-ckpt ls failed"
  python3 -IS - >ls.complete <<'PYTHON' || fail "ms-ckpt ls does not say what it should: $(cat ls.json)"
import json
rows = json.load(open("ls.json"))["checkpoints"]
rows = [row for row in rows if row["complete"]]
assert [row["step"] for row in rows] == sorted(row["step"] for row in rows), "newest last"
for row in rows:
    print(row["step"], row["path"])
PYTHON
  while read -r step path; do
    newest=$step
    complete+=("$path")
  done <ls.complete
}
# Everything that claims to be complete is sound.
all_sound() {
  local path
  for path in "${complete[@]}"; do
    "$bin/ms-ckpt" verify "$path" >verify.out 2>&1 || fail "$path is listed as complete, but it is not sound"
  done
}
# The last step that the run said it saved, from its log.
claimed() { sed -nE 's/.*checkpoint of step ([0-9]+): committed.*/\1/p' "$1" | sort -n | tail -n 1; }
# Nothing has the name of a checkpoint and is only half of one.
none_half() {
  python3 -IS -c 'import json, sys
half = [row["name"] for row in json.load(open("ls.json"))["checkpoints"] if row["condition"] == "incomplete"]
sys.exit("half a checkpoint: " + " ".join(half) if half else 0)' 2>verify.out || fail "$(cat verify.out)"
}
# after_strike BEFORE LOG: what must hold whenever a run that found step BEFORE was struck: what is complete is sound, and
# neither what there was nor what was said to be saved is lost.
after_strike() {
  local said
  look
  [ ! -e ck ] || none_half
  all_sound
  said=$(claimed "$2")
  [ "$newest" -ge "$1" ] || fail "step $1 was complete before, now the newest is $newest"
  [ "$newest" -ge "${said:--1}" ] || fail "step $said was said to be saved, but the newest is $newest"
}
# same_losses [FROM TO]: no step of the run has another loss than in the undisturbed run, and it went through these.
same_losses() {
  local went
  losses >losses.now
  grep -vxFf losses.ref losses.now >differ && fail "losses differ from the undisturbed run: $(paste -s -d ';' differ)"
  [ $# -eq 2 ] || return 0
  went=$(awk -v from="$1" '$1 >= from { print $1 }' losses.now | paste -s -d ' ')
  [ "$went" = "$(seq -s ' ' "$1" "$2")" ] || fail "from step $1 to $2, the run has steps $went"
}
# resume [ARGUMENT...]: goes on from `newest` to the end, with the same losses, to the same last checkpoint, bit by bit.
resume() {
  local from=$newest file last finished
  last=step-$(printf %08d "$steps")
  train "$@"
  [ "$code" -eq 0 ] || fail "resuming from step $from ended with $code"
  # A save that was whole, and whose last rename was missing, is newer than what could be seen before.
  finished=$(sed -n 's/.*the commit of ck\/step-0*\([0-9]\{1,\}\) was interrupted: it is done now.*/\1/p' err | tail -n 1)
  if [ -n "$finished" ]; then
    [ "$finished" -gt "$from" ] || fail "the commit of step $finished was finished, but step $from was there"
    from=$finished
  fi
  [ "$from" -lt 0 ] || [ "$from" -eq "$steps" ] || grep -q "resuming from ck/step-0*$from: step $from," err ||
    fail "the run did not go on from step $from"
  if [ "$from" -lt "$steps" ]; then same_losses $((from < 0 ? 1 : from + 1)) "$steps"; fi
  look
  [ "$newest" -eq "$steps" ] || fail "the resumed run left step $newest as its newest checkpoint"
  for file in "ck.ref/$last"/*.h5; do
    cmp -s "$file" "ck/$last/${file##*/}" || fail "${file##*/} of the last step differs from the undisturbed run's"
  done
  [ -z "$(find ck -maxdepth 1 \( -name 'saving-*' -o -name 'deleting-*' -o -name '.?*' \))" ] || fail "the resumed run left rubbish"
}

# with_fault DO AT ON COMMAND...: the shim strikes the command at call AT. Its output in struck.out and struck.err, its exit
# code in code, its calls in calls.
with_fault() {
  local what=$1 at=$2 on=$3
  shift 3
  strikes=$((strikes + 1))
  rm -f calls
  {
    timeout 900 env LD_PRELOAD="$shim" ASAN_OPTIONS="verify_asan_link_order=0:${ASAN_OPTIONS:-}" IO_FAULT_DIR="$dir/ck" \
      IO_FAULT_DO="$what" IO_FAULT_AT="$at" IO_FAULT_ON="$on" IO_FAULT_LOG="$dir/calls" \
      "$@" >struck.out 2>struck.err </dev/null
  } 2>/dev/null # the shell's own word that it was killed
  code=$?
}
# How many calls an undisturbed run makes: `calls_in_all`.
count_calls() {
  rm -rf ck
  with_fault none 0 0 "$bin/ms-train" run c.toml
  [ "$code" -eq 0 ] || fail "the run with the shim ended with $code"
  calls_in_all=$(wc -l <calls)
  [ "$calls_in_all" -gt 50 ] || fail "the shim saw only $calls_in_all calls: this tests nothing"
  cp calls calls.ref
  rm -rf ck
}
# points COUNT: calls to strike at. Every second call of a small run makes the skeletons of its files, which are all alike:
# of "all" those every tenth, of a number, at random, one in ten.
points() {
  local i at skeleton
  skeleton=$(grep -c '/\.skeleton-' calls.ref)
  if [ "$1" = all ]; then
    seq 1 10 "$skeleton"
    seq $((skeleton + 1)) "$calls_in_all"
    return
  fi
  for ((i = 0; i < $1; i++)); do
    at=$((RANDOM * 32768 + RANDOM))
    if [ $((i % 10)) -eq 0 ]; then
      echo $((at % calls_in_all + 1))
    else
      echo $((skeleton + at % (calls_in_all - skeleton) + 1))
    fi
  done
}
one_of() { # WORD...
  shift $((RANDOM % $#))
  echo "$1"
}
