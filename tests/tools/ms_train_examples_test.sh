#!/usr/bin/env bash
# The EXAMPLES of every tool's manual. Those that need no cluster are run, on small inputs of the names that they use and with
# as few steps as do; of the others the command line is parsed (--check). usage: ms_train_examples_test.sh MS_TRAIN
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
source=$(cd "$(dirname "$0")/../.." && pwd)
training_directory
export PATH=$bin:$PATH
ln -s "$source/configs" configs

# What the examples speak of.
mkdir -p build/demo data runs/default
for file in build/demo/text data/wiki; do cp text.bin $file.bin && cp text.idx $file.idx && cp text.meta.json $file.meta.json; done
dot=iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==
echo "{\"image\": \"$dot\", \"text\": \"a dot\"}" >pictures.jsonl
tiny_config train.steps=4 'run.dir="runs/default"' mesh.dp=2 >run.toml
ms-train run run.toml --set checkpoint.dir=runs/a/ckpt >log 2>&1 || { cat log && fail "the run that examples speak of"; }

# run COMMAND: runs an example, in words that make it short.
run() {
  case $1 in
    'ms-train run configs/'*) set -- "$1 --set train.steps=2 --set optim.warmup_steps=1 --set run.sample_tokens=0" ;;
    'ms-train generate '*) set -- "$1 --max-tokens 4" ;;
    'ms-data sample '*) set -- "${1/--step 100/--step 2}" ;;
    'ms-data show '*) set -- "${1/fortunes --document 3/text --document 0}" ;;
    'ms-data encode --split-on'*) set -- "${1/'/usr/share/games/fortunes/computers'/text}" ;;
    'ms-tracepp merge '*) set -- "${1/100-102/1-2}" ;;
  esac
  timeout --preserve-status 400 bash -c "$1" >out 2>err </dev/null || fail "$1: exit code $?"
}
# What needs a cluster, a network, a GPU, a terminal or files that are not small.
needs_more() {
  case $1 in
    mpirun* | srun* | salloc* | ms-driver* | ms-netcheck* | ms-loan*) ;;
    *'--hostfile slurm'* | *' -w '* | *'--tokenizer tokenizer.json'* | 'ms-diag run') ;;
    *'--level 3'* | 'ms-diag predict'* | 'ms-diag avoid'*) ;;
    *) return 1 ;;
  esac
}
# parse COMMAND: has the tool in it read its arguments, without what stands before it.
parse() {
  local words name
  if ! eval "words=($1)"; then
    fail "$1: the shell does not read it"
    return
  fi
  while [ ${#words[@]} -gt 0 ] && [[ ${words[0]} != ms-* ]]; do words=("${words[@]:1}"); done
  name=${words[0]:-}
  "${name:-false}" --check "${words[@]:1}" >out 2>err || fail "$1: ${name:-no tool} does not understand it"
}

ran=0 parsed=0
for path in "$bin"/ms-*; do
  while IFS= read -r line; do
    line=${line//\"\"/\"}
    line=${line//\\e/\\}
    if needs_more "$line"; then
      parse "$line"
      parsed=$((parsed + 1))
    else
      run "$line"
      ran=$((ran + 1))
    fi
  done < <("$path" --man | sed -n '/^\.Sh EXAMPLES/,/^\.Sh SEE/s/^\.Dl "\\&\(.*\)"$/\1/p')
done
if [ "$ran" -lt 12 ] || [ "$parsed" -lt 8 ]; then fail "$ran examples were run and $parsed parsed: were the manuals read?"; fi
expect 2 "unknown option '--no-such-option'" --check run run.toml --no-such-option

[ "$failures" -eq 0 ] && echo "$ran examples were run, $parsed parsed" || exit 1
