#!/usr/bin/env bash
# All packages in trees of Debian: clean of lintian's errors; installed alone and all together, upgraded, removed and purged;
# and on the test cluster, where slurmd and jobs go on meanwhile. With another Debian than this one, which has another Slurm,
# the packages are the two that nodes need, and compiled there. Takes root and Debian's mirror: for the night.
# usage: installed.sh CPACK BUILD [RELEASE]
set -euo pipefail
cpack=$1 build=$(realpath "$2")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=tests/packages/tree.sh
. "$here/tree.sh"
release=${3:-$own}

begin=$SECONDS
step() { echo "$((SECONDS - begin)) s: $1"; }
make_packages "$release"
du -h made/*.deb
step "made"

if command -v lintian >/dev/null; then
  lintian --allow-root --tag-display-limit 0 --fail-on error made/*.deb || fail "lintian"
  step "lintian finds no errors"
fi

make_tree "$release" slurmd slurm-client slurmctld munge iproute2 util-linux procps gawk systemd libpmix-dev
step "a tree of $release"
install() { in_tree apt-get -qq -o Dpkg::Use-Pty=0 -y --no-install-recommends install "$@" >>log 2>&1; }
files() { (cd "$tree" && find . -xdev \( -path ./var/lib/dpkg -o -path ./var/cache -o -path ./var/log -o -path ./var/lib/apt -o -path ./tmp -o -path ./run/systemd \) \
  -prune -o -print | sort); }

# ms-diag alone: needs no MPI and no oneDNN, and finds something out.
files >before
install "$(deb ms-diag)" || { tail log && fail "ms-diag does not install"; }
in_tree dpkg -l >list
if grep -E '^ii +(libopenmpi|libdnnl|libcurl|libhdf5)' list; then fail "ms-diag brought these"; fi
in_tree ms-diag --version
in_tree ms-diag --man >manual
grep -q '^.Dt MS-DIAG 1' manual || fail "ms-diag has no manual"
status=0
in_tree ms-diag run --level 1 >out || status=$?
cat out
((status <= 2)) || fail "ms-diag run ended with $status"
in_tree systemd-analyze --man=no verify /usr/lib/systemd/system/ms-diag{,-collect}.{service,timer} || fail "a unit is wrong"
in_tree apt-get -qq -y purge ms-diag >>log 2>&1
files | diff before - || fail "ms-diag left this behind"
step "ms-diag alone"

# What CUDA's package needs beyond ours is NVIDIA's.
mapfile -t all < <(cd "$tree" && find debs -maxdepth 1 -name '*.deb' ! -name 'ms-cuda*' -printf '/%p\n')
install "${all[@]}" || { tail log && fail "they do not install together"; }
if [[ $release == "$own" ]]; then
  for tool in ms-train ms-data ms-ckpt ms-tracepp ms-netcheck ms-driver ms-loan ms-diag; do
    in_tree "$tool" --version >/dev/null || fail "$tool does not start"
    in_tree "$tool" --man >page || fail "$tool has no manual"
  done
  [[ $(in_tree ms-diag list) == *perf.gemm* ]] || fail "ms-diag does not find its active checks"
  for page in "$tree"/usr/share/man/man?/ms*; do
    # NVIDIA's folder stays; ours is not there.
    if zcat "$page" | sed 's|/usr/local/nvidia||g' | grep -q /usr/local; then fail "$page names /usr/local"; fi
  done
  in_tree systemd-analyze --man=no verify /usr/lib/systemd/system/ms-{notify,loan}.service || fail "a unit is wrong"
fi
step "all together"

# The next version: the same with another number. A policy that the site wrote stays.
mkdir "$debs/next"
for deb in "$debs"/*.deb; do
  dpkg-deb -R "$deb" next
  sed -i 's/\(0\.[0-9]*\.[0-9]*\)-1\b/\1-2/g' next/DEBIAN/control
  dpkg-deb -b --root-owner-group next "$debs/next/$(basename "$deb" | sed 's/-1_/-2_/')" >/dev/null
  rm -r next
done
echo '# the site wrote this' >>"$tree/etc/ms/ms-diag.toml"
cp -a "$tree" cluster
mapfile -t all < <(cd "$tree" && find debs/next -name '*.deb' ! -name 'ms-cuda*' -printf '/%p\n')
install -o Dpkg::Options::=--force-confold "${all[@]}" || { tail log && fail "no upgrade"; }
[[ $(in_tree dpkg -l ms-diag ms-spank | grep -c -- '-2 ') == 2 ]] || fail "they are not upgraded"
grep -q 'the site wrote this' "$tree/etc/ms/ms-diag.toml" || fail "the site's policy is gone"
mapfile -t names < <(basename -a "${all[@]}" | sed 's/_.*//')
in_tree dpkg --purge "${names[@]}" >>log 2>&1 || { tail log && fail "they do not go"; }
left=$(files | grep -Ev '^./(debs|usr/share/locale)/' | grep -E '/(ms|ms[-_][a-z.]+)(/|$)' || true)
[[ -z $left ]] || fail "left behind: $left"
step "upgraded and purged"

# On a cluster whose nodes run from the tree: slurmd and jobs go on while packages are upgraded and removed.
if ! "$here/../cluster/run" --check --slurm-root "$dir/cluster"; then
  echo "the cluster is skipped"
  exit 0
fi
"$here/../cluster/run" 1 --slurm-root "$dir/cluster" --conf <(echo MpiDefault=none) --plugstack "optional /usr/lib/ms/ms_spank.so config=/etc/ms/ms-diag.toml" -- \
  bash "$here/upgraded.sh" || fail "the daemon or a job was hurt"
step "slurmd and the jobs went on"
