#!/usr/bin/env bash
# The walk of operator.sh, on the controller of the test cluster. $walks is this folder.
set -euo pipefail
: "${walks:?}"
# shellcheck source=tests/first_hour/walk.sh
. "$walks/walk.sh"
# shellcheck source=tests/cluster/preflight.sh
. "$walks/../cluster/preflight.sh"
cd "$CLUSTER_DIR/shared"
export shown=30
on() { on-node "$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "${@:2}"; } # NODE COMMAND...: the installed programs, not the build's
everywhere() {
  local node
  for node in $(nodes); do on "$node" "$@"; done
}
stopped() { ! kill -0 "$1" 2>/dev/null; }
export -f stopped
restart_daemons() { # as systemctl restart would
  local node pid
  pid=$(cat /run/slurmctld.pid)
  kill "$pid"
  wait-until 60 stopped "$pid"
  slurmctld
  for node in $(nodes); do
    # shellcheck disable=SC2016 # for the shell on the node
    on "$node" sh -c 'pid=$(cat /run/slurmd.pid); kill "$pid"; while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done; slurmd'
  done
  wait-until 120 all_are idle
}

note 'a cluster of three nodes; the packages are in /debs'
shown=6 does everywhere sh -c 'dpkg -i /debs/ms-diag_*.deb /debs/ms-spank_*.deb'
# shellcheck disable=SC2119 # all that the nodes have, and nothing is wrong with it
all_gpus
fails 2 on node01 ms-diag check-site
says 'not ready'
fails 2 on node01 ms-diag check-site --fix
says '^# then: scontrol reconfigure'

note 'every line that it prints goes where it says'
file=''
while IFS= read -r line; do
  case $line in
    '# '*.conf*)
      file=${line#'# '}
      file=$CLUSTER_DIR/etc/${file%%.conf*}.conf
      ;;
    '#'* | '') ;;
    *=*)
      if [[ $file == */slurm.conf ]]; then sed -i "/^${line%%=*}=/d" "$file"; fi
      echo "$line" >>"$file"
      ;;
    *) stumble "this is no line of configuration: $line" ;;
  esac
done <<<"$said"
restart_daemons
does on node01 ms-diag check-site
says 'mode = "act" may be set$'

note 'the policy may act; its last two lines are for the GPUs of this test'
everywhere sed -i -e 's/^#mode = "observe"/mode = "act"/' -e "s|^#nvml = .*|nvml = \"$CLUSTER_BUILD/lib/libfake_nvml.so\"|" \
  -e "s|^#gres_conf = .*|gres_conf = \"$CLUSTER_DIR/etc/gres.conf\"|" /etc/ms/ms-diag.toml
does on node01 ms-diag check-site
says 'mode = "act" is set$'

note 'GPU 3 of node02 breaks, and somebody submits a job'
gpus node02 "gpu 3 ecc_uncorrectable=4"
job=$(submit -N2 --exclusive)
wait-until 120 state_is "$job" COMPLETED || stumble "the job is $(field "$job" JobState) $(field "$job" Reason)"
does cat "job-$job"
says 'node02 was drained before start 1: gpu.ecc'
does sinfo -R
says 'ms-diag:gpu.ecc'
does on node01 ms-diag explain gpu.ecc
says 'remedy|[Rr]eplace|[Rr]eset'
does on node02 ms-diag history
says 'drain .*gpu.ecc'

note 'it is repaired'
fails 2 on node02 ms-diag undrain --verified
gpus node02
does on node02 ms-diag undrain --verified
wait-until 60 all_are idle || stumble 'not all nodes are idle'
does srun -N3 hostname

note 'the packages go again, while a job runs'
job=$(sbatch --parsable -D / -o /dev/null --wrap 'sleep 600')
wait-until 60 state_is "$job" RUNNING
shown=20 does everywhere sh -c 'dpkg --purge ms-spank ms-diag 2>&1'
says 'plugstack.conf'
state_is "$job" RUNNING || stumble 'the job is gone'
sed -i /ms_spank.so/d "$CLUSTER_DIR/etc/plugstack.conf"
does srun --overlap --jobid "$job" hostname
scancel "$job"
note 'done'
