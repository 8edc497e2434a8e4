#!/usr/bin/env bash
# packaging/spack by the Spack on PATH: resolved with Debian's libraries as externals, and configured from these sources. Nothing
# is compiled. REPOSITORY: another one with recipes, such as of simdjson for a Spack that has none.
# usage: spack.sh [REPOSITORY...]
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
fail() { echo "FAILED: $1" >&2 && exit 1; }
skip() { echo "skipped: $1" && exit 77; }
command -v spack >/dev/null || skip "there is no spack"
command -v dpkg-query >/dev/null || skip "the externals are Debian's packages"
git -C "$repo" rev-parse --git-dir >/dev/null 2>&1 || skip "these sources are no git checkout"
dir=$(mktemp -d -p "$repo/build")
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export SPACK_USER_CONFIG_PATH=$dir/config SPACK_USER_CACHE_PATH=$dir/cache
mkdir config

declare -A packages=([nlohmann-json]=nlohmann-json3-dev [onednn]=libdnnl-dev [zlib]=zlib1g-dev [openssl]=libssl-dev
  [curl]=libcurl4-openssl-dev [sqlite]=libsqlite3-dev [libjpeg-turbo]=libjpeg-dev [libpng]=libpng-dev
  [cmake]=cmake [pkg-config]=pkg-config [ninja]=ninja-build [gmake]=make)
for name in fmt spdlog cli11 toml11 xxhash zstd simdjson pcre2 utf8proc openmpi pmix munge slurm hdf5; do packages[$name]=lib$name-dev; done
declare -A variants=([onednn]=' cpu_runtime=omp' [hdf5]='~mpi')
{
  echo 'packages:'
  echo '  all: {target: [x86_64], providers: {mpi: [openmpi], zlib-api: [zlib], jpeg: [libjpeg-turbo], pkgconfig: [pkg-config]}}'
} >config/packages.yaml
for name in "${!packages[@]}"; do
  version=$(dpkg-query -W -f='${source:Upstream-Version}' "${packages[$name]}" 2>/dev/null | sed 's/[+~-].*//') || skip "there is no ${packages[$name]}"
  if [[ $name == slurm ]]; then version=${version//./-}-1; fi
  echo "  $name: {buildable: false, externals: [{spec: '$name@$version${variants[$name]:-}', prefix: /usr}]}" >>config/packages.yaml
done

for folder in "$repo/packaging/spack" "$@"; do spack repo add "$folder"; done
spack spec ms@main >resolved || fail "Spack does not resolve the recipe"
cat resolved
grep '^ - ' resolved >built || fail "Spack marks nothing that it would build: its format has changed"
grep -q '^ - .*ms@' built || fail "it would not build ms"
if grep -v '^ - .*\(ms\|gcc-runtime\)@' built; then fail "it would build more than ms"; fi

# A clone, since Spack writes into the folder that it builds.
git clone -q --depth 1 "file://$repo" ms
printf 'config:\n  install_tree: {root: %s}\n  build_stage: %s\n' "$dir/opt" "$dir/stage" >config/config.yaml
spack dev-build --until cmake -d "$dir/ms" ms@main >log 2>&1 || { tail -n 40 log && fail "it does not configure"; }
for part in 'OpenMPI: TRUE' 'PMIx: TRUE' "Slurm's SPANK API: TRUE" 'HDF5: TRUE' 'MUNGE: TRUE' 'libcurl: TRUE' 'Generating done'; do
  grep -q -- "-- $part" log || fail "configured without $part"
done
echo "resolved and configured by Spack $(spack --version)"
