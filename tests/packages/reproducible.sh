#!/usr/bin/env bash
# The packages of this build, and of another one of the same sources: in another folder, later, compiled anew, by somebody with
# another umask, time zone and home. They are the same bytes. Compiles all, or what these parts need: for the night. CUDA's takes
# longest, and is made where it is named. With --keep the other build is in this folder and stays there: to be looked at where a
# package differs, and the next time only what has changed is compiled. Neither build may be compiled under CCACHE_BASEDIR: the
# compiler then gets other paths of headers, and assertions print them.
# usage: reproducible.sh [--keep FOLDER] CPACK BUILD [PART...]
set -euo pipefail
fail() { echo "FAILED: $1" >&2 && exit 1; }
skip() { echo "skipped: $1" && exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
again=$dir/in/a/deeper/folder
if [[ $1 == --keep ]]; then
  again=$(realpath "$2")
  shift 2
fi
cpack=$1 build=$(realpath "$2")
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
git -C "$repo" rev-parse --git-dir >/dev/null 2>&1 || skip "these sources are no git checkout"
grep -q '^CMAKE_BUILD_TYPE:STRING=Release$' "$build/CMakeCache.txt" || skip "this is no release build"

mapfile -t all < <(sed -n 's/^set(CPACK_COMPONENTS_ALL "\(.*\)")/\1/p' "$build/CPackConfig.cmake" | tr ';' '\n')
parts=("${@:3}")
if ((${#parts[@]} == 0)); then mapfile -t parts < <(printf '%s\n' "${all[@]}" | grep -vx cuda); fi
for part in "${parts[@]}"; do
  [[ " ${all[*]} " == *" $part "* ]] ||
    skip "this build makes no ms-$part: cmake did not find what it is built on, or was told to leave it out"
done
list=$(IFS=';' && echo "${parts[*]}")
packages() { # BUILD OUT: as ./bootstrap package
  ninja -C "$1" "${parts[@]/#/installed_}" >log || { tail -n 30 log && fail "it does not build"; }
  (umask 022 && SOURCE_DATE_EPOCH=1700000000 "$cpack" --config "$1/CPackConfig.cmake" -B "$dir/$2" \
    -D "CPACK_COMPONENTS_ALL=$list" -D "CPACK_MS_PARTS=$list") >log 2>&1 || { tail log && fail "no packages"; }
}
cd "$dir"
packages "$build" first

# A kept folder loses what an earlier run put there and the sources lack by now, and nothing else: it may be anybody's.
mkdir -p "$again/build"
LC_ALL=C comm -z -23 <(git -C "$repo" ls-files -z) <(git -C "$repo" ls-files -z --deleted) >sources
if [[ -e $again/build/sources ]]; then
  LC_ALL=C comm -z -23 "$again/build/sources" sources | (cd "$again" && xargs -0 rm -f --)
fi
cp sources "$again/build/sources"
tar -C "$repo" --null --files-from=sources -c | tar -x -C "$again"
umask 077
export CCACHE_DISABLE=1 TZ=Pacific/Auckland LC_ALL=C.UTF-8 HOME=$dir
cuda=OFF
if [[ " ${parts[*]} " == *' cuda '* ]]; then cuda=ON; fi
(cd "$again" && cmake --preset release -DMS_TESTS=OFF -DMS_CUDA=$cuda) >log
packages "$again/build/release" second

count=0
for deb in first/*.deb; do
  count=$((count + 1))
  if ! cmp "$deb" "second/${deb#first/}"; then
    for side in first second; do dpkg-deb -R "$side/${deb#first/}" "$side/tree"; done
    diff -qr first/tree second/tree || true
    fail "$deb is another one elsewhere"
  fi
done
((count == ${#parts[@]})) || fail "only $count packages"
echo "$count packages are the same bytes: $(cd first && echo ./*.deb)"
