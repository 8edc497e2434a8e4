# shellcheck shell=bash
# What the examples share. A script sources this file and calls `begin NAME`: it then stands in an empty directory of its own,
# build/examples/NAME of the sources, ms-examples/NAME where the examples are installed (or $MS_EXAMPLES/NAME), and the programs
# are on its PATH.
set -euo pipefail
examples=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
repo=$(dirname "$examples") # or share/ms, which has configs/ and jobscripts/, too
work=$PWD/ms-examples
if [[ -e $repo/bootstrap ]]; then work=$repo/build/examples; fi
command -v ms-train >/dev/null || PATH=$repo/build/release/bin:$PATH
command -v ms-train >/dev/null || { echo "ms-train is not here: run ./bootstrap build first, or install the package ms-tools" >&2 && exit 2; }

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

# Texts of ours to train on, the manuals for the most part. A package has the manuals only, and packs them.
texts=("$repo"/*.md "$repo/LICENSE" "$repo"/man/ms*)
if [[ ! -e $repo/bootstrap ]]; then texts=("$(dirname "$repo")"/man/man?/ms*); fi

# Encodes them as training data: the token file text.bin with its index text.idx.
encode_text() {
  show ms-data encode --tokenizer byte --output text "${texts[@]}"
}
