# shellcheck shell=bash
# What the examples share. A script sources this file and calls `begin NAME`: it then stands in an empty directory of its own,
# build/examples/NAME (or $MS_EXAMPLES/NAME), and the programs are on its PATH.
set -euo pipefail
examples=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
repo=$(dirname "$examples")
command -v ms-train >/dev/null || PATH=$repo/build/release/bin:$PATH
command -v ms-train >/dev/null || { echo "ms-train is not here: run ./bootstrap build first" >&2 && exit 2; }

begin() { # NAME
  local directory=${MS_EXAMPLES:-$repo/build/examples}/$1
  rm -rf "$directory"
  mkdir -p "$directory"
  cd "$directory"
}

# show COMMAND...: prints the command, then runs it.
show() {
  printf '\n$ %s\n' "$*"
  "$@"
}

# Encodes the repository's own texts as training data: the token file text.bin with its index text.idx.
encode_text() {
  show ms-data encode --tokenizer byte --output text "$repo"/*.md "$repo/LICENSE" "$repo"/man/ms*
}
