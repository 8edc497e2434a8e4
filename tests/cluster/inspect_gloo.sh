#!/usr/bin/env bash
# ms-driver inspect beside real PyTorch jobs over gloo that hang in four ways, on a test cluster of three nodes: whom it names,
# how sure it is, and how long it took. The job must stay as it is. A row a way; fails if a healthy rank is named.
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
export kit python ways="${*:-sleeps loops loads stopped}"
# shellcheck disable=SC2016 # for the shell on the controller
exec "$here/run" 3 -- bash -euo pipefail -c '
cp "$kit/hang.py" "$CLUSTER_DIR/shared"; cd "$CLUSTER_DIR/shared"
PATH=$(dirname "$python"):$PATH
trap "tail -n 20 job.* >&2" ERR
echo "rank 1 | state | named | sure | seconds | job"
failed=0 untried=0
for way in $ways; do
  rm -rf d && mkdir d && mkfifo d/batches
  printf "#!/bin/bash\nexec srun --ntasks-per-node=1 %s -B hang.py d %s\n" "$python" "$way" >job.sh
  # Ranks over gloo do not always reach each other: such a job has ended, and another one is tried.
  for try in 1 2 3 4 5; do
    rm -f d/rendezvous.*
    job=$(sbatch --parsable --exclusive --nodes=3 --ntasks-per-node=1 -o "job.$way" job.sh)
    until [[ -e d/hangs || -z $(squeue -h -j "$job" -t pending,running 2>/dev/null) ]]; do sleep 0.5; done
    if [[ -e d/hangs ]]; then break; fi
  done
  if [[ ! -e d/hangs ]]; then echo "$way | not tried: its ranks did not reach each other" && untried=77 && continue; fi
  sleep 5
  begin=$EPOCHREALTIME
  ms-driver inspect --dir "seen.$way" --json "$job" >it.json
  seconds=$(bc <<<"$EPOCHREALTIME - $begin")
  state=$(squeue -h -j "$job" -o %T)
  python3 - "$way" "$seconds" "$state" <<"PY" || failed=1
import json, sys
way, seconds, state = sys.argv[1:]
verdict = json.load(open("it.json"))["verdict"]
first = (verdict["suspects"] or [{}])[0]
sure = first.get("confidence", 0)
who = "-" if not first else "{} {}".format(first.get("rank", "-"), first.get("host", ""))
print(" | ".join([way, verdict["state"], who, "{:.2f}".format(sure), "{:.1f}".format(float(seconds)), state]))
sys.exit(state != "RUNNING" or (sure >= 0.8 and first.get("rank") != 1))
PY
  scancel "$job"
  wait-until 40 bash -c "[[ -z \$(squeue -h -j $job -t running,completing) ]]"
done
exit "$((failed > 0 ? failed : untried))"'
