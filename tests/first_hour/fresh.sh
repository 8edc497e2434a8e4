#!/usr/bin/env bash
# A newcomer on a fresh Debian, as root, with a clean clone and nothing else: the two commands of README.md that build, and nothing
# skipped but what needs a GPU. Takes root, Debian's mirror and, with a cold compiler cache, three quarters of an hour: for the
# night. For a trial: other commands, and a compiler cache in CCACHE_DIR.
# usage: fresh.sh BUILD [COMMAND...]      for example: fresh.sh build/release './bootstrap deps' './bootstrap build'
set -euo pipefail
cpack=none build=$(realpath "$1")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
shift
# shellcheck source=tests/packages/tree.sh
. "$here/../packages/tree.sh"
# shellcheck source=tests/first_hour/walk.sh
. "$here/walk.sh"
git -C "$sources" rev-parse --git-dir >/dev/null 2>&1 || skip "these sources are no git checkout"
commands=("$@")
if (($# == 0)); then commands=('./bootstrap demo' './bootstrap test'); fi
for command in './bootstrap demo' './bootstrap test'; do
  grep -qF "$command" "$sources/README.md" || stumble "README.md does not say $command"
done

walk_began=$SECONDS
bare_tree "$own" mount # as every machine has it
git clone -q --depth 1 "file://$sources" "$tree/root/ms"
note 'a fresh Debian, and a clean clone'

# in_clone COMMAND: as root of the tree, which is its root entirely: the kernel gives no namespaces of users below a chroot. Data
# beside these sources lie beside the clone.
in_clone() {
  # shellcheck disable=SC2016 # for the shell in the namespaces
  unshare --mount --pid --fork --kill-child bash -euo pipefail -c '
    tree=$1 shared=$2 cache=$3
    mount --bind "$tree" "$tree"
    for folder in dev sys; do mount --rbind "/$folder" "$tree/$folder"; done
    mount -t proc proc "$tree/proc"
    mount -t tmpfs tmpfs "$tree/run"
    for bound in "$shared:$tree/root/shared" "$cache:$tree/root/.cache/ccache"; do
      if [[ -d ${bound%%:*} ]]; then mkdir -p "${bound#*:}" && mount --bind "${bound%%:*}" "${bound#*:}"; fi
    done
    cd "$tree" && mkdir -p outside && pivot_root . outside && cd / && umount -l outside
    exec env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin CI=true bash -c "cd ~/ms && $4"' \
    sh "$tree" "$sources/../shared" "${CCACHE_DIR:-}" "$1"
}
for command in "${commands[@]}"; do
  shown=40 does in_clone "$command"
done
if (($# == 0)); then says '^[1-9][0-9]* passed, 0 failed, [0-9]+ skipped$'; fi
note 'done'
