#!/usr/bin/env bash
# Runs one file of bats tests that boot clusters: ctest's door to them. Exits 77 where no cluster can be had, as bats cannot.
# usage: suite.sh FILE.bats BUILD
set -euo pipefail
"$(dirname "${BASH_SOURCE[0]}")/run" --check
if ! command -v bats >/dev/null; then echo "there is no bats" && exit 77; fi
CLUSTER_BUILD=$(realpath "$2")
export CLUSTER_BUILD
exec bats --timing "$1"
