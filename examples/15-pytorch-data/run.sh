#!/usr/bin/env bash
# Feeds a PyTorch job from token files with ms_loader, on 4 ranks, then on 3, then on 2: it reads on where it was.
# shellcheck source=examples/common.sh
. "$(dirname "$0")/../common.sh"
python=${PYTHON:-$repo/build/peer/bin/python} # of the nightly tests
[[ -x $python || -n ${PYTHON-} ]] || python=python3
"$python" -c 'import torch' 2>/dev/null || { echo "skipped: $python has no torch" && exit 77; }
export PYTHONPATH=$repo/python OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
begin 15-pytorch-data

encode_text
for layout in "4 5" "3 9" "2 12"; do
  read -r ranks steps <<<"$layout"
  show "$python" -m torch.distributed.run --standalone --nproc-per-node "$ranks" "$examples/15-pytorch-data/train.py" "$steps"
done
