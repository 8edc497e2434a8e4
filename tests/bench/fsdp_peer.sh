#!/usr/bin/env bash
# optim.zero = 3 beside FSDP2 of PyTorch over gloo: the gpt-124m shape in fp32 (batch 4 x 512) on 2 processes of a thread
# each, in turns: tokens/s.
# usage: tests/bench/fsdp_peer.sh [STEPS [ROUNDS]]: 2 steps a turn, 3 rounds.
# PYTHON is one that has torch; where it is not set, a virtual environment is made in build/peer.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${BUILD:-build/release}
python=${PYTHON:-}
if [[ -z $python ]]; then
  python=build/peer/bin/python
  if [[ ! -x $python ]]; then
    python3 -m venv build/peer
    build/peer/bin/pip install --quiet torch transformers
  fi
fi
work=$(mktemp -d -p "$build" fsdp-peer.XXXXXX)
trap 'rm -rf "$work"' EXIT
cmake --build "$build" --target ms-train ms-data >/dev/null
head -c 3000000 /dev/urandom | base64 -w 0 >"$work/noise"
"$build/bin/ms-data" encode --tokenizer byte --output "$work/text" "$work/noise" >/dev/null 2>&1

cat >"$work/peer.py" <<'PY'
import json, sys, time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

from torch_gpt import SEQ, Model

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = Model(tied=False)
for block in model.blocks:
    fully_shard(block)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1)
batch = torch.randint(0, 256, (2, 4 // world, SEQ))


def step():
    loss = model(batch[0], batch[1])
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def turn(steps):
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - begin) / steps


step()
counts = torch.zeros(1, dtype=torch.int64)
if rank == 0:
    print(json.dumps({"version": torch.__version__}), flush=True)
while True:
    if rank == 0:
        counts[0] = int(sys.stdin.readline() or 0)
    dist.broadcast(counts, 0)
    if counts[0] == 0:
        break
    seconds = turn(int(counts[0]))
    if rank == 0:
        print(json.dumps(seconds), flush=True)
dist.destroy_process_group()
PY

export PYTHONPATH=$PWD/tests/bench OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
"$python" - "$build/bin" "$work" "$python" "${1:-2}" "${2:-3}" <<'PY'
import json, os, statistics, subprocess, sys

bin, work, python, steps, rounds = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])
TOKENS, RANKS, WARM = 4 * 512, 2, 2
processor = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))


def ours(zero):
    run = f"{work}/run"
    subprocess.run(["rm", "-rf", run], check=True)
    settings = {"mesh.dp": RANKS, "train.microbatch": 4 // RANKS, "train.dtype": "fp32", "optim.zero": zero,
                "optim.warmup_steps": 0, "model.tied_embeddings": "false", "run.cpu_threads": 1, "run.dir": run,
                "data.train": f"{work}/text", "train.steps": WARM + steps, "train.eval_every": 0}
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    subprocess.run(["mpirun", "-np", str(RANKS), "--oversubscribe", f"{bin}/ms-train", "run", "configs/gpt-124m.toml",
                    *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    rows = [json.loads(line) for line in open(f"{run}/metrics.jsonl")][WARM:]
    return statistics.mean(row["step_s"] for row in rows)


peer = subprocess.Popen([python, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), "--master-port", "0",
                         "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", f"{work}/peer.py"],
                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                        env=os.environ | {"OMP_NUM_THREADS": "1"})
version = json.loads(peer.stdout.readline())["version"]


def theirs():
    peer.stdin.write(f"{steps}\n")
    peer.stdin.flush()
    return json.loads(peer.stdout.readline())


kinds = {"ms, zero 3": lambda: ours(3), "ms, zero 2": lambda: ours(2), "FSDP2": theirs}
seen = {name: [] for name in kinds}
for _ in range(rounds):
    for name, turn in kinds.items():
        seen[name].append(turn())
peer.stdin.close()
peer.wait()
print(f"{processor}: fp32, {RANKS} processes of a thread, {rounds} rounds of {steps} steps, medians; torch {version}; "
      f"load {os.getloadavg()[0]:.1f}")
for name, turns in seen.items():
    ratio = statistics.median(turn / mine for turn, mine in zip(turns, seen["ms, zero 3"]))
    print(f"{name:<12}{TOKENS / statistics.median(turns):>8.0f} tokens/s, zero 3 is "
          f"{ratio:.2f} x as fast")
PY
