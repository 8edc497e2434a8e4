#!/usr/bin/env bats
# jobscripts/train-simple.sbatch on a real Slurm: with the real ms-train where training is the point, and with a stand-in that
# does what a plan says where the script's decisions are.

bats_require_minimum_version 1.5.0

setup_file() {
  # Nodes have a /tmp of their own, so the files of a test are in the cluster's shared folder; this is what goes into it.
  export kit=$BATS_FILE_TMPDIR/kit
  mkdir -p "$kit/stand-in"
  cp "$BATS_TEST_DIRNAME/../support/training.sh" "$kit"
  # shellcheck source=tests/support/training.sh
  . "$kit/training.sh"
  cp "$BATS_TEST_DIRNAME/../../jobscripts/train-simple.sbatch" "$kit"
  sed 's/^##SBATCH --ms-preflight$/#SBATCH --ms-preflight/' "$kit/train-simple.sbatch" >"$kit/script-with-preflight"
  tiny_config mesh.dp=2 mesh.tp=2 mesh.pp=2 train.steps=12 >"$kit/c.toml"
  cat >"$kit/stand-in/ms-train" <<'BASH'
#!/usr/bin/env bash
# Called as ms-train is: run CONFIG ... --set run.dir=DIR. CONFIG is the plan, a script.
[[ $1 == run ]] || exit 0 # check
run_dir=${*: -1}
run_dir=${run_dir#run.dir=}
verdict() { # CODE NODE, as they are
  printf '{\n  "schema": 1,\n  "code": %s,\n  "blame": "node",\n  "node": "%s",\n  "step": 1\n}\n' "$1" "$2" \
    >"$run_dir/verdict.new"
  mv "$run_dir/verdict.new" "$run_dir/verdict.json"
}
steps() { seq -f '{"step":%g,"loss":5.5}' "$1" >"$run_dir/metrics.jsonl"; }
start=${SLURM_RESTART_COUNT:-0}
# shellcheck disable=SC1090
. "./$2"
BASH
  chmod +x "$kit/stand-in/ms-train"
}

# inside N [OPTION...] <SCRIPT: runs the script on the controller of a cluster of N nodes, in a folder that all nodes share.
# A requeued job waits 6 s there. That is not to be cut short: a node that it was on may refuse the new start (see Slurm's
# cred_expire). Jobs have names: NAME.plan is what the stand-in does, NAME.log what the job printed.
inside() {
  local nodes=$1
  shift
  kit=$kit "$BATS_TEST_DIRNAME/run" "$nodes" "$@" -- bash -euo pipefail -c "$prelude"$'\n'"$(cat)"
}
# shellcheck disable=SC2016 # for the shell on the controller
prelude='
cp -r "$kit/." "$CLUSTER_DIR/shared"
cd "$CLUSTER_DIR/shared"
. ./training.sh
trap "[[ \$? -eq 0 ]] || tail -n 60 ./*.log" EXIT
text() { # for ms-train to train on
  training_text 400
}
train() { sbatch --parsable -o "$1.log" "$PWD/train-simple.sbatch" "${@:2}" >"$1.id"; } # NAME CONFIG...
start() { # NAME <PLAN: the stand-in, on one node
  cat >"$1.plan"
  id=$(PATH=$PWD/stand-in:$PATH sbatch --parsable -N1 --ntasks-per-node=1 -o "$1.log" train-simple.sbatch "$1.plan")
  echo "$id" >"$1.id"
}
id_of() { cat "$1.id"; }                                            # NAME
says() { grep -q -e "$2" "$1.log"; }                                # NAME PATTERN: the log of the job
slurm_says() { # NAME PATTERN: of the job
  local record
  record=$(scontrol show job "$(id_of "$1")")
  grep -Eq -e "$2" <<<"$record" || { echo "$record" && return 1; }
}
export -f id_of says slurm_says
# The nodes share the clock of this machine, so what the probes between them say is off by as much as it is not 0: by no
# more than they say.
clocks_agree() { # TRACE
  ms-tracepp report --json "$1" | python3 -c "
import json, sys
clocks = json.load(sys.stdin)[\"clocks\"]
hosts = clocks[\"hosts\"][1:]
assert len(hosts) == 3 and all(h[\"source\"] == \"probes\" for h in hosts), clocks
assert all(abs(h[\"offset_ns\"]) <= h[\"bound_ns\"] + 1000 for h in hosts), clocks"
}
ends() { # NAME CODE
  wait-until 120 says "$1" "the job ends with code $2\$"
  wait-until 60 slurm_says "$1" "JobState=(COMPLETING|COMPLETED|FAILED)" # a busy Slurm may take long to clean up
}
'

@test "4 nodes x 2 ranks train to the end; a node that a rank declares bad is left out of the next start" {
  inside 5 <<'BASH'
  text
  train good c.toml
  ends good 0
  slurm_says good Restarts=0
  says good 'job 1, restart 0 of at most 5, nodes node\[01-04\]'
  grep -q '"code": 0' runs/1/verdict.json
  [[ $(wc -l <runs/1/metrics.jsonl) -eq 12 ]]
  clocks_agree runs/1/trace
  MS_FAULT="step=5 rank=3 restart=0 node-bad" train bad c.toml # ranks 2 and 3 are on node02
  ends bad 0
  slurm_says bad Restarts=1
  slurm_says bad ExcNodeList=node02
  says bad 'requeue after code 69 at step [0-5], without node node02'
  says bad 'job 2, restart 1 of at most 5, nodes node\[01,03-05\]'
  [[ $(cat runs/2/excluded) == node02 ]]
  grep -q '"code": 0' runs/2/verdict.json
BASH
}

@test "with its line for the plugin the script needs it, and trains with it" {
  local plugin=${CLUSTER_BUILD:-$BATS_TEST_DIRNAME/../../build/release}/lib/ms_spank.so
  inside 1 <<'BASH'
  if sbatch script-with-preflight 2>err; then exit 1; fi
  grep -q "unrecognized option '--ms-preflight'" err
BASH
  [[ -e $plugin ]] || skip "the plugin is not built"
  inside 4 --plugstack "optional $plugin config=/etc/ms/ms-diag.toml deadline=40" <<'BASH'
  text
  sbatch -o job.log script-with-preflight c.toml
  echo 1 >job.id
  ends job 0
  slurm_says job Restarts=0
BASH
}

@test "a mistake in the configuration ends the job with code 2: no second start" {
  inside 4 <<'BASH'
  echo 'x = 1' >bad.toml
  text
  train nothing
  train unknown bad.toml
  train mesh c.toml --set mesh.dp=4
  ends nothing 2
  says nothing 'usage:'
  ends unknown 2
  says unknown "unknown key 'x'"
  ends mesh 2
  says mesh 'does not equal the number of ranks, 8'
  for name in nothing unknown mesh; do
    slurm_says $name Restarts=0
    slurm_says $name ExitCode=2:0
  done
BASH
}

@test "codes that another start would not mend end the job; what srun says is the fall-back" {
  inside 9 <<'BASH'
  verdicts="1 2 70 93"
  codes="1 2 70 93 139"
  for code in $verdicts; do start "verdict-$code" <<<"verdict $code node01; exit 76"; done
  for code in $codes; do start "srun-$code" <<<"exit $code"; done
  for code in $verdicts; do ends "verdict-$code" "$code"; done
  for code in $codes; do ends "srun-$code" "$code"; done
  [[ $(cat ./*.log | grep -c "another start would not help") -eq 9 ]]
  [[ $(scontrol show job | grep -c Restarts=0) -eq 9 ]]
BASH
}

@test "what is requeued and what is not: storage, silence, kills, no progress, limits, ms-diag, the time limit" {
  inside 20 <<'BASH'
  # One cluster for all of these jobs: each waits for Slurm most of the time, for a requeue above all.
  start storage <<<'verdict 74 ""; exit 74'
  start silent <<<'((start == 0)) || verdict 0 ""'
  start killed <<<'((start == 0)) && kill -KILL $$; verdict 0 ""'
  # A directory that another job used, and a verdict of an earlier start, say nothing of this one.
  mkdir reused
  printf '%s\n' 'job 99999' 'best 100' 'idle 1' >reused/progress
  echo '{"step":200,"loss":1}' >reused/metrics.jsonl
  RUN_DIR=reused start reused <<<'verdict 76 ""; exit 76'
  start stale <<<'((start > 0)) && exit 70; steps 1; verdict 75 ""; exit 75'
  start slower <<<'steps "$((start == 0 ? 5 : 4))"; verdict 76 ""; exit 76'
  start never <<<'verdict 76 ""; exit 76'
  MAX_RESTARTS=2 start often <<<'steps "$((start + 1))"; verdict 75 ""; exit 75'
  MAX_EXCLUDED=2 start nodes <<<'verdict 69 "$SLURMD_NODENAME"; exit 69'
  mkdir works fails
  echo 'echo "$*" >works/asked; exec scontrol requeue "$4"' >works/ms-diag
  echo 'exit 3' >fails/ms-diag
  for name in works fails; do
    sed -i '1i#!/bin/sh' $name/ms-diag
    chmod +x $name/ms-diag
    PATH=$PWD/$name:$PATH start $name <<<'((start > 0)) || { verdict 69 "$SLURMD_NODENAME"; exit 69; }; verdict 0 ""'
  done
  start lost <<<'touch lost; sleep 300'
  start saved <<<'((start == 0)) || { steps 9; verdict 0 ""; exit; }
    trap "steps 7; verdict 75 \"\"; exit 75" USR2
    touch saved
    sleep 300 & wait'
  # Near the time limit: nothing saved, no second start; a checkpoint, a second start.
  for name in lost saved; do
    wait-until 60 test -e $name
    scancel --batch --signal=USR2 "$(id_of $name)"
  done
  # Storage: requeued, to start 60 s later; ranks that leave without a word: requeued.
  wait-until 60 slurm_says storage 'JobState=PENDING Reason=BeginTime'
  begin=$(date -d "$(squeue -h -j "$(id_of storage)" -o %S)" +%s)
  asked=$(date -d "$(sed -n 's/^train-simple: \(.*\) requeue after code 74 .*/\1/p' storage.log)" +%s)
  ((begin - asked >= 59))
  slurm_says storage 'ExcNodeList=\(null\)'
  for name in silent killed; do
    ends $name 0
    slurm_says $name Restarts=1
  done
  says silent 'srun returned 0, and there is no verdict'
  says killed 'srun returned 137, and there is no verdict'
  # Starts that come no further, the limit of restarts, the limit of nodes.
  ends reused 93
  says reused '2 starts in a row made no progress beyond step 200'
  slurm_says reused Restarts=1
  ends stale 70
  slurm_says stale Restarts=1
  ends slower 93
  says slower '2 starts in a row made no progress beyond step 5'
  slurm_says slower Restarts=2
  ends never 93
  says never '2 starts in a row made no progress beyond step 0'
  slurm_says never Restarts=1
  ends often 93
  says often 'given up after 2 restarts, the last one ended with 75'
  slurm_says often Restarts=2
  ends nodes 93
  says nodes 'is at fault too, after 2 others'
  slurm_says nodes Restarts=2
  [[ $(scontrol show hostnames "$(squeue -h -j "$(id_of nodes)" -t all -o %x)" | wc -l) -eq 2 ]]
  [[ $(sort -u "runs/$(id_of nodes)/excluded" | wc -l) -eq 3 ]]
  # ms-diag excludes the node where it is at hand; scontrol does where it fails.
  ends works 0
  ends fails 0
  grep -Eq "^requeue --exclude node[0-9]* $(id_of works)$" works/asked
  slurm_says works 'ExcNodeList=\(null\)' # this ms-diag left it at that
  slurm_says fails ExcNodeList=node
  # The time limit.
  ends lost 93
  says lost 'the time limit is near'
  says lost 'the time limit came, and nothing was saved'
  slurm_says lost Restarts=0
  ends saved 0
  says saved 'requeue after code 75 at step 7$'
  slurm_says saved Restarts=1
BASH
}

@test "a node that a lost peer names is left out on evidence, or when it is named again" {
  inside 4 <<'BASH'
  mkdir finds clean
  echo 'echo "CRITICAL - gpu.ecc gpu 3: 4 errors"; exit 2' >finds/answer
  echo 'echo "OK - no finding"' >clean/answer
  for name in finds clean; do
    printf '#!/bin/sh\n[ "$1" = requeue ] && exec %s "$@"\n. %s/answer\n' "$(command -v ms-diag)" "$PWD/$name" >$name/ms-diag
    chmod +x $name/ms-diag
    PATH=$PWD/$name:$PATH start $name <<<'[[ $SLURMD_NODENAME != node01 ]] || { verdict 76 node01; exit 76; }; verdict 0 ""'
    ends $name 0
    slurm_says $name ExcNodeList=node01
  done
  says finds 'ms-diag on node01: CRITICAL - gpu.ecc gpu 3'
  slurm_says finds Restarts=1
  says clean 'node01 is named for the second time'
  slurm_says clean Restarts=2
  # Where the nodes have no ms-diag that is no evidence.
  PATH=${PATH//$CLUSTER_BUILD\/bin:/} start without <<<'verdict 76 "$SLURMD_NODENAME"; exit 76'
  wait-until 40 says without 'requeue after code 76 at step 0$'
  slurm_says without 'ExcNodeList=\(null\)'
BASH
}

@test "near the time limit the real run saves, and the next start goes on from there" {
  inside 4 <<'BASH'
  text
  train long c.toml --set train.steps=100000
  wait-until 30 grep -qs '"step":5,' runs/1/metrics.jsonl
  scancel --batch --signal=USR2 1
  wait-until 40 says long 'requeue after code 75 at step [0-9]'
  wait-until 40 says long 'resuming from .*runs/1/checkpoints/step-0'
  first=$(sed -n 's/.*requeue after code 75 at step \([0-9]*\)$/\1/p' long.log)
  wait-until 20 grep -qs "\"step\":$((first + 1))," runs/1/metrics.jsonl
  # Every step is there once, in its place.
  [[ $(sed 's/^{"step":\([0-9]*\),.*/\1/' runs/1/metrics.jsonl | head -n 100) == "$(seq 100)" ]] || ((first < 100))
  scancel 1
BASH
}

@test "a job that somebody ends stays ended" {
  inside 1 <<'BASH'
  # As survivors do, while the others are killed: they blame a peer.
  start job <<<'trap "verdict 76 node01; exit 76" TERM; touch here; sleep 60 & wait'
  wait-until 20 test -e here
  scancel "$(id_of job)"
  wait-until 20 slurm_says job JobState=CANCELLED
  nothing_left() { [[ -z $(squeue -h) ]]; }
  export -f nothing_left
  wait-until 20 nothing_left
  slurm_says job Restarts=0
  if says job 'requeue after'; then exit 1; fi
BASH
}

@test "a verdict of nonsense runs nothing and blames nobody" {
  inside 16 <<'BASH'
  touch=$(printf 'touch %s/pwned' "$PWD")
  odd() { # NAME CODE NODE
    ODD_CODE=$2 ODD_NODE=$3 start "$1" <<<'verdict "$ODD_CODE" "$ODD_NODE"; exit 76'
  }
  odd substitution 69 "\$($touch)"
  odd backquotes 69 "\`$touch\`"
  odd semicolon 69 "node01; $touch"
  odd array 69 "a[\$($touch)]"
  odd option 69 --help
  odd elsewhere 69 login1
  odd list 69 'node[01-16]'
  odd two 69 node01,node02
  odd lines 69 $'x",\n  "node": "node01;"\n "'
  odd code "a[\$($touch)]" node01
  odd huge 99999999999999999999 node01
  start directory <<<'mkdir "$run_dir/verdict.json"; exit 70'
  start fifo <<<'mkfifo "$run_dir/verdict.json"; exit 70'
  start noise <<<'head -c 300000 /dev/urandom >"$run_dir/verdict.json"; exit 70'
  start progress <<<'printf "job %s\nbest a[\$(touch pwned)]\nidle 08\n" "$SLURM_JOB_ID" >"$run_dir/progress"
    echo "{\"step\":a[\$(touch pwned)],}" >"$run_dir/metrics.jsonl"
    verdict 76 ""; exit 76'
  start node <<<'verdict 69 "$SLURMD_NODENAME.example.org"; exit 69' # not nonsense: what a verdict may look like
  for name in substitution backquotes semicolon array option elsewhere list two lines; do
    wait-until 40 says $name 'requeue after code 69 at step 0$'
  done
  for name in code huge; do
    wait-until 40 says $name 'there is no verdict'
    wait-until 40 says $name 'requeue after code 76 at step 0$'
  done
  for name in directory fifo noise; do ends $name 70; done
  wait-until 40 says progress 'requeue after code 76 at step 0$'
  wait-until 40 says node 'requeue after code 69 at step 0, without node node'
  wait-until 10 slurm_says node ExcNodeList=node
  [[ $(scontrol show job | grep -c 'ExcNodeList=(null)') -eq 15 ]]
  [[ ! -e pwned ]]
BASH
}
