# shellcheck shell=bash
# What the tests of ms-loan share: a loan partition over node01 to node04, and jobs that save on SIGUSR1. To be run on the
# controller, in a folder that every node sees.
scontrol create PartitionName=loan Nodes= PriorityTier=1 MaxTime=INFINITE State=UP
mkdir state
cat >policy.toml <<TEXT
[loan]
poll = "1s"
grace = "6s"
lend_interval = "1s"
reserve_window = "0s"
headroom_percent = 0
[demand]
file = "demand"
[slurm]
nodes = 'node[01-04]'
state = "$PWD/state"
conf = "$SLURM_CONF"
deadline = "2s"
end = "1s"
TEXT
cat >job.sh <<'TEXT'
#!/bin/bash
trap 'echo saved' USR1
echo begun
while :; do sleep 0.1; done
TEXT
loan() { ms-loan "$@" --policy policy.toml; }
# explains OBJECT PATTERN: ms-loan records an action after Slurm's answer, so wait for it.
explains() { ms-loan explain "$1" --policy policy.toml >said && grep -q "$2" said; }
demand() { echo "$1" >demand.new && mv demand.new demand; }
submit() { # PARTITION OPTION...: prints the job's number
  local partition=$1
  shift
  sbatch --parsable --partition "$partition" --exclusive --requeue --open-mode=append -o "$partition-%j.out" "$@" job.sh
}
state_is() { # STATE JOB...
  local state=$1 job
  shift
  for job in "$@"; do [[ $(squeue -h -j "$job" -o %T) == "$state" ]] || return 1; done
}
# runs JOB...: so far that they save when they are told; the signal ends a script that has not come to its trap.
runs() {
  local job
  state_is RUNNING "$@" || return 1
  for job in "$@"; do [[ $(cat ./*-"$job".out | grep -c begun) -gt $(restarts "$job") ]] || return 1; done
}
pending() { state_is PENDING "$@"; }
on_loan() { scontrol --oneliner show partition loan | grep -o ' Nodes=[^ ]*' | sed 's/ Nodes=//; s/(null)//'; }
restarts() { squeue -h -j "$1" -O RestartCnt:9 | tr -d ' '; }
export -f explains state_is runs pending restarts
