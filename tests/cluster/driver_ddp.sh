#!/usr/bin/env bash
# PyTorch DDP over gloo under ms-driver, two nodes at work and a spare on the test cluster: a rank that is killed, one that is
# stopped, and one that calls another collective. All must go on by themselves, with the losses of an undisturbed run; the last
# one accuses no node, and ends the run where it comes again.
# Nightly. PYTHON is one that has torch; where it is not set, a virtual environment is made in build/peer (pip install torch).
# usage: driver_ddp.sh BUILD [killed|stopped|mismatched|mismatched-again...]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
"$here/run" --check
CLUSTER_BUILD=$(realpath "${1:-build/release}")
export CLUSTER_BUILD
shift || true
# shellcheck source=tests/cluster/lib.sh
. "$here/lib.sh"
python=$(python_with_torch) || { echo "skipped: pip cannot install torch" && exit 77; }
kit=$(mktemp -d)
trap 'rm -rf "$kit"' EXIT
cp "$here"/{driven.sh,ddp.py,../support/training.sh,../../examples/10-driver/heartbeat.py} "$kit"
export kit python names="$*" work=2 spares=1
# shellcheck disable=SC2016 # for the shell on the controller
exec "$here/run" 3 -- bash -euo pipefail -c '
cp -r "$kit/." "$CLUSTER_DIR/shared"; cd "$CLUSTER_DIR/shared"; . ./training.sh; . ./driven.sh
steps=100
losses_of() { awk "{ loss[\$1] = \$2 } END { for (step = 0; step < $steps; step++) print step, loss[step] }" "$1"; }
written() { [[ $(wc -l <out/losses) -ge $1 ]]; }
export -f written
export TORCH_FR_BUFFER_SIZE=2000 TORCH_FR_DUMP_TEMP_FILE=$PWD/flight/rank_ TORCH_NCCL_DEBUG_INFO_PIPE_FILE=$PWD/flight/ask_
# train NAME CAUSE ACCUSED ACTION [CODE]: what is done after step 30; prints a row.
train() {
  if [[ -n $names && $1 != undisturbed && " $names " != *" $1 "* ]]; then return 0; fi
  rm -rf out r job.log flight && mkdir out flight
  drive --hang-timeout 60s -- "$python" ddp.py "$PWD/out" $steps
  if [[ -n $4 ]]; then wait-until 120 written 30; eval "$4"; fi
  ends_with "${5-0}" 300 >&2
  [[ $(attempt 1 cause) == "\"$2\"" ]]
  if [[ -n $3 ]]; then [[ $(attempt 1 suspects) == *"$3"* ]]; fi
  if [[ -n ${5-} ]]; then
    [[ $(attempt 2 cause) == "\"$2\"" && $(attempt 2 suspects) == "$3" && ! $(attempt 3 cause 2>/dev/null) ]]
    echo "$1: $(attempt 2 cause), accused $(attempt 2 suspects), given up after the second attempt: $(attempt 2 why)"
    return 0
  fi
  if [[ ! -e undisturbed ]]; then losses_of out/losses >undisturbed; fi
  diff undisturbed <(losses_of out/losses) >losses.diff || { head -n 4 losses.diff && return 1; }
  # Of a run that hung: stacks of all processes of both nodes.
  if [[ $2 != rank_died && $2 != done ]]; then grep -q "ddp.py" r/driver/attempt-1.node01.stacks && grep -q "ddp.py" r/driver/attempt-1.node02.stacks; fi
  echo "$1: $(attempt 1 cause), accused $(attempt 1 suspects), detected $(attempt 1 detect_s) s, recovered $(attempt 1 recover_s) s, bit-equal"
}
train undisturbed done "" ""
train killed rank_died node02 "on-node node02 pkill -KILL -f ddp.py"
train stopped hang node02 "on-node node02 pkill -STOP -f ddp.py"
FAULT="1 40 1" train mismatched collective_mismatch "[]" ""
FAULT="1 40 2" train mismatched-again collective_mismatch "[]" "" 93'
