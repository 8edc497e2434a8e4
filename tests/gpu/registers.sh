#!/usr/bin/env bash
# Checks that kernels do not spill registers to memory, which only the compiler reports. Rows longer than those of any
# model (8 packs a thread) and rows that are not aligned (element by element) may spill. Nightly; needs nvcc, but no
# GPU. usage: tests/gpu/registers.sh [ARCH]      default: 90
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
arch=${1:-90}
nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
[[ -x $nvcc ]] || { echo "skipped: there is no nvcc here" && exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for file in "$root"/kernels/*.cu; do
  "$nvcc" -std=c++20 -O3 --expt-relaxed-constexpr -gencode "arch=compute_$arch,code=sm_$arch" -Xptxas -v \
    -I"$root/libms" -c "$file" -o "$work/kernel.o" 2>&1 | c++filt >>"$work/said"
done
python3 - "$work/said" <<'PY'
import re
import sys

MOST = 64  # bytes: a counter or two
kernels = re.findall(r"Function properties for (.+)\n\s+\d+ bytes stack frame, (\d+) bytes spill stores.*\n.*?Used (\d+) registers",
                     open(sys.argv[1]).read())
failed = False
for name, spilled, registers in kernels:
    name = re.sub(r"ms::kernels::|^void |\(.*", "", name.replace("(anonymous namespace)::", ""))
    may = re.search(r"<\w+, (\d+, 8|1, 32)\b", name)
    if int(spilled) > 0:
        print(f"{spilled:>6} bytes spilled, {registers} registers: {name}{' (may)' if may else ''}")
    failed = failed or (int(spilled) > MOST and not may)
print(f"{len(kernels)} kernels")
sys.exit(1 if failed or len(kernels) < 100 else 0)
PY
