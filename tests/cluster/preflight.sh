# shellcheck shell=bash
# What the suites of pre-flight share: sourced on the controller, inside the cluster. Nodes have fake GPUs that a fake driver
# describes; everything else (Slurm, the plugin, ms-diag, the kernel's files) is real.

no() { if "$@"; then return 1; fi; } # COMMAND fails; bash -e does not see a line that begins with "!"

nodes() { sinfo -h -N -o %N | sort -u; }

# policy [NODE...] <LINES: the policy of these nodes (default all): acts, and knows the fake driver. A section of LINES
# replaces ours.
policy() {
  local lines node list=("$@")
  lines=$(cat)
  if ((${#list[@]} == 0)); then mapfile -t list < <(nodes); fi
  for node in "${list[@]}"; do
    {
      grep -q '^\[act\]' <<<"$lines" || printf '[act]\nmode = "act"\n'
      grep -q '^\[prolog\]' <<<"$lines" || printf '[prolog]\ndeadline = "8s"\n' # the most that a policy may allow: machines of tests are busy
      grep -q '^\[paths\]' <<<"$lines" ||
        printf '[paths]\nnvml = "%s/lib/libfake_nvml.so"\ngres_conf = "%s/etc/gres.conf"\nsite = "%s/site"\n' \
          "$CLUSTER_BUILD" "$CLUSTER_DIR" "$CLUSTER_DIR"
      echo "$lines"
    } | on-node "$node" sh -c 'umask 022; cat >/etc/ms/ms-diag.toml'
  done
}

# gpus NODE [LINE...]: the node has 8 GPUs, and what the lines say is wrong with them.
gpus() {
  local node=$1
  shift
  { echo "gpus 8" && printf '%s\n' "$@"; } | on-node "$node" sh -c 'cat >/run/fake/gpus.txt'
}
all_gpus() {
  local node
  for node in $(nodes); do gpus "$node" "$@"; done
}

# job_script: what the suites submit. It says when and where it started, runs a step on every node, and ends well.
job_script() {
  cat <<'TEXT'
#!/bin/bash
#SBATCH --open-mode=append
echo "start ${SLURM_RESTART_COUNT:-0} $(date +%s.%N) $SLURM_JOB_NODELIST"
srun --mpi=none --ntasks-per-node=1 hostname || exit 1
echo "end"
TEXT
}

# submit ARGUMENT...: a batch job with job_script; prints its number. Its output is in $CLUSTER_DIR/shared/job-N.
submit() {
  job_script | sbatch --parsable --output "$CLUSTER_DIR/shared/job-%j" "$@"
}
output() { cat "$CLUSTER_DIR/shared/job-$1"; }

field() { scontrol --oneliner show job "$1" | grep -o " $2=[^ ]*" | cut -d= -f2-; }
reason_of() { scontrol show node "$1" | sed -n 's/^ *Reason=//p' | sed 's/ \[[^]]*\]$//'; }
ours() { scontrol --oneliner show node | grep -c 'State=[A-Z+]*DRAIN.* Reason=ms-diag:' || true; } # how many nodes we drained
state_is() { [[ $(field "$1" JobState) == "$2" ]]; }
completed() { wait-until "${2:-40}" state_is "$1" COMPLETED; }
we_drained() { [[ $(ours) == "$1" ]]; }
drained_for() { [[ $(reason_of "$1") == "ms-diag:$2 "* ]]; } # NODE CODE
all_are() { [[ $(sinfo -h -o %T | sort -u) == "$1" ]]; }
export -f field state_is reason_of ours we_drained drained_for all_are
