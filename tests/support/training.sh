# shellcheck shell=bash
# What shell tests of training share: a text with its tokens, and the configuration of a tiny model. To be sourced.

# training_text LINES: writes ./text and its token file, ./text.bin and ./text.idx. Programs are in $bin, else in PATH.
training_text() {
  for i in $(seq "$1"); do echo "line $i: the quick brown fox jumps over the lazy dog, $((i * 7919 % 1000)) times"; done >text
  "${bin:+$bin/}ms-data" encode --tokenizer byte --force --output text text
}

# tiny_config [SECTION.KEY=VALUE...]: prints a configuration, a line for each key: a GPT of two layers on one rank, which reads
# ./text. Values are TOML; an empty one leaves its key out.
tiny_config() {
  local setting key
  local -A values=([model.layers]=2 [model.hidden]=32 [model.heads]=4 [model.vocab]=257 [model.seq]=32 [train.global_batch]=8
    [train.microbatch]=2 [train.dtype]='"fp32"' [data.train]='["text"]')
  for setting in "$@"; do values[${setting%%=*}]=${setting#*=}; done
  for key in "${!values[@]}"; do
    if [ -n "${values[$key]}" ]; then echo "$key = ${values[$key]}"; fi
  done | LC_ALL=C sort
}
