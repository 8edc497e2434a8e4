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
for command in encode info show decode verify merge; do expect 0 'ms-data' "$command" --help; done
expect 2 . 
expect 2 'frobnicate' frobnicate
expect 2 'no file to encode' encode --output work/t
expect 2 'output PREFIX is missing' encode fortunes
expect 2 'no tokenizer .bpe.' encode --tokenizer bpe --output work/t fortunes
expect 2 'wrong' encode --wrong --output work/t fortunes
expect 2 'cannot open nowhere' encode --output work/t nowhere
expect 2 'cannot open nolist' encode --output work/t --files-from nolist
expect 2 'is a directory' encode --output work/t tree
expect 2 '--recursive' encode --output work/t tree
expect 2 'cannot create no/such/dir/t.bin: No such file' encode --output no/such/dir/t fortunes
expect 2 'cannot create fortunes/t.bin: Not a directory' encode --output fortunes/t fortunes
expect 2 'not the prefix' encode --output work/ fortunes
expect 2 'no document' encode --output work/t empty
expect 2 'NUL byte' encode --output work/t binary
printf '\xfd7zXZ\0abc' >text.xz
expect 2 'skipped text.xz: it is compressed with xz' encode --output work/t text.xz
printf '\x28\xb5\x2f\xfdabc' >text.zst
expect 74 'cannot read text.zst: compressed data is cut off' encode --output work/t text.zst
printf '%%PDF-1.4\nabc\n' >paper
expect 2 'skipped paper: it is a PDF' encode --output work/t paper
expect 2 'hint: ~, . and . are not expanded' info 'work/*'
expect 2 "hint: use 'work/f'" info work/f.bin
expect 2 'nowhere.idx' info nowhere
expect_files ''

# A damaged input in the middle leaves nothing, not even of the files before it.
head -c 20 page.gz >cut.gz
expect 74 'cut.gz' encode --output work/t fortunes cut.gz
expect_files ''

# Success.
expect 0 '3 documents, 17 tokens from 1 files' encode --tokenizer byte --split-on % --output work/f fortunes
expect_files 'f.bin f.idx f.meta.json '
grep -q 'no line is' err && fail 'lines that split are not seen'
expect 0 "W .*no line is '%%', as --split-on says: each file is one document" encode --split-on %% --output work/f2 fortunes
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
expect 0 '2 documents' encode -o work/g page.gz fortunes binary empty
expect 0 'skipped 1 binary' encode --force -o work/g page.gz fortunes binary empty
expect 0 'skipped 1 empty' encode --force -o work/g page.gz fortunes binary empty
# What is there stays, unless it is to go.
cp work/g.bin kept.bin
expect 2 'work/g.bin is there already' encode -o work/g fortunes
expect 2 '--force' encode -o work/g fortunes
mv work/g.bin aside.bin
expect 2 'work/g.idx is there already' encode -o work/g fortunes
mv aside.bin work/g.bin
cmp -s work/g.bin kept.bin || fail 'a refused encode changes nothing'
expect 0 '1 documents, 6 tokens' encode --recursive -o work/r tree
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

# Damaged token files.
cp work/f.idx work/cut.idx
head -c 30 work/f.bin >work/cut.bin
expect 74 'has 30 bytes' info work/cut
cp work/f.bin work/cut.bin
head -c 50 work/f.idx >work/cut.idx
expect 74 'do not fit' info work/cut
printf 'not an index, but long enough to hold a header\n' >work/cut.idx
expect 74 'magic' show work/cut --document 0

[ "$failures" -eq 0 ] && echo "all passed"
[ "$failures" -eq 0 ]
