#!/usr/bin/env bash
# ms-tracepp report -o in a real browser, and ms-tracepp report --expected.
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
here=$(cd "$(dirname "$0")" && pwd)
training_directory
tiny_config mesh.dp=2 mesh.pp=2 mesh.tp=2 train.steps=40 train.eval_every=0 run.sample_tokens=0 train.microbatch=1 >c.toml
"$bin/ms-train" run c.toml --set run.dir=run >out 2>err || fail "ms-train run"
# The slow rank is simulated: on a busy machine others are slow at times, too.
cluster=$here/../../configs/clusters/h100-8x400g.toml
"$bin/ms-train" simulate c.toml --cluster "$cluster" --slow rank=5:3 --steps 12 --trace slow >out 2>err ||
  fail "ms-train simulate"

expect 0 'wrote page[.]html, .*: open it in a browser' report -o page.html run/trace
expect 2 'needs --output' report --steps 3 run/trace
expect 2 'a page is no JSON document' report --json -o page.html run/trace
expect 2 'is a directory' report -o . run/trace
expect 2 'no events of ranks 99' report -o page.html --ranks 99 run/trace
"$tool" report -o - --steps 3-4 run/trace 2>err | head -n 1 | grep -q '^<!doctype html>' || fail "the page on standard output"
[ -e ./- ] && fail "a file named - was written"

expect 0 'a step takes .* expected of .*the file does not describe these machines' report --expected "$cluster" run/trace
expect 0 'expected +observed' report --expected "$cluster" run
expect 2 'has config[.]toml' report --expected "$cluster" slow
expect 2 'ms-train simulate does not time this run: exit status 2' report --expected c.toml run/trace
expect 0 'a step takes .* expected of' report --brief --expected "$cluster" run/trace
expect 2 'needs --expected' report --brief run/trace
expect 2 'it prints a sentence' report --brief --json --expected "$cluster" run/trace
expect 0 'expected of' report --expected "$cluster" -o page.html run/trace
grep -q 'Against the simulator' page.html || fail "no section of what was expected"

# Runs beside each other: traces of the first, curves of all.
cp -r run other
expect 0 '^other +40 ' report run other
expect 0 'wrote page[.]html' report -o page.html slow run other
grep -q '"name":"other"' page.html || fail "no curves of the other run"

if ! command -v chromium >/dev/null; then
  [ "$failures" -eq 0 ] || exit 1
  echo "skipped: no chromium to look at the page with (Debian: chromium)"
  exit 77
fi
python3 -B "$here/report_page.py" "$tool" slow run other "${MS_SCREENSHOTS:-$PWD/screenshots}" || fail "the page in a browser"
exit $((failures > 0))
