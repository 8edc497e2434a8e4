#!/usr/bin/env bash
# PyTorch's distributed checkpoint (DCP, async_save) and ours on the same tensors, in turns on the same idle machine and
# disk: how long training would stall, and how long it takes until the checkpoint is on the disk.
# usage: tests/bench/dcp_peer.sh [DIR [LAYERS [ROUNDS]]]: DIR is on the disk to measure; 16 layers are 2.1 GB of state.
# PYTHON is one that has torch; where it is not set, a virtual environment is made in build/dcp (pip install torch).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${BUILD:-build/release}
python=${PYTHON:-}
if [[ -z $python ]]; then
  python=build/dcp/bin/python
  if [[ ! -x $python ]]; then
    python3 -m venv build/dcp
    build/dcp/bin/pip install --quiet torch
  fi
fi
work=$(mktemp -d -p "${1:-$build}" dcp-peer.XXXXXX)
trap 'rm -rf "$work"' EXIT
cmake --build "$build" --target checkpoint_cost >/dev/null
"$python" - "$build/bin/checkpoint_cost" "$work" "${2:-16}" "${3:-5}" <<'PY'
import os, shutil, statistics, subprocess, sys, time, warnings

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

warnings.filterwarnings("ignore")
program, work, layers, rounds = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
ours = subprocess.Popen([program, "--serve", f"{work}/ours", layers], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
state = {}
while (line := ours.stdout.readline().split()):
    dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[line[0]]
    state[f"piece{len(state)}"] = torch.randn(int(line[1])).to(dtype)
size = sum(t.numel() * t.element_size() for t in state.values())


def save_ours():
    ours.stdin.write("save\n")
    ours.stdin.flush()
    return tuple(float(word) for word in ours.stdout.readline().split())


# The stager keeps its copy from save to save; without one, async_save makes a new copy every time.
stager = DefaultStager(StagingOptions(use_pinned_memory=False, use_shared_memory=False, use_async_staging=False,
                                      use_non_blocking_copy=False))


def save_dcp(**options):
    path = f"{work}/dcp"
    start = time.perf_counter()
    future = dcp.async_save(state, storage_writer=dcp.FileSystemWriter(path), no_dist=True, **options)
    stall = time.perf_counter() - start  # the tensors may be changed now
    getattr(future, "upload_completion", future).result()
    total = time.perf_counter() - start
    shutil.rmtree(path)
    return stall, total


def copy():
    start = time.perf_counter()
    for name, tensor in state.items():
        into[name].copy_(tensor)
    return time.perf_counter() - start, 0


def dd():
    start = time.perf_counter()
    subprocess.run(["dd", "if=/dev/zero", f"of={work}/dd", "bs=16M", "iflag=count_bytes", f"count={size}", "conv=fsync",
                    "status=none"], check=True)
    total = time.perf_counter() - start
    os.unlink(f"{work}/dd")
    return 0, total


into = {name: tensor.clone() for name, tensor in state.items()}
kinds = {"copy in memory": copy, "dd conv=fsync": dd, "ms": save_ours, "DCP async_save": save_dcp,
         "DCP async_save, kept copy": lambda: save_dcp(async_stager=stager)}
seen = {name: [] for name in kinds}
for round in range(rounds + 1):
    for name, save in kinds.items():
        times = save()
        if round > 0:  # the first touches memory and makes files
            seen[name].append(times)
ours.stdin.close()
ours.wait()
print(f"{size / 1e9:.2f} GB in {len(state)} tensors, torch {torch.__version__}, {rounds} rounds, medians\n")
print(f"{'':<28} {'stall':>9} {'total':>9}")
for name, times in seen.items():
    stall, total = (statistics.median(column) for column in zip(*times))
    print(f"{name:<28} {f'{stall:7.3f} s' if stall else '':>9} {f'{total:7.2f} s' if total else '':>9}")
PY
