#!/usr/bin/env bash
# Checks tests/gpu/run on the emulated GPU: tests of each kind pass, and where some processes crash, the others still run.
# usage: run_test.sh EMULATED_LIB_DIRECTORY
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
emulated=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
printf '#!/bin/sh\ncase "$*" in *name*) echo "emulated GPU, 1, 1 MiB";; esac\n' >"$work/bin/nvidia-smi"
chmod +x "$work/bin/nvidia-smi"
failed=0
few='Matmul.FusesGelu$|OneKeyGives|WithResidual|Swiglu|EmbeddingShard|Amax|AdamW|AreTunedOnce|RecomputationChanges'
# check NAME [VARIABLE=VALUE]: its rows are then in the JSON
check() {
  env PATH="$work/bin:$PATH" LD_LIBRARY_PATH="$emulated" "${@:2}" "$here/run" check "$work/$1" "$few" >"$work/$1.log" 2>&1
}
passed() { grep -oE '"passed": [0-9]+' "$work/$1/result-check.json" | awk '{sum += $2} END {print sum}'; }
check whole
broken=$(grep -oE '"name": "gpu_[^"]*", "passed": [0-9]*, "skipped": [0-9]*, "failed": [1-9]' "$work/whole/result-check.json")
[[ -z $broken && $(passed whole) -ge 9 ]] || { echo "FAILED: $broken" && tail -n 30 "$work/whole.log" && failed=1; }
check crashes MS_EMULATED_GPU_FAULT=700@2 && echo "FAILED: no error where kernels fail" && failed=1
rows=$(grep -o '"name"' "$work/crashes/result-check.json" | wc -l)
[[ $rows == $(grep -o '"name"' "$work/whole/result-check.json" | wc -l) && $(passed crashes) -lt $(passed whole) ]] ||
  { echo "FAILED: $rows rows where processes fail" && failed=1; }
exit $failed
