#!/usr/bin/env bash
# ms-train calibrate on a machine that is at work: nothing is written.  usage: ms_train_calibrate_test.sh MS-TRAIN
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
grep -q '^cpu0 ' /proc/stat || { echo "skipped: /proc/stat does not say how busy processors are" && exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

# Beside processes that take every core nothing is measured.
spinning=()
for _ in $(seq "$(nproc)"); do
  while :; do :; done &
  spinning+=($!)
done
expect 2 'other processes had [0-9]+ % of the processors' calibrate --output busy.toml
kill "${spinning[@]}"
wait "${spinning[@]}" 2>/dev/null
[ ! -e busy.toml ] || fail "a busy machine was calibrated"

[ "$failures" -eq 0 ] && echo "all as expected" || exit 1
