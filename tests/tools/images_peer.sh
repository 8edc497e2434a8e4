#!/usr/bin/env bash
# Pixels and patches against Pillow and numpy, which are of PyPI.  usage: images_peer.sh MS-DATA
set -euo pipefail
tool=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet pillow==13.0.0 numpy
mkdir given seen

# 400 images of all sizes and forms: noise, edges and waves; JPEG of all qualities and subsamplings; PNG of all modes.
venv/bin/python - <<'PYTHON'
import json, random
import numpy
from PIL import Image
random.seed(3)
rng = numpy.random.default_rng(3)
with open("lines.jsonl", "w") as lines:
    for number in range(400):
        width, height = (int(2 ** random.uniform(0, 9.5)) for _ in range(2))
        x, y = numpy.meshgrid(numpy.arange(width), numpy.arange(height))
        waves = [127 + 120 * numpy.sin(x * a + y * b) for a, b in rng.uniform(-1, 1, (3, 2))]
        pixels = numpy.stack(waves, 2) if number % 3 else rng.integers(0, 256, (height, width, 3))
        pixels[(x + y) % 40 < 3] = rng.integers(0, 256, 3)
        image = Image.fromarray(pixels.astype(numpy.uint8), "RGB")
        if number % 2:
            name = f"{number}.jpg"
            image = image.convert("L") if number % 11 == 0 else image
            image.save("given/" + name, quality=random.randint(1, 100), subsampling=random.randint(0, 2), progressive=number % 7 == 0)
        else:
            name = f"{number}.png"
            image.convert(random.choice(["RGB", "RGBA", "L", "LA", "P", "1"])).save("given/" + name)
        lines.write(json.dumps({"image": name, "text": str(number)}) + "\n")
PYTHON
"$tool" encode --image-size 96 --patch-size 8 --image-dir given -o images lines.jsonl
"$tool" verify images
"$tool" images images --output seen
venv/bin/python - <<'PYTHON'
import glob, json
import numpy
from PIL import Image
most, exact = 0, 0
for number in range(400):
    given = Image.open(glob.glob(f"given/{number}.*")[0]).convert("RGB")
    seen = Image.open(f"seen/{number}.png")
    scale = min(1, 96 / max(given.size))
    for side, whole in zip(seen.size, given.size):
        assert side % 8 == 0 and 8 <= side <= 96 and abs(side - max(8, whole * scale)) <= 4, (number, seen.size, given.size)
    wanted = numpy.asarray(given.resize(seen.size, Image.BICUBIC), int)
    difference = int(abs(wanted - numpy.asarray(seen, int)).max())
    most, exact = max(most, difference), exact + (difference == 0)
    assert difference <= 1, (number, given.size, seen.size, difference)
print(f"400 images: colours within {most} of Pillow's, {exact} images equal")
PYTHON
