#!/usr/bin/env bash
# ms-tracepp report --follow: who is answered, what is refused, and a run that grows. In a browser: ms_tracepp_page_test.sh.
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
here=$(cd "$(dirname "$0")" && pwd)
training_directory
tiny_config mesh.dp=2 mesh.pp=2 mesh.tp=2 >c.toml
cluster=$here/../../configs/clusters/h100-8x400g.toml
for steps in 6 12; do
  "$bin/ms-train" simulate c.toml --cluster "$cluster" --steps $steps --trace trace$steps >out 2>err || fail "ms-train simulate"
done
python3 -B "$here/follow_visits.py" "$tool" trace6 trace12 c.toml "$cluster" || fail "visits"

# timeout signals the process, then its group. On one CPU the first has been obeyed before the second comes.
cpu=$(taskset -cp $$ | sed 's/.*: //; s/[,-].*//')
for _ in 1 2 3; do
  taskset -c "$cpu" timeout --preserve-status 3 "$tool" report --follow trace6 >out 2>err || fail "two signals: exit code $?"
done
exit $((failures > 0))
