#!/usr/bin/env bash
# The suites of pre-flight on the Slurm of a newer Debian: makes a tree of that Debian, builds the plugin against its headers
# and runs the same bats files in it. Slow, takes root and Debian's mirror: for the night, not for every change.
# usage: tests/cluster/newer_slurm.sh [RELEASE [SUITE...]]     (trixie; spank preflight harmless attacks operator)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
release=${1:-trixie}
suites=("${@:2}")
if ((${#suites[@]} == 0)); then suites=(spank preflight harmless attacks operator); fi
build=build/$release tree=$PWD/build/$release-tree

if ! command -v mmdebstrap >/dev/null; then
  echo "there is no mmdebstrap (a Debian package)" >&2
  exit 77
fi
if [[ ! -e $tree/usr/sbin/slurmctld ]]; then
  rm -rf "$tree"
  mkdir -p build
  # Only apt's own settings of this machine reach the tree (a proxy, say), not its sources.
  mapfile -t settings < <(grep -lE '^ *Acquire' /etc/apt/apt.conf.d/* | sed 's/^/--aptopt=/')
  mmdebstrap --quiet --variant=apt "${settings[@]}" \
    --include=slurmctld,slurmd,slurm-client,munge,slurm-wlm-basic-plugins,libslurm-dev,iproute2,util-linux,mount,procps,gawk \
    --include=openssh-server,openssh-client,libpmix-dev "$release" "$tree"
fi
mkdir -p "$build/include" # Slurm's headers alone: the tree's C library is not this machine's
cp -r "$tree/usr/include/slurm" "$build/include/"
cmake --preset release -B "$build" -DMS_SLURM_INCLUDE="$PWD/$build/include" -DMS_SLURM=ON >"$build/configure.log"
cmake --build "$build" --target ms-diag ms-driver ms-prolog ms-epilog ms_spank ms_spank_wrong_abi fake_nvml hung_mount
CLUSTER_BUILD=$PWD/$build CLUSTER_SLURM_ROOT=$tree
export CLUSTER_BUILD CLUSTER_SLURM_ROOT
tests/cluster/run 1 -- scontrol --version
failed=()
for suite in "${suites[@]}"; do
  bats "tests/cluster/$suite.bats" || failed+=("$suite")
done
if ((${#failed[@]} > 0)); then
  echo "failed on the Slurm of $release: ${failed[*]}" >&2
  exit 1
fi
