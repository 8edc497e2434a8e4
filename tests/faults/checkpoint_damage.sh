# shellcheck shell=bash disable=SC2154 # sourced by checkpoint.sh, after checkpoint_run.sh
# Cases in which committed checkpoints are damaged before a run goes on from them, a run is stopped on purpose, or it goes
# on in another layout.

# Steps 4 and 8 of the undisturbed run, in ck.
two_checkpoints() {
  if [ ! -e ck.two ]; then
    rm -rf ck
    train --set checkpoint.every_steps=4 --set checkpoint.keep_last=0
    [ "$code" -eq 0 ] || fail "the run ended with $code"
    mv ck ck.two
    rm -rf ck.two/step-00000012
  fi
  rm -rf ck
  cp -a ck.two ck
}
# refused WHAT [STEP]: step 8 is damaged as WHAT says: verify finds it, and a run goes on from step 4 (or STEP), saying so.
refused() {
  strikes=$((strikes + 1))
  "$bin/ms-ckpt" verify ck/step-00000008 >verify.out 2>&1
  code=$?
  [ "$code" -eq 1 ] || fail "$1: verify exits with $code"
  [ -s verify.out ] || fail "$1: verify says nothing"
  newest=4
  resume --set checkpoint.every_steps=4 --set checkpoint.keep_last=0
  grep -q 'W .*step-00000008' err || fail "$1: resuming from step 4 without a word about step 8"
}
flip() { # FILE OFFSET: one bit of one byte
  local byte
  byte=$(od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' ')
  # shellcheck disable=SC2059 # an escape
  printf "\\$(printf %03o $((byte ^ (1 << RANDOM % 8))))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
case_flipped() {
  reference
  two_checkpoints
  local file size offset offsets
  for file in ck.two/step-00000008/*; do
    file=${file##*/}
    size=$(stat -c %s "ck.two/step-00000008/$file")
    offsets=(0 $((size - 1)) $((RANDOM % 512)))
    for ((i = 0; i < ${count:-12} / 4; i++)); do offsets+=($(((RANDOM * 32768 + RANDOM) % size))); done
    for offset in "${offsets[@]}"; do
      two_checkpoints
      flip "ck/step-00000008/$file" "$offset"
      refused "$file has a flipped bit at $offset of $size"
    done
  done
}
case_damaged() {
  reference
  two_checkpoints
  local at=ck/step-00000008 data file
  data=$(cd "$at" && echo rank-*.h5)
  # shellcheck disable=SC2086 # words
  set -- $data
  [ $# -ge 4 ] || fail "only $# data files"
  for file in manifest.json "$1" "${!#}"; do
    rm "$at/$file"
    refused "$file is missing"
    two_checkpoints
    truncate -s -1 "$at/$file"
    refused "$file is a byte short"
    two_checkpoints
    : >"$at/$file"
    refused "$file is empty"
    two_checkpoints
    echo >>"$at/$file"
    refused "$file is a byte too long"
    two_checkpoints
    cp "ck/step-00000004/$file" "$at/$file"
    refused "$file is of another step"
    two_checkpoints
  done
  mv "$at/$1" "$at/swap" && mv "$at/$2" "$at/$1" && mv "$at/swap" "$at/$2"
  refused "$1 and $2 are swapped"
  two_checkpoints
  rm -rf "$at" && cp -a ck/step-00000004 "$at"
  refused "it is step 4 under another name"
  two_checkpoints
  rm "$at/$1" && mkdir "$at/$1"
  refused "$1 is a directory"
  # A file that nobody wrote: verify finds it, and there is nothing wrong with the rest.
  two_checkpoints
  echo >"$at/rank-00099.h5"
  "$bin/ms-ckpt" verify "$at" >verify.out 2>&1 && fail "verify does not see a file that the manifest does not name"
  look
  resume --set checkpoint.every_steps=4 --set checkpoint.keep_last=0
  # Nothing sound is left: the run says so and does not begin again by itself, over what may be somebody's only copy.
  two_checkpoints
  flip ck/step-00000004/"$1" 4000
  flip ck/step-00000008/"$2" 4000
  train
  [ "$code" -eq 74 ] || fail "with nothing but damaged checkpoints, the run ended with $code"
  [ "$(grep -c 'error:' err)" -eq 1 ] || fail "with nothing but damaged checkpoints: not one message"
}

# A signal or a file stops the run after a step: it saves, exits with 75, and a later run goes on from there.
case_stopped() {
  local how stopped=0
  steps=400
  sed -i "s/^train.steps = .*/train.steps = $steps/; s/every_steps = .*/every_steps = 100/" c.toml
  reference
  for how in TERM USR2 file; do
    rm -rf ck run
    "$bin/ms-train" run c.toml >struck.out 2>struck.err </dev/null &
    job=$!
    until [ "$(losses | wc -l)" -ge 20 ] || no_process "$job"; do sleep 0.01; done
    case $how in
      file) : >run/stop ;;
      *) kill "-$how" "$job" ;;
    esac
    wait "$job"
    code=$?
    job=
    strikes=$((strikes + 1))
    after_strike -1 struck.err
    if [ "$code" -eq 75 ]; then
      stopped=$((stopped + 1))
      same_losses 1 "$newest"
      [ "$newest" -lt "$steps" ] || fail "$how: code 75 after the last step"
      grep -q '"code": *75' run/verdict.json || fail "$how: the verdict is $(cat run/verdict.json)"
    else
      [ "$code" -eq 0 ] || fail "$how: the run ended with $code"
    fi
    rm -f run/stop
    resume
  done
  [ "$stopped" -gt 0 ] || fail "every run was over before it could be stopped: this tests nothing"
}
no_process() { ! kill -0 "$1" 2>/dev/null; }

# The run goes on in other layouts, where the data stood, with the losses of the undisturbed run but for rounding.
case_layouts() {
  local layout words
  sed -i 's/dtype = .*/dtype = "fp32"/; s/every_steps = .*/every_steps = 6/; s/keep_last = .*/keep_last = 0/' c.toml
  reference
  rm -rf ck.ref/step-00000012
  for layout in "dp=1 tp=1" "dp=4 tp=1" "dp=1 tp=4" "dp=1 tp=2 pp=2" "dp=2 tp=1 pp=2 chunks=1" "dp=4 tp=1 optim.zero=2" \
    "dp=2 tp=2 optim.zero=0"; do
    rm -rf ck run
    cp -a ck.ref ck
    words=()
    for word in $layout; do case $word in *.*) words+=(--set "$word") ;; *) words+=(--set "mesh.$word") ;; esac; done
    train "${words[@]}"
    strikes=$((strikes + 1))
    [ "$code" -eq 0 ] || fail "resuming $layout ended with $code"
    grep -q 'resuming from ck/step-00000006: step 6,' err || fail "$layout: the run did not go on from step 6"
    losses >losses.now
    awk 'NR == FNR { loss[$1] = $2; next } { n++; d = loss[$1] - $2; if (!($1 in loss) || d > 1e-4 || d < -1e-4) bad = 1 }
      END { exit bad || n != 6 }' losses.ref losses.now || fail "$layout: other losses: $(paste -s -d ';' losses.now)"
  done
}
