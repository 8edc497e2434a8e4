#!/usr/bin/env python3
"""Conversations have the tokens of transformers' apply_chat_template, the targets that their characters say, and the samples of
TRL's packing. Nightly: installs transformers and trl, whose package has the templates of models, into a virtual environment,
unless this Python or MS_CHAT_PYTHON has them.

usage: chat_peer.py MS_DATA

Makes a tokenizer for each template, and 1,000 conversations with white space, empty messages, CJK, emoji and combining marks.
A token is a target if one of its characters is of an answer or of the token that ends it. Contents that are lists of texts are
compared where a template of the family renders them.
"""

import array
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77
CONVERSATIONS = 1000
SEQ = 256
# Our name, the template's file in trl, what it allows, its special tokens; the last one ends a turn. "named": the file is of a
# model with images, and renders texts as ours does.
IM = ["<|im_start|>", "<|im_end|>"]
LLAMA = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
GEMMA = ["<bos>", "<start_of_turn>", "<end_of_turn>"]
PHI = ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
TEMPLATES = [("chatml", "qwen3_instruct_2507", {"system", "free"}, IM), ("qwen2.5", "qwen2_5", {"system", "free"}, IM),
             ("qwen3", "qwen3", {"system"}, IM), ("chatml", "qwen3_vl", {"system", "free", "lists", "named"}, IM),
             ("llama3", "llama3", {"system", "free"}, LLAMA), ("llama3.1", "llama3_1", {"system", "free"}, LLAMA),
             ("llama3.1", "llama3_2", {"system", "free"}, LLAMA), ("gemma", "gemma", set(), GEMMA),
             ("gemma3", "gemma3", {"system", "lists"}, GEMMA),
             ("phi3", "phi3", {"system", "free"}, PHI), ("phi3.5", "phi3_5", {"system", "free"}, PHI)]
DATE = "26 Jul 2024"  # Llama 3.2's template has the day's date otherwise
PIECES = ["hello", " world", "\n", "\n\n", " ", "  ", "\t", "\u00a0", "\u3000", "\u4f60\u597d", "\u00e9", "e\u0301", "\U0001f600", "user", "assistant",
          "system", "<think", "1234", "it's", ".", "def f(x):\n    return x\n", "\r\n", "\x1c", "\u2028", "\\", '"', "<|", "{{ x }}"]


def reexecute():
    """Runs this script again with a Python that has the peers, or says why not."""
    python = os.environ.pop("MS_CHAT_PYTHON", None)
    if python:
        os.execv(python, [python, "-B", *sys.argv])
    with tempfile.TemporaryDirectory() as place:
        made = subprocess.run([sys.executable, "-m", "venv", place], stdout=subprocess.DEVNULL).returncode == 0
        pip = [place + "/bin/pip", "install", "--quiet"]
        packages = ["transformers", "jinja2", "datasets", "pyarrow"]
        if not made or any(subprocess.run([*pip, *p]).returncode for p in (packages, ["--no-deps", "trl"])):
            print("skipped: there are no transformers and trl, and they cannot be installed")
            sys.exit(SKIPPED)
        sys.exit(subprocess.run([place + "/bin/python", "-B", *sys.argv]).returncode)


def templates_of_trl():
    from importlib.util import find_spec
    return Path(find_spec("trl").submodule_search_locations[0]) / "chat_templates"


def content():
    return "".join(random.choice(PIECES) for _ in range(random.choice([0, 1, 2, 5, 20, 60])))


def in_parts(messages):
    """Makes lists of texts of some contents; that of the system has one text, as Gemma 3 renders no other."""
    for message in messages:
        if random.random() < 0.5:
            count = 1 if message["role"] == "system" else random.randint(0, 3)
            message["content"] = [{"type": "text", "text": content()} for _ in range(count)]
    return messages


def text_of(message):
    return message["content"] if isinstance(message["content"], str) else "".join(part["text"] for part in message["content"])


def conversation(allows):
    messages = []
    if "system" in allows and random.random() < 0.5:
        messages.append({"role": "system", "content": content()})
    for _ in range(random.randint(1, 4)):
        messages.append({"role": "user", "content": content()})
        if "free" in allows and random.random() < 0.1:
            messages.append({"role": "user", "content": content()})
        messages.append({"role": "assistant", "content": content()})
    if random.random() < 0.1:
        messages.append({"role": "user", "content": content()})
    return in_parts(messages) if "lists" in allows else messages


def in_other_form(messages):
    names = {"user": "human", "assistant": "gpt", "system": "system"}
    return {"conversations": [{"from": names[m["role"]], "value": m["content"]} for m in messages]}


def token_file(prefix):
    """Returns the documents, each a list of tokens and of whether the loss counts them."""
    index = prefix.with_suffix(".idx").read_bytes()
    version, kind, sequences, boundaries = struct.unpack_from("<QBQQ", index, 9)
    assert version == 2, version
    lengths = struct.unpack_from(f"<{sequences}i", index, 34)
    documents = struct.unpack_from(f"<{boundaries}q", index, 34 + 12 * sequences)
    modes = struct.unpack_from(f"<{sequences}b", index, 34 + 12 * sequences + 8 * boundaries)
    tokens = array.array({8: "H", 4: "i"}[kind], prefix.with_suffix(".bin").read_bytes()).tolist()
    found, at = [], 0
    for first, last in zip(documents, documents[1:]):
        mask = [mode == 0 for length, mode in zip(lengths[first:last], modes[first:last]) for _ in range(length)]
        found.append((tokens[at:at + len(mask)], mask))
        at += len(mask)
    return found


def answers(tokenizer, template, messages, text, end_of_turn):
    """Returns the characters of each answer, from where a prompt for it ends."""
    found = []
    for i, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        prompt = tokenizer.apply_chat_template(messages[:i], chat_template=template, tokenize=False, add_generation_prompt=True,
                                               date_string=DATE)
        assert text.startswith(prompt), (text, prompt)
        found.append((len(prompt), text.index(end_of_turn, len(prompt)) + len(end_of_turn)))
    return found


def compare(ms_data, place, name, template, allows, special):
    from transformers import PreTrainedTokenizerFast
    conversations = [conversation(allows) for _ in range(CONVERSATIONS)]
    (place / "text").write_text("".join(PIECES) * 50 + "\n".join(text_of(m) for c in conversations[:200] for m in c))
    lines = [json.dumps({"messages": c} if random.random() < 0.5 else in_other_form(c)) for c in conversations]
    (place / "chats.jsonl").write_text("\n".join(lines) + "\n")
    (place / "chat_template.jinja").write_text(template)
    tokens = ["<|endoftext|>", *special]
    subprocess.run([ms_data, "train-tokenizer", "--pattern", "qwen2" if special is IM else "llama3", "--vocab", "600",
                    *(word for token in tokens for word in ("--special", token)), "-o", place / "tokenizer.json", place / "text"],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    asked = name if "named" in allows else "auto"
    said = subprocess.run([ms_data, "encode", "--force", "--tokenizer", place / "tokenizer.json", "--chat-template", asked, "-o",
                           place / "chats", place / "chats.jsonl"], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert f"with the chat template {name}\n" in said, said
    peer = PreTrainedTokenizerFast(tokenizer_file=str(place / "tokenizer.json"), bos_token=special[0], eos_token="<|endoftext|>")
    ours, theirs = token_file(place / "chats"), []
    assert len(ours) == len(conversations)
    for messages, (ids, mask) in zip(conversations, ours):
        text = peer.apply_chat_template(messages, chat_template=template, tokenize=False, date_string=DATE)
        coded = peer(text, add_special_tokens=False, return_offsets_mapping=True)
        assert ids == coded["input_ids"], (name, messages, text)
        spans = answers(peer, template, messages, text, special[-1])
        wanted = [any(begin < to and end > at for at, to in spans) for begin, end in coded["offset_mapping"]]
        assert mask == wanted, (name, text, [(peer.decode(t), a, b) for t, a, b in zip(ids, mask, wanted) if a != b])
        theirs.append(ids)
    return theirs


def compare_packing(ms_data, place, documents):
    import pyarrow
    from trl.data_utils import _pack_bfd  # pack_dataset() of one batch: Dataset.map does not work with every pyarrow
    packed = _pack_bfd(pyarrow.table({"input_ids": documents}), SEQ)
    subprocess.run([ms_data, "pack", "--seq", str(SEQ), "--too-long", "truncate", "--force", "-o", place / "packed", place / "chats"],
                   check=True, stdout=subprocess.DEVNULL)
    lengths, room = [[]], SEQ
    for tokens, mask in token_file(place / "packed")[:-1]:
        assert not mask[0]
        if any(mask) or set(tokens) != {0}:  # no padding, whose token is the first special one
            lengths[-1].append(len(tokens))
        room -= len(tokens)
        if room == 0:
            lengths.append([])
            room = SEQ
    assert room == SEQ and lengths.pop() == []
    assert lengths == packed["seq_lengths"].to_pylist(), "TRL packs to other samples"
    return len(lengths)


def main():
    try:
        import datasets, jinja2, transformers, trl  # noqa: F401, E401
    except ImportError:
        reexecute()
    ms_data = Path(sys.argv[1]).resolve()
    random.seed(5)
    for name, file, allows, special in TEMPLATES:
        template = (templates_of_trl() / (file + ".jinja")).read_text()
        with tempfile.TemporaryDirectory() as place:
            documents = compare(ms_data, Path(place), name, template, allows, special)
            samples = compare_packing(ms_data, Path(place), documents)
            print(f"{name} ({file}): {len(documents)} conversations, {sum(map(len, documents))} tokens and their mask equal, "
                  f"{samples} samples as TRL's", flush=True)


if __name__ == "__main__":
    main()
