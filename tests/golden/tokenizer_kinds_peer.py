#!/usr/bin/env python3
"""Tokenizers of every kind that ms-data reads give the ids and the text of Hugging Face's. Nightly, as tokenizers_peer.py.

usage: tokenizer_kinds_peer.py MS_DATA [--tokenizers N] [--documents N] [--first N] [--keep FILE [--cases FOLDER]]

Makes N tokenizer.json (200) of mixed models, normalizers, pre-tokenizers, templates, decoders, vocabularies and added tokens,
each with N random documents (500), and compares the ids of every document and the text that decode gives back. --keep writes them, with the ids of tokenizers, for
the test by day, and so --cases the files of a folder of cases.
"""

import argparse
import array
import base64
import functools
import glob
import io
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile

import tokenizers_peer

WORDS = ["the", "Hello", "world", "token", "d\u00e9j\u00e0", "na\u00efve", "\u65e5\u672c\u8a9e", "\u4e2d\u6587", "12", "345", "6789", "x", "\u2581", "_",
         "<0x0A>", "\u0301", "e\u0301", "\U0001f600", "\u200d", "'s", "'LL", "--", "...", "!?", "#", "\u00a1", "\u3002", "\u0664",
         "\u00b2", "\u2167", "\ufeff", "\ufb01", "\u2460", "\uff21", "\uff76\uff9e", "\u00bd", "\u0130", "\u03a3\u03c2", "\u1ec7",
         "a\u0327\u0301", "\u00a0\u0301", "do not", "'"]
SPACES = [" ", " ", " ", "  ", "   ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\u0085", " \n ", ""]
ADDED = ["<s>", "</s>", "<unk>", "<pad>", "[INST]", "<|word|>", "ab"]
META = "\u2581"
RULES = {"\r": " ", "\n": " ", "\t": " ", "\u00a0": " ", "a\u0301": "\u00e1", "e\u0301": "\u00e9", "x": "", "\ufb01": "fi",
         "'s": "_", "\u00bd": "1\u20442", "\u4e2d": "\u4e2d\u4e2d", "\U0001f600": ":)", "\u0130": "i"}


def character(rng):
    low, high = rng.choice([(0x20, 0x7E), (0x20, 0x7E), (1, 0x1F), (0x80, 0x24F), (0x300, 0x36F), (0x370, 0x1FFF), (0x2000, 0x2FFF),
                            (0x3041, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xFFFF), (0x10000, 0x1FFFF), (0x20000, 0x10FFFF)])
    return chr(rng.randint(low, high))


def document(rng):
    kind = rng.random()
    if kind < 0.02:
        return rng.choice(["", " ", "  ", "\n", META, "a", "<s>", " <s>", "\u0301"])
    if kind < 0.06:
        return rng.choice(WORDS + SPACES[:-1] + ADDED) * rng.randint(20, 200)
    pieces = []
    for _ in range(rng.randint(1, 40)):
        pick = rng.random()
        pieces.append(rng.choice(WORDS) if pick < 0.4 else rng.choice(SPACES) if pick < 0.75 else rng.choice(ADDED) if pick < 0.8
                      else character(rng))
    return "".join(pieces)


def field(message, number):
    """The bytes of a field of a protocol buffer."""
    at = 0

    def varint():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte, at = message[at], at + 1
            value, shift = value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        size = varint() if key & 7 in (0, 2) else {1: 8, 5: 4}[key & 7]
        if key & 7 == 2 and key >> 3 == number:
            return message[at:at + size]
        at += 0 if key & 7 == 0 else size
    raise ValueError(f"no field {number}")


@functools.cache
def charsmap(rule):
    """The table of SentencePiece's rule of that name, or of some rules for characters that documents have."""
    import sentencepiece

    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="ascii") as rules:
        if rule == "rules":
            for text, into in RULES.items():
                rules.write(" ".join(f"{ord(c):X}" for c in text) + "\t" + " ".join(f"{ord(c):X}" for c in into) + "\n")
            rules.flush()
        names = {"normalization_rule_tsv": rules.name} if rule == "rules" else {"normalization_rule_name": rule}
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["some words to learn from"] * 9), model_writer=model,
                                                 vocab_size=20, hard_vocab_limit=False, minloglevel=2, **names)
    return base64.b64encode(field(field(model.getvalue(), 3), 2)).decode()


def blanks(content):
    return {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": content}


def unigram_normalizers(rng, is_kept):
    rule = "rules" if is_kept else rng.choice(["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "rules"])
    mapped = {"type": "Precompiled", "precompiled_charsmap": charsmap(rule)}
    strip = {"type": "Strip", "strip_left": rng.random() < 0.3, "strip_right": True}
    form = {"type": rng.choice(["NFC", "NFD", "NFKC", "NFKD"])}
    return rng.choice([[], [mapped], [mapped, strip, blanks(META)], [mapped, blanks(" ")], [strip], [form],
                       [{"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, mapped],
                       [{"type": "Lowercase"}, {"type": "NFC"}]])


def word_piece_normalizers(rng):
    bert = {"type": "BertNormalizer", "clean_text": rng.random() < 0.8, "handle_chinese_chars": rng.random() < 0.7,
            "strip_accents": rng.choice([None, True, False]), "lowercase": rng.random() < 0.6}
    return rng.choice([[bert], [bert], [bert], [{"type": "NFD"}, {"type": "Lowercase"}, {"type": "StripAccents"}],
                       [{"type": "StripAccents"}], []])


def sequence(kind, steps):
    return {"type": "Sequence", kind: steps} if len(steps) > 1 else steps[0] if steps else None


def normalizers(rng, kind, is_kept):
    if kind == "unigram":
        return sequence("normalizers", unigram_normalizers(rng, is_kept))
    if kind == "word_piece":
        return sequence("normalizers", word_piece_normalizers(rng))
    if kind == "bytes":
        return rng.choice([None, {"type": "NFC"}])
    steps = [{"type": "Prepend", "prepend": META}, {"type": "Replace", "pattern": {"String": " "}, "content": META}]
    return rng.choice([{"type": "Sequence", "normalizers": steps}, steps[1], None, {"type": "NFC"},
                       {"type": "Sequence", "normalizers": [blanks(" ")] + steps}])


def split(rng):
    pattern = rng.choice([{"String": rng.choice([" ", "-", META, "the", "\n"])},
                          {"Regex": rng.choice([r"\s+", r"\p{N}", r"\p{L}+", r"[^\s\p{L}]+", tokenizers_peer.GPT2])}])
    behavior = rng.choice(["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"])
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": rng.random() < 0.3}


def metaspace(rng, scheme=None):
    return {"type": "Metaspace", "replacement": META, "prepend_scheme": scheme or rng.choice(["always", "first", "never"]),
            "split": rng.random() < 0.5}


def pre_tokenizers(rng, kind, normalizer):
    words = [{"type": name} for name in ("WhitespaceSplit", "Whitespace", "BertPreTokenizer")]
    if kind == "unigram":
        moves = any(name in json.dumps(normalizer) for name in ('"StripAccents"', '"strip_left": true'))
        scheme = rng.choice(["always", "never"] + ([] if moves else ["first"]))
        steps = rng.choice([[metaspace(rng, scheme)], [metaspace(rng, scheme)], [words[0], metaspace(rng, "always")],
                            [words[1], metaspace(rng, "always")], [metaspace(rng, scheme), split(rng)]])
        return {"type": "Sequence", "pretokenizers": steps}
    if kind == "word_piece":
        steps = rng.choice([words[2:], words[2:], words[1:2], words[:1], [words[0], split(rng)],
                            [words[1], {"type": "Digits", "individual_digits": True}]])
        return {"type": "Sequence", "pretokenizers": steps}
    some = []
    for _ in range(rng.choice([0, 0, 1, 1, 2])):
        some.append(rng.choice([split(rng), {"type": "Digits", "individual_digits": rng.random() < 0.5},
                                {"type": "Punctuation", "behavior": split(rng)["behavior"]}]))
    if kind == "bytes":
        some.append({"type": "ByteLevel", "add_prefix_space": rng.random() < 0.3, "trim_offsets": True, "use_regex": rng.random() < 0.6})
    elif normalizer is None or normalizer == {"type": "NFC"}:
        some.insert(0, metaspace(rng))
    return {"type": "Sequence", "pretokenizers": some} if some else None


def decoders(rng, kind, pre_tokenizer):
    if kind == "bytes":
        return {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    if kind == "word_piece":
        return {"type": "WordPiece", "prefix": "##", "cleanup": rng.random() < 0.5}
    if kind == "unigram" and rng.random() < 0.7:
        return metaspace(rng)
    if not kind == "fallback" and pre_tokenizer and pre_tokenizer["pretokenizers"][0]["type"] == "Metaspace":
        return {key: value for key, value in pre_tokenizer["pretokenizers"][0].items()}
    steps = [{"type": "Replace", "pattern": {"String": META}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    if rng.random() < 0.7:
        steps.append({"type": "Strip", "content": " ", "start": rng.choice([1, 1, 2]), "stop": 0})
    return {"type": "Sequence", "decoders": steps}


def template(rng):
    special = {name: {"id": name, "ids": [id], "tokens": [name]} for id, name in enumerate(["<unk>", "<s>", "</s>"])}
    token = lambda name: {"SpecialToken": {"id": name, "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    single = rng.choice([[token("<s>"), text], [text, token("</s>")], [token("<s>"), text, token("</s>")], [text]])
    pair = {"sep": ["</s>", 2], "cls": ["<s>", 1]}
    roberta = {"type": "RobertaProcessing", "trim_offsets": True, "add_prefix_space": True} | pair
    return rng.choice([None, {"type": "BertProcessing"} | pair, roberta,
                       {"type": "TemplateProcessing", "single": single, "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}],
                              "special_tokens": special}])


def rescored(rng, vocab):
    """Scores as they are, or with many equal sums, or above 0: unknown characters are worth more than some tokens then."""
    choose = rng.choice([None, None, lambda: -float(rng.randint(1, 4)), lambda: -rng.choice([0.1, 0.2, 0.3]),
                         lambda: rng.uniform(-2, 20)])
    first = dict(reversed(vocab))  # special tokens may have been learned again
    return [[token, choose() if choose else first[token]] for token in dict(vocab)]


def trained(rng, kind, lesson):
    """Trained without its surroundings, on words that these would make or not."""
    from tokenizers import Tokenizer, models, trainers
    from tokenizers import pre_tokenizers as hf

    special = ["<unk>", "<s>", "</s>"] + ([f"<0x{byte:02X}>" for byte in range(256)] if kind in ("fallback", "unigram") else [])
    size = rng.randint(500, 1500)
    if kind == "word_piece":
        tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>", max_input_chars_per_word=rng.choice([4, 20, 100])))
        tokenizer.pre_tokenizer = rng.choice([hf.BertPreTokenizer(), hf.WhitespaceSplit()])
        trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=special, show_progress=False,
                                            limit_alphabet=rng.randint(60, 400), continuing_subword_prefix="##")
    elif kind == "unigram":
        lesson = [text.replace(" ", META) for text in lesson[:80]]  # few characters: all of them are tokens
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer = hf.Metaspace(prepend_scheme="always", split=rng.random() < 0.7)
        trainer = trainers.UnigramTrainer(vocab_size=size + 700, special_tokens=special, show_progress=False, unk_token="<unk>")
    else:
        tokenizer = Tokenizer(models.BPE())
        if kind == "bytes":
            tokenizer.pre_tokenizer = hf.ByteLevel(add_prefix_space=False)
        else:
            lesson = [text.replace(" ", META) for text in lesson]
            tokenizer.pre_tokenizer = hf.Metaspace(prepend_scheme="always", split=rng.random() < 0.7)
        alphabet = hf.ByteLevel.alphabet() if kind == "bytes" and rng.random() < 0.7 else []
        trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False,
                                      limit_alphabet=rng.randint(60, 400), initial_alphabet=alphabet)
    tokenizer.train_from_iterator(lesson, trainer)
    return json.loads(tokenizer.to_str())


def made(rng, number, is_kept):
    """The text of a tokenizer.json."""
    kind = ["fallback", "characters", "bytes", "unigram", "word_piece"][number % 5]
    normalizer = normalizers(rng, kind, is_kept)
    pre = pre_tokenizers(rng, kind, normalizer)
    lesson = [document(rng) for _ in range(300)]
    file = trained(rng, kind, lesson)
    if kind == "unigram":
        file["model"] |= {"byte_fallback": rng.random() < 0.6, "vocab": rescored(rng, file["model"]["vocab"])}
    vocab = len(file["model"]["vocab"])
    flags = ("single_word", "lstrip", "rstrip", "normalized")
    file["added_tokens"] = [{"id": id, "content": content, "special": True} | dict.fromkeys(flags, False)
                            for id, content in enumerate(["<unk>", "<s>", "</s>"])]
    for id, content in enumerate(rng.sample(ADDED[3:], rng.randint(0, 3))):
        if content in dict(file["model"]["vocab"]):
            continue
        id = vocab + sum(token["id"] >= vocab for token in file["added_tokens"])
        file["added_tokens"].append({"id": id, "content": content, "special": False} | {flag: rng.random() < 0.3 for flag in flags})
    if kind not in ("unigram", "word_piece"):
        file["model"] |= {"byte_fallback": kind == "fallback" and rng.random() < 0.9, "unk_token": rng.choice(["<unk>", None]),
                          "fuse_unk": rng.random() < 0.5, "ignore_merges": rng.random() < 0.2, "dropout": rng.choice([None, 0.0])}
    if kind == "fallback" and rng.random() < 0.2:  # some bytes are not there: the last names of the vocabulary
        renamed = {f"<0x{byte:02X}>": f"<lost{byte}>" for byte in rng.sample(range(0x0B, 256), 60)}
        file["model"]["vocab"] = {renamed.get(token, token): id for token, id in file["model"]["vocab"].items()}
    file.update({"normalizer": normalizer, "pre_tokenizer": pre, "post_processor": template(rng), "decoder": decoders(rng, kind, pre)})
    return json.dumps(file, ensure_ascii=False), kind


def our_documents(prefix):
    with open(prefix + ".idx", "rb") as file:
        index = file.read()
    code, count = index[17], struct.unpack("<Q", index[18:26])[0]
    sizes = struct.unpack(f"<{count}i", index[34:34 + 4 * count])
    with open(prefix + ".bin", "rb") as file:
        tokens = array.array({8: "H", 4: "i"}[code], file.read()).tolist()
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + size)
    return [tokens[begin:end] for begin, end in zip(starts, starts[1:])]


def plain(text):
    """ms-data gives back the bytes of characters that are not whole, and tokenizers some U+FFFD."""
    return re.sub("\ufffd+", "\ufffd", text)


def compare(ms_data, text, documents, place, label):
    """The number of documents that differ."""
    from tokenizers import Tokenizer

    path, lines, prefix = place + "/t.json", place + "/d.jsonl", place + "/out"
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    theirs = Tokenizer.from_file(path)
    encoded = [(each, theirs.encode(each, add_special_tokens=True).ids, theirs.encode(each, add_special_tokens=False).ids) for each in documents]
    encoded = [row for row in encoded if row[2]]
    with open(lines, "w", encoding="utf-8") as file:
        for each, _, _ in encoded:
            file.write(json.dumps({"text": each}) + "\n")
    tokenizers_peer.run(ms_data, "encode", "--force", "--workers", "1", "--tokenizer", path, "--eod", "</s>", "-o", prefix, lines)
    ours = our_documents(prefix)
    separator = "\x01split\x01"
    with open(place + "/decoded", "wb") as file:
        done = subprocess.run([ms_data, "decode", "--split-on", separator, prefix], stdout=file, stderr=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(f"decode: {done.stderr.decode()}")
    with open(place + "/decoded", "rb") as file:
        texts = file.read().split(separator.encode() + b"\n")
    different = abs(len(ours) - len(encoded))
    around = set(theirs.encode("", add_special_tokens=True).ids)
    ends = 2 in around
    hidden = {2} | around
    special = {token["id"] for token in json.loads(text)["added_tokens"]}
    for number, ((each, ids, _), got) in enumerate(zip(encoded, ours)):
        want = ids if ends else ids + [2]
        kept = [id for id in got if id not in hidden]
        same_text = True
        if number < len(texts) and not any(id in special for id in kept):
            decoded = theirs.decode(kept, skip_special_tokens=False)
            same_text = plain(texts[number].decode("utf-8", "replace")) in (plain(decoded), plain(decoded + "\n"))
        if got != want or not same_text:
            different += 1
            if different <= 2:
                print(f"{label}: {each!r}:\n  {got}\n  {want}\n  {texts[number:number + 1]}\n  "
                      f"{theirs.decode(kept, skip_special_tokens=False)!r}")
    return different, encoded


def rows_of(text, encoded):
    """Texts with their ids and, where no special token and no broken character is in it, what these are as text."""
    from tokenizers import Tokenizer

    theirs, special = Tokenizer.from_str(text), {token["id"] for token in json.loads(text)["added_tokens"]}
    rows = [[each, bare, theirs.decode(bare)] for each, _, bare in encoded]
    return [row if not special & set(row[1]) and "\ufffd" not in row[2] else row[:2] for row in rows]


def case_rows(folder):
    """The tokenizers of cases: their ids of a few documents, and what their templates put around these."""
    from tokenizers import Tokenizer

    rng, entries = random.Random(5), []
    documents = [document(rng) for _ in range(12)] + [
        "in Vi\u1ec7t now", " Vi\u1ec7t", "Vi\u1ec7t", " quartz zebra", "   <|start|> <|en|>   ", "x \n\t<|en|>\n y", "a<|start|>b",
        "\u3000<|start|>\u00a0x", "word<|en|>word _<|en|>_ \u00e9<|en|>\u00e9 -<|en|>-", "yesterday Yesterday xyesterday",
        "\u00e9<x> e\u0301<x> \u00e9<y> e\u0301<y>", "    def f():\n" + " " * 30 + "x", " " * 50, "<|a|><|b|>", "<|<|a|>|>", "|><|",
        "il\u00d6veyou now", "a\u0120tokb", "x<\u65e5\u672c>y", "\u0141\u00c0\u0141\u00c0", "<s>inside</s> <s>x", "first document", "\n\t\n",
        "\u751f\u6d3b"]
    for path in sorted(glob.glob(folder + "/0[13456]-*/*.json")):
        if os.path.basename(path) in ("base.json", "dup.json", "empty-content.json", "gap.json"):
            continue  # the last three are refused
        theirs = Tokenizer.from_file(path)
        around, inside = (theirs.encode("a", add_special_tokens=flag).ids for flag in (True, False))
        at = next(at for at in range(len(around)) if around[at:at + len(inside)] == inside)
        entries.append({"case": os.path.relpath(path, folder), "before": around[:at], "behind": around[at + len(inside):],
                        "rows": [[each, theirs.encode(each, add_special_tokens=False).ids] for each in documents if len(each) < 200]})
    return entries


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ms_data")
    parser.add_argument("--tokenizers", type=int, default=200)
    parser.add_argument("--documents", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--keep")
    parser.add_argument("--cases")
    arguments = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        import tokenizers  # noqa: F401
    except ImportError:
        tokenizers_peer.reexecute()
    kept, different, count = [], 0, 0
    with tempfile.TemporaryDirectory() as place:
        for number in range(arguments.first, arguments.first + arguments.tokenizers):
            rng = random.Random(number)
            text, kind = made(rng, number, bool(arguments.keep))
            documents = [document(rng) for _ in range(arguments.documents)]
            differs, encoded = compare(os.path.realpath(arguments.ms_data), text, documents, place, f"{number} {kind}")
            different += differs
            count += len(encoded)
            if differs:
                print(f"{number} {kind}: {differs} of {len(encoded)} documents differ; {json.loads(text)['normalizer']}, "
                      f"{json.loads(text)['pre_tokenizer']}, {json.loads(text)['decoder']}", flush=True)
            if arguments.keep:
                kept.append({"tokenizer": json.loads(text), "rows": rows_of(text, encoded)})
    print(f"{arguments.tokenizers} tokenizers, {count} documents, {different} different")
    if arguments.keep:
        kept += case_rows(arguments.cases) if arguments.cases else []
        with open(arguments.keep, "w", encoding="ascii") as file:
            file.write(json.dumps(kept, separators=(",", ":")).replace('{"tokenizer"', '\n{"tokenizer"').replace('{"case"', '\n{"case"') + "\n")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
