#!/usr/bin/env bash
# ms-data from the outside: results, refusals with their exit codes, and nothing half-written.  usage: ms_data_test.sh MS-DATA
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

expect_files() {  # the directory holds exactly these output files
  local found
  found=$(find work -mindepth 1 -printf '%f\n' | sort | tr '\n' ' ')
  [ "$found" = "$1" ] || fail "work holds '$found', expected '$1'"
}

printf 'one\n%%\ntwo\n%%\nthree\n' >fortunes
printf 'plain text\n' | gzip -n >page.gz
printf 'bin\0ary' >binary
: >empty
mkdir -p work tree/sub
printf 'deep\n' >tree/sub/file
ln -s / tree/root

# Help and misuse.
expect 0 'encode' --help
expect 0 'split-on' encode --help
for command in encode info show decode verify merge train-tokenizer; do expect 0 'ms-data' "$command" --help; done
expect 2 . 
expect 2 'frobnicate' frobnicate
expect 2 'no file to encode' encode --output work/t
expect 2 'output PREFIX is missing' encode fortunes
expect 2 'unknown tokenizer .bpe.' encode --tokenizer bpe --output work/t fortunes
expect 2 'wrong' encode --wrong --output work/t fortunes
expect 2 'cannot open nowhere' encode --output work/t nowhere
expect 2 'cannot open nolist' encode --output work/t --files-from nolist
expect 2 'is a directory' encode --output work/t tree
expect 2 '--recursive' encode --output work/t tree
expect 2 'cannot create no/such/dir/t.bin: No such file' encode --output no/such/dir/t fortunes
expect 2 'cannot create fortunes/t.bin: Not a directory' encode --output fortunes/t fortunes
expect 2 'not the prefix' encode --output work/ fortunes
expect 2 'no document' encode --output work/t empty
expect 2 'binary: it holds a NUL byte' encode --output work/t fortunes binary
expect 2 'hint: .*--recursive' encode --output work/t binary
expect 2 'binary: it holds a NUL byte' encode --output work/t --files-from <(echo binary)
expect 2 'binary: it holds a NUL byte' train-tokenizer --vocab 300 -o t.json fortunes binary
mkdir pictures
cp binary pictures
expect 2 'no document' encode --recursive --output work/t pictures
expect 2 'binary: it holds a NUL byte' encode --recursive --output work/t pictures binary
printf '\xfd7zXZ\0abc' >text.xz
expect 2 'cannot read text.xz: compressed data is ' encode --output work/t text.xz
printf 'PAR1abc' >text.parquet
expect 2 'hint: .*pyarrow' encode --output work/t fortunes text.parquet
printf '\x28\xb5\x2f\xfdabc' >text.zst
expect 2 'cannot read text.zst: compressed data is cut off' encode --output work/t text.zst
printf '%%PDF-1.4\nabc\n' >paper
expect 2 'paper: it is a PDF' encode --output work/t paper
expect 2 'hint: ~, . and . are not expanded' info 'work/*'
expect 2 "hint: use 'work/f'" info work/f.bin
expect 2 'nowhere.idx' info nowhere
expect_files ''

# A damaged input in the middle leaves nothing, not even of the files before it.
head -c 20 page.gz >cut.gz
expect 2 'cut.gz' encode --output work/t fortunes cut.gz
expect_files ''

# Success.
expect 0 '3 documents, 17 tokens from 1 file$' encode --tokenizer byte --split-on % --output work/f fortunes
expect_files 'f.bin f.idx f.meta.json '
grep -q 'no line is' err && fail 'lines that split are not seen'
expect 0 "W .*no line is '%%', the line of --split-on: each file is one document" encode --split-on %% --output work/f2 fortunes
rm work/f2.*
"$tool" encode -o work/in - <fortunes >out 2>err || fail 'text from standard input'
"$tool" encode -o work/f3 fortunes >out 2>err
cmp -s work/in.bin work/f3.bin || fail 'standard input gives other tokens than the file'
rm work/in.* work/f3.*
# A limit on the size of files: a message, and nothing left.
(
  ulimit -f 1
  exec "$tool" encode -o work/big <(seq 2000)
) >out 2>err
[ $? -eq 74 ] || fail 'a file beyond ulimit -f does not end with 74'
grep -q 'cannot write work/big.bin: File too large' err || fail 'no word of the limit on files'
expect_files 'f.bin f.idx f.meta.json '
expect 0 '2 documents' encode -r -o work/g page.gz fortunes pictures empty
expect 0 'skipped 1 binary' encode -r --force -o work/g page.gz fortunes pictures empty
expect 0 'skipped 1 empty' encode -r --force -o work/g page.gz fortunes pictures empty
# What is there stays, unless it is to go.
cp work/g.bin kept.bin
expect 2 'work/g.bin already exists' encode -o work/g fortunes
expect 2 '--force' encode -o work/g fortunes
mv work/g.bin aside.bin
expect 2 'work/g.idx already exists' encode -o work/g fortunes
mv aside.bin work/g.bin
cmp -s work/g.bin kept.bin || fail 'a refused encode changes nothing'
expect 0 '1 document, 6 tokens' encode --recursive -o work/r tree
printf 'fortunes\n\npage.gz\n' >list
expect 0 '2 documents' encode -o work/l --files-from list
"$tool" encode -o work/s --files-from - <list >out 2>err || fail 'names from standard input'
for suffix in bin idx; do
  cmp -s work/l.$suffix work/s.$suffix || fail "a list from standard input gives the same .$suffix"
done

expect 0 '^documents +3$' info work/f
expect 0 '^preview +one..two..three..$' info work/f
expect 0 '"tokens": 17' info --json work/f
expect 0 '"schema": 1' info work/f --json
if command -v python3 >/dev/null; then python3 -m json.tool out >/dev/null || fail 'info --json is one JSON document'; fi

expect 0 '^two$' show work/f --document 1
expect 0 . show work/f --tokens
[ "$(tr '\n' ' ' <out)" = '111 110 101 10 256 ' ] || fail 'show --tokens prints ids'
expect 2 'document' show work/f --document 3
expect 2 'document' show work/f --document -1
expect 2 'document' show work/f --document x
"$tool" show work/g >out 2>err || fail 'show'
[ "$(cat out)" = 'plain text' ] || fail 'show gives the text back'

# JSON Lines, packed or not.
printf '{"id": 1, "text": "caf\\u00e9 \\ud83d\\ude80"}\n{"id": 2, "text": null}\n{"text": "two\\nlines"}\n' >c.jsonl
gzip -nk c.jsonl
expect 0 '2 documents' encode -o work/j c.jsonl
expect 0 'skipped 1 empty document$' encode --force -o work/j c.jsonl
expect 0 '4 documents' encode --force -o work/jj c.jsonl c.jsonl.gz
"$tool" show work/j >out 2>err || fail 'show JSON Lines'
[ "$(cat out)" = "$(printf 'caf\303\251 \360\237\232\200')" ] || fail 'escapes of JSON are characters'
if command -v zstd >/dev/null; then
  zstd -q c.jsonl
  expect 0 '2 documents' encode --force -o work/z c.jsonl.zst
  cmp -s work/z.bin work/j.bin || fail 'zstd gives the same tokens'
  rm work/z.*
fi
for pack in xz bzip2; do
  command -v $pack >/dev/null || continue
  $pack <c.jsonl >packed
  expect 0 '2 documents' encode --force -o work/z packed
  cmp -s work/z.bin work/j.bin || fail "$pack gives the same tokens"
  rm work/z.*
done
printf '{"meta": {"body": "b"}, "title": "t"}\n' >d.jsonl
expect 2 "d.jsonl:1: there is no field 'text'" encode -o work/d d.jsonl
expect 2 'hint: the object has: meta, title' encode -o work/d d.jsonl
expect 0 '1 document, 4 tokens' encode -o work/d --field title --field meta.body d.jsonl
"$tool" show work/d >out 2>err
[ "$(tr '\n' ' ' <out)" = 't b' ] || fail 'two fields are joined with a newline'
cat c.jsonl <(echo '{"text": "cut') >bad.jsonl
expect 2 'bad.jsonl:4: ' encode -o work/bad bad.jsonl
expect 0 'skipped 1 bad line$' encode -o work/bad --skip-bad-lines bad.jsonl
cmp -s work/bad.bin work/j.bin || fail 'without its bad line the file is the other one'
expect 2 'fortunes:1:1: it is not a JSON object' encode -o work/x --field text fortunes
expect 2 'contradict each other' encode -o work/x --field a --json-as-text c.jsonl
expect 2 'contradict each other' encode -o work/x --by-line --split-on % fortunes
expect 0 '5 documents' encode -o work/lines --by-line fortunes
expect 2 'is not the name of a field' encode -o work/x --field a..b c.jsonl
expect 2 'workers' encode -o work/x --workers 0 fortunes
rm work/d.* work/bad.* work/lines.* work/jj.*

# The whole as text, and back.
"$tool" decode --split-on % work/f >back 2>err || fail 'decode'
cmp -s back fortunes || fail 'decode gives the text back'
"$tool" decode --split-on % work/f --output back2 2>err || fail 'decode --output'
cmp -s back2 fortunes || fail 'decode --output writes the same'
expect 2 'unknown tokenizer' decode work/f --tokenizer nowhere

# Checks and joins.
expect 0 'all sound' verify work/f
expect 1 'position .*, in document 0, is .*, expected 0 to 99' verify work/f --vocab 100
expect 0 '6 documents, 34 tokens from 2 token files' merge -o work/m work/f work/f
expect 0 'all sound' verify work/m
expect 2 'work/m.bin already exists' merge -o work/m work/f
expect 2 'output PREFIX is missing' merge work/f
rm work/m.*

# Mistakes of the first day.
expect 2 "'work' is a directory, expected the prefix" info work
expect 2 'hint: there are: .*work/f' info work
expect 2 'add a name' encode -o work/ fortunes
expect 2 'PREFIX' info
expect 2 'leave --eod out' encode --eod '<s>' -o work/e fortunes

# Killed at any moment, a second run gives what an undisturbed one gives, to the byte; so does any number of workers.
seq 400000 | awk '{ print "{\"id\": " $1 ", \"text\": \"number " $1 " of many\"}" }' >many.jsonl
for workers in 1 2 5; do
  "$tool" encode -o "work/w$workers" --workers $workers many.jsonl c.jsonl page.gz >out 2>err || fail "--workers $workers"
done
for suffix in bin idx meta.json; do
  for workers in 2 5; do
    cmp -s work/w1.$suffix work/w$workers.$suffix || fail "--workers $workers changes .$suffix"
  done
done
kills=0
for seconds in 0.005 0.02 0.05 0.08 0.12 0.16 0.2 0.3; do
  "$tool" encode -o work/k many.jsonl c.jsonl page.gz >out 2>err &
  sleep "$seconds"
  kill -KILL $! 2>/dev/null && kills=$((kills + 1))
  wait $! 2>/dev/null
  [ -e work/k.idx ] && break
done
if [ ! -e work/k.idx ] || [ -e work/k.encode.part ]; then
  "$tool" encode -o work/k many.jsonl c.jsonl page.gz >out 2>err || fail "after $kills kills"
fi
for suffix in bin idx meta.json; do
  cmp -s work/w1.$suffix work/k.$suffix || fail "after $kills kills .$suffix is another one"
done
# Two at a time.
"$tool" encode -o work/two <(cat many.jsonl; sleep 2) >/dev/null 2>&1 &
for ((i = 0; i < 100; ++i)); do
  [ -e work/two.bin.part ] && break
  sleep 0.05
done
expect 2 'another process writes it' encode -o work/two fortunes
wait
expect 0 'all sound' verify work/two
"$tool" decode work/k --output k.txt 2>err || fail 'decode what was killed'
[ "$(wc -c <k.txt)" -eq "$(sed -n 's/.*"text_bytes": \([0-9]*\),/\1/p' work/k.meta.json)" ] || fail 'text_bytes of the note'
find work -name '*.part' | grep . && fail 'a part is left'

# A tokenizer of our own: the same file each time, its tokens are the text again, for any number of workers.
for ((i = 0; i < 300; ++i)); do printf 'it is line %d of low lower lowest newer wider\n' "$i"; done >lesson
printf '{"text": "newest, with \\u00e9"}\n{"text": "widest"}\n' >more.jsonl
expect 2 'vocab N is missing' train-tokenizer -o t.json lesson
expect 2 'output FILE is missing' train-tokenizer --vocab 300 lesson
expect 2 'unknown pattern .bert.; the patterns are gpt2, llama3 and qwen2' train-tokenizer --vocab 300 -o t.json --pattern bert lesson
expect 2 'too small: the bytes and the special tokens are 257' train-tokenizer --vocab 200 -o t.json lesson
expect 2 "^ms-data: error: --special '' is not a token: it is empty" train-tokenizer --vocab 300 -o t.json --special '' lesson
expect 2 "--special '.*' is not a token: it is not UTF-8" train-tokenizer --vocab 300 -o t.json --special a --special $'\xff' lesson
expect 2 'hold no text' train-tokenizer --vocab 300 -o t.json empty
expect 2 'No such file' train-tokenizer --vocab 300 -o nowhere/t.json lesson
[ -e t.json ] && fail 'a refused training leaves a tokenizer'
expect 0 't.json: 300 tokens from 3 documents' train-tokenizer --vocab 300 -o t.json lesson more.jsonl
expect 0 . train-tokenizer --vocab 300 -o again.json lesson more.jsonl
cmp -s t.json again.json || fail 'the same text gives another tokenizer'
expect 0 'only 2[0-9]{2} tokens|no more than' train-tokenizer --vocab 5000 -o big.json more.jsonl
expect 0 '1 document' encode --tokenizer t.json --workers 1 -o work/bpe lesson
expect 0 '1 document' encode --tokenizer t.json --workers 3 -o work/bpe3 lesson
cmp -s work/bpe.bin work/bpe3.bin || fail 'three workers give other tokens'
"$tool" decode work/bpe --output bpe.txt 2>err || fail 'decode tokens of a tokenizer.json'
cmp -s bpe.txt lesson || fail 'tokens are not the text'
expect 2 'not an added token.*' encode --tokenizer t.json --eod '</s>' -o work/eod lesson
expect 2 'special tokens are <.endoftext.>' encode --tokenizer t.json --eod '</s>' -o work/eod lesson
printf '{}' >t2.json
expect 2 't2.json: version: is missing' encode --tokenizer t2.json -o work/eod lesson

printf 'caf\xe9, not UTF-8\n' >latin1.txt
expect 0 'U.FFFD stands for bytes that are not UTF-8 in 1 document' encode --tokenizer t.json -o work/latin1 latin1.txt
grep -q 'latin1.txt: a document has bytes' err || fail 'encode does not name the file that is not UTF-8'

# Damaged token files.
cp work/f.idx work/cut.idx
head -c 30 work/f.bin >work/cut.bin
expect 74 'has 30 bytes' info work/cut
expect 1 'has 30 bytes' verify work/cut
cp work/f.bin work/cut.bin
head -c 50 work/f.idx >work/cut.idx
expect 74 'do not fit' info work/cut
printf 'not an index, but long enough to hold a header\n' >work/cut.idx
expect 2 'magic' show work/cut --document 0

[ "$failures" -eq 0 ] && echo "all passed"
[ "$failures" -eq 0 ]
