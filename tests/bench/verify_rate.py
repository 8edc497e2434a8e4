#!/usr/bin/env python3
"""How fast `ms-ckpt verify` reads a file of torch.save, beside dd, in turns, with the file out of the page cache.

verify_rate.py MS_CKPT [DIR [GB [ROUNDS]]]     DIR is on the disk to measure; 8 GB of bfloat16, 5 rounds

Prints the medians, their ratio, the processor time of verify for each gigabyte, and its memory. Writes the file without torch.
"""
import io
import os
import pickle
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import OrderedDict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "pytorch"))
from checkpoint_edits import Named, stubs

TENSORS = 16


class Storage(tuple):
    pass


class Pickler(pickle.Pickler):
    def persistent_id(self, obj):
        return tuple(obj) if isinstance(obj, Storage) else None


def write(path, size_bytes):
    stubs([("torch", "BFloat16Storage"), ("torch._utils", "_rebuild_tensor_v2")])
    torch, utils = sys.modules["torch"], sys.modules["torch._utils"]
    elements = size_bytes // TENSORS // 2
    block = 1 << 24
    finite = int.from_bytes(os.urandom(block), "little") & int.from_bytes(b"\xff\xbf" * (block // 2), "little")
    values = finite.to_bytes(block, "little")
    tensors = {f"layers.{i}.weight": Named(utils._rebuild_tensor_v2, (
        Storage(("storage", torch.BFloat16Storage, str(i), "cpu", elements)), 0, (elements,), (1,), False, OrderedDict()))
        for i in range(TENSORS)}
    pickled = io.BytesIO()
    Pickler(pickled, 2).dump(tensors)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickled.getvalue())
        for i in range(TENSORS):
            with archive.open(zipfile.ZipInfo(f"archive/data/{i}"), "w", force_zip64=True) as member:
                for begin in range(0, 2 * elements, block):
                    member.write(values[:min(block, 2 * elements - begin)])


def timed(path, *command):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    ckpt, rounds = sys.argv[1], int(sys.argv[4]) if len(sys.argv) > 4 else 5
    gigabytes = float(sys.argv[3]) if len(sys.argv) > 3 else 8
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as scratch:
        path = Path(scratch) / "step-1.pt"
        write(path, int(gigabytes * 1e9))
        dd, verify = [], []
        for _ in range(rounds):
            dd.append(timed(path, "dd", f"if={path}", "of=/dev/null", "bs=1M"))
            verify.append(timed(path, ckpt, "verify", str(path)))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    of_dd, of_verify = (statistics.median(seconds for seconds, _ in rows) for rows in (dd, verify))
    processor = statistics.median(seconds for _, seconds in verify)
    print(f"{gigabytes:g} GB, {rounds} rounds, medians: dd {gigabytes / of_dd:.2f} GB/s, verify {gigabytes / of_verify:.2f} GB/s, "
          f"{100 * of_dd / of_verify:.0f} % of dd; {processor / gigabytes:.2f} s of processor a GB, {peak / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
