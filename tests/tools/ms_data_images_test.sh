#!/usr/bin/env bash
# Images with captions from the outside: encode, list, pack, train, resume, evaluate.  usage: ms_data_images_test.sh MS-DATA
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
training_directory
if "$tool" encode --image-size 16 -o text text --force 2>&1 | grep -q 'reads no images'; then
  echo "this build has no libjpeg and libpng"
  exit 77
fi

# 900 images of a shape in a colour, with what they show as a caption; blank.jsonl has the same captions and grey images.
python3 - <<'PYTHON' || fail "no images"
import base64, json, os, random, struct, zlib
random.seed(7)
SIZE = 24
COLOURS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (40, 60, 230), "yellow": (230, 220, 40)}
SHAPES = {"square": lambda x, y, r: True, "disc": lambda x, y, r: x * x + y * y <= r * r,
          "cross": lambda x, y, r: min(abs(x), abs(y)) <= r / 4, "triangle": lambda x, y, r: abs(x) <= (y + r) / 2}
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
def png(pixel):
    rows = b"".join(b"\0" + bytes(c for x in range(SIZE) for c in pixel(x, y)) for y in range(SIZE))
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", SIZE, SIZE, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
os.mkdir("shapes")
blank = base64.b64encode(png(lambda x, y: (128, 128, 128))).decode()
with open("shapes.jsonl", "w") as lines, open("blank.jsonl", "w") as blanks:
    for number in range(900):
        colour, shape = random.choice(list(COLOURS)), random.choice(list(SHAPES))
        radius, x0, y0 = random.randint(6, 9), random.randint(9, 14), random.randint(9, 14)
        inside = lambda x, y: max(abs(x - x0), abs(y - y0)) <= radius and SHAPES[shape](x - x0, y - y0, radius)
        name, text = f"{number}.png", f"a {colour} {shape}"
        with open("shapes/" + name, "wb") as file:
            file.write(png(lambda x, y: COLOURS[colour] if inside(x, y) else (10, 10, 10)))
        lines.write(json.dumps({"image": name, "text": text}) + "\n")
        blanks.write(json.dumps({"image": blank, "text": text}) + "\n")
PYTHON
encode=(encode --image-size 24 --patch-size 6 --image-dir shapes)

expect 2 'give their --image-size' encode --patch-size 6 -o x shapes.jsonl
expect 2 '20 is no multiple of --patch-size' encode --image-size 20 --patch-size 6 -o x shapes.jsonl
expect 2 'contradict' "${encode[@]}" --by-line -o x shapes.jsonl
{
  head -n 2 shapes.jsonl
  echo '{"image": "absent.png", "text": "a hole"}'
  head -c 90 shapes/0.png >shapes/cut.png
  echo '{"image": "cut.png", "text": "a half"}'
} >bad.jsonl
expect 2 'bad.jsonl:3: .*absent.png' "${encode[@]}" -o bad bad.jsonl
if [ -e bad.idx ] || [ -e bad.images ]; then fail "a refused encoding leaves files"; fi
expect 0 'skipped 2 bad lines' "${encode[@]}" -o bad bad.jsonl --skip-bad-lines
grep -q 'bad.jsonl:4: .*cut.png: the file ends too early' err || fail "the damaged image is not named"
for kind in shapes blank; do
  expect 0 '^900 images in patches of 6 pixels a side: train with model.patch_size = 6 and model.vocab = 259' \
    "${encode[@]}" -o $kind $kind.jsonl --workers 2
  expect 0 '^packed-.*900 documents' pack $kind -o packed-$kind --seq 80
done
# The same samples in tar archives, as WebDataset's: to the byte what lines of JSON give.
python3 - <<'PYTHON' || fail "no archives"
import io, json, tarfile
def add(archive, name, data):
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))
for kind, format in (("ustar", tarfile.USTAR_FORMAT), ("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)):
    folder = "d" * 90 + "/" + ("e" * 90 if kind == "gnu" else "\u00e9" if kind == "pax" else "e")
    with tarfile.open(f"{kind}.tar.gz", "w:gz", format=format) as archive:
        for number, line in enumerate(open("shapes.jsonl")):
            sample = json.loads(line)
            add(archive, f"{folder}/{number:05}.png", open("shapes/" + sample["image"], "rb").read())
            add(archive, f"{folder}/{number:05}.cls", b"1")
            if kind == "gnu":
                add(archive, f"{folder}/{number:05}.json", json.dumps({"text": sample["text"], "url": "x"}).encode())
            else:
                add(archive, f"{folder}/{number:05}.txt", sample["text"].encode())
PYTHON
for kind in ustar gnu pax; do
  expect 0 '^900 images' "${encode[@]}" -o $kind $kind.tar.gz --workers 2
  for part in bin idx images; do cmp shapes.$part $kind.$part || fail "an archive of $kind gives another .$part"; done
done
gunzip -c gnu.tar.gz | head -c 100000 >cut.tar
expect 2 'cut.tar: .*cut off' "${encode[@]}" -o cut cut.tar
mkdir tar && head -c 90 shapes/0.png >tar/0.png && echo text >tar/0.txt && tar -C tar -cf half.tar 0.png 0.txt
expect 2 'half.tar: element 1: .*the file ends too early' "${encode[@]}" -o half half.tar
expect 0 'skipped 1 bad line' "${encode[@]}" -o half half.tar shapes.jsonl --skip-bad-lines
expect 2 'not text' encode -o half half.tar --force

expect 0 'all sound' verify packed-shapes
expect 0 '^images +900' info packed-shapes
expect 0 '<image>a [a-z]+ [a-z]+' show shapes --document 3
expect 0 '^ *3 +3 +[0-9]+ +24 +24 +[0-9]+$' images shapes --document 3
mkdir seen
"$tool" images shapes --document 3 --output seen || fail "images --output"
file seen/3.png | grep -q '24 x 24' || fail "no PNG of the image"
[ "$(ls seen)" = 3.png ] || fail "other images than those of the document"
expect 2 'has no images' images text
expect 2 'what reads it takes no images' serve shapes --seq 80 --global-batch 8

tiny_config 'model.family="llama"' model.vocab=259 model.hidden=64 model.patch_size=6 model.seq=80 train.steps=120 train.global_batch=16 \
  train.microbatch=4 mesh.dp=2 train.eval_every=40 optim.lr=5e-3 'optim.schedule="constant"' 'run.dir="run"' 'checkpoint.dir="saved"' \
  checkpoint.every_steps=40 data.reset_attention=true 'data.train=["packed-shapes"]' >c.toml
run=("$bin/ms-train" run c.toml)
"${run[@]}" --set model.patch_size=0 >log 2>&1 && fail "a model of text takes images"
grep -q 'train on it with ms-train and model.patch_size = 6' log || fail "no hint: $(tail -3 log)"
"${run[@]}" --set model.patch_size=8 >log 2>&1 && fail "a model takes other patches"
grep -q 'model.patch_size is 8' log || fail "no reason: $(tail -3 log)"
"${run[@]}" --set train.steps=80 >log 2>&1 || fail "training: $(tail -3 log)"
"${run[@]}" >log 2>&1 || fail "training, resumed: $(tail -3 log)"
"${run[@]}" --set 'run.dir="whole"' --set 'checkpoint.dir="whole-saved"' >log 2>&1 || fail "training: $(tail -3 log)"
"${run[@]}" --set 'run.dir="blank"' --set 'checkpoint.dir="blank-saved"' --set 'data.train=["packed-blank"]' >log 2>&1 ||
  fail "training on blank images: $(tail -3 log)"
python3 - <<'PYTHON' || fail "the runs are not as expected"
import json
runs = {}
for name in ("run", "whole", "blank"):
    lines = [json.loads(line) for line in open(f"{name}/metrics.jsonl")]
    runs[name] = [line for line in lines if "loss" in line]
assert len(runs["run"]) == len(runs["whole"]) == 120
for one, other in zip(runs["run"], runs["whole"]):  # resumed with the bits of a run that did not stop
    assert (one["loss"], one["data_chain"]) == (other["loss"], other["data_chain"]), (one, other)
seen, unseen = runs["whole"][-1]["valid_loss"], runs["blank"][-1]["valid_loss"]
print(f"valid_loss {seen} with images, {unseen} with blank ones")
assert seen < 0.7 * unseen, (seen, unseen)
PYTHON
"$bin/ms-train" eval whole-saved --data shapes=shapes >evaluated 2>log || fail "eval: $(tail -3 log)"
"$bin/ms-train" eval whole-saved --data blank=blank >>evaluated 2>log || fail "eval: $(tail -3 log)"
awk '$1 == "shapes" { seen = $3 } $1 == "blank" { exit !(seen < 0.7 * $3) }' evaluated || fail "eval: $(cat evaluated)"
expect 0 '<image>' sample c.toml --step 1

[ "$failures" -eq 0 ]
