#!/usr/bin/env bash
# On the controller of a test cluster of one node, which runs from a tree with the packages installed and the next version's in
# /debs/next: the node's packages are upgraded and removed while jobs run, one of them under the driver. By installed.sh.
# shellcheck disable=SC2016 # what is in single quotes is for the shell on the node
set -euxo pipefail
cd "$CLUSTER_DIR/shared"
no() { ! "$@"; }
on() { on-node node01 env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }
installed() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin SLURM_CONF="$SLURM_CONF" "$@"; } # the packages' programs, not the build's
state() { squeue -h -j "$1" -o %T; }
running() { [[ $(state "$1") == RUNNING ]]; }
steps() { tail -n 1 r/metrics.jsonl 2>/dev/null | sed -n 's/^{"step":\([0-9]*\).*/\1/p'; }
beyond() { [[ $(steps) -gt $1 ]]; } # STEP
export -f state running steps beyond
daemon() { on cat /run/slurmd.pid; }

# A job that trains under the driver, until somebody puts r/stop there; its log is NAME.log. What runs again goes on.
drive() { # NAME
  [[ -n $tools ]] || return 0
  local first=$(($(steps) + 0))
  installed sbatch --parsable --no-kill -o "$1.log" -c 2 --wrap "ms-driver run --spares 0 --run-dir $PWD/r -- \
    ms-train run /usr/share/ms/examples/tiny.toml --set mesh.dp=1 --set mesh.pp=1 --set mesh.tp=1 --set train.steps=1000000 \
    --set checkpoint.dir=ckpt --set checkpoint.every_steps=20 --set checkpoint.keep_last=2; echo driver rc \$?" >/dev/null
  wait-until 120 beyond "$first" || { tail -n 30 "$1.log" && return 1; }
}
stops() { # NAME: the run ends as it was asked to, code 75
  [[ -n $tools ]] || return 0
  touch r/stop
  wait-until 120 grep -q '^driver rc ' "$1.log" || { tail -n 30 "$1.log" && return 1; }
  grep -q '^driver rc 75$' "$1.log" || { tail -n 30 "$1.log" && return 1; }
}

# Without ms-ops and ms-tools, as on another Debian, no job trains.
tools=$(on sh -c 'command -v ms-driver' || true)
trains_on() { # [STEPS]: so many more
  if [[ -n $tools ]]; then wait-until 120 beyond $(($(steps) + ${1:-0})); fi
}

before=$(daemon)
on install -D -m 644 /dev/null /etc/ms/ms-diag.toml
job=$(sbatch --parsable -D / -o /dev/null --wrap 'sleep 1200')
wait-until 60 running "$job"
srun --overlap --jobid "$job" --ms-preflight=on true
if [[ -n $tools ]]; then on ms-data encode --output "$PWD/text" /usr/share/common-licenses/GPL-3; fi
drive upgraded

# All are upgraded. The driver, of the version before, starts the new ms-train in place of a rank that died.
on sh -c 'dpkg -i $(ls /debs/next/*.deb | grep -v ms-cuda)'
[[ $(srun --overlap --jobid "$job" hostname) == node01 ]]
trains_on
if [[ -n $tools ]]; then
  on pkill -KILL -x ms-train
  wait-until 120 grep -q 'attempt 2 trains' upgraded.log || { tail -n 30 upgraded.log && exit 1; }
fi
trains_on
stops upgraded

# A plugin that Slurm requires stays, and jobs start; one that is optional goes, with a complaint of each command.
plugstack=$CLUSTER_DIR/etc/plugstack.conf
sed -i 's/^optional/required/' "$plugstack"
no on dpkg --remove ms-spank 2>refusal
grep -q '^ms-spank: required in .*plugstack.conf ' refusal
srun --overlap --jobid "$job" true
sed -i 's/^required/optional/' "$plugstack"
on dpkg --remove ms-spank
[[ $(srun --overlap --jobid "$job" hostname) == node01 ]]
sed -i /ms_spank.so/d "$plugstack"
srun --overlap --jobid "$job" true 2>complaints
[[ ! -s complaints ]]

# What runs goes on when all the rest is removed.
drive removed
on sh -c 'dpkg --purge $(dpkg-query -W -f "\${db:Status-Abbrev}\${Package}\n" "ms-*" | sed -n "s/^ii *//p")'
trains_on 20
stops removed
[[ $(daemon) == "$before" ]]
on kill -0 "$before"
running "$job"
scancel "$job"
srun hostname
[[ -z $(sinfo -h -R) ]]
