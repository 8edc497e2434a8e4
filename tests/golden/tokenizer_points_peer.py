#!/usr/bin/env python3
"""Normalizers and splitters make of every code point what Hugging Face's make of it. Nightly, as tokenizers_peer.py.

usage: tokenizer_points_peer.py MS_DATA
"""

import json
import os
import sys
import tempfile

import tokenizer_kinds_peer
import tokenizers_peer


def plain_file(model, **parts):
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [{"id": id, "content": content, "special": True} | flags for id, content in enumerate(["<unk>", "<s>", "</s>"])]
    none = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor"))
    return none | {"version": "1.0", "added_tokens": added, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False},
                   "model": model} | parts


def sweep(ms_data, place):
    """The number of documents that differ, of those of every code point beside others under each normalizer and splitter."""
    from tokenizers import Tokenizer

    names = ["<unk>", "<s>", "</s>"]
    points = list(map(chr, tokenizers_peer.every_code_point()))
    documents = ["".join(beside(c) for c in points[at:at + 1500]) for at in range(0, len(points), 1500)
                 for beside in (lambda c: f"a{c}b ", lambda c: f"\u00a0{c}x ", lambda c: f"{c}\u0301x{c} ",
                                lambda c: f"x{c}{c}\n", lambda c: f"a\u0315{c}\u0301\u0327 ")]
    with open(place + "/d.jsonl", "w", encoding="utf-8") as file:
        file.write("".join(json.dumps({"text": each}) + "\n" for each in documents))
    scores = [[name, 0.0] for name in names] + [[f"<0x{byte:02X}>", -1.0] for byte in range(256)]
    different = 0
    bytewise = {"type": "Unigram", "unk_id": 0, "byte_fallback": True, "vocab": scores}
    bert = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
            "lowercase": True}
    tables = [{"type": "Precompiled", "precompiled_charsmap": tokenizer_kinds_peer.charsmap(rule)}
              for rule in ("rules", "nmt_nfkc", "nfkc_cf")]
    for normalizer in [{"type": name} for name in ("NFC", "NFD", "NFKC", "NFKD", "StripAccents", "Lowercase")] + [bert] + tables:
        text = json.dumps(plain_file(bytewise, normalizer=normalizer))
        with open(place + "/t.json", "w", encoding="utf-8") as file:
            file.write(text)
        tokenizers_peer.run(ms_data, "encode", "--force", "--tokenizer", place + "/t.json", "-o", place + "/out",
                            place + "/d.jsonl")
        theirs = Tokenizer.from_str(text).normalizer
        for each, ours in zip(documents, tokenizer_kinds_peer.our_documents(place + "/out")):
            different += bytes(id - len(names) for id in ours[:-1]).decode("utf-8", "replace") != theirs.normalize_str(each)
    words = {"type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "##", "max_input_chars_per_word": 1,
             "vocab": {name: id for id, name in enumerate(names + ["a", "b", "x"])}}
    for splitter in [{"type": name} for name in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer")]:
        text = json.dumps(plain_file(words, pre_tokenizer=splitter))
        different += tokenizer_kinds_peer.compare(ms_data, text, documents, place, splitter["type"])[0]
    return different, len(documents)


def main():
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        import tokenizers  # noqa: F401
    except ImportError:
        tokenizers_peer.reexecute()
    with tempfile.TemporaryDirectory() as place:
        different, count = sweep(os.path.realpath(sys.argv[1]), place)
    print(f"{count} documents of every code point under 13 normalizers and splitters, {different} different")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
