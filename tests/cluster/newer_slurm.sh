#!/usr/bin/env bash
# The suites of the cluster on another Slurm than this machine's: builds what meets Slurm against its headers, and runs bats
# files with its daemons. Slow, takes root: for the night, not for every change.
# usage: tests/cluster/newer_slurm.sh [DEBIAN [SUITE...]]   (trixie; spank preflight harmless attacks operator)
#        tests/cluster/newer_slurm.sh SOURCE [SUITE...]     (the same and those of ms-driver, placement, inspect, repair)
# DEBIAN is made as a tree of its own, which has no MPI and no Python: suites that train need SOURCE, a folder with Slurm's
# source (its release, or its repository at a tag), which is built (20 minutes on two cores) and laid over this machine's files.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
of=${1:-trixie}
suites=("${@:2}")
checks=(spank preflight harmless attacks operator)
if [[ -x $of/configure ]]; then
  of=$(realpath "$of")
  version=$(awk '$1 == "Version:" { print $2 }' "$of/META")
  if ((${#suites[@]} == 0)); then suites=("${checks[@]}" driver driver_{cases,slow,storage,suspects} placement inspect repair); fi
else
  version=$of
  if ((${#suites[@]} == 0)); then suites=("${checks[@]}"); fi
fi
build=build/slurm-$version
made=$PWD/$build-made # by this script: a tree, or what lies over this machine's
mkdir -p "$build/include"

debian_tree() {
  if ! command -v mmdebstrap >/dev/null; then
    echo "there is no mmdebstrap (a Debian package)" >&2
    exit 77
  fi
  rm -rf "$made"
  # Only apt's own settings of this machine reach the tree (a proxy, say), not its sources.
  mapfile -t settings < <(grep -lE '^ *Acquire' /etc/apt/apt.conf.d/* | sed 's/^/--aptopt=/')
  mmdebstrap --quiet --variant=apt "${settings[@]}" \
    --include=slurmctld,slurmd,slurm-client,munge,slurm-wlm-basic-plugins,libslurm-dev,iproute2,util-linux,mount,procps,gawk \
    --include=openssh-server,openssh-client,libpmix-dev "$of" "$made"
}

# As Debian lays Slurm out and configures it: nodes that share a munged need --enable-multiple-slurmd. libpmix-dev's folder is
# no place where configure looks.
source_tree() {
  local lib objects=$PWD/$build/objects
  lib=/usr/lib/$(gcc -print-multiarch)
  mkdir -p "$objects"
  (
    cd "$objects"
    "$of/configure" --prefix=/usr --sysconfdir=/etc/slurm --libdir="$lib" --localstatedir=/var --without-rpath \
      --enable-multiple-slurmd --with-munge --with-pmix="$lib/pmix2" CFLAGS='-O1 -w' >configure.log
    make -j"$(nproc)" >make.log 2>&1
    make install DESTDIR="$made" >install.log 2>&1
  )
}

# Everything below runs where the tree is mounted, in a mount namespace that ends with this script.
if [[ -z ${NEWER_SLURM_TREE:-} ]]; then
  if [[ ! -x $made/usr/sbin/slurmctld ]]; then
    if [[ -x $of/configure ]]; then source_tree; else debian_tree; fi
  fi
  NEWER_SLURM_TREE=$made
  export NEWER_SLURM_TREE
  if [[ -x $of/configure ]]; then
    mkdir -p "$build/layer"
    NEWER_SLURM_TREE=$PWD/$build/layer:/
    # A layer must not lie within another one: this one gets a file system of its own.
    # shellcheck disable=SC2016 # for the shell in the namespace
    exec unshare -m bash -euc 'made=$1 layer=$2
      mount -t tmpfs tmpfs "$layer"
      cp -a "$made/." "$layer"
      shift 2
      exec "$@"' layers "$made" "$PWD/$build/layer" bash "$PWD/tests/cluster/newer_slurm.sh" "$of" "${suites[@]}"
  fi
fi
cp -r "$made/usr/include/slurm" "$build/include/" # Slurm's headers alone: the tree's C library may not be this machine's
cmake --preset release -B "$build" -DMS_SLURM_INCLUDE="$PWD/$build/include" -DMS_SLURM=ON >"$build/configure.log"
targets=(ms-diag ms-driver ms-prolog ms-epilog ms_spank ms_spank_wrong_abi fake_nvml hung_mount)
if [[ -x $of/configure ]]; then targets=({libms,tools,spank,tests/{cluster,spank}}/all); fi
cmake --build "$build" --target "${targets[@]}"
CLUSTER_BUILD=$PWD/$build CLUSTER_SLURM_ROOT=$NEWER_SLURM_TREE
export CLUSTER_BUILD CLUSTER_SLURM_ROOT
tests/cluster/run 1 -- scontrol --version
failed=()
for suite in "${suites[@]}"; do
  bats "tests/cluster/$suite.bats" || failed+=("$suite")
done
if ((${#failed[@]} > 0)); then
  echo "failed on Slurm $version: ${failed[*]}" >&2
  exit 1
fi
