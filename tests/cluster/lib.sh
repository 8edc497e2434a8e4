# shellcheck shell=bash
# What the programs of the test cluster share: where things lie, which parts of the file system are private, and the life of
# one node. Sourced by `run` outside, by the two pid 1 (controller.sh, node.sh), and by the small commands in bin/.
# The cluster lives in the controller's own /run (a tmpfs of its mount namespace), so that nothing of it can outlive it.

# shellcheck disable=SC2034 # used by those who source this
cluster_home=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
cluster_repo=$(cd "$cluster_home/../.." && pwd -P)
CLUSTER_DIR=/run/cluster # seen by every node; what is beside it in /run only by the controller
kept=/run/kept           # bind mounts of what must stay visible: the machine's directories, repository and build
disks=/run/disks         # a node's disk: what it wrote to its private directories, and its fake hardware; survives power loss
node_pids=/run/nodes     # one file a node: its pid 1, as the controller counts
system_path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
private_dirs=(/etc /var/lib /var/log /var/spool)
namespaces=(--net --uts --mount --ipc --pid --fork --kill-child --mount-proc)
start_limit_s=30

# The environment as it was given to this program, for the command that it runs: our variables must not change the caller's.
mapfile -d '' -t callers_environment </proc/$$/environ

say() { printf 'cluster: %s\n' "$*" >&2; }

# Nothing of the environment of whoever starts a daemon reaches it, and through it a job.
clean=(env -i --default-signal "PATH=$system_path")

# hold: pid 1 after its work is done. It reaps what is left to it and lives until it is killed.
hold() {
  exec <> <(:) >/dev/null 2>&1 # a pipe that never ends, because its writer is this process
  while :; do read -r _ || true; done
}

child_of() { # PID: the only child of a process, empty if there is none yet
  local child=
  { read -r child _ <"/proc/$1/task/$1/children"; } 2>/dev/null || true
  echo "$child"
}

# python_with_torch: prints the path of a Python that has torch, numpy and py-spy: PYTHON, or where that is not set one of a
# virtual environment in build/peer, which is made. Fails if pip cannot install them.
python_with_torch() {
  local peer=$cluster_repo/build/peer
  if [[ -z ${PYTHON-} && ! -x $peer/bin/py-spy ]]; then
    python3 -m venv "$peer" >&2 && "$peer/bin/pip" install --quiet torch numpy py-spy >&2 || return
  fi
  echo "${PYTHON:-$peer/bin/python}"
}

# ---- the file system of the controller and of a node

# private_root DISK: what is written to the private directories goes to DISK from here on; nobody else sees it.
private_root() {
  local disk=$1 dir layer fresh=
  [[ -e $disk ]] || fresh=yes
  for dir in "${private_dirs[@]}"; do
    layer=$disk/${dir//\//-}
    mkdir -p "$layer"/{upper,work}
    mount -n -t overlay -o "lowerdir=$kept$dir,upperdir=$layer/upper,workdir=$layer/work" overlay "$dir"
  done
  [[ -n $fresh ]] || return 0
  rm -rf /etc/ms /var/lib/ms-diag /var/spool/ms-diag /etc/slurm
  mkdir -p "$disk/fake" /etc/ms /var/spool/ms-diag /var/spool/slurmd
  mkdir -m 700 /var/lib/ms-diag
  ln -s "$CLUSTER_DIR/etc" /etc/slurm
  cp "$CLUSTER_DIR/etc/hosts" /etc/hosts
  if [[ -e $CLUSTER_DIR/ssh/config ]]; then
    mkdir -p /etc/ssh
    cp "$CLUSTER_DIR/ssh/config" /etc/ssh/ssh_config
    sed -i 's/^root:[^:]*:/root:*:/' /etc/shadow # sshd lets nobody in whose password is locked by "!"
  fi
}

# keep_visible: the repository and the build are where they were, whatever has been mounted over the folders above them.
keep_visible() {
  local i=0 dir
  while read -r dir; do
    mkdir -p "$dir"
    mount -n --rbind "$kept/visible$((i++))" "$dir"
  done <"$kept/visible"
}

# ---- nodes

node_pid() { # NODE: its pid 1, or a refusal
  if [[ ! -e $node_pids/$1 ]]; then
    say "there is no running node '$1'; there are: $(cd "$node_pids" 2>/dev/null && echo *)"
    return 1
  fi
  cat "$node_pids/$1"
}

in_node() { # NODE COMMAND...: inside the node, in this directory where the node has it
  local pid
  pid=$(node_pid "$1") || return
  # shellcheck disable=SC2016 # is for the inner shell
  nsenter -t "$pid" -n -u -m -i -p -- env -i "${callers_environment[@]}" \
    bash -c 'cd "$1" 2>/dev/null || cd /; shift; exec "$@"' in_node "$PWD" "${@:2}"
}

address() { echo "10.77.0.$((10 + 10#${1#node}))"; } # NODE

# boot_node NODE: its namespaces, file system and link; no daemon yet.
boot_node() {
  local node=$1 log=$CLUSTER_DIR/log/$1.boot.log ready line='' pid
  if [[ -e $node_pids/$node ]]; then say "$node is already running" && return 1; fi
  exec {ready}< <(exec setsid "${clean[@]}" unshare "${namespaces[@]}" \
    bash "$cluster_home/node.sh" "$node" </dev/null 2>>"$log")
  local outer=$!
  read -r -t "$start_limit_s" -u "$ready" line || true
  exec {ready}<&-
  pid=$(child_of "$outer")
  if [[ $line != ready || -z $pid ]]; then
    say "$node did not boot: $(tail -n 3 "$log" | xargs -0)"
    kill -KILL ${pid:+"$pid"} "$outer" 2>/dev/null || true
    return 1
  fi
  echo "$pid" >"$node_pids/$node"
  ip -batch - <<TEXT
link add v$node type veth peer name eth0 netns $pid
link set v$node master br0 up
TEXT
  nsenter -t "$pid" -n ip -batch - <<TEXT
link set lo up
address add $(address "$node")/24 dev eth0
link set eth0 up
TEXT
}

# start_daemons NODE: slurmd, and sshd where wanted. Both are in the background once they can be talked to.
start_daemons() {
  local log=$CLUSTER_DIR/log/$1.boot.log
  if ! in_node "$1" "${clean[@]}" timeout "$start_limit_s" slurmd </dev/null >>"$log" 2>&1; then
    say "slurmd did not start on $1: $(tail -n 3 "$log" | xargs -0)"
    return 1
  fi
  [[ -e $CLUSTER_DIR/ssh/config ]] || return 0
  in_node "$1" "${clean[@]}" "$(PATH=$system_path command -v sshd)" \
    -f "$CLUSTER_DIR/ssh/sshd_config" -E "$CLUSTER_DIR/log/$1.sshd.log" -o "ListenAddress=$(address "$1")" </dev/null
}
