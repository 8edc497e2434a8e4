#!/usr/bin/env bash
# ms-data on situations that users of other programs reported: files that hold JSON or look so, lines, empty documents, large
# vocabularies, indexes. ../shared/cases/models has them with their right answers; what it builds by Python is built here.
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
cases=$(realpath "$(dirname "$0")/../../../shared/cases/models")
[ -d "$cases" ] || { echo "../shared/cases/models is not here" && exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

# documents FILE COUNT [OPTION...]: so many documents, and no braces in the first one.
documents() {
  local file=$1 count=$2
  shift 2
  expect 0 "^t: $count documents?, " encode --force -o t "$@" "$file"
  "$tool" show t --document 0 | grep -q '[{}"]' && fail "$file: the first document is JSON"
}

# 12: empty documents are skipped and counted; nothing but those is an error.
c=$cases/12-empty-documents
documents "$c/first-empty.jsonl" 3
expect 0 '^skipped 2 empty documents$' encode --force -o t "$c/first-empty.jsonl"
documents "$c/blank-between.jsonl" 2
documents "$c/no-newline.jsonl" 1
documents "$c/null.jsonl" 1
documents "$c/dup.jsonl" 1
documents "$c/array.jsonl" 2
documents "$c/array2.json" 2
for name in all-empty.jsonl nothing.jsonl blank-lines.jsonl empty.txt; do expect 2 'no document' encode -o e "$c/$name"; done
for name in number otherkey comma; do expect 2 "$name.jsonl:1" encode -o e "$c/$name.jsonl"; done

# 13: ids from 65500 on have a wider type, and an id beyond the vocabulary is named.
python3 - "$cases/13-vocab-over-65535/base.json" <<'PYTHON' || fail "tokenizers of many tokens"
import json, sys
base = json.load(open(sys.argv[1]))
for total in (65499, 65500, 65536, 119547):
    tokenizer = json.loads(json.dumps(base))
    vocab = tokenizer["model"]["vocab"]
    vocab.update({f"filler{i}": i for i in range(len(vocab), total - 3)})
    for i in range(total - 3, total):
        tokenizer["added_tokens"].append({"id": i, "content": f"<|x{i - total + 3}|>", "special": True, "single_word": False,
                                          "lstrip": False, "rstrip": False, "normalized": False})
    json.dump(tokenizer, open(f"{total}.json", "w"))
PYTHON
echo '{"text": "<|x0|> <|x2|>"}' >x.jsonl
for total in 65499 65500 65536 119547; do
  expect 0 '1 document' encode --force --tokenizer $total.json -o wide x.jsonl
  python3 - $total <<'PYTHON' || fail "ids of $total tokens"
import sys
total, data, code = int(sys.argv[1]), open("wide.bin", "rb").read(), open("wide.idx", "rb").read()[17]
size = {8: 2, 4: 4}[code]
ids = [int.from_bytes(data[i:i + size], "little") for i in range(0, len(data), size)]
assert size == (2 if total < 65500 else 4) and ids[0] == total - 3 and ids[-2] == total - 1, (size, ids)
PYTHON
done
expect 1 'x|119' verify wide --vocab 65536

# 15: lines end at LF only, escapes without their other half are U+FFFD, and a bad line has its place.
lines() { printf %b "$1" >in.jsonl && documents in.jsonl "$2"; }
lines '{"text": "one\xe2\x80\xa8two"}\n{"text": "para\xe2\x80\xa9graph"}\n{"text": "nel\xc2\x85x"}\n' 3
lines '\xef\xbb\xbf{"text": "a"}\r\n{"text": "b\\r\\nc"}\r\n' 2
lines '{"text": "x \\ud83d y"}\n{"text": "y \\udcb2 x"}\n' 2
"$tool" show t --document 0 | grep -q $'x \xef\xbf\xbd y' || fail "half of a surrogate is not U+FFFD"
lines '{"text": "a\\u0000b", "n": 123456789012345678901234567890, "e": 1e999}\n' 1
for bad in '{"text": "a"}\r{"text": "b"}\r' '{"text": "caf\xe9"}\n' '{"text": "a\tb"}\n' '{"text": "a", "score": NaN}\n' \
  "{'text': 'a'}\n"; do
  printf %b "$bad" >in.jsonl
  expect 2 'in.jsonl:1' encode -o e in.jsonl
  printf %b "$bad" >in.txt
  expect 2 'in.txt:1.*|in.txt: behind' encode -o e in.txt  # the same under another name, and no text
  expect 0 '1 document' encode --force -o t --json-as-text in.txt
done

# 16: JSON that does not look like JSON Lines at once is read, or refused; never text.
c=$cases/16-json-array
python3 -c 'import json
open("long-first.json", "w").write("".join(json.dumps({"text": t}) + "\n" for t in ["x" * 1_049_000, *map(str, range(20))]))'
for options in "" "--field text"; do
  # shellcheck disable=SC2086
  for file in pretty oneline comma; do documents "$c/$file.json" 40 $options; done
  # shellcheck disable=SC2086
  { documents "$c/one-object.json" 1 $options && documents "$c/one.json" 1 $options && documents "$c/noext" 20 $options &&
    documents "$c/second-long.json" 3 $options && documents long-first.json 21 $options; }
  for file in nan-first.json:1:24 bad-second.json:2:14 wrapped.json:1 pretty-objects.json:1; do
    # shellcheck disable=SC2086
    expect 2 "$file" encode -o e $options "$c/${file%%:*}"
  done
done
documents "$c/x.jsonl.xz" 50
expect 2 'Parquet' encode -o e "$c/one.json" "$c/x.parquet"
expect 0 '1 document, 1903 tokens' encode --force -o t --json-as-text "$c/pretty.json"

# 17: an index is read as it is, or refused by name.
python3 - <<'PYTHON' || fail "token files"
import struct
documents = [[7] * n + [0] for n in (50, 3, 120, 7, 300, 1)]
def write(name, boundaries=range(7), magic=b"MMIDIDX\0\0", version=1, last=None, behind=b"", keep=None):
    sizes = [len(d) for d in documents]
    pointers = [2 * sum(sizes[:i]) for i in range(6)]
    if last is not None: pointers[-1] = last
    index = magic + struct.pack("<QBQQ", version, 8, 6, len(boundaries)) + struct.pack("<6i", *sizes)
    index += struct.pack("<6q", *pointers) + struct.pack(f"<{len(boundaries)}q", *boundaries) + behind
    open(name + ".idx", "wb").write(index[:keep])
    data = b"".join(struct.pack(f"<{len(d)}H", *d) for d in documents)
    open(name + ".bin", "wb").write(data[:-100] if name == "shortbin" else data)
write("sound"); write("modes", behind=b"\0" * 6); write("sentences", [0, 2, 5, 6])
write("stale", [0, 1, 2, 3]); write("zero", [0]); write("no0", [1, 2, 6]); write("version", version=2)
write("fairseq", magic=b"TNTIDX\0\0\0"); write("overflow", last=-2000); write("short", keep=60); write("shortbin")
PYTHON
for name in sound:6 modes:6 sentences:3; do expect 0 "^${name%:*}: ${name#*:} documents, 487 tokens" verify "${name%:*}"; done
for name in stale zero no0 version fairseq overflow short shortbin; do expect 1 "$name\.idx: " verify $name; done

[ "$failures" -eq 0 ] && echo "all as expected"
[ "$failures" -eq 0 ]
