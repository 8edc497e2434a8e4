#!/usr/bin/env python3
"""What ms-ckpt finds in checkpoints of PyTorch, Megatron-LM's core and DeepSpeed, beside what these find in them.

checkpoint_hashes.py MS_CKPT DIR     exits 1 if they disagree. checkpoints.py, megatron_checkpoints.py or
                                     deepspeed_checkpoints.py made DIR
"""
import json
import math
import os
import shutil
import sys
import tempfile
from pathlib import Path

from checkpoint_edits import edit, patch
from checkpoint_verdicts import NAN, Judge
from xxh64 import xxh64

# Cases, the part of the names that is compared, and whether the optimizer's state is in it: they hold the same.
SAME = [
    (("even-2", "megatron-2", "whole-2"), ""),
    (("file-1", "legacy-1"), ""),
    (("whole", "tp", "pp", "dp", "tp-pp"), ""),
    (("whole", "buckets-whole", "buckets-dp"), "decoder."),
    (("whole", "buckets-whole", "buckets-dp"), "embedding."),
    (("universal-zero-1", "universal-zero-2"), "zero.0.weight."),
    (("universal-zero-3", "universal-zero-3-whole"), "zero.0.weight."),
]


def as_shown(case, name, tensor):
    """A tensor of the truth, as ms-ckpt shows it."""
    if case.startswith(("universal-zero-3", "universal-llama-3")):  # flat, and alone in its file
        return f"zero.{name}.fp32", tensor | {"shape": [math.prod(tensor["shape"])]}
    if case.startswith("universal"):
        return f"zero.{name}.fp32.param", tensor
    if case.startswith("deepspeed"):
        return name.replace("model.", "mp_rank_00_model_states.module.", 1), tensor
    return name, tensor


def hashes(judge, *arguments):
    code, out, err = judge.ask("hash", "--json", *arguments)
    if code:
        return code, err
    found = json.loads(out)
    return found["hash"], {t["name"]: {"dtype": t["dtype"], "shape": t["shape"], "hash": t["hash"]} for t in found["tensors"]}


def truth(judge, case):
    """Each tensor has the hash of what the program that saved it finds there, and the checkpoint that of the lines."""
    path = judge.path(case)
    status, problems, doubts, _ = judge.verdict(path)
    judge.expect(f"{case}, sound", (status, problems) == (0, set()) and not doubts - {"stale", "padding"},
                 (status, problems, doubts))
    listed = json.loads(judge.ask("ls", "--json", judge.made / case)[1])["checkpoints"]
    judge.expect(f"{case}, ls", [(c["step"], c["state"]) for c in listed] == [(2, "finished")], listed)
    total, tensors = hashes(judge, path)
    if (judge.made / f"{case}.json").exists() and not case.startswith(("zero", "llama-")):
        for item in json.loads((judge.made / f"{case}.json").read_text())["tensors"].items():
            name, tensor = as_shown(case, *item)
            judge.expect(f"{case}, {name}", tensors.get(name) == tensor, tensors.get(name))
    lines = "".join(f"{name} {t['dtype']} {t['shape']} {t['hash']}\n" for name, t in sorted(tensors.items()))
    judge.expect(f"{case}, hash of the lines", f"{xxh64(lines.encode()):016x}" == total, (total, lines))
    text = judge.ask("hash", "--tensors", path)[1]
    judge.expect(f"{case}, --tensors", text == f"{lines}{total}  {path}\n", text)


def one_byte(judge, case):
    """A byte of one tensor changes its hash and that of the checkpoint, and no other."""
    path = judge.path(case)
    before, of_before = hashes(judge, path)
    tensor = json.loads(judge.ask("show", "--json", path)[1])["tensors"][-1]
    box = tensor["boxes"][-1]
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / path.name
        shutil.copytree(path, copy)
        patch(copy / box["file"], box["begin"], box["size_bytes"], "data/0", 0, b"\x99\x77")
        after, of_after = hashes(judge, copy)
        changed = [name for name in of_before if of_before[name] != of_after[name]]
        judge.expect(f"{case}, one byte", changed == [tensor["name"]] and before != after, changed)
    judge.expect("hash of no such names", hashes(judge, "--prefix", "none.", path)[0] == 2, "")


def refusals(judge, case):
    """No hash is printed of a checkpoint that lacks a part of any of its files."""
    path = judge.path(case)
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        with tempfile.TemporaryDirectory() as scratch:
            copy = Path(scratch) / path.name
            shutil.copytree(path, copy)
            for change in (lambda f: os.truncate(f, f.stat().st_size // 2), Path.unlink):
                change(copy / file.relative_to(path))
                found = hashes(judge, copy)
                judge.expect(f"{case}, hash without {file.name}", found[0] == 74, found)


def safetensors(judge):
    """A model that transformers saved, and its shards of torch.distributed.checkpoint."""
    made = judge.made / "llama"
    shards = hashes(judge, "--prefix", "model.", made / "fsdp/step-2")
    for path in (made / "hf", made / "hf/model.safetensors"):
        judge.expect(f"hash of {path}", hashes(judge, path) == shards and len(shards[1]) > 10, (hashes(judge, path), shards))


def buckets(judge, case):
    """What is not finite is in doubt where it may be padding of Megatron-LM's, and a problem elsewhere."""
    shown = json.loads(judge.ask("show", "--json", judge.path(case))[1])
    boxes = [b for t in shown["tensors"] if "gbuf_idx_" in t["name"] for b in t["boxes"]]
    for box, problem, doubt in ((min(boxes, key=lambda b: b["sizes"]), None, "padding"),
                                (max(boxes, key=lambda b: b["sizes"]), "nan", None)):
        judge.damage(f"NaN in {box['sizes']}", case,
                     lambda c, b=box: patch(c / b["file"], b["begin"], b["size_bytes"], "data/0", 0, NAN), problem, doubt)


def padding(judge):
    """Megatron-LM does not set the padding of its buckets."""
    norm, bucket = "model.layers.0.norm.weight", "optimizer.gbuf_idx_0.bucket_idx_0.param"
    shown = json.loads(judge.ask("show", "--json", judge.path("fsdp-2"))[1])
    box = next(t for t in shown["tensors"] if t["name"] == norm)["boxes"][0]

    def rename(metadata):
        metadata.state_dict_metadata[bucket] = metadata.state_dict_metadata.pop(norm)
        for key in metadata.storage_data:
            key.fqn = bucket if key.fqn == norm else key.fqn

    def damage(c, change):
        edit(c / ".metadata", change)
        patch(c / box["file"], box["begin"], box["size_bytes"], "data/0", 4, NAN)
    judge.damage("NaN in padding", "fsdp-2", lambda c: damage(c, rename), doubt="padding")
    judge.damage("NaN in a norm", "fsdp-2", lambda c: damage(c, lambda _: None), "nan")


def damages(judge, case):
    """Real files, damaged: a bit of each tensor, files that are cut or missing."""
    path = judge.path(case)
    shown = json.loads(judge.ask("show", "--json", path)[1])
    for tensor in shown["tensors"]:
        for box in tensor["boxes"]:
            if min(box["sizes"], default=1) > 0 and box["file"].endswith(".distcp"):
                judge.damage(f"flip in {tensor['name']}", case, lambda c, b=box: patch(
                    c / b["file"], b["begin"], b["size_bytes"], "data/0", 1, b"\x99\x77", False), "crc")
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        name = str(file.relative_to(path))
        problem = "unfinished" if name in (".metadata", "metadata.json") else "missing-file"
        doubt = name.startswith("zero/") and not name.endswith("fp32.pt")
        if name != "zero/optimizer_state.pt":
            judge.damage(f"{name} missing", case, lambda c, n=name: (c / n).unlink(), None if doubt else problem,
                         problem if doubt else None)
        if not name.endswith(".json"):
            judge.damage(f"{name} cut", case, lambda c, n=name, s=file.stat().st_size: os.truncate(c / n, s // 2),
                         {".metadata": "metadata"}.get(name, "zip" if name.endswith(".pt") else "cut-file"))


def imports(judge, case):
    """Weights of Megatron-LM, imported and exported, are those of the truth under the names of transformers' Llama."""
    truth = json.loads((judge.made / f"{case}.json").read_text())
    with tempfile.TemporaryDirectory() as scratch:
        config, im, out = Path(scratch) / "config.json", Path(scratch) / "im", Path(scratch) / "hf"
        config.write_text(json.dumps(truth["config"]))
        done = judge.ask("import", "-o", im, "--config", config, judge.path(case))
        judge.expect(f"{case}, import", done[0] == 0, done)
        judge.ask("export", "-o", out, im)
        judge.expect(f"{case}, the weights", hashes(judge, out)[1] == truth["llama"], (hashes(judge, out), truth["llama"]))
        for what, key, value in (("groups", "num_key_value_heads", 4), ("layers", "num_hidden_layers", 3),
                                 ("width", "intermediate_size", 16), ("family", "model_type", "gpt2")):
            config.write_text(json.dumps(truth["config"] | {key: value}))
            done = judge.ask("import", "-o", Path(scratch) / what, "--config", config, judge.path(case))
            judge.expect(f"{case}, import with other {what}", done[0] == 2 and not (Path(scratch) / what).exists(), done)
        if case == "universal-llama-3" and (judge.made / "llama-3").exists():  # parts of parameters
            config.write_text(json.dumps(truth["config"]))
            done = judge.ask("import", "-o", Path(scratch) / "parts", "--config", config, judge.path("llama-3"))
            judge.expect("import of ZeRO 3", done[0] == 2 and "ds_to_universal" in done[2], done)


def main():
    judge = Judge(str(Path(sys.argv[1]).resolve()), Path(sys.argv[2]).resolve())
    cases = sorted(p.name for p in judge.made.iterdir() if p.is_dir() and p.name != "llama")
    for case in cases:
        truth(judge, case)
        if case.startswith("buckets"):
            buckets(judge, case)
        if case in ("tp", "small-tp", "zero-1", "zero-3", "universal-llama-3", "fsdp1-2"):
            damages(judge, case)
        if case in ("whole", "tp", "tp-pp", "small-tp", "buckets-dp", "qwen2", "qwen3", "universal-llama-3", "dtensor-2"):
            imports(judge, case)
        if case in ("even-2", "fsdp-2", "fsdp1-2", "tp", "dp"):
            one_byte(judge, case)
        if case in ("even-2", "megatron-2", "deepspeed-2", "tp"):
            refusals(judge, case)
    for group, prefix in SAME:
        there = [case for case in group if case in cases]
        found = {case: hashes(judge, *(["--prefix", prefix] if prefix else []), judge.path(case)) for case in there}
        judge.expect(f"the same in {there}", all(f == found[there[0]] and f[1] for f in found.values()), found)
    if (judge.made / "llama").exists():
        safetensors(judge)
        padding(judge)
    print(f"{judge.count} hashes and verdicts of {len(cases)} checkpoints, {judge.wrong} wrong")
    return judge.wrong > 0 or not judge.count


if __name__ == "__main__":
    sys.exit(main())
