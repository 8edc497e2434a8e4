#!/usr/bin/env bash
# The packages of what needs no MPI, as made from this build: what they depend on and refuse, which files are configuration, and
# that they are the same bytes twice. The others are made in the same way; installed.sh has them all.
# usage: made.sh CPACK BUILD
set -euo pipefail
cpack=$1 build=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
fail() { echo "FAILED: $1" >&2 && exit 1; }

parts='diag;ops;spank'
if ! grep -q CPACK_DEBIAN_SPANK_PACKAGE_NAME "$build/CPackConfig.cmake"; then parts='diag;ops'; fi # built without Slurm's headers
for twice in 1 2; do
  SOURCE_DATE_EPOCH=1700000000 "$cpack" --config "$build/CPackConfig.cmake" -B "$dir/$twice" -D "CPACK_COMPONENTS_ALL=$parts" \
    -D "CPACK_MS_PARTS=$parts" >log 2>&1 || { cat log && fail "no packages"; }
done
for deb in 1/*.deb; do cmp "$deb" "2/${deb#1/}" || fail "$deb is not the same twice"; done

diag=$(echo 1/ms-diag_*.deb)
needs=$(dpkg-deb -f "$diag" Depends)
echo "ms-diag: $needs"
if grep -Eqi 'mpi|dnnl|slurm|curl|pmix|hdf5|ms-' <<<"$needs"; then fail "ms-diag needs too much: $needs"; fi
grep -q libc6 <<<"$needs" || fail "ms-diag needs nothing: $needs"
ops=$(dpkg-deb -f 1/ms-ops_*.deb Depends)
echo "ms-ops: $ops"
if grep -Eqi 'mpi|dnnl|slurm|pmix|hdf5|ms-' <<<"$ops"; then fail "ms-ops needs too much: $ops"; fi
dpkg-deb -c "$diag" >contents
for file in ./usr/bin/ms-diag ./usr/libexec/ms/ms-prolog ./usr/libexec/ms/ms-epilog ./usr/libexec/ms/ms-health ./etc/ms/ms-diag.toml \
  ./usr/lib/systemd/system/ms-diag{,-collect}.timer ./usr/lib/tmpfiles.d/ms-diag.conf; do
  grep -q " $file\$" contents || fail "ms-diag has no $file"
done
if grep -q usr/local contents; then fail "ms-diag has something in /usr/local"; fi
if awk '{ print $2 }' contents | grep -v '^root/root$'; then fail "not root's"; fi
dpkg-deb -I "$diag" conffiles >configuration
grep -qx /etc/ms/ms-diag.toml configuration || fail "the policy is not configuration: $(cat configuration)"
dpkg-deb -x "$diag" tree
# NVIDIA's folder is not ours.
if grep -rI /usr/local tree/usr/lib tree/etc | grep -v /usr/local/nvidia; then fail "a text of ms-diag names /usr/local"; fi
env -i PATH=/usr/bin:/bin tree/usr/bin/ms-diag --version
[[ $parts == diag ]] && exit 0

spank=$(echo 1/ms-spank_*.deb)
release=$(dpkg-deb -f "$spank" Description | sed -n '1s/.*for Slurm //p')
[[ $release =~ ^[0-9]+\.[0-9]+$ ]] || fail "ms-spank does not say for which Slurm it is: $release"
needs=$(dpkg-deb -f "$spank" Depends)
echo "ms-spank: $needs"
for part in "slurm-wlm-basic-plugins (>= $release)" "slurm-wlm-basic-plugins (<< ${release%.*}." 'ms-diag (= '; do
  grep -qF "$part" <<<"$needs" || fail "ms-spank does not depend on $part"
done
dpkg-deb -c "$spank" >contents
grep -q ' ./usr/lib/.*ms/ms_spank.so$' contents || fail "ms-spank has no plugin"

# Beside another Slurm it says so; with its own, and with none that can be asked, it does not stand in the way.
dpkg-deb -e "$spank" control
mkdir path
ln -s /usr/bin/sed path/sed
asks() { # VERSION: what the script before the installation says where Slurm is of this version
  printf '#!/bin/sh\necho slurm-wlm %s\n' "$1" >path/slurmd
  chmod +x path/slurmd
  env -i PATH="$dir/path" /bin/sh control/preinst install 2>&1
}
asks "$release.1" || fail "its own Slurm is refused"
if said=$(asks 99.05.3); then fail "another Slurm is not refused"; fi
[[ $said == *"built for Slurm $release"*"of 99.05.3"* ]] || fail "it does not say why: $said"
rm path/slurmd
env -i PATH="$dir/path" /bin/sh control/preinst install || fail "without Slurm it is refused"

# A plugin that is required does not go; one that is optional goes, with a word about its line.
printf '#!/bin/sh\necho "PlugStackConfig         = %s/slurm/plugstack.conf"\n' "$dir" >path/scontrol
chmod +x path/scontrol
mkdir -p slurm/plugstack.conf.d
removed() { # LINE: what the script before the removal says where this is one of plugstack's
  echo "$1" >slurm/plugstack.conf.d/ms.conf
  env -i PATH="$dir/path:/usr/bin:/bin" /bin/sh control/prerm remove 2>&1
}
if said=$(removed 'required /usr/lib/ms/ms_spank.so config=/etc/ms/ms-diag.toml'); then fail "a required plugin goes"; fi
[[ $said == "ms-spank: required in $dir/slurm/plugstack.conf.d/ms.conf - "*"Take that line out"* ]] || fail "it says: $said"
env -i PATH="$dir/path:/usr/bin:/bin" /bin/sh control/prerm upgrade || fail "a required plugin is not upgraded"
said=$(removed ' optional /usr/lib/ms/ms_spank.so') || fail "an optional plugin stays"
[[ $said == *"still named in $dir/slurm/plugstack.conf.d/ms.conf "* ]] || fail "it says: $said"
[[ -z $(removed '#required /usr/lib/ms/ms_spank.so') ]] || fail "a comment keeps it"
mkdir -p site
echo 'required /usr/lib/ms/ms_spank.so' >site/shared
ln -sf ../site/shared slurm/plugstack.conf
if said=$(removed '# none'); then fail "a required plugin goes where plugstack.conf is a link"; fi
printf 'include %s/site/*\n' "$dir" >site/top
ln -sf ../site/top slurm/plugstack.conf
if said=$(removed '# none'); then fail "a required plugin goes where its line is included"; fi
[[ $said == *"required in $dir/site/shared "* ]] || fail "it says: $said"
rm slurm/plugstack.conf
echo 'required /usr/lib/ms/ms_spank.so' >slurm/plugstack.conf.d/ms.conf.bak
[[ -z $(removed '# none') ]] || fail "a copy of an old file keeps it"
