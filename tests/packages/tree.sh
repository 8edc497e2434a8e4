# shellcheck shell=bash
# Packages made from a build, and a tree of Debian that they are installed in: what their tests share. To be sourced after
# $cpack and $build are set; the current directory is then a new one, which goes when the script ends.
set -euo pipefail
: "${cpack:?}" "${build:?}"

fail() { echo "FAILED: $1" >&2 && exit 1; }
skip() { echo "skipped: $1" && exit 77; }
if [[ $(id -u) -ne 0 ]]; then skip "it takes root"; fi
command -v mmdebstrap >/dev/null || skip "there is no mmdebstrap"
dir=$(mktemp -d -p "$build")
trap 'rm -rf "$dir"' EXIT
cd "$dir"
tree=$dir/tree debs=$dir/tree/debs
mapfile -t apt_settings < <(grep -lE '^ *Acquire' /etc/apt/apt.conf.d/*)

# make_packages: into made/.
make_packages() {
  SOURCE_DATE_EPOCH=1700000000 "$cpack" --config "$build/CPackConfig.cmake" -B "$dir/made" >log 2>&1 || { tail log && fail "no packages"; }
}

# make_tree RELEASE PACKAGE...: a small Debian with these packages; what was made lies in its /debs.
make_tree() {
  local release=$1 file
  shift
  mmdebstrap --quiet --variant=apt "${apt_settings[@]/#/--aptopt=}" --include="$(IFS=, && echo "$*")" "$release" "$tree" ||
    skip "no tree of Debian $release can be had"
  mkdir "$debs"
  cp made/*.deb "$debs"
  # As apt would do on a node: dependencies from the mirror, the packages from the folder.
  cp /etc/resolv.conf "$tree/etc/resolv.conf"
  for file in "${apt_settings[@]}"; do cp "$file" "$tree/etc/apt/apt.conf.d/"; done
  in_tree apt-get -qq update >>log 2>&1 || skip "Debian's mirror is not reached from the tree"
}

in_tree() { unshare --mount --pid --fork --mount-proc="$tree/proc" chroot "$tree" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }

# deb NAME: where the tree has the package.
deb() { echo "/debs/$(cd made && echo "$1"_*.deb)"; }
