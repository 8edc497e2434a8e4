# shellcheck shell=bash
# Common code of the examples. A script sources this file and calls `begin NAME`. It then runs in its own empty directory:
# build/examples/NAME in the source tree, ms-examples/NAME if installed, or $MS_EXAMPLES/NAME. The programs are on its PATH.
set -euo pipefail
examples=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
repo=$(dirname "$examples") # or share/ms, which has configs/ and jobscripts/, too
work=$PWD/ms-examples
if [[ -e $repo/bootstrap ]]; then work=$repo/build/examples; fi
command -v ms-train >/dev/null || PATH=$repo/build/release/bin:$PATH
command -v ms-train >/dev/null || { echo "ms-train was not found: run ./bootstrap build first, or install the package ms-tools" >&2 && exit 2; }

begin() { # NAME
  local directory=${MS_EXAMPLES:-$work}/$1
  rm -rf "$directory"
  mkdir -p "$directory"
  cd "$directory"
}

# show COMMAND...: prints the command, then runs it.
show() {
  printf '\n$ %s\n' "$*"
  "$@"
}

# The project's texts to train on, mostly manuals. A package has only the manuals, compressed.
texts=("$repo"/*.md "$repo/LICENSE" "$repo"/man/ms*)
if [[ ! -e $repo/bootstrap ]]; then texts=("$(dirname "$repo")"/man/man?/ms*); fi

# Encodes the texts to the token file text.bin with its index text.idx.
encode_text() {
  show ms-data encode --tokenizer byte --output text "${texts[@]}"
}
