#!/usr/bin/env bash
# Two undisturbed runs under ms-driver on a test cluster whose machine is busy: ms-train, whose step takes some 0.1 s, and a loop
# whose step takes 6 s, each on two nodes with a spare. Prints how many attempts each took, whom it accused, what it noted and
# the share of the time that was of use. Fails if there is a second attempt, or a node is accused: there was no fault.
# usage: tests/bench/driver_undisturbed.sh [MINUTES [LOAD [NICENESS]]] (default 30 10 0: ten processes keep the machine busy)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
build=$(realpath "${BUILD:-$here/../../build/release}")
cmake --build "$build" --target ms-train ms-driver ms-data ms-diag >/dev/null
export CLUSTER_BUILD=$build minutes=${1:-30} load=${2:-10} niceness=${3:-0} support=$here/.. work=2 spares=1
# shellcheck disable=SC2016 # for the shell on the controller
exec "$here/../cluster/run" 6 -- bash -euo pipefail -c '
cp "$support/cluster/"{driven.sh,loop.py} "$support/support/training.sh" "$CLUSTER_DIR/shared"
cd "$CLUSTER_DIR/shared"; . ./training.sh; . ./driven.sh
for ((i = 0; i < load; i++)); do nice -n "$niceness" bash -c "while :; do :; done" & done
mkdir short long; cp loop.py long
(cd short; driven_config train.steps=1000000 checkpoint.every_steps=100 checkpoint.keep_last=3; drive_training)
(cd long; DT=6 drive_loop 1000000)
(cd short; wait-until 120 at_step 1)
(cd long; wait-until 120 looped 1)
sleep $((minutes * 60))
failed=0
for run in short long; do
  (cd "$run"
   ms-driver report --json r >report.json
   cut -d " " -f 1-3 /proc/loadavg >load
   ms-driver stop --run-dir r >/dev/null
   wait-until 120 ended
   python3 - "$minutes" "$run" "$(<load)" <<"PY"
import json, sys
ledger = json.load(open("report.json"))
attempts, notes = ledger["attempts"], [note["text"] for note in ledger["notes"]]
accused, steps = ledger["strikes"] or "no node", attempts[-1]["to_step"]
print(f"{sys.argv[2]} steps, {sys.argv[1]} minutes, load {sys.argv[3]}: {len(attempts)} attempts, {steps} steps, accused {accused}, "
      + "noted {}, effective {:.4f}".format(notes or "nothing", ledger["effective"]))
sys.exit(len(attempts) > 1 or bool(ledger["strikes"]) or bool(ledger["excluded"]))
PY
  ) || failed=1
done
exit $failed'
