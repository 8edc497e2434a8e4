#!/usr/bin/env bash
# packaging/ms.spec, built by rpmbuild from what is committed, with this machine's libraries in place of an RPM distribution's:
# the parts are there, each with its files, configuration marked as such, nothing in /usr/local; installed into a root, the
# programs start, a plugin that Slurm requires stays, and when all are removed nothing is left. It compiles all: for the night.
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
fail() { echo "FAILED: $1" >&2 && exit 1; }
skip() { echo "skipped: $1" && exit 77; }
command -v rpmbuild >/dev/null || skip "there is no rpmbuild"
[[ $(id -u) -eq 0 ]] || skip "it takes root"
[[ -e /usr/include/slurm/slurm_version.h ]] || skip "there are no headers of Slurm"
git -C "$repo" rev-parse --git-dir >/dev/null 2>&1 || skip "these sources are no git checkout"
dir=$(mktemp -d -p "$repo/build")
trap 'rm -rf "$dir"' EXIT
cd "$dir"
version=$(sed -n 's/^Version: *//p' "$repo/packaging/ms.spec")
git -C "$repo" archive --prefix "ms-$version/" -o "$dir/ms-$version.tar.gz" HEAD
# systemd's macros are those of an RPM distribution. These are harmless, and say what they stand for.
macros=()
for macro in post preun postun postun_with_restart; do macros+=(--define "systemd_$macro() : $macro %{*}"); done
rpmbuild -bb --nodeps --define "_topdir $dir" --define "_sourcedir $dir" "${macros[@]}" "$repo/packaging/ms.spec" >log 2>&1 ||
  { tail -n 30 log && fail "the spec does not build"; }
find RPMS -name '*.rpm' -exec du -h {} +
files() { rpm -qpl RPMS/*/"ms-$1-$version"-*.rpm; }
for part in diag spank ops tools notify doc devel; do
  files "$part" >"$part.files" || fail "there is no ms-$part"
  if grep /usr/local "$part.files"; then fail "ms-$part has something in /usr/local"; fi
done
grep -qx /usr/bin/ms-diag diag.files || fail "ms-diag has no ms-diag"
grep -q '/ms_spank.so$' spank.files || fail "ms-spank has no plugin"
grep -q '/jobscripts/train.sbatch$' doc.files || fail "ms-doc has no job scripts"
rpm -qpc RPMS/*/"ms-diag-$version"-*.rpm | grep -qx /etc/ms/ms-diag.toml || fail "the policy is not configuration"

release=$(rpm -qp --qf '%{SUMMARY}' RPMS/*/"ms-spank-$version"-*.rpm | sed -n 's/.*for Slurm //p')
[[ $release =~ ^[1-9][0-9]*\.[0-9][0-9]$ ]] || fail "ms-spank does not say for which Slurm it is: $release"
rpm -qp --conflicts RPMS/*/"ms-spank-$version"-*.rpm | grep -qx "slurm < $release" || fail "an older Slurm is no conflict"
rpm -qp --qf '[%{ORDERNAME}\n]' RPMS/*/"ms-spank-$version"-*.rpm | grep -qx slurm-slurmd ||
  fail "an upgrade of Slurm and ms-spank may run the scriptlet beside the older slurmd"
scripts() { rpm -qp --scripts RPMS/*/"ms-$1-$version"-*.rpm; }
scripts diag >said
for line in 'post ms-diag.timer ms-diag-collect.timer ms-repair.service' 'preun ms-diag.timer ms-diag-collect.timer ms-repair.service'; do
  grep -qx ": $line" said || fail "ms-diag's scripts lack $line"
done
for service in notify loan; do
  part=${service/loan/ops}
  scripts "$part" >said
  grep -qx ": postun_with_restart ms-$service.service" said || fail "an upgrade does not restart ms-$service.service"
done

# Debian's rpm knows no package of Debian, and refuses to install beside them without being told.
rpm=(rpm --root "$dir/root" --dbpath /rpmdb)
if [[ -e /etc/debian_version ]]; then rpm+=(--force-debian); fi
# The root has what the scripts of packages run.
mkdir -p root/dev root/etc/slurm
ln -s usr/bin root/bin
for program in sh sed grep timeout sort tr; do
  install -D "$(command -v "$program")" "root/usr/bin/$program"
  for library in $(ldd "$(command -v "$program")" | grep -o '/[^ ]*'); do [[ -e root$library ]] || install -D "$library" "root$library"; done
done
printf '#!/bin/sh\necho slurm 99.05.3\n' >root/usr/bin/slurmd
chmod +x root/usr/bin/slurmd
: >root/dev/null
present() { (cd root && find . -path ./rpmdb -prune -o ! -type d -print -o -name ms -print | sort); }
present >before
if "${rpm[@]}" -i --nodeps RPMS/*/"ms-spank-$version"-*.rpm 2>said; then fail "another Slurm is not refused"; fi
grep -q "built for Slurm $release, and slurmd here is of 99.05.3" said || fail "it does not say why: $(<said)"
sed -i "s/99.05/$release/" root/usr/bin/slurmd
"${rpm[@]}" -i --nodeps RPMS/*/*.rpm || fail "they do not install"
for tool in root/usr/bin/ms-*; do
  env -i PATH=/usr/bin:/bin "$tool" --version || fail "$tool does not start"
done
env -i PATH=/usr/bin:/bin root/usr/bin/ms-diag list | grep -q perf.gemm || fail "ms-diag does not find its active checks"

# The plugin: one that is required is upgraded and not removed; one that is optional goes, with a word about its line.
plugin=root$(grep '/ms_spank.so$' spank.files)
echo 'required /usr/lib/ms/ms_spank.so config=/etc/ms/ms-diag.toml' >root/etc/slurm/plugstack.conf
"${rpm[@]}" -U --nodeps --replacepkgs RPMS/*/"ms-spank-$version"-*.rpm || fail "a required plugin is not upgraded"
if "${rpm[@]}" -e ms-spank 2>said; then fail "a required plugin goes"; fi
grep -q 'required in /etc/slurm/plugstack.conf - .*Take that line out' said || fail "it says: $(<said)"
[[ -e $plugin ]] || fail "the removal is refused, and the plugin is gone"
sed -i s/required/optional/ root/etc/slurm/plugstack.conf
"${rpm[@]}" -e ms-spank 2>said || fail "an optional plugin stays: $(<said)"
grep -q 'still named in /etc/slurm/plugstack.conf ' said || fail "it says: $(<said)"
[[ ! -e $plugin ]] || fail "the plugin is still there"

echo '# the site wrote this' >>root/etc/ms/ms-diag.toml
rm root/etc/slurm/plugstack.conf
mapfile -t names < <("${rpm[@]}" -qa)
"${rpm[@]}" -e "${names[@]}" || fail "they do not go"
left=$(present | comm -13 before -)
[[ $left == $'./etc/ms\n./etc/ms/ms-diag.toml.rpmsave' ]] || fail "left behind: $left"
