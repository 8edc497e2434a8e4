#!/usr/bin/env bats
# Every script of jobscripts/ as a user submits it, on a real Slurm, with options of sbatch for a small cluster. What is not
# installed here is a stand-in on PATH, which takes what the script gives it: torchrun, apptainer, and the options that pyxis
# adds to srun. train-simple.sbatch has jobscript.bats for itself, and loss of nodes driver.bats.

bats_require_minimum_version 1.5.0

setup_file() {
  export kit=$BATS_FILE_TMPDIR/kit
  mkdir -p "$kit/stand-in"
  cp "$BATS_TEST_DIRNAME"/../support/{training,messages}.sh "$BATS_TEST_DIRNAME"/../../{jobscripts/*.sbatch,man/ms-messages.7} "$kit"
  # shellcheck source=tests/support/training.sh
  . "$kit/training.sh"
  tiny_config mesh.dp=2 train.steps=12 >"$kit/c.toml"
  cat >"$kit/stand-in/torchrun" <<'BASH'
#!/usr/bin/env bash
# Says how it was called; in the first attempt the one of the second node dies.
echo "torchrun $*, dumps go to $TORCH_FR_DUMP_TEMP_FILE, resumes from ${RESUME_FROM-unset}"
if [[ $MS_ATTEMPT == 1 && $SLURM_NODEID == 1 ]]; then kill -KILL $$; fi
if [[ $MS_ATTEMPT == 1 ]]; then exec sleep 600; fi # as the peers of a rank that died
BASH
  cat >"$kit/stand-in/apptainer" <<'BASH'
#!/usr/bin/env bash
# apptainer exec OPTION... IMAGE COMMAND...: says so, and runs the command as it is.
echo "apptainer $*"
while [[ $1 != *.sif ]]; do shift; done
shift
exec "$@"
BASH
  mkdir "$kit/pyxis"
  cat >"$kit/pyxis/srun" <<'BASH'
#!/usr/bin/env bash
# srun with pyxis: takes the options of containers, says so, and leaves the rest to the srun behind it on PATH.
others=()
for word in "$@"; do
  case $word in --container-*) echo "pyxis $word" ;; *) others+=("$word") ;; esac
done
exec "$(type -aP srun | sed -n 2p)" "${others[@]}"
BASH
  chmod +x "$kit"/{stand-in,pyxis}/*
}

# inside N <SCRIPT: runs the script on the controller of a cluster of N nodes, in a folder that all nodes share.
inside() {
  kit=$kit "$BATS_TEST_DIRNAME/run" "$1" -- bash -euo pipefail -c "$prelude"$'\n'"$(cat)"
}
# shellcheck disable=SC2016 # for the shell on the controller
prelude='
cp -r "$kit/." "$CLUSTER_DIR/shared"
cd "$CLUSTER_DIR/shared"
. ./training.sh
trap "[[ \$? -eq 0 ]] || tail -n 60 ./*.log" EXIT
training_text 400 >/dev/null 2>&1
job_is() { # JOB PATTERN: what Slurm says of it
  local record
  record=$(scontrol show job "$1")
  grep -Eq -e "$2" <<<"$record"
}
export -f job_is
# Submits, waits, and returns the code of the job; its log is job.log. (sbatch --wait asks Slurm too seldom.)
submit() { # OPTION... SCRIPT ARGUMENT...
  local id
  id=$(sbatch --parsable --output=job.log "$@")
  wait-until 120 job_is "$id" "JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT)"
  return "$(scontrol show job "$id" | sed -n "s/.* ExitCode=\([0-9]*\):.*/\1/p" | head -n 1)"
}
'

@test "train.sbatch: driver and spare, trains to the end" {
  inside 3 <<'BASH'
  submit -N3 --ntasks-per-node=1 train.sbatch c.toml
  grep -q 'spare: node' job.log
  grep -q '"code": 0' runs/1/verdict.json
  [[ $(wc -l <runs/1/metrics.jsonl) -eq 12 ]]
  # A task of an array has the name that squeue shows.
  RUN_DIR=array SPARES=0 submit -N2 --ntasks-per-node=1 --array=3 train.sbatch c.toml
  ms-driver status array | grep -q 'job 2_3.0'
  code=0
  submit -N1 train.sbatch || code=$?
  [[ $code -eq 2 ]] && grep -q usage: job.log
BASH
}

@test "mistakes in a job say what ms-messages(7) shows" {
  inside 3 <<'BASH'
  . ./messages.sh
  each_message ms-messages.7 '^(srun|salloc|ms-diag undrain)'
  [[ $shown -eq 4 ]]
BASH
}

@test "pytorch.sbatch: nodes are looked at, torchrun gets its nodes, and the spare when a node's launcher dies" {
  inside 3 <<'BASH'
  export PATH=$PWD/stand-in:$PATH PROCS_PER_NODE=2
  submit -N3 pytorch.sbatch train.py --lr 1
  port=20001 # of job 1
  call="torchrun --nnodes=2 --node-rank=1 --nproc-per-node=2 --master-addr=node01 --master-port=$port train.py --lr 1"
  grep -q -e "$call, dumps go to $PWD/runs/1/flight/rank_, resumes from unset" runs/1/driver/attempt-1.log
  grep -q -e "$call" runs/1/driver/attempt-2.log
  [[ -e runs/1/driver/check-node01.log ]]
  ms-driver report runs/1 >report
  grep -q rank_died report
  grep -q 'attempt 2 on node' job.log
BASH
}

@test "pytorch.sbatch: the program gets the newest sound checkpoint, and the run stops if all are damaged" {
  for step in 1 2; do
    mkdir -p "$kit/ckpts"
    cp -r "$BATS_TEST_DIRNAME/../pytorch/checkpoints/fsdp-2/step-2" "$kit/ckpts/step-$step"
  done
  inside 3 <<'BASH'
  export PATH=$PWD/stand-in:$PATH PROCS_PER_NODE=2 CHECKPOINTS=$PWD/ckpts
  submit -N3 pytorch.sbatch train.py
  [[ $(grep -c "resumes from $PWD/ckpts/step-2$" runs/1/driver/attempt-2.log) == 2 ]]
  rm ckpts/step-2/.metadata # as of a save that was cut off
  submit -N3 pytorch.sbatch train.py
  grep -q "resumes from $PWD/ckpts/step-1$" runs/2/driver/attempt-2.log
  rm ckpts/step-1/.metadata
  code=0
  submit -N3 pytorch.sbatch train.py || code=$?
  [[ $code -eq 93 ]]
  [[ $(grep -c torchrun runs/3/driver/attempt-1.log) == 0 ]]
BASH
}

@test "diag.sbatch: every node is checked, and compared with its peers" {
  inside 3 <<'BASH'
  export LEVEL=1 PAGE=fleet.html
  code=0
  submit -N3 diag.sbatch || code=$?
  [[ $code -le 2 ]]
  for task in 0 1 2; do grep -q "^$task: ms-diag ends with [0-2]" job.log; done
  grep -q '3 nodes' job.log
  [[ -s fleet.html ]]
BASH
}

@test "netcheck.sbatch: the page, and a code of ms-netcheck's" {
  inside 3 <<'BASH'
  export PAGE=map.html
  code=0
  submit -N3 netcheck.sbatch --pings 20 --seconds 50ms --bytes 8MiB || code=$?
  [[ $code -le 2 ]] # three nodes on two busy cores may differ
  grep -q node01 map.html
  code=0
  submit -N2 netcheck.sbatch --no-such-option || code=$?
  [[ $code -eq 3 ]]
BASH
}

@test "chain.sbatch: the second job goes on from the first one's checkpoint, and ends the chain" {
  inside 1 <<'BASH'
  sbatch -N1 chain.sbatch c.toml --set train.steps=100000
  wait-until 120 grep -qs '"step":5,' runs/chain-1/metrics.jsonl
  scancel --batch --signal=USR2 1
  wait-until 120 grep -qs 'job 2 continues' ms-chain-1.log
  wait-until 120 grep -qs 'resuming from .*runs/chain-1/checkpoints/step-0' ms-chain-2.log
  on-node node01 touch "$PWD/runs/chain-1/stop-chain"
  wait-until 120 job_is 3 JobState=PENDING
  scancel --batch --signal=USR2 2
  wait-until 120 grep -qs 'stop-chain exists' ms-chain-3.log
  [[ -z $(squeue -h -j 4 2>/dev/null) ]]
  # A run that is done cancels the next one; a mistake in the configuration queues none.
  submit -N1 chain.sbatch c.toml
  wait-until 60 job_is 5 JobState=CANCELLED
  code=0
  submit -N1 chain.sbatch c.toml --set mesh.dp=7 --set train.global_batch=8 || code=$?
  [[ $code -eq 2 ]]
  [[ -z $(squeue -h -j 7 2>/dev/null) ]]
BASH
}

@test "container.sbatch: by pyxis, and by Apptainer" {
  inside 2 <<'BASH'
  export PATH=$PWD/stand-in:$PATH SPARES=0
  code=0
  submit -N2 --ntasks-per-node=1 container.sbatch c.toml || code=$?
  [[ $code -eq 2 ]] && grep -q 'IMAGE is not set' job.log
  code=0
  IMAGE=./none.sqsh submit -N2 --ntasks-per-node=1 container.sbatch c.toml || code=$?
  [[ $code -eq 2 ]] && grep -q 'cannot read the image ./none.sqsh' job.log
  PATH=$PWD/pyxis:$PATH IMAGE=ms:latest MOUNTS=/opt:/opt submit -N2 --ntasks-per-node=1 container.sbatch c.toml
  grep -q -e "pyxis --container-image=ms:latest" job.log
  grep -q -e "pyxis --container-mounts=.*,/tmp:/tmp,/opt:/opt" job.log
  grep -q '"code": 0' runs/3/verdict.json
  touch ms.sif
  IMAGE=$PWD/ms.sif submit -N2 --ntasks-per-node=1 container.sbatch c.toml
  grep -q -e "apptainer exec --nv --pwd $PWD --bind $PWD:$PWD,.*ms.sif ms-train run c.toml" runs/4/driver/attempt-1.log
  grep -q '"code": 0' runs/4/verdict.json
BASH
}
