#!/bin/sh
# mpi_fault.sh MPIEXEC PROGRAM FAULT CODES: runs PROGRAM on four ranks with the test Fault.FAULT, in which the world fails,
# and compares the exit codes of the ranks, sorted, with the regular expression CODES.
mpiexec=$1 program=$2 fault=$3 codes=$4
output=$("$mpiexec" --enable-recovery --oversubscribe --bind-to none -np 4 \
  sh -c '"$@"; echo "rank exited $?"' sh "$program" --gtest_filter="Fault.$fault" 2>&1)
got=$(printf '%s\n' "$output" | sed -n 's/.*rank exited //p' | sort | paste -s -d ' ' -)
if ! printf '%s' "$got" | grep -Eqx "$codes"; then
  printf '%s\n' "$output"
  printf 'the ranks exited with %s, not %s\n' "$got" "$codes"
  exit 1
fi
