#!/usr/bin/env bash
# Installs into an empty prefix, moves that elsewhere and uses it from there, with no path to the build.
# usage: install.sh CMAKE BUILD SOURCE
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
cmake=$1 build=$2 source=$3
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$cmake" --install "$build" --prefix "$dir/new" >"$dir/log" 2>&1 || { cat "$dir/log" && fail "cmake --install failed"; }

# Texts name the prefix: units that systemd takes, and what pkg-config and CMake find libms by.
if command -v systemd-analyze >/dev/null; then
  systemd-analyze --man=no verify "$dir"/new/lib/systemd/system/ms-* || fail "systemd does not like a unit"
fi
mkdir "$dir/user"
cat >"$dir/user/CMakeLists.txt" <<'TEXT'
cmake_minimum_required(VERSION 3.25)
project(user CXX)
find_package(ms 0.1.0 REQUIRED)
add_executable(by_cmake user.cpp)
target_link_libraries(by_cmake ms::ms)
TEXT
printf '#include "base/version.h"\n#include <cstdio>\nint main() { std::puts(ms::library_version()); }\n' >"$dir/user/user.cpp"
if ! { "$cmake" -S "$dir/user" -B "$dir/user" -D CMAKE_PREFIX_PATH="$dir/new" && "$cmake" --build "$dir/user"; } >"$dir/log" 2>&1; then
  tail "$dir/log"
  fail "CMake does not find libms"
fi
read -r -a flags < <(PKG_CONFIG_PATH=$dir/new/lib/pkgconfig pkg-config --cflags --libs ms)
c++ -o "$dir/user/by_pkgconfig" "$dir/user/user.cpp" "${flags[@]}" || fail "pkg-config does not find libms"
for by in by_cmake by_pkgconfig; do
  [ "$("$dir/user/$by")" = "$("$dir/new/bin/ms-train" --version | sed 's/.* //')" ] || fail "$by: another libms"
done

mv "$dir/new" "$dir/moved"
cd "$dir/moved" || exit 1

for tool in "$source"/tools/ms-*.cpp; do
  tool=$(basename "$tool" .cpp)
  env -i PATH=/usr/bin:/bin "bin/$tool" --help >"$dir/help" 2>&1 || fail "bin/$tool --help does not run: $(cat "$dir/help")"
  [ -s "share/man/man1/$tool.1" ] || fail "there is no manual of $tool"
done
if readelf -d bin/* lib/ms/*.so libexec/ms/* | grep -E 'RPATH|RUNPATH' | grep -F "$build"; then fail "something installed looks for the build"; fi
if grep -q MS_SLURM_ENABLED:INTERNAL=FALSE "$build/CMakeCache.txt"; then :; else [ -s lib/ms/ms_spank.so ] || fail "there is no plugin"; fi
for file in libexec/ms/ms-prolog libexec/ms/ms-epilog libexec/ms/ms-health share/ms/configs/tiny-3d.toml share/ms/jobscripts/train-simple.sbatch \
  share/man/man7/ms.7 share/bash-completion/completions/ms-train share/zsh/site-functions/_ms-diag \
  share/fish/vendor_completions.d/ms-ckpt.fish share/ms/modulefiles/ms; do
  [ -s "$file" ] || fail "$file is missing"
done

# Every path that the manual of the plugin and the README name is one that is installed under /usr/local.
grep -ohE '/usr/local/(bin|etc|lib|libexec|share)/[A-Za-z0-9_./-]*[A-Za-z0-9_]' "$source/README.md" "$source"/man/*.[0-9] \
  share/man/man*/* "$source/libms/core/slurm/site.cpp" | sort -u >"$dir/named"
while read -r path; do
  [ -e "${path#/usr/local/}" ] || fail "$path is named in a manual, and not installed"
done <"$dir/named"

# A run, and a check of this node, from the installed files alone.
cat "$source"/README.md "$source"/man/*.[0-9] >"$dir/text"
env -i PATH=/usr/bin:/bin bin/ms-data encode --tokenizer byte --output "$dir/tokens" "$dir/text" >/dev/null 2>&1 ||
  fail "the installed ms-data cannot encode"
env -i PATH=/usr/bin:/bin HOME="$dir" bin/ms-train run share/ms/configs/tiny-3d.toml --set data.train="$dir/tokens" --set run.dir="$dir/run" \
  --set train.steps=2 --set optim.warmup_steps=1 >"$dir/run.log" 2>&1 || { tail -n 20 "$dir/run.log" && fail "the installed ms-train cannot train"; }
env -i PATH=/usr/bin:/bin bin/ms-diag list | grep -q gpu.ecc || fail "the installed ms-diag lists no checks"
env -i PATH=/usr/bin:/bin bin/ms-diag list | grep -q perf.gemm || fail "the installed ms-diag does not find its active checks"
[ "$failures" -eq 0 ]
