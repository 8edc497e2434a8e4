#!/usr/bin/env bash
# ms-driver against ft_launcher of NVRx (nvidia-resiliency-ext) on the test cluster: the same PyTorch loop over gloo on two nodes,
# a third one as spare, the same faults. Prints seconds from the fault until a step ends that had not ended before it, and
# the nodes before and after. ft_launcher's loop sends NVRx's heartbeats, with a deadline of 5 s that is looked at every 0.5 s.
# PYTHON is one that has both; where it is not set, a virtual environment is made in build/peer.
# usage: [PEERS="driver nvrx"] tests/bench/driver_nvrx.sh [killed|stopped|lost...]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
build=$(realpath "${BUILD:-$here/../../build/release}")
python=${PYTHON-$build/../peer/bin/python}
if [[ ! -x $python ]]; then
  python3 -m venv "${python%/bin/python}"
  "$python" -m pip install --quiet torch numpy nvidia-resiliency-ext
fi
kit=$(mktemp -d)
trap 'rm -rf "$kit"' EXIT
cp "$here"/../cluster/{driven.sh,ddp.py} "$here/../support/training.sh" "$here/../../examples/10-driver/heartbeat.py" "$kit"
mkdir "$kit/nvrx"
cp "$kit/ddp.py" "$kit/nvrx"
cat >"$kit/nvrx/heartbeat.py" <<'PY'
import nvidia_resiliency_ext.fault_tolerance as fault_tolerance

client = fault_tolerance.RankMonitorClient()
answer_driver = client.init_workload_monitoring


def beat(step, **_):
    client.send_heartbeat()
PY
cat >"$kit/nvrx/rank" <<'SH'
#!/bin/bash
export SLURM_PROCID=$RANK SLURM_NTASKS=$WORLD_SIZE MS_ATTEMPT=$MASTER_ADDR.$MASTER_PORT
exec "$PYTHON" nvrx/ddp.py "$PWD/out" 100000
SH
chmod +x "$kit/nvrx/rank"
export CLUSTER_BUILD=$build PYTHON=$python peers=${PEERS-driver nvrx} kit names="${*:-killed stopped lost}" work=2 spares=1
# shellcheck disable=SC2016 # for the shell on the controller
exec "$here/../cluster/run" 3 -- bash -euo pipefail -c '
cp -r "$kit/." "$CLUSTER_DIR/shared"; cd "$CLUSTER_DIR/shared"; . ./training.sh; . ./driven.sh; trap what_failed ERR
export TORCH_FR_BUFFER_SIZE=2000 TORCH_FR_DUMP_TEMP_FILE=$PWD/flight/rank_ TORCH_NCCL_DEBUG_INFO_PIPE_FILE=$PWD/flight/ask_
done_steps() { awk "{ if (\$1 > most) most = \$1 } END { print most + 0 }" out/losses; }
beyond() { [[ $(done_steps) -gt $1 ]]; }
export -f done_steps beyond
with_ranks() { for node in node0{1..3}; do if on-node "$node" pgrep -f ddp.py >/dev/null 2>&1; then echo -n "$node "; fi; done; }
start_driver() { drive --hang-timeout 60s -- "$PYTHON" ddp.py "$PWD/out" 100000; }
start_nvrx() {
  cat >job.sh <<SH
#!/bin/bash
srun --mpi=none --no-kill --kill-on-bad-exit=0 ${PYTHON%/python}/ft_launcher --nnodes=2:2 --nproc-per-node=1 --max-restarts=10 --rdzv-backend=c10d \
  --rdzv-endpoint=node01:29500 --rdzv-id=1 --monitor-interval=0.5 --ft-initial-rank-heartbeat-timeout=60 \
  --ft-rank-heartbeat-timeout=5 --ft-workload-check-interval=0.5 --ignore-missing-fault-tol-cfg --no-python nvrx/rank
SH
  sbatch --parsable --no-kill --exclusive --nodes=3 --ntasks-per-node=1 -o job.log job.sh >job.id
}
for name in $names; do
  for peer in $peers; do
    rm -rf out flight r job.log && mkdir out flight
    "start_$peer"
    wait-until 120 beyond 30
    nodes=$(with_ranks)
    victim=$(tr " " "\n" <<<"$nodes" | grep node0[23] | head -n 1)
    fault=$EPOCHREALTIME
    case $name in
      killed) on-node "$victim" pkill -KILL -f ddp.py ;;
      stopped) on-node "$victim" pkill -STOP -f ddp.py ;;
      lost) kill-node "$victim" ;;
    esac
    sleep 0.5 # in which the others write their last steps, and no start is so quick
    before=$(done_steps)
    if wait-until 60 beyond "$before" 2>/dev/null; then took=$(awk "BEGIN { print $EPOCHREALTIME - $fault }"); else took=never; fi
    echo "$name | $peer | fault to next step $took s | fault on $victim, ranks before on ${nodes}and after on $(with_ranks)"
    scancel "$(<job.id)"
    if [[ $name == lost ]]; then start-node "$victim"; fi
    wait-until 60 bash -c "[[ -z \$(squeue -h) && \$(sinfo -h -o %T | sort -u) == idle ]]"
  done
done'
