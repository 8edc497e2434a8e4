#!/usr/bin/env bash
# Pid 1 of the controller, in namespaces of its own: makes the file system and the bridge, starts munge, slurmctld and the
# nodes, and says "ready" on stdout when all nodes are idle, or "failed". Started by `run` only, with an empty environment.
# The whole cluster is its offspring: when it dies, the kernel takes everything else with it.
# usage: controller.sh NODES CPUS GPUS SSH BUILD ROOT CONF PLUGSTACK
set -euo pipefail
exec 2>&9 9>&- # so that stderr is ours alone: unshare complains on its own when we are killed
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
nodes=$1 cpus=$2 gpus=$3 ssh=$4 build=$5 root=$6 conf=$7 plugstack=$8
trap 'trap - EXIT; echo failed; hold' EXIT
mapfile -t names < <(for ((i = 1; i <= nodes; i++)); do printf 'node%02d\n' "$i"; done)

# other_root DIR: / is DIR from here on (a tree with another Slurm), with this machine's /proc, /dev, /tmp, repository and
# build in it. DIR itself is not written to.
other_root() {
  local stage=/run/stage dir
  mount -n -t tmpfs -o mode=755 tmpfs /run
  mkdir -p "$stage" /run/upper /run/work
  mount -n -t overlay -o "lowerdir=$1,upperdir=/run/upper,workdir=/run/work" overlay "$stage"
  for dir in /proc /dev /tmp "$cluster_repo" "$build"; do
    if [[ ! -d $dir ]]; then continue; fi
    mkdir -p "$stage$dir"
    mount -n --rbind "$dir" "$stage$dir"
  done
  mkdir -p "$stage/.old" "$stage/sys"
  cd "$stage"
  pivot_root . .old
  trap - EXIT
  exec chroot . bash -c 'cd / && umount -l .old && rmdir .old && exec bash "$@"' other_root \
    "$cluster_home/controller.sh" "$nodes" "$cpus" "$gpus" "$ssh" "$build" "" "$conf" "$plugstack" 9>&2
}

file_system() {
  local dir i=0
  mount -n -t sysfs sysfs /sys
  mount -n -t tmpfs -o mode=1777 tmpfs /dev/shm
  mount -n -t tmpfs -o mode=755 tmpfs /run
  mkdir -p "$CLUSTER_DIR"/{etc,log,munge,dev} "$disks" "$node_pids" "$kept" /run/state
  mkdir -m 1777 "$CLUSTER_DIR/shared"
  for dir in "${private_dirs[@]}"; do
    mkdir -p "$kept$dir"
    mount -n --bind "$dir" "$kept$dir"
  done
  : >"$kept/visible"
  for dir in "$cluster_repo" "$build"; do
    if [[ ! -d $dir ]]; then continue; fi
    mkdir "$kept/visible$i"
    mount -n --rbind "$dir" "$kept/visible$((i++))"
    echo "$dir" >>"$kept/visible"
  done
}

# without_keys_of TEXT: stdin, less the lines whose key TEXT sets too (Slurm warns of doubles at every command).
without_keys_of() {
  awk -F= 'function key(s) { gsub(/[ \t]/, "", s); return tolower(s) }
    BEGIN { count = split(ARGV[1], lines, "\n"); ARGC = 1
            for (i = 1; i <= count; i++) if (split(lines[i], part, "=") > 1) theirs[key(part[1])] }
    /^#/ || !(key($1) in theirs)' "$1"
}

write_configuration() {
  local etc=$CLUSTER_DIR/etc list gres='' mpi=pmix node i
  compgen -G '/usr/lib/*/slurm*/mpi_pmix*.so' >/dev/null || mpi=none # Debian builds some versions without it
  list="node[01-$(printf %02d "$nodes")]"
  if ((gpus > 0)); then
    gres="Gres=gpu:h100:$gpus"
    for ((i = 0; i < gpus; i++)); do mknod -m 666 "$CLUSTER_DIR/dev/nvidia$i" c 1 3; done
    printf 'AutoDetect=off\nName=gpu Type=h100 File=%s/dev/nvidia[0-%d]\n' "$CLUSTER_DIR" $((gpus - 1)) >"$etc/gres.conf"
  fi
  {
    {
      cat "$cluster_home/slurm.conf"
      echo "MpiDefault=$mpi"
      echo "NodeName=$list CPUs=$cpus RealMemory=2000 $gres State=UNKNOWN"
      echo "PartitionName=train Nodes=$list Default=YES MaxTime=INFINITE State=UP"
    } | without_keys_of "$conf"
    echo "$conf"
  } >"$etc/slurm.conf"
  echo 'CgroupPlugin=cgroup/v1' >"$etc/cgroup.conf" # slurmd insists on one; this one wants no mount until it is used
  echo "$plugstack" >"$etc/plugstack.conf"
  {
    printf '127.0.0.1 localhost\n10.77.0.1 ctl\n'
    for node in "${names[@]}"; do echo "$(address "$node") $node"; done
  } >"$etc/hosts"
}

write_ssh() { # one key for all hosts and one for root, known to everybody
  local dir=$CLUSTER_DIR/ssh
  mkdir -m 755 "$dir"
  ssh-keygen -q -t ed25519 -N '' -C host -f "$dir/host_key"
  ssh-keygen -q -t ed25519 -N '' -C root -f "$dir/key"
  cp "$dir/key.pub" "$dir/authorized_keys"
  echo "node* $(cat "$dir/host_key.pub")" >"$dir/known_hosts"
  cat >"$dir/config" <<TEXT
Host node*
  User root
  IdentityFile $dir/key
  IdentitiesOnly yes
  UserKnownHostsFile $dir/known_hosts
  HostKeyAlgorithms ssh-ed25519
  CheckHostIP no
  BatchMode yes
  LogLevel ERROR
TEXT
  cat >"$dir/sshd_config" <<TEXT
HostKey $dir/host_key
AuthorizedKeysFile $dir/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
PidFile /run/sshd.pid
Subsystem sftp internal-sftp
TEXT
}

network() {
  ip -batch - <<'TEXT'
link set lo up
link add br0 type bridge
address add 10.77.0.1/24 dev br0
link set br0 up
TEXT
}

start_controller() {
  local dir=$CLUSTER_DIR/munge
  (umask 377 && head -c 128 /dev/urandom >"$dir/key")
  timeout "$start_limit_s" munged --key-file="$dir/key" --log-file="$CLUSTER_DIR/log/munged.log" --pid-file="$dir/pid" \
    --seed-file="$dir/seed" --socket="$dir/socket"
  timeout "$start_limit_s" slurmctld
}

all_idle() { [[ $(sinfo -h -N -o %T | sort | uniq -c | xargs) == "$nodes idle" ]]; }

echo ctl >/proc/sys/kernel/hostname
if [[ -n $root ]]; then other_root "$root"; fi
file_system
write_configuration
if [[ -n $ssh ]]; then write_ssh; fi
private_root "$disks/ctl"
keep_visible

network

boots=()
for node in "${names[@]}"; do
  boot_node "$node" &
  boots+=($!)
done
start_controller </dev/null >"$CLUSTER_DIR/log/controller.boot.log" 2>&1
for boot in "${boots[@]}"; do wait "$boot"; done

boots=()
for node in "${names[@]}"; do
  start_daemons "$node" &
  boots+=($!)
done
for boot in "${boots[@]}"; do wait "$boot"; done
export nodes
export -f all_idle
if ! "$cluster_home/bin/wait-until" "$start_limit_s" all_idle; then
  say "the nodes did not become idle within $start_limit_s s"
  exit 1
fi

trap - EXIT
echo ready
hold
