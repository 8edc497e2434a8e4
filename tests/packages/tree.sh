# shellcheck shell=bash
# Packages made from a build, or on another Debian, and a tree of Debian that they are installed in: what their tests share. To
# be sourced after $cpack and $build are set; the current directory is then a new one, which goes when the script ends.
set -euo pipefail
: "${cpack:?}" "${build:?}"

fail() { echo "FAILED: $1" >&2 && exit 1; }
skip() { echo "skipped: $1" && exit 77; }
if [[ $(id -u) -ne 0 ]]; then skip "it takes root"; fi
command -v mmdebstrap >/dev/null || skip "there is no mmdebstrap"
own=$(. /etc/os-release && echo "$VERSION_CODENAME")
sources=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
dir=$(mktemp -d -p "$build")
trap 'rm -rf "$dir"' EXIT
cd "$dir"
tree=$dir/tree debs=$dir/tree/debs
mapfile -t apt_settings < <(grep -lE '^ *Acquire' /etc/apt/apt.conf.d/*)

in_tree() { unshare --mount --pid --fork --mount-proc="$tree/proc" chroot "$tree" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }

# bare_tree RELEASE PACKAGE...: a small Debian with these packages in $tree, where apt works as on a node.
bare_tree() {
  local release=$1 file
  shift
  mmdebstrap --quiet --variant=apt "${apt_settings[@]/#/--aptopt=}" ${1:+--include="$(IFS=, && echo "$*")"} "$release" "$tree" ||
    skip "no tree of Debian $release can be had"
  cp /etc/resolv.conf "$tree/etc/resolv.conf"
  for file in "${apt_settings[@]}"; do cp "$file" "$tree/etc/apt/apt.conf.d/"; done
  in_tree apt-get -qq update >>log 2>&1 || skip "Debian's mirror is not reached from the tree"
}

# make_packages RELEASE: into made/. Of another Debian those that nodes need, ms-diag and ms-spank, as ./bootstrap package makes
# them there of what is committed, in build/RELEASE-make, which stays for the next time.
make_packages() {
  local release=$1 tree=$sources/build/$1-make
  if [[ $release == "$own" ]]; then
    SOURCE_DATE_EPOCH=1700000000 "$cpack" --config "$build/CPackConfig.cmake" -B "$dir/made" >log 2>&1 || { tail log && fail "no packages"; }
    return
  fi
  git -C "$sources" rev-parse --git-dir >/dev/null 2>&1 || skip "these sources are no git checkout"
  if [[ ! -e $tree/ready ]]; then
    rm -rf "$tree"
    bare_tree "$release" git
    git init -q "$tree/ms"
    touch "$tree/ready"
  fi
  git -C "$tree/ms" fetch -q --depth 1 "file://$sources" HEAD && git -C "$tree/ms" reset -q --hard FETCH_HEAD
  in_tree /ms/bootstrap package diag spank >log 2>&1 || { tail -n 40 log && fail "no packages on $release"; }
  cp -r "$tree/ms/build/packages" made
}

# make_tree RELEASE PACKAGE...: such a tree; what was made lies in its /debs.
make_tree() {
  bare_tree "$@"
  mkdir "$debs"
  cp made/*.deb "$debs"
}

# deb NAME: where the tree has the package.
deb() { echo "/debs/$(cd made && echo "$1"_*.deb)"; }
