#!/usr/bin/env python3
"""Tokens and vocabularies are those of Hugging Face's tokenizers. Nightly: installs tokenizers into a virtual environment,
unless this Python or MS_TOKENIZERS_PYTHON has it.

usage: tokenizers_peer.py MS_DATA [--megabytes N]

Makes N megabytes (21) of code, manuals, CJK, emoji, combining marks, every code point and bytes that are not UTF-8; trains
GPT-2's, Llama 3's and Qwen 2's kind here and there, and compares the files; then compares every token of every document, and
the speed on ordinary files: megabytes for each second of CPU time, in turns, so that a busy machine is fair to both.
"""

import argparse
import array
import glob
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = "<|endoftext|>"
VOCAB = 8000
TRAINED_MEGABYTES = 2
ROUNDS = 3
NUM_ODD = 7 + 25 * 5  # documents that no corpus is made of, the first ones
PIECES = ["'s", "'S", "'LL", "'Re", "'\u017f", "'", " ", "  ", "\t", "\n", "\r\n", "\n\n", " \n", "\u00a0", "\u0085", "\u180e",
          "\u3000", "a", "Zed", "\u00e9", "e\u0301", "\u0301", "\u1e9e", "1", "22", "333", "4444", "\u0664", "\u00b2", "\u2167",
          ".", "!?", "\u2026", "\U0001f600", "\u200d", "\ufe0f", "_", SPECIAL, "<|im_end|>", "<pad>", "\u1100\u1161\u11a8",
          "\uac00\u11a8", "\u0344", "\u212b", "a\u0315\u0316", "a\u1abf\u0301", "<strip>", "<word>", "ab<word>", "A\u030a<n>"]
DAMAGED = [b"\xf0\x9f\x98", b"\xf0\x9f", b"\xe2\x82", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90", b"\xc0\x80", b"ok ", b"\xff"]


def reexecute():
    """Runs this script again with a Python that has tokenizers, or says why not."""
    for python in filter(None, [os.environ.get("MS_TOKENIZERS_PYTHON")]):
        os.environ.pop("MS_TOKENIZERS_PYTHON")
        os.execv(python, [python, "-B", *sys.argv])
    with tempfile.TemporaryDirectory() as place:
        made = subprocess.run([sys.executable, "-m", "venv", place], stdout=subprocess.DEVNULL).returncode == 0
        pip = [place + "/bin/pip", "install", "--quiet", "tokenizers", "sentencepiece"]
        if not made or subprocess.run(pip).returncode != 0:
            print("skipped: there is no tokenizers, and it cannot be installed")
            sys.exit(SKIPPED)
        sys.exit(subprocess.run([place + "/bin/python", "-B", *sys.argv]).returncode)


def characters(ranges, count):
    return "".join(chr(random.randint(*random.choice(ranges))) for _ in range(count))


def every_code_point():
    return [c for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]


def documents(megabytes):
    """Bytes of documents, none with a NUL, the odd ones first."""
    random.seed(7)
    made = ["".join(map(chr, every_code_point())).encode(), b" " * 300000 + b"x", b"=" * 300000, b"ab" * 150000, b"\n" * 9999 + b"y",
            "".join("X<word>" + chr(c) for c in every_code_point()[::7]).encode(), ("\u4e2d" * 50000).encode()]
    common = characters([(0x4E00, 0x9FFF)], 500)
    marks = [(0x20, 0x7E), (0x61, 0x7A), (0x300, 0x36F), (0x370, 0x1FFF), (0x2000, 0x2FFF), (0xFE00, 0xFFFD)]
    for _ in range(25):
        made.append("".join(random.choices(common + "\uff0c\n", k=20000)).encode())
        made.append(characters([(0x3041, 0x30FF), (0xAC00, 0xD7A3), (0x1F300, 0x1FAFF), (0x20, 0x7E)], 10000).encode())
        made.append(characters(marks, 10000).encode())
        made.append("".join(random.choices(PIECES, k=10000)).encode())
        made.append(b"".join(random.choices(DAMAGED, k=5000)))
    roots = ["/usr/lib/python3*/**/*.py", "/usr/share/**/*.txt", "/usr/include/**/*.h*", "/usr/share/man/**/*"]
    names = sorted(name for root in roots for name in glob.glob(root, recursive=True) if os.path.isfile(name))
    random.shuffle(names)
    size = sum(map(len, made))
    for name in names:
        if size >= megabytes * 1000000:
            break
        with open(name, "rb") as file:
            text = file.read(1000000)
        if text and b"\0" not in text and not text.startswith((b"\x1f\x8b", b"{")):
            made.append(text)
            size += len(text)
    return made


def tools():
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    byte_level = pre_tokenizers.ByteLevel
    split = pre_tokenizers.Split

    def kind(pattern=None, normalizer=None, ignore_merges=False, add_prefix_space=False):
        tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
        level = byte_level(add_prefix_space=add_prefix_space, use_regex=pattern is None)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split(Regex(pattern), "isolated"), level]) if pattern else level
        if normalizer:
            tokenizer.normalizer = normalizer
        tokenizer.decoder = decoders.ByteLevel()
        return tokenizer

    kinds = {"gpt2": kind(), "llama3": kind(LLAMA3, ignore_merges=True), "qwen2": kind(QWEN2, normalizers.NFC()),
             "o200k": kind(O200K), "gpt2-blank": kind(add_prefix_space=True)}
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=[SPECIAL], initial_alphabet=byte_level.alphabet(),
                                  show_progress=False)
    added = [AddedToken("<strip>", lstrip=True, rstrip=True, normalized=False), AddedToken("<pad>", normalized=True),
             AddedToken("<word>", single_word=True, normalized=False), AddedToken("A\u030a<n>", normalized=True),
             AddedToken("<|im_end|>", special=True, normalized=False)]
    return kinds, trainer, added, Tokenizer


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command[:2])}: {done.stderr}")
    return done.stdout


def train(ms_data, name, tokenizer, trainer, texts, files, place):
    """The tokenizer trained there, and whether training here gives the same vocabulary and merges."""
    tokenizer.train_from_iterator(texts, trainer)
    theirs = json.loads(tokenizer.to_str())["model"]
    if name not in ("gpt2", "llama3", "qwen2"):
        return True
    ours_path = f"{place}/{name}-ours.json"
    run(ms_data, "train-tokenizer", "--vocab", str(VOCAB), "--pattern", name, "--special", SPECIAL, "-o", ours_path, *files)
    with open(ours_path, encoding="utf-8") as file:
        ours = json.load(file)["model"]
    same = ours["vocab"] == theirs["vocab"] and ours["merges"] == theirs["merges"]
    print(f"{name}: trained to {len(theirs['vocab'])} tokens, {'the same' if same else 'DIFFERENT'} here and there")
    return same


def our_tokens(ms_data, path, files, prefix):
    """CPU seconds of the command, and the tokens of all files."""
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(ms_data, "encode", "--force", "--json-as-text", "--workers", "1", "--tokenizer", path, "-o", prefix, *files)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(prefix + ".bin", "rb") as file:
        return end.ru_utime - start.ru_utime + end.ru_stime - start.ru_stime, array.array("H", file.read())


def compare_speed(ms_data, name, path, texts, files, prefix, theirs):
    """Prints the rates of both, ours with all that the command does from its start to its end."""
    seconds = ([], [])
    for _ in range(ROUNDS):
        seconds[0].append(our_tokens(ms_data, path, files, prefix)[0])
        start = time.process_time()
        theirs.encode_batch_fast(texts, add_special_tokens=False)  # without offsets
        seconds[1].append(time.process_time() - start)
    size = sum(map(os.path.getsize, files)) / 1e6
    ours, their = map(statistics.median, seconds)
    print(f"{name}: {size:.1f} MB of files at {size / ours:.1f} MB for each second of a core, from start to end of the command; "
          f"tokenizers {size / their:.1f} MB; ratio {their / ours:.1f}", flush=True)


def compare(ms_data, name, path, texts, files, place, tokenizer_class):
    """Whether all tokens are the same."""
    theirs_there = tokenizer_class.from_file(path)
    end = theirs_there.token_to_id(SPECIAL)
    ours = our_tokens(ms_data, path, files, f"{place}/{name}")[1]
    at = differences = 0
    for file, text in zip(files, texts):
        theirs = theirs_there.encode(text, add_special_tokens=False).ids
        theirs.append(end)
        if ours[at:at + len(theirs)].tolist() != theirs:
            differences += 1
            print(f"{name}: {file} has other tokens")
            break  # what follows is shifted
        at += len(theirs)
    differences += at != len(ours)
    print(f"{name}: {len(ours)} tokens of {len(files)} documents, {differences} different")
    if files[NUM_ODD:]:
        compare_speed(ms_data, name, path, texts[NUM_ODD:], files[NUM_ODD:], f"{place}/{name}", theirs_there)
    return differences == 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ms_data")
    parser.add_argument("--megabytes", type=float, default=21)
    arguments = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        kinds, trainer, added, tokenizer_class = tools()
    except ImportError:
        reexecute()
    ms_data = os.path.realpath(arguments.ms_data)
    with tempfile.TemporaryDirectory() as place:
        files, texts = [], []
        for number, text in enumerate(documents(arguments.megabytes)):
            files.append(f"{place}/{number:05}.txt")
            with open(files[-1], "wb") as file:
                file.write(text)
            texts.append(text.decode("utf-8", "replace"))
        lesson, size = NUM_ODD // 2, 0
        while lesson < len(files) and size < TRAINED_MEGABYTES * 1000000:
            size += os.path.getsize(files[lesson])
            lesson += 1
        same = True
        for name, tokenizer in kinds.items():
            same = train(ms_data, name, tokenizer, trainer, texts[NUM_ODD // 2:lesson], files[NUM_ODD // 2:lesson], place) and same
            tokenizer.add_tokens(added)
            path = f"{place}/{name}.json"
            tokenizer.save(path)
            same = compare(ms_data, name, path, texts, files, place, tokenizer_class) and same
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
