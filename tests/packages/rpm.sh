#!/usr/bin/env bash
# packaging/ms.spec, built by rpmbuild from what is committed, with this machine's libraries in place of an RPM distribution's:
# the parts are there, each with its files, configuration marked as such, nothing in /usr/local; installed into a root, the
# programs start, and when they are removed nothing is left. It compiles all: for the night.
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
fail() { echo "FAILED: $1" >&2 && exit 1; }
skip() { echo "skipped: $1" && exit 77; }
command -v rpmbuild >/dev/null || skip "there is no rpmbuild"
git -C "$repo" rev-parse --git-dir >/dev/null 2>&1 || skip "these sources are no git checkout"
dir=$(mktemp -d -p "$repo/build")
trap 'rm -rf "$dir"' EXIT
cd "$dir"
version=$(sed -n 's/^Version: *//p' "$repo/packaging/ms.spec")
git -C "$repo" archive --prefix "ms-$version/" -o "$dir/ms-$version.tar.gz" HEAD
rpmbuild -bb --nodeps --define "_topdir $dir" --define "_sourcedir $dir" "$repo/packaging/ms.spec" >log 2>&1 ||
  { tail -n 30 log && fail "the spec does not build"; }
find RPMS -name '*.rpm' -exec du -h {} +
files() { rpm -qpl RPMS/*/"ms-$1-$version"-*.rpm; }
for part in diag spank tools notify doc devel; do
  files "$part" >"$part.files" || fail "there is no ms-$part"
  if grep /usr/local "$part.files"; then fail "ms-$part has something in /usr/local"; fi
done
grep -qx /usr/bin/ms-diag diag.files || fail "ms-diag has no ms-diag"
grep -q '/ms_spank.so$' spank.files || fail "ms-spank has no plugin"
grep -q '/jobscripts/train.sbatch$' doc.files || fail "ms-doc has no job scripts"
rpm -qpc RPMS/*/"ms-diag-$version"-*.rpm | grep -qx /etc/ms/ms-diag.toml || fail "the policy is not configuration"

# Debian's rpm knows no package of Debian, and refuses to install beside them without being told.
rpm=(rpm --root "$dir/root" --dbpath /rpmdb)
if [[ -e /etc/debian_version ]]; then rpm+=(--force-debian); fi
mkdir root
"${rpm[@]}" -i --nodeps RPMS/*/*.rpm || fail "they do not install"
for tool in root/usr/bin/ms-*; do
  env -i PATH=/usr/bin:/bin "$tool" --version || fail "$tool does not start"
done
env -i PATH=/usr/bin:/bin root/usr/bin/ms-diag list | grep -q perf.gemm || fail "ms-diag does not find its active checks"
echo '# the site wrote this' >>root/etc/ms/ms-diag.toml
mapfile -t names < <("${rpm[@]}" -qa)
"${rpm[@]}" -e "${names[@]}" || fail "they do not go"
left=$(cd root && find . -path ./rpmdb -prune -o -type f -print -o -name ms -print)
[[ $left == $'./etc/ms\n./etc/ms/ms-diag.toml.rpmsave' ]] || fail "left behind: $left"
