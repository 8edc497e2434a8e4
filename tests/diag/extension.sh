#!/usr/bin/env bash
# ms-diag beside a libms.so, and a libms_notify.so, that is not there, is not ours, or is of another version: it says so
# and exits 3 (unknown). Neither needs the other, and level 1 needs none.
# usage: extension.sh MS-DIAG LIBRARY-OF-ANOTHER-VERSION notify|none LIBDIR, none: built without libcurl
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/../tools/expect.sh"
other=$2
notify=$3
libdir=$4 # where libraries are installed, below the prefix
built=$tool
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
mkdir bin elsewhere
cp "$built" bin/ms-diag
tool=$dir/bin/ms-diag

# refuses LIBRARY DOOR ARGS...: these arguments need that library.
refuses() {
  local library=$1 door=$2
  shift 2
  expect 3 "there is no $library at .*/$libdir/$library, .*/lib/$library" "$@"
  for folder in lib "$libdir"; do
    mkdir -p "$folder"
    echo 'no library' >"$folder/$library"
    expect 3 "$library: (file too short|invalid ELF header)" "$@"
    cp "$(ldconfig -p | sed -n 's/.*libz\.so\.1 .*=> //p' | head -n 1)" "$folder/$library"
    expect 3 "has no $door in it" "$@"
    cp "$other" "$folder/$library"
    expect 3 'is version 0\.0\.1, this program is' "$@"
    rm "$folder/$library"
  done
  # A search path must not lead elsewhere.
  cp "$other" "elsewhere/$library"
  LD_LIBRARY_PATH=$dir/elsewhere expect 3 "there is no $library" "$@"
}
refuses libms.so ms_diag_extension run --level 2 --only perf.nic
refuses libms_notify.so ms_notify_extension notify --once

"$tool" run --only host.space >out 2>err
[ $? -le 2 ] || fail "level 1 needs a library"

# needs FILE PATTERN: whether a library that it names matches.
needs() {
  readelf -d "$1" | grep NEEDED | grep -Eq "$2"
}
lib=$(dirname "$built")/../lib
if [ -e "$lib/libms.so" ] && needs "$lib/libms.so" curl; then fail "libms.so needs libcurl"; fi
if [ "$notify" = notify ]; then
  needs "$lib/libms_notify.so" curl || fail "libms_notify.so does not need libcurl"
  if needs "$lib/libms_notify.so" 'libms\.|mpi|pmix|dnnl|fmt'; then fail "libms_notify.so needs what it should not"; fi
  mkdir -p lib
  cp "$lib/libms_notify.so" lib/
  expect 0 'MS-NOTIFY.TOML 5' --man-notify
  if [ "$(id -u)" -eq 0 ]; then
    expect 3 'notify does not run as root' notify --once
  else
    expect 3 'cannot (open|read).*nowhere' notify --once --config "$dir/nowhere.toml"
  fi
else
  tool=$built
  expect 3 'if ms was built with libcurl' notify --once
fi

exit $((failures > 0))
