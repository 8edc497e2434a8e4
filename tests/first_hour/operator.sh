#!/usr/bin/env bash
# An operator who installs the packages on a cluster that was never told of ms: what ms_spank(8) says under "Installing", what
# check-site prints followed by hand, the policy that may act, and the first node that goes bad and comes back. On the test
# cluster, whose nodes run from a fresh Debian. Takes root and Debian's mirror: for the night.
# usage: operator.sh CPACK BUILD
set -euo pipefail
cpack=$1 build=$(realpath "$2")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=tests/packages/tree.sh
. "$here/../packages/tree.sh"
"$here/../cluster/run" --check || exit
make_packages "$own"
make_tree "$own" slurmd slurm-client slurmctld munge iproute2 util-linux mount procps gawk
# As a site has it that never ran checks in a prolog.
printf 'PrologFlags=Serial\nSchedulerParameters=batch_sched_delay=0\nMpiDefault=none\n' >conf
export walks=$here
"$here/../cluster/run" 3 --slurm-root "$tree" --gres 8 --conf conf -- bash -euo pipefail "$here/operator_walk.sh" ||
  fail "the walk ended with $?"
