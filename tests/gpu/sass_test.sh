#!/usr/bin/env bash
# Checks that sass.py accepts our kernels and finds the mistakes of bad_kernels.cu. Installs nvdisasm from PyPI into the
# build folder if there is none: of one version, as another may print instructions in other words.
# usage: sass_test.sh BUILD ARCH BAD_OBJECT OBJECT...      ARCH: sm_90, or all
set -euo pipefail
package=nvidia-cuda-nvdisasm==13.5.37
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$1 arch=$2 bad=$3
shift 3
only=()
[[ $arch == all ]] || only=(--arch "$arch")
if [[ -z ${NVDISASM:-} ]]; then
  tools=$build/$package
  NVDISASM=$(command -v nvdisasm || find "$tools" -name nvdisasm -type f 2>/dev/null | head -n 1 || true)
fi
if [[ -z $NVDISASM ]]; then
  python3 -m pip install --quiet --no-deps --target "$tools" "$package" ||
    { echo "skipped: there is no nvdisasm, and pip cannot install $package" && exit 77; }
  NVDISASM=$(find "$tools" -name nvdisasm -type f | head -n 1)
fi
export NVDISASM
[[ -x $NVDISASM ]] || { echo "skipped: $NVDISASM cannot be run" && exit 77; }

python3 -B "$here/sass.py" "${only[@]}" "$@"

if found=$(python3 -B "$here/sass.py" "$bad"); then
  echo "bad_kernels.cu has no problems: $found" >&2
  exit 1
fi
echo "$found"
for problem in 'indexes_an_array<float, 4>: [0-9]* accesses to local memory' \
  'stores_elements<float, 4>: 4 accesses STG32' 'amax_kernel<float, 4>: 2 accesses REDG32' \
  'column_partials<float, 4>: [0-9]* registers: 1 blocks of 256 threads'; do
  grep -q "$problem" <<<"$found" || { echo "not found: $problem" >&2 && exit 1; }
done
