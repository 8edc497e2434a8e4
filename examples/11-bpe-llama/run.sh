#!/usr/bin/env bash
# Trains a tokenizer and a Llama on three sources of text from Debian, and resumes with twice the dp ranks.
# shellcheck source=examples/common.sh
. "$(dirname "$0")/../common.sh"
begin 11-bpe-llama
config=$examples/11-bpe-llama/llama.toml
source_bytes=1500000 # maximum per source

# gather NAME FILE...: writes NAME.jsonl with one document per file, up to source_bytes.
gather() {
  python3 - "$source_bytes" "$@" <<'PYTHON'
import gzip, json, sys
left, name, files = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
with open(f"{name}.jsonl", "w", encoding="utf-8") as out:
    for file in files:
        with (gzip.open if file.endswith(".gz") else open)(file, "rt", encoding="utf-8", errors="replace") as source:
            text = source.read()
        left -= len(text.encode())
        if left < 0:
            break
        out.write(json.dumps({"text": text}) + "\n")
PYTHON
}
gather manuals "${texts[@]}" "$examples"/*/README.md
gather licences /usr/share/common-licenses/[A-Z]* /usr/share/doc/[a-h]*/copyright
mapfile -t python < <(find /usr/lib/python3*/ -name '*.py' -size -64k | LC_ALL=C sort)
gather python "${python[@]}"

show ms-data train-tokenizer --vocab 2048 --output tokenizer.json manuals.jsonl licences.jsonl python.jsonl
for name in manuals licences python; do
  show ms-data encode --tokenizer tokenizer.json --output "$name" "$name.jsonl"
done

show ms-data sample "$config" --step 151 --rank 0
show ms-train run "$config" --set train.steps=200
show ms-train run "$config" --set mesh.dp=4 --set mesh.tp=1
show ms-train eval checkpoints

# The hash of all samples so far, in order: from the configuration alone, and from the run.
printf '\n$ ms-data sample llama.toml --step 300 --chain | tail -n 1\n'
ms-data sample "$config" --step 300 --chain | tail -n 1
printf 'data_chain of the run: %s\n' "$(tail -n 1 run/metrics.jsonl | grep -o '"data_chain":"[0-9a-f]*"')"
