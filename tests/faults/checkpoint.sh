#!/usr/bin/env bash
# Checkpoints under real failures: whatever is killed, refused by the disk or damaged, and whenever, what is found
# afterwards is sound, and training goes on from it as if nothing had happened, bit by bit.
# usage: checkpoint.sh CASE BIN MPIEXEC SHIM [COUNT] [SEED]: CASE is a function case_NAME below, BIN the folder of the
# programs, MPIEXEC "-" where there is no MPI, SHIM io_fault.so, COUNT how often to strike (each case has its default; "all":
# at every call). Without SEED it is random, and printed. Skips (77) what cannot be tried here.
set -u
name=$1
bin=$(realpath "$2")
mpiexec=$3
shim=$(realpath "$4")
count=${5:-}
seed=${6:-$((RANDOM * 32768 + RANDOM))}
RANDOM=$seed
echo "seed $seed"
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
dir=$(realpath "$(mktemp -d)")
job=
strikes=0

finish() {
  [ -z "$job" ] || kill -KILL "$job" -- "-$job" 2>/dev/null
  cd / && rm -rf "$dir"
}
trap finish EXIT
cd "$dir" || exit 1

fail() { # the first failure ends the test: what lies around is of that strike
  echo "FAILED after $strikes strikes, seed $seed: $1"
  for file in struck.err err verify.out calls; do [ -s "$file" ] && sed "s|^|  $file: |" "$file" | tail -n 40; done
  find ck -maxdepth 2 -printf '  %p %s\n' 2>/dev/null | sort
  exit 1
}
skip() {
  echo "skipped: $1"
  exit 77
}

# shellcheck source=tests/support/training.sh
. "$here/../support/training.sh"
# shellcheck source=tests/faults/checkpoint_run.sh
. "$here/checkpoint_run.sh"
# shellcheck source=tests/faults/checkpoint_strikes.sh
. "$here/checkpoint_strikes.sh"
# shellcheck source=tests/faults/checkpoint_damage.sh
. "$here/checkpoint_damage.sh"
"case_$name"
echo "all as expected, $strikes strikes"
