#!/usr/bin/env bash
# Somebody who types the first commands of README.md in a clean clone, in the order in which they stand. The fault that they
# inject is left out: example_13-hang has it, and waits a quarter of a minute for it.
# usage: readme.sh BIN
set -euo pipefail
# shellcheck source=tests/first_hour/walk.sh
. "$(dirname "${BASH_SOURCE[0]}")/walk.sh"
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
mapfile -t commands < <(sed -n '/^These are the steps of the last script by hand/,/^In a job/s/^    \$ //p' "$root/README.md")
((${#commands[@]} == 5)) || stumble 'README.md has other first commands'
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/build/release"
cp -r "$root"/*.md "$root/man" "$root/examples" "$dir"
ln -s "$(realpath "$1")" "$dir/build/release/bin"
cd "$dir"

note 'a configuration whose text is not encoded yet'
fails 2 build/release/bin/ms-train run examples/tiny.toml
says "^hint: 'ms-data encode --output text TEXT[.][.][.]' makes it"
for command in "${commands[@]}"; do
  case $command in
    'export PATH='*) eval "$command" ;;
    *) does bash -c "${command#MS_FAULT=\"*\" }" ;;
  esac
done
says 'resuming from saved/step-00000060'
