#!/usr/bin/env bash
# An undisturbed run under ms-driver on the test cluster, two nodes at work and a spare: how many attempts it took, how many
# alarms there were (none are right), and the share of the time that was of use.
# usage: tests/bench/driver_undisturbed.sh [MINUTES] (default 30)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
build=$(realpath "${BUILD:-$here/../../build/release}")
cmake --build "$build" --target ms-train ms-driver ms-data ms-diag >/dev/null
export CLUSTER_BUILD=$build minutes=${1:-30} support=$here/.. work=2 spares=1
# shellcheck disable=SC2016 # for the shell on the controller
exec "$here/../cluster/run" 3 -- bash -euo pipefail -c '
cp "$support/cluster/driven.sh" "$support/support/training.sh" "$CLUSTER_DIR/shared"
cd "$CLUSTER_DIR/shared"; . ./training.sh; . ./driven.sh
driven_config train.steps=1000000 checkpoint.every_steps=100 checkpoint.keep_last=3
drive_training
wait-until 60 at_step 1
sleep $((minutes * 60))
ms-driver report --json r >report.json
ms-driver stop --checkpoint --run-dir r >/dev/null
ends_with 75
python3 - "$minutes" <<"PY"
import json, sys
report = json.load(open("report.json"))
attempts = report["attempts"]
steps, effective = attempts[-1]["to_step"], report["effective"]
print(f"{sys.argv[1]} minutes: {len(attempts)} attempts, {len(attempts) - 1} alarms, {steps} steps, effective {effective:.4f}")
PY'
