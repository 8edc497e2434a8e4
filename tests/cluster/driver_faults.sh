#!/usr/bin/env bash
# Every fault of the driver's table on a real Slurm of six nodes, four at work: what detected it, whom it accused, and the
# seconds from the fault to the next new step. A row a line; fails if a row is not as it should be.
# usage: [SLURMD_TIMEOUT=300] driver_faults.sh BUILD [NAME...]   (a name's spaces are "-"; Slurm's default, here 4)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
CLUSTER_BUILD=$(realpath "${1:-build/release}")
export CLUSTER_BUILD
shift || true

# name | ends with code | causes that the first attempt may have | nodes that it may accuse, "nobody" | MS_FAULT, or nothing |
# what is prepared | settings of the run | what is done at step 12. A row with FAULT in "prepared" runs loop.py.
faults=$(
  cat <<'TABLE'
rank killed|0|rank_died|node02||||on-node node02 pkill -KILL -x ms-train
rank stopped|0|hang|node02||||on-node node02 pkill -STOP -x ms-train
endless loop|0|hang|node02|step=12 rank=1 restart=0 spin|||
never enters a collective|0|hang|node02|step=12 rank=1 restart=0 hang|||
rank exits|0|rank_died|node02|step=12 rank=1 restart=0 exit|||
node declares itself bad|0|node_fault|node02|step=12 rank=1 restart=0 node-bad|||
GPU declares itself bad|0|gpu_fault|node02|step=12 rank=1 restart=0 gpu-bad|||
storage fails|0|storage||step=12 rank=1 restart=0 storage|||
node gone|0|node_lost|node02||||kill-node node02
link cut|0|node_lost|node02||||cut-link node02
slurmd killed|0|node_lost|node02||||on-node node02 pkill -KILL -x slurmd
20 % packet loss|0|hang node_lost packet_loss|node02||||lose-packets node02 20
storage full|0||||||fill_storage
spares exhausted|76|node_lost|node02||||kill-node node02; wait-until 60 grep -q "attempt 2 trains" job.log; kill-node node03; wait-until 60 grep -q "attempt 3 trains" job.log; kill-node node04
agent killed|0|done|||||on-node node02 pkill -KILL -f 'ms-driver agent'
driver killed|0|done|||||on-node node01 bash -c 'kill -KILL "$(pgrep -f "^ms-driver run" | tail -n 1)"'
batch host lost|0|driver_killed|||driver_options=(--max-requeues 1)||kill-node node01; wait-until 200 job_waits; start-node node01
driver killed eight times|0|rank_died|node02||||on-node node02 pkill -KILL -x ms-train; for i in {1..8}; do on-node node01 bash -c 'pkill -KILL -P "$(pgrep -o -f "^ms-driver run")" || true'; sleep "0.$((i * 37 % 100))"; done
newest checkpoint corrupted|0|rank_died|node02||||wait-until 30 saved_twice; for file in $(ls -d ckpt/step-* | sort | tail -n 1)/*.h5; do printf broken | dd of="$file" bs=1 seek=3000 conv=notrunc status=none; done; on-node node02 pkill -KILL -x ms-train
two faults at once|0|node_lost|node03||||on-node node02 pkill -KILL -x ms-train & kill-node node03; wait
fault that always comes back|93|rank_died|node02|step=12 rank=1 kill|||
slurmctld restarted|0|rank_died|node02||||pkill -x slurmctld; wait-until 20 bash -c '! pgrep -x slurmctld'; slurmctld; on-node node02 pkill -KILL -x ms-train
link at 1 % of its rate|0|done|nobody||||limit-rate node02 240mbit
NaN loss, the step is skipped|0|done|nobody|step=12 rank=1 nan|||
NaN loss, the guard stops the run|2|train.diverged|nobody|step=12 rank=1 nan||guard.nonfinite="stop"|
NaN loss in every step|2|train.diverged|nobody|step=12 rank=1 nan; step=13 rank=2 nan; step=14 rank=3 nan||guard.max_skips=3|
GPU error that accuses the program|70|cuda.program|nobody||emulated_gpu 700||
GPU error that accuses the hardware|0|gpu_ecc gpu_fault|node01||emulated_gpu ecc||
zero spares|0|node_lost|node02||no_spares||kill-node node02; wait-until 400 job_waits; start-node node02; wait-until 200 grep -q "^driver rc 0" job.log
zero spares and slow Slurm|0|node_lost|node02||no_spares; slow_slurm||kill-node node02; wait-until 400 job_waits; start-node node02; wait-until 200 grep -q "^driver rc 0" job.log
slow Slurm|0|rank_died|node02||slow_slurm||on-node node02 pkill -KILL -x ms-train
storage of checkpoints frozen|0|done|nobody||storage_of_its_own ckpt|train.steps=200|wait-until 30 saved_twice; freeze ckpt 45
run directory frozen|0|done|nobody||storage_of_its_own r|train.steps=200|freeze r 45
run directory full|0|rank_died storage storage_full|||storage_of_its_own r||fill r; on-node node02 pkill -KILL -x ms-train; wait-until 60 storage_failed_twice; rm r/filler
node paused|0|done node_lost|node02||||pause_node node02 20
node paused, zero spares|0|done|nobody||no_spares; slurm_has SlurmdTimeout=300|run.least_timeout="60s"|pause_node node02 20
link flaps|0|done node_lost hang|node02||||for seconds in 0.5 1 2 5 10; do cut-link node02; sleep "$seconds"; mend-link node02; sleep 2; done
link flaps, zero spares|0|done|nobody||no_spares||for seconds in 0.5 1 2 5 10; do cut-link node02; sleep "$seconds"; mend-link node02; sleep 2; done
same bug each time|93|exception|nobody||FAULT=exception:1:12||
leak with progress|93|job_memory|nobody||FAULT=leak:1:12||
finding of ms-diag in mid-run|0|finding|node02||healthy_gpus||gpus node02 "gpu 3 ecc_uncorrectable=4"
TABLE
)

kit=$(mktemp -d)
trap 'rm -rf "$kit"' EXIT
cp "$here"/{driven.sh,preflight.sh,loop.py} "$here/../support/training.sh" "$kit"
export kit work=4 spares=2

# shellcheck disable=SC2016 # for the shell on the controller
on_controller='
cp -r "$kit/." "$CLUSTER_DIR/shared"; cd "$CLUSTER_DIR/shared"; . ./training.sh; . ./driven.sh; . ./preflight.sh; trap what_failed ERR
# The file system of the run, its checkpoints and all logs is full for five seconds, and a save has failed.
fill_storage() {
  local used
  used=$(df --output=used -k /run | tail -n 1)
  mount -o remount,size="$used"k /run
  sleep 5
  mount -o remount,size=50% /run
}
# slurm_has KEY=VALUE...: of the configuration.
slurm_has() {
  local pair
  for pair in "$@"; do sed -i "s/^${pair%%=*}=.*/$pair/" "$SLURM_CONF"; done
  scontrol reconfigure
}
# slow_slurm: slurmctld answers once in ten seconds.
slow_slurm() {
  slurm_has MessageTimeout=30
  (while sleep 0.3; do
    pkill -STOP -x slurmctld
    sleep 10
    pkill -CONT -x slurmctld
  done) &
}
no_spares() { spares=0 driver_options=(--max-requeues 1); }
# storage_of_its_own FOLDER: a file system that all nodes share.
storage_of_its_own() {
  local device node
  truncate -s 64M "$1.image"
  mkfs.ext4 -q "$1.image"
  device=$(losetup --show -f "$1.image")
  trap "losetup -d $device" EXIT
  mkdir "$1"
  mount "$device" "$1"
  for node in node0{1..6}; do on-node "$node" mount "$device" "$PWD/$1"; done
}
freeze() { fsfreeze -f "$1"; sleep "$2"; fsfreeze -u "$1"; } # FOLDER SECONDS
fill() { head -c 99M /dev/zero >"$1/filler" 2>/dev/null || true; }
storage_failed_twice() { [[ $(grep -c "ended: storage" job.log) -ge 2 ]]; }
# pause_node NODE SECONDS: neither its processes nor its kernel answer, as those of a virtual machine that is moved.
pause_node() {
  cut-link "$1"
  on-node "$1" bash -c "kill -STOP -1"
  sleep "$2"
  on-node "$1" bash -c "kill -CONT -1"
  mend-link "$1"
}
# emulated_gpu FAULT: one rank, on an emulated GPU (whose NCCL reaches no other node), which fails in this way in the first
# attempt.
emulated_gpu() {
  work=1
  settings=(run.device=\"cuda\" train.dtype=\"bf16\" train.steps=20 checkpoint.every_steps=2 model.hidden=64 model.heads=8 model.seq=32)
  mkdir gpu
  cat >gpu/ms-train <<SH
#!/bin/bash
export LD_LIBRARY_PATH=$CLUSTER_BUILD/emulated/lib
if [[ \$MS_ATTEMPT == 1 ]]; then export MS_EMULATED_GPU_FAULT=$1@1500; fi # some twelve steps
exec $CLUSTER_BUILD/bin/ms-train "\$@"
SH
  chmod +x gpu/ms-train
  export PATH=$PWD/gpu:$PATH
}
saved_twice() { [[ $(find ckpt -maxdepth 1 -name "step-*" | wc -l) -ge 2 ]]; }
job_waits() { [[ $(squeue -h -j "$(<job.id)" -o %T) == PENDING ]]; }
export -f saved_twice job_waits storage_failed_twice
# healthy_gpus: every node has eight, and ms-diag looks at them every second.
healthy_gpus() { policy </dev/null; all_gpus; driver_options=(--health-every 1s); }
driver_options=() FAULT=
if [[ -n ${SLURMD_TIMEOUT-} ]]; then slurm_has SlurmdTimeout="$SLURMD_TIMEOUT"; fi
read -r -a settings <<<"$settings"
eval "$prepared"
driven_config "${settings[@]}"
export MS_FAULT=$injected
if [[ $injected != *nan* ]]; then unset MS_FAULT; fi # such a step is part of the undisturbed run
if [[ $code == 0 ]]; then undisturbed; fi
if [[ -n $injected ]]; then export MS_FAULT=$injected; fi
if [[ -n $FAULT ]]; then
  export FAULT
  drive_loop 200 "${driver_options[@]}"
else
  drive_training "${driver_options[@]}"
fi
if [[ -n $action ]]; then wait-until 60 at_step 12; eval "$action"; fi
ends_with "$code" 400 >&2
python3 - "$name" "$cause" "$accused" "$code" <<"PY"
import json, sys
name, cause, accused, code = sys.argv[1:4] + [int(sys.argv[4])]
ledger = json.load(open("r/driver/ledger.json"))
first = ledger["attempts"][0]
loops = "loop.py" in ledger["command"]  # a bug of the program, which is known as such once it came on another node
named = (ledger["attempts"][-1] if loops else first)["suspects"]
right = not cause or first["cause"] in cause.split()
right = right and (not named and not ledger["strikes"] if accused == "nobody" else not accused or accused in named)
if loops: right = right and {attempt["cause"] for attempt in ledger["attempts"]} == {cause}
if code in (2, 70): right = right and len(ledger["attempts"]) == 1  # the same thing would happen again
everybody = len(named) > 1 and set(named) == set(first["nodes"])
located = "-" if not named else "right" if named == [accused] else "undecided" if everybody else "over-evicted"
seconds = lambda s: f"{s:.1f}" if s > 0 else "-"
print(" | ".join([name, first["cause"], located, seconds(first["detect_s"]), seconds(first["diagnose_s"]), seconds(first["recover_s"]),
                  seconds(first["recover_s"] and first["detect_s"] + first["recover_s"]), str(len(ledger["attempts"]))]), end=" | ")
if not right: print("\n" + json.dumps(ledger, indent=1), file=sys.stderr)
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
while IFS='|' read -r name code cause accused injected prepared settings action; do
  if (($# > 0)) && [[ " $* " != *" ${name// /-} "* ]]; then continue; fi
  export name code cause accused injected action prepared settings
  "$here/run" 6 -- bash -euo pipefail -c "$on_controller" </dev/null || { echo "$name: FAILED" && failed=1; }
done <<<"$faults"
exit "$failed"
