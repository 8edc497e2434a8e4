#!/usr/bin/env bash
# ms-driver inspect beside real PyTorch jobs over gloo that hang in nine ways, on a test cluster of three nodes: whom it names,
# with which cause, how sure it is, and how long it took. A row a way; fails unless the rank, its node and the cause are right
# within 30 seconds, and the job is as it was.
# Nightly. PYTHON is one that has torch and py-spy; where it is not set, a virtual environment is made in build/peer.
# usage: inspect_gloo.sh BUILD [WAY...]
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
cp "$here/hang.py" "$kit"
export kit python ways="${*:-sleeps loops reads locks loads saves stopped swaps receives}"
# shellcheck disable=SC2016 # for the shell on the controller
exec "$here/run" 3 -- bash -euo pipefail -c '
cp "$kit/hang.py" "$CLUSTER_DIR/shared"; cd "$CLUSTER_DIR/shared"
PATH=$(dirname "$python"):$PATH
trap "tail -n 20 job.* >&2" ERR
echo "rank 1 | state | named | reason | where | sure | seconds | job"
failed=0
for way in $ways; do
  rm -rf d && mkdir d && mkfifo d/batches
  printf "#!/bin/bash\nexec srun --ntasks-per-node=1 %s -B hang.py d %s\n" "$python" "$way" >job.sh
  job=$(sbatch --parsable --exclusive --nodes=3 --ntasks-per-node=1 -o "job.$way" job.sh)
  wait-until 60 test -e d/hangs
  sleep 5
  begin=$EPOCHREALTIME
  ms-driver inspect --dir "seen.$way" --json "$job" >it.json
  seconds=$(bc <<<"$EPOCHREALTIME - $begin")
  state=$(squeue -h -j "$job" -o %T)
  python3 - "$way" "$seconds" "$state" <<"PY" || failed=1
import json, sys
CAUSES = {  # of each way: the reason, and the function of hang.py that rank 1 is in
    "sleeps": ("not_issuing", "<lambda>"),
    "loops": ("not_issuing", "tokenize_forever"),
    "reads": ("not_issuing", "read_batch"),
    "locks": ("not_issuing", "take_lock"),
    "loads": ("data_wait", "load_batch"),
    "saves": ("save", "save_checkpoint"),
    "stopped": ("silent", "stopped"),
    "swaps": ("waits_alone", "swap_groups"),
    "receives": ("wrong_kind", "receive"),
}
way, seconds, state = sys.argv[1], float(sys.argv[2]), sys.argv[3]
verdict = json.load(open("it.json"))["verdict"]
first = (verdict["suspects"] or [{}])[0]
who, reason, where = (first.get("rank"), first.get("host")), first.get("reason"), first.get("doing", "")
sure = first.get("confidence", 0)
print(" | ".join(map(str, [way, verdict["state"], who, reason, where, f"{sure:.2f}", f"{seconds:.1f}", state])))
is_right = who == (1, "node02") and reason == CAUSES[way][0] and CAUSES[way][1] in where and sure >= 0.5
sys.exit(state != "RUNNING" or seconds > 30 or not is_right)
PY
  scancel "$job"
  wait-until 40 bash -c "[[ -z \$(squeue -h -j $job -t running,completing) ]]"
done
exit "$failed"'
