#!/usr/bin/env bash
# ms-netcheck nccl-log on kept logs of situations that users of NCCL reported, each with its right answer.
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
cases=$(realpath "$(dirname "$0")/../../../shared/cases/traces")
[ -d "$cases" ] || { echo "../shared/cases/traces is not here" && exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

# Reads the log of a case, and compares the findings, as {code: [entities]}, with what is expected of them.
expect_findings() {  # FILE EXPRESSION
  [ -f "$cases/$1" ] || { fail "the case $1 is not here" && return; }
  "$tool" nccl-log --json "$cases/$1" >document 2>err
  [ $? -le 2 ] || { fail "nccl-log $1: $(cat err)" && return; }
  python3 - "$2" 2>err <<'PYTHON' || fail "nccl-log $1: $2: $(tail -n 1 err)"
import collections, json, sys
document = json.load(open("document"))
found, hosts = collections.defaultdict(list), set(document["hosts"])
for finding in document["findings"]:
    found[finding["code"]].append(finding["entity"])
assert eval(sys.argv[1]), dict(found)
PYTHON
}
gdr='found == {"nccl.gdr": ["node37"]} and hosts == {"node32", "node37"}'
expect_findings 11-one-node-without-peermem/log.txt "$gdr"
for log in "$cases"/12-launcher-prefixes/*.txt; do expect_findings "12-launcher-prefixes/$(basename "$log")" "$gdr"; done
expect_findings 13-one-adapter-fewer/log.txt 'found == {"nccl.adapters": ["beta"], "nccl.warning": ["beta"]}'
expect_findings 13b-one-adapter-fewer-no-warn/log.txt 'found == {"nccl.adapters": ["beta"]}'
for log in log log-no-warn; do
  expect_findings 14-socket-over-loopback/$log.txt 'found["nccl.loopback"] == ["edge-a,edge-b"]'
done
expect_findings 14-socket-over-loopback/cloud-64-hosts.txt 'not found and len(hosts) == 64'
expect_findings 15-ib-completion-errors/log.txt 'found == {"nccl.completion": ["worker-0"]}'
expect_findings 16-coll-lines/log.txt 'found["nccl.calls"] == ["ws"]'

[ "$failures" -eq 0 ] && echo "all as expected"
[ "$failures" -eq 0 ]
