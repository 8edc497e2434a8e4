#!/usr/bin/env bash
# Every fault of the driver's table on a real Slurm of six nodes, four at work: what detected it, whom it accused, and the
# seconds from the fault to the next new step. A row a line; fails if a row is not as it should be.
# usage: driver_faults.sh BUILD [NAME...]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
CLUSTER_BUILD=$(realpath "${1:-build/release}")
export CLUSTER_BUILD
shift || true

# name | ends with code | cause of the first attempt | whom it may accuse | MS_FAULT, or nothing | what is done at step 12
faults=$(
  cat <<'TABLE'
rank killed|0|rank_died|node02||on-node node02 pkill -KILL -x ms-train
rank stopped|0|hang|node02||on-node node02 pkill -STOP -x ms-train
endless loop|0|hang|node02|step=12 rank=1 restart=0 spin|
never enters a collective|0|hang|node02|step=12 rank=1 restart=0 hang|
rank exits|0|rank_died|node02|step=12 rank=1 restart=0 exit|
node declares itself bad|0|node_fault|node02|step=12 rank=1 restart=0 node-bad|
GPU declares itself bad|0|gpu_fault|node02|step=12 rank=1 restart=0 gpu-bad|
storage fails|0|storage||step=12 rank=1 restart=0 storage|
node gone|0|node_lost|node02||kill-node node02
link cut|0|node_lost|node02||cut-link node02
slurmd killed|0|node_lost|node02||on-node node02 pkill -KILL -x slurmd
20 % packet loss|0|hang|node02||lose-packets node02 20
storage full|0||||fill_storage
spares exhausted|76|node_lost|node02||kill-node node02; wait-until 60 grep -q "attempt 2 trains" job.log; kill-node node03; wait-until 60 grep -q "attempt 3 trains" job.log; kill-node node04
agent killed|0|done|||on-node node02 pkill -KILL -f 'ms-driver agent'
driver killed|0|done|||on-node node01 bash -c 'kill -KILL "$(pgrep -f "^ms-driver run" | tail -n 1)"'
newest checkpoint corrupted|0|rank_died|node02||wait-until 30 bash -c "ls -d ckpt/step-*[05]/ | grep -c . | grep -qv ^1"; for file in $(ls -d ckpt/step-* | sort | tail -n 1)/*.h5; do printf broken | dd of="$file" bs=1 seek=3000 conv=notrunc status=none; done; on-node node02 pkill -KILL -x ms-train
two faults at once|0||||on-node node02 pkill -KILL -x ms-train & kill-node node03; wait
fault that always comes back|93|rank_died|node02|step=12 rank=1 kill|
slurmctld restarted|0|rank_died|node02||pkill -x slurmctld; wait-until 20 bash -c '! pgrep -x slurmctld'; slurmctld; on-node node02 pkill -KILL -x ms-train
link at 1 % of its rate|0|done|||limit-rate node02 240mbit
TABLE
)

kit=$(mktemp -d)
trap 'rm -rf "$kit"' EXIT
cp "$here/driven.sh" "$here/../support/training.sh" "$kit"
export kit work=4 spares=2

# shellcheck disable=SC2016 # for the shell on the controller
on_controller='
cp -r "$kit/." "$CLUSTER_DIR/shared"; cd "$CLUSTER_DIR/shared"; . ./training.sh; . ./driven.sh
# The file system of the run, its checkpoints and all logs is full for five seconds, and a save has failed.
fill_storage() {
  local used
  used=$(df --output=used -k /run | tail -n 1)
  mount -o remount,size="$used"k /run
  sleep 5
  mount -o remount,size=50% /run
}
driven_config
undisturbed
if [[ -n $injected ]]; then export MS_FAULT=$injected; fi
drive_training
if [[ -n $action ]]; then wait-until 60 at_step 12; eval "$action"; fi
ends_with "$code" 400 >&2
python3 - "$name" "$cause" "$accused" <<"PY"
import json, sys
name, cause, accused = sys.argv[1:]
ledger = json.load(open("r/driver/ledger.json"))
first = ledger["attempts"][0]
right = (not cause or first["cause"] == cause) and (not accused or accused in first["suspects"])
located = "-" if not first["suspects"] else "right" if first["suspects"] == [accused] else "over-evicted"
seconds = lambda s: f"{s:.1f}" if s > 0 else "-"
print(" | ".join([name, first["cause"], located, seconds(first["detect_s"]), seconds(first["diagnose_s"]), seconds(first["recover_s"]),
                  seconds(first["detect_s"] + first["recover_s"]), str(len(ledger["attempts"]))]), end=" | ")
sys.exit(not right)
PY
if [[ $code != 0 ]]; then
  echo "-"
elif [[ $action == fill_storage ]]; then
  written_losses_agree && echo "bit-equal where written"
else
  losses_agree && echo "bit-equal"
fi'

echo 'fault | ended by | located | detect s | diagnose s | recover s | fault to next step s | attempts | losses'
failed=0
while IFS='|' read -r name code cause accused injected action; do
  if (($# > 0)) && [[ " $* " != *" ${name// /-} "* ]]; then continue; fi
  export name code cause accused injected action
  "$here/run" 6 -- bash -euo pipefail -c "$on_controller" </dev/null || { echo "$name: FAILED" && failed=1; }
done <<<"$faults"
exit "$failed"
