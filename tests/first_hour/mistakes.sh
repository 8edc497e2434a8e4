#!/usr/bin/env bash
# Somebody with a wrong configuration: the likeliest mistakes in one file, and a user who knows nothing but what each message
# says. Every line of a message must lead on: the walk ends where one does not, or where what it says does not help.
# usage: mistakes.sh BIN
set -euo pipefail
# shellcheck source=tests/first_hour/walk.sh
. "$(dirname "${BASH_SOURCE[0]}")/walk.sh"
PATH=$(realpath "$1"):$PATH
jobscripts=$(realpath "$(dirname "$0")/../../jobscripts")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"

cat >c.toml <<'TOML'
[model]
layer = 2
hidden = 30
heads = 4
vocab = 100
seq = 32

[mesh]
tensor_parallel = 2

[train]
steps = "twenty"
global_batch = 10
microbatch = 4
dtype = "fp16"

[optim]
learning_rate = 3e-3
warmup = 5

[data]
train = ["text.txt"

[checkpoint]
dir = "runs/first"
every = "5 minutes"

[run]
dir = "runs/first"
TOML
for i in $(seq 60); do echo "line $i: the quick brown fox jumps over the lazy dog"; done >text.txt

match() { [[ $text =~ $1 ]]; }
here() { sed -i "${line}$1" c.toml; }
# lead TEXT: does what a line of a message leads somebody to do; fails where it says nothing that helps.
lead() {
  local text=$1 line=''
  if [[ $text =~ ^(ms-train:\ error:\ |\ *)c\.toml:([0-9]+):[0-9]+:\ (.*) ]]; then line=${BASH_REMATCH[2]} text=${BASH_REMATCH[3]}; fi
  if match "^unknown key '[a-z]*\.([a-z_]*)', did you mean '[a-z]*\.([a-z_]*)'\?$"; then
    here "s/${BASH_REMATCH[1]}/${BASH_REMATCH[2]}/"
  elif match "^not valid TOML: '\[' is not closed$"; then
    here 's/$/]/'
  elif match '^train.steps: expected an integer'; then
    here 's/"twenty"/20/'
  elif match "^train.dtype: must be one of .*, ([a-z0-9]*), got 'fp16'$"; then
    here "s/fp16/${BASH_REMATCH[1]}/"
  elif match '^checkpoint.every: expected a duration such as "([0-9a-z]*)"'; then
    here "s/= .*/= \"${BASH_REMATCH[1]}\"/"
  elif match '^model.hidden = ([0-9]*) is not divisible by model.heads = ([0-9]*)$'; then
    here "s/= .*/= $(((BASH_REMATCH[1] / BASH_REMATCH[2] + 1) * BASH_REMATCH[2]))/"
  elif match '^train.global_batch = ([0-9]*) is not divisible by mesh.dp x train.microbatch = ([0-9]*)$'; then
    here "s/= .*/= $(((BASH_REMATCH[1] / BASH_REMATCH[2] + 1) * BASH_REMATCH[2]))/"
  elif match "^checkpoint.dir = '(.*)' is run.dir, too"; then
    here "s#= .*#= \"${BASH_REMATCH[1]}/checkpoints\"#"
  elif match "^hint: .* '(ms-data encode --output ([a-z]*) text.txt)' encodes a text"; then
    made=${BASH_REMATCH[2]}
    read -ra words <<<"${BASH_REMATCH[1]}"
    does "${words[@]}"
    sed -i "s/\"text.txt\"/\"$made\"/" c.toml
  elif match '^hint: set model.vocab = ([0-9]*),'; then
    sed -i "s/^vocab = .*/vocab = ${BASH_REMATCH[1]}/" c.toml
  else
    return 1
  fi
}

led=0
for round in 1 2 3 4 5 6; do
  if ms-train check c.toml >said 2>&1; then break; fi
  shown=20 fails 2 ms-train check c.toml
  helped=0
  while IFS= read -r text; do
    # Each problem of a list leads on by itself; a single one may have a hint that does.
    if lead "$text"; then
      helped=$((helped + 1))
    elif [[ $text == '  c.toml'* ]]; then
      stumble "this does not lead on: $text"
    fi
  done <<<"$said"
  ((helped > 0)) || stumble 'no line of this leads on'
  led=$((led + helped))
done
does ms-train check c.toml
says 'ok, 2 ranks'
note "$led mistakes in $((round - 1)) rounds"
((led >= 10)) || stumble 'some mistakes were not found'
does ms-train run c.toml
says '^steps +20$'

note 'a job script that is run as a program'
for script in "$jobscripts"/*.sbatch; do
  fails 2 env -u SLURM_JOB_ID bash "$script" c.toml
  says '^usage: sbatch '
done
