#!/usr/bin/env bash
# Programs of the houses ops and traces start where neither MPI, oneDNN, HDF5 nor CUDA is installed: no library that they load
# at start is one of those.
# usage: needs.sh BIN
set -euo pipefail
for tool in ms-diag ms-driver ms-loan ms-netcheck ms-tracepp; do
  loaded=$(ldd "$1/$tool")
  grep -q 'libc\.so' <<<"$loaded" || { echo "FAILED: ldd does not understand $tool" >&2 && exit 1; }
  if grep -E 'libms|mpi|open-rte|pmix|dnnl|gomp|hdf5|cuda|nccl' <<<"$loaded"; then echo "FAILED: $tool needs these" >&2 && exit 1; fi
done
loaded=$(ldd "$1/ms-train")
grep -q 'libms\.so' <<<"$loaded" || { echo "FAILED: the pattern matches nothing" >&2 && exit 1; }
