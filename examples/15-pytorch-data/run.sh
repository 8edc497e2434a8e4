#!/usr/bin/env bash
# Feeds a PyTorch job from token files with ms_loader, on 4 ranks, then on 3, then on 2: it reads on where it was. Then
# another one from packed conversations, of which it trains on the answers.
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
  show "$python" -m torch.distributed.run --standalone --nproc-per-node "$ranks" "$examples/15-pytorch-data/train.py" "$steps" text
done

"$python" >chats.jsonl <<'PY'
import json, random
random.seed(7)
for number in range(400):
    color = random.choice("red green blue black white gold".split())
    print(json.dumps({"messages": [{"role": "user", "content": f"Say {color}."}, {"role": "assistant", "content": color}]}))
PY
special=(--special '<|endoftext|>' --special '<|im_start|>' --special '<|im_end|>')
show ms-data train-tokenizer --pattern qwen2 --vocab 320 "${special[@]}" --output tokenizer.json "${texts[@]}"
show ms-data encode --tokenizer tokenizer.json --chat-template chatml --train-on assistant --output chats chats.jsonl
show ms-data pack chats --seq 128 --output packed
rm state.pt
show "$python" -m torch.distributed.run --standalone --nproc-per-node 2 "$examples/15-pytorch-data/train.py" 12 packed
