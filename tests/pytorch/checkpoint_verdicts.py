#!/usr/bin/env python3
"""What ms-ckpt says of checkpoints of PyTorch (checkpoints.py made them), sound and damaged in many ways.

checkpoint_verdicts.py MS_CKPT DIR     exits 1 if a verdict is wrong
"""
import json
import os
import pickle
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from checkpoint_edits import Named, Size, as_torch_2_0, edit, patch, rewrite

NAN, INFINITE = struct.pack("<I", 0x7FC00000), struct.pack("<I", 0xFF800000)


class Judge:
    def __init__(self, ms_ckpt, made):
        self.ms_ckpt, self.made, self.wrong, self.count = ms_ckpt, made, 0, 0

    def ask(self, *arguments):
        done = subprocess.run([self.ms_ckpt, *map(str, arguments)], capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    def verdict(self, path):
        code, out, err = self.ask("verify", "--json", path)
        if code not in (0, 1, 74):
            return code, set(), set(), err
        one = json.loads(out)["checkpoints"][0]
        return code, {p["code"] for p in one["problems"]}, {d["code"] for d in one["doubts"]}, out

    def path(self, case):
        return next(p for p in (self.made / case).iterdir() if p.name.startswith(("step-", "iter_", "global_step")))

    def expect(self, what, holds, seen):
        self.count += 1
        if not holds:
            self.wrong += 1
            print(f"{what}: {seen}", file=sys.stderr)

    def damage(self, what, case, change, problem=None, doubt=None, code=None):
        """The verdict of a copy that `change` damages has this problem, or is sound with this doubt."""
        with tempfile.TemporaryDirectory() as scratch:
            source = self.path(case)
            copy = Path(scratch) / source.name
            if source.is_dir():
                shutil.copytree(source, copy)
                if (copy / ".metadata").exists():
                    os.utime(copy / ".metadata")
            else:
                shutil.copy(source, copy)
            change(copy)
            status, problems, doubts, out = self.verdict(copy)
            wanted = code if code is not None else 1 if problem else 0
            holds = status == wanted and (problem in problems if problem else not problems) and (not doubt or doubt in doubts)
            seen = f"{status}, problems {problems}, doubts {doubts}, expected {problem or doubt}"
            self.expect(f"{case}, {what}", holds, seen)

    def sound(self, case):
        path = self.path(case)
        truth = json.loads((self.made / f"{case}.json").read_text())
        status, problems, doubts, _ = self.verdict(path)
        self.expect(f"{case}, sound", (status, problems) == (0, set()) and not doubts - {"stale"}, (status, problems, doubts))
        shown = json.loads(self.ask("show", "--json", path)[1])
        tensors = {t["name"].removeprefix("model.").removeprefix("mp_rank_00_model_states.module."): t
                   for t in shown["tensors"]}
        for name, tensor in truth["tensors"].items():
            seen = tensors.get(name.removeprefix("model."))
            self.expect(f"{case}, {name}", seen and (seen["dtype"], seen["shape"]) == (tensor["dtype"], tensor["shape"]), seen)
        listed = json.loads(self.ask("ls", "--json", self.made / case)[1])["checkpoints"]
        self.expect(f"{case}, ls", [(c["step"], c["state"]) for c in listed] == [(2, "finished")], listed)
        return shown


def dcp_damages(judge, case):
    shown = judge.sound(case)
    parts = [(t["name"], b) for t in shown["tensors"] for b in t["boxes"]]
    for name, box in parts:  # a bit of each tensor, of its pickle, and of the archive's directory
        place = (box["begin"], box["size_bytes"])
        judge.damage(f"flip in {name}", case,
                     lambda c, b=box, p=place: patch(c / b["file"], *p, "data/0", 1, b"\x99\x77", False), "crc")
    name, box = parts[0]
    part = (box["begin"], box["size_bytes"])
    judge.damage("flip in a pickle", case, lambda c: patch(c / box["file"], *part, "data.pkl", 9, b"\x00\xff", False), "zip")

    def flip(path, at):
        data = bytearray(path.read_bytes())
        data[at] ^= 4
        path.write_bytes(data)
    judge.damage("flip in a zip directory", case, lambda c: flip(c / box["file"], part[0] + part[1] - 22), "zip")
    for file in (f for f in shown["files"] if f.endswith(".distcp")):
        size = (judge.path(case) / file).stat().st_size
        for length in (0, 1, size // 3, size // 2, size - 1):
            judge.damage(f"{file} cut to {length}", case, lambda c, f=file, n=length: os.truncate(c / f, n), "cut-file")
        judge.damage(f"{file} missing", case, lambda c, f=file: (c / f).unlink(), "missing-file")
        judge.damage(f"{file} longer", case, lambda c, f=file: open(c / f, "ab").write(b"x"), "extra-bytes")
        judge.damage(f"{file} zeros", case, lambda c, f=file: (c / f).write_bytes(bytes((c / f).stat().st_size)), "zip")
    judge.damage(".metadata missing", case, lambda c: (c / ".metadata").unlink(), "unfinished")
    judge.damage(".metadata cut", case, lambda c: os.truncate(c / ".metadata", 500), "metadata")
    judge.damage(".metadata empty", case, lambda c: os.truncate(c / ".metadata", 0), "metadata")
    judge.damage(".metadata of something else", case,
                 lambda c: (c / ".metadata").write_bytes(pickle.dumps({"a": 1})), "metadata")
    judge.damage("a file of another save", case, lambda c: (c / "__9_0.distcp").write_bytes(b"x"), doubt="unnamed-file")
    judge.damage("an empty file of a rank", case, lambda c: (c / "__9_0.distcp").write_bytes(b""))
    judge.damage(".metadata.tmp", case, lambda c: (c / ".metadata.tmp").write_bytes(b"x"), doubt="stale")
    judge.damage("old .metadata", case, lambda c: os.utime(c / ".metadata", (1e9, 1e9)), doubt="stale")

    # Numbers, with the CRC-32 that belongs to them.
    wide = next(b for n, b in parts if n.endswith("weight") and "model" in n and "output" not in n)
    place = (wide["begin"], wide["size_bytes"])
    judge.damage("NaN", case, lambda c: patch(c / wide["file"], *place, "data/0", 4, NAN), "nan")
    judge.damage("infinite", case, lambda c: patch(c / wide["file"], *place, "data/0", 4, INFINITE), "infinite")
    steps = [b for n, b in parts if n.endswith(".step")]
    if steps:
        first = (steps[0]["begin"], steps[0]["size_bytes"])
        judge.damage("steps", case,
                     lambda c: patch(c / steps[0]["file"], *first, "data/0", 0, struct.pack("<f", 7)), doubt="steps")

    # Metadata that does not fit.
    def infos(metadata):
        return list(metadata.storage_data.items())

    def taller(size):
        return Size((size[0] + 1, *size[1:]))

    def retype(c, types):
        (c / ".metadata").write_bytes((c / ".metadata").read_bytes().replace(b"float32", types))

    def chunk(metadata):
        return next(t for n, t in metadata.state_dict_metadata.items() if n == name).chunks
    for what, change, problem in (
        ("item further back", lambda m: setattr(infos(m)[1][1], "offset", infos(m)[1][1].offset + 1), "zip"),
        ("item longer", lambda m: setattr(infos(m)[0][1], "length", infos(m)[0][1].length + 9), "overlap"),
        ("item shorter", lambda m: setattr(infos(m)[0][1], "length", infos(m)[0][1].length - 9), "gap"),
        ("item beyond", lambda m: setattr(infos(m)[0][1], "length", 1 << 50), "cut-file"),
        ("item nowhere", lambda m: m.storage_data.pop(infos(m)[0][0]), "not-stored"),
        ("negative", lambda m: setattr(infos(m)[0][1], "offset", -1), "metadata"),
        ("path above", lambda m: setattr(infos(m)[0][1], "relative_path", "../" + infos(m)[0][1].relative_path), "path"),
        ("path elsewhere", lambda m: setattr(infos(m)[0][1], "relative_path", "/etc/passwd"), "path"),
        ("not described", lambda m: m.state_dict_metadata.pop(name), "metadata"),
        ("hole", lambda m: setattr(m.state_dict_metadata[name], "size", taller(m.state_dict_metadata[name].size)), "tiling"),
        ("outside", lambda m: setattr(chunk(m)[-1], "sizes", Size((99, *chunk(m)[-1].sizes[1:]))), "tiling"),
        ("shape", lambda m: setattr(chunk(m)[-1], "sizes", Size(reversed(chunk(m)[-1].sizes))), "shape"),
        ("giant shape", lambda m: setattr(m.state_dict_metadata[name], "size", Size([1 << 62] * 2)), "tiling"),
        ("chunk of another class", lambda m: setattr(m.state_dict_metadata[name].chunks[0], "__class__", type(m)), "metadata"),
        ("properties of another class", lambda m: setattr(m.state_dict_metadata[name].properties, "__class__", type(m)),
         "metadata"),
        ("place of another class", lambda m: setattr(infos(m)[0][1], "__class__", type(m)), "metadata"),
        ("unknown class", lambda m: m.state_dict_metadata.__setitem__(name, Named(os.system, ("touch executed",))), "metadata"),
    ):
        judge.damage(what, case, lambda c, change=change: edit(c / ".metadata", change), problem)
    judge.damage("as it was", case, lambda c: edit(c / ".metadata", lambda _: None))
    judge.damage("as torch 2.0 wrote it", case, lambda c: edit(c / ".metadata", as_torch_2_0))
    judge.damage("type", case, lambda c: retype(c, b"float64"), "type")
    judge.damage("unknown type", case, lambda c: retype(c, b"float99"), code=74, doubt="type")

    def packed(metadata):
        infos(metadata)[0][1].transform_descriptors = ["stream.zstd/1"]
    judge.damage("transform", case, lambda c: edit(c / ".metadata", packed), code=74, doubt="transform")
    judge.expect("nothing was run", not Path("executed").exists(), "executed")

    def linked(c):
        shutil.move(c / box["file"], c.parent / "elsewhere")
        (c / box["file"]).symlink_to(c.parent / "elsewhere")
    judge.damage("link to elsewhere", case, linked, "path")


def pair_damages(judge):
    """Files that are sound, and belong elsewhere."""
    def swap(c):
        (c / "__0_0.distcp").rename(c / "x")
        (c / "__1_0.distcp").rename(c / "__0_0.distcp")
        (c / "x").rename(c / "__1_0.distcp")
    for case in ("fsdp-2", "hsdp-4"):
        judge.damage("swapped files", case, swap, "zip")
    judge.damage("copied shard", "even-2", lambda c: shutil.copy(c / "__1_0.distcp", c / "__0_0.distcp"), "same-shards")
    other = judge.path("hsdp-4")
    judge.damage("metadata of another save", "fsdp-2", lambda c: shutil.copy(other / ".metadata", c), "missing-file")
    judge.damage("file of another save", "fsdp-2", lambda c: shutil.copy(other / "__0_0.distcp", c), "zip")


def file_damages(judge, case):
    judge.sound(case)
    size = judge.path(case).stat().st_size
    legacy = case.startswith("legacy")
    for length in (size // 3, size // 2, size - 1):
        judge.damage(f"cut to {length}", case, lambda c, n=length: os.truncate(c, n), "zip")
    if legacy:
        return judge.damage("longer", case, lambda c: open(c, "ab").write(b"x"), "zip")
    judge.damage("flip", case, lambda c: patch(c, 0, size, "data/0", 1, b"\x99\x77", False), "crc")
    judge.damage("NaN", case, lambda c: patch(c, 0, size, "data/0", 4, NAN), "nan")
    judge.damage("storage missing", case, lambda c: rewrite(c, lambda n, d: None if n.endswith("data/1") else d), "storage")
    judge.damage("storage shorter", case, lambda c: rewrite(c, lambda n, d: d[:-2] if n.endswith("data/0") else d), "storage")
    judge.damage("storage longer", case, lambda c: rewrite(c, lambda n, d: d + b"12" if n.endswith("data/0") else d), "storage")
    judge.damage("no pickle", case, lambda c: rewrite(c, lambda n, d: None if n.endswith("data.pkl") else d), "zip")
    judge.damage("big-endian", case,
                 lambda c: rewrite(c, lambda n, d: b"big" if n.endswith("byteorder") else d), code=74, doubt="byteorder")
    call = b"\x80\x02cos\nsystem\nX\x0e\x00\x00\x00touch executed\x85R."
    judge.damage("a pickle that would run a program", case,
                 lambda c: rewrite(c, lambda n, d: call if n.endswith("data.pkl") else d))
    judge.expect("nothing was run", not Path("executed").exists(), "executed")
    mask = struct.pack("<I", 0xFF800000) * 30 + bytes(48)
    judge.damage("a mask", case,
                 lambda c: rewrite(c, lambda n, d: mask[:len(d)] if n.endswith("data/0") else d), doubt="infinite")

    def without_crcs(c):
        data = bytearray(c.read_bytes())
        for magic, at in ((b"PK\1\2", 16), (b"PK\3\4", 14), (b"PK\7\x08", 4)):
            place = data.find(magic)
            while place >= 0:
                data[place + at:place + at + 4] = bytes(4)
                place = data.find(magic, place + 4)
        c.write_bytes(data)
    judge.damage("no checksums", case, without_crcs)
    deep = b"\x80\x02" + b"]" * 70 + b"a" * 69 + b"."
    judge.damage("deep pickle", case, lambda c: rewrite(c, lambda n, d: deep if n.endswith("data.pkl") else d), code=74,
                 doubt="pickle")
    bomb = b"\x80\x02]q\x00(K\x01K\x02e" + b"".join(b"]q%c(h%ch%ce" % (i, i - 1, i - 1) for i in range(1, 40)) + b"."
    judge.damage("memo bomb", case, lambda c: rewrite(c, lambda n, d: bomb if n.endswith("data.pkl") else d), code=74,
                 doubt="pickle")


def megatron_damages(judge, case):
    dcp_damages(judge, case)
    judge.damage("metadata.json missing", case, lambda c: (c / "metadata.json").unlink(), "unfinished")
    judge.damage("metadata.json cut", case, lambda c: os.truncate(c / "metadata.json", 9), "unfinished")
    judge.damage("another backend", case,
                 lambda c: (c / "metadata.json").write_text('{"sharded_backend": "zarr"}'), code=74, doubt="backend")
    judge.damage("common.pt missing", case, lambda c: (c / "common.pt").unlink(), "missing-file")
    judge.damage("common.pt cut", case, lambda c: os.truncate(c / "common.pt", 400), "zip")
    common = (judge.made / case / "iter_0000002/common.pt").stat().st_size
    judge.damage("flip in common.pt", case,
                 lambda c: patch(c / "common.pt", 0, common, "data.pkl", 9, b"\x00\xff", False), "zip")


def deepspeed_damages(judge, case):
    judge.sound(case)
    for path in sorted((judge.made / case / "global_step2").rglob("*.pt")):
        name, size = str(path.relative_to(judge.made / case / "global_step2")), path.stat().st_size
        judge.damage(f"{name} missing", case, lambda c, n=name: (c / n).unlink(), "missing-file")
        judge.damage(f"{name} cut", case, lambda c, n=name, s=size: os.truncate(c / n, s // 2), "zip")
        judge.damage(f"NaN in {name}", case, lambda c, n=name, s=size: patch(c / n, 0, s, "data/0", 4, NAN), "nan")
        judge.damage(f"flip in {name}", case,
                     lambda c, n=name, s=size: patch(c / n, 0, s, "data/0", 1, b"\x99\x77", False), "crc")


def differences(judge):
    """The same tensors in other layouts and formats are equal; others are told apart, each by its name."""
    path = judge.path

    def ask(a, b):
        code, out, err = judge.ask("diff", "--json", a, b)
        return code, json.loads(out) if out else err
    for a, b in (("even-2", "whole-2"), ("even-2", "megatron-2"), ("file-1", "legacy-1")):
        code, found = ask(path(a), path(b))
        judge.expect(f"diff {a} {b}",
                     code == 0 and found["equal"] and len(found["tensors"]) > 2 and not found["unmatched"], found)
    code, found = ask(path("fsdp-2"), path("hsdp-4"))
    differing = [t for t in found["tensors"] if t["differing"]]
    judge.expect("diff of two runs", code == 1 and differing and all(t["max_abs"] > 0 for t in differing), found)
    judge.expect("the same values", found["num_values"] >= 7 and not found["values"], found)
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "step-2"
        shutil.copytree(path("fsdp-2"), copy)
        places = {}
        edit(copy / ".metadata", lambda m: places.update({key.fqn: info for key, info in m.storage_data.items()}))
        place = places["step"]
        patch(copy / place.relative_path, place.offset, place.length, "data.pkl", 3, b"\x07")  # PROTO 2, BININT1
        code, found = ask(path("fsdp-2"), copy)
        judge.expect("diff of a value", code == 0 and found["equal"] and
                     found["values"] == [{"name": "step", "a": "2", "b": "7"}], found)
    code, found = ask(path("even-2"), path("fsdp-2"))
    judge.expect("diff of two models",
                 code == 1 and {"name": "model.0.weight", "a": "float32 [10, 4]", "b": ""} in found["unmatched"], found)
    shown = json.loads(judge.ask("show", "--json", path("even-2"))[1])
    last = shown["tensors"][0]["boxes"][-1]
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "step-2"
        shutil.copytree(path("even-2"), copy)
        patch(copy / last["file"], last["begin"], last["size_bytes"], "data/0", 4, struct.pack("<f", 1000))
        code, found = ask(path("even-2"), copy)
        rows = [(t["name"], t["differing"]) for t in found["tensors"] if t["differing"]]
        judge.expect("diff of one element", code == 1 and rows == [(shown["tensors"][0]["name"], 1)], found)
        (copy / ".metadata").unlink()
        judge.expect("diff of a save that was cut off", ask(path("even-2"), copy)[0] == 74, ask(path("even-2"), copy))
    judge.expect("diff with nothing", ask(path("even-2"), judge.made)[0] == 2, "")


def imports(judge):
    """A Llama in shards, under the names of transformers and of torchtitan, is the model that transformers saved."""
    made = judge.made / "llama"
    config = made / "hf/config.json"
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch)
        done = judge.ask("import", "-o", out / "hf", made / "hf")
        judge.expect("import hf", done[0] == 0, done)
        for name in ("fsdp", "titan"):
            done = judge.ask("import", "-o", out / name, "--config", config, made / name / "step-2")
            judge.expect(f"import {name}", done[0] == 0, done)
            done = judge.ask("diff", out / "hf", out / name)
            judge.expect(f"import {name}, the same weights", done[0] == 0, done)
        done = judge.ask("import", "-o", out / "x", made / "fsdp/step-2")
        judge.expect("import without a config.json", done[0] == 2 and "--config" in done[2], done)
        done = judge.ask("import", "-o", out / "x", "--config", config, judge.path("fsdp-2"))
        judge.expect("import of another model", done[0] == 2 and not (out / "x").exists(), done)
        for what, code, change in (("cut", 74, lambda c: os.truncate(c / "__1_0.distcp", 100)),
                                   ("unfinished", 74, lambda c: (c / ".metadata").unlink()),
                                   ("with another type than the metadata", 74, lambda c: (c / ".metadata").write_bytes(
                                       (c / ".metadata").read_bytes().replace(b"float32", b"float64")))):
            copy = out / "copy"
            shutil.copytree(made / "fsdp/step-2", copy)
            change(copy)
            done = judge.ask("import", "-o", out / "y", "--config", config, copy)
            judge.expect(f"import of one that is {what}", done[0] == code or what.startswith("with") and done[0] == 2, done)
            shutil.rmtree(copy)


def parts(judge):
    """A checkpoint of several directories, as accelerate writes it, is one: what is wrong with a part is wrong with it."""
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch)
        for step in (5, 10):
            for part in ("pytorch_model_fsdp_0", "optimizer_0"):
                shutil.copytree(judge.path("fsdp-2"), run / f"checkpoint-{step}" / part)
            shutil.copy(judge.path("file-1"), run / f"checkpoint-{step}/scheduler.pt")
        listed = json.loads(judge.ask("ls", "--json", run)[1])["checkpoints"]
        judge.expect("ls of parts", [(c["step"], c["format"], c["state"]) for c in listed] ==
                     [(5, "parts", "finished"), (10, "parts", "finished")], listed)
        names = {t["name"] for t in json.loads(judge.ask("show", "--json", run)[1])["tensors"]}
        judge.expect("show of parts", "optimizer_0.model.layers.0.wq.weight" in names, names)
        judge.expect("parts", judge.verdict(run)[:2] == (0, set()), judge.verdict(run))
        os.truncate(run / "checkpoint-10/scheduler.pt", 3000)
        judge.expect("parts, a file cut", judge.verdict(run / "checkpoint-10")[:2] == (1, {"zip"}), "")
        (run / "checkpoint-10/optimizer_0/.metadata").unlink()
        judge.expect("parts, one unfinished", "unfinished" in judge.verdict(run / "checkpoint-10")[1], "")
        good = judge.ask("verify", "--latest-good", run)[:2]
        judge.expect("latest-good of parts", good == (0, f"{run}/checkpoint-5\n"), good)
        os.truncate(run / "checkpoint-5/optimizer_0/__1_0.distcp", 3000)
        judge.expect("parts, one damaged", "cut-file" in judge.verdict(run / "checkpoint-5")[1], "")


def latest_good(judge):
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "a.log").write_text("x")
        judge.expect("latest-good of what is not known", judge.ask("verify", "--latest-good", scratch)[0] == 2, "")
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch)
        ask = lambda: judge.ask("verify", "--latest-good", run)[:2]  # noqa: E731
        judge.expect("latest-good of nothing", ask() == (0, ""), ask())
        judge.expect("latest-good of no directory", judge.ask("verify", "--latest-good", run / "absent")[:2] == (0, ""), "")
        source = judge.path("fsdp-2")
        for step in (9, 10, 100):  # by number, not by name
            shutil.copytree(source, run / f"step-{step}")
        like_ours = run / "other/step-00000100"  # the name alone makes it none of ms-train
        shutil.copytree(source, like_ours)
        for asked in (like_ours, like_ours.parent):
            answer = judge.ask("verify", "--latest-good", asked)[:2]
            judge.expect("latest-good of a name like ours", answer == (0, f"{like_ours}\n"), answer)
        shutil.rmtree(like_ours.parent)
        judge.expect("latest-good", ask() == (0, f"{run}/step-100\n"), ask())
        (run / "step-100/.metadata").unlink()
        judge.expect("latest-good, newest cut off", ask() == (0, f"{run}/step-10\n"), ask())
        os.truncate(run / "step-10/__1_0.distcp", 40000)
        judge.expect("latest-good, second damaged", ask() == (0, f"{run}/step-9\n"), ask())
        (run / "step-9/__0_0.distcp").unlink()
        judge.expect("latest-good, none", ask() == (1, ""), ask())
        states = [c["state"] for c in json.loads(judge.ask("ls", "--json", run)[1])["checkpoints"]]
        judge.expect("ls, unfinished", states == ["finished", "finished", "unfinished"], states)


def main():
    judge = Judge(str(Path(sys.argv[1]).resolve()), Path(sys.argv[2]).resolve())
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        for case in sorted(p.name for p in judge.made.iterdir() if p.is_dir() and p.name != "llama"):
            if case.startswith("deepspeed"):
                deepspeed_damages(judge, case)
            elif case.startswith("megatron"):
                megatron_damages(judge, case)
            elif case.startswith(("file", "legacy", "whole")):
                file_damages(judge, case)
            else:
                dcp_damages(judge, case)
        pair_damages(judge)
        differences(judge)
        imports(judge)
        parts(judge)
        latest_good(judge)
        os.chdir("/")
    print(f"{judge.count} verdicts, {judge.wrong} wrong")
    return judge.wrong > 0


if __name__ == "__main__":
    sys.exit(main())
