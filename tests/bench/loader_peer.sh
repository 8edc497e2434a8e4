#!/usr/bin/env bash
# The loader of a node beside Megatron-LM's in each rank, with its two workers: dp 8, 100 sources, batches of 64 x 4096 tokens.
# Memory and open files of all processes over those of ranks that load nothing, and tokens/s when ranks only read.
# Nothing else may run on the machine, and the temporary directory (TMPDIR) has 300 MB.   usage: tests/bench/loader_peer.sh
# PYTHON is one that has torch and megatron-core; where it is not set, a virtual environment is made in build/peer.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${BUILD:-build/release}
python=${PYTHON:-build/peer/bin/python}
if [[ -z ${PYTHON:-} ]] && ! "$python" -c 'import torch, megatron.core' 2>/dev/null; then
  python3 -m venv build/peer
  build/peer/bin/pip install --quiet torch numpy megatron-core
fi
cmake --build "$build" --target node_loader >/dev/null
"$build/bin/node_loader" | tee /dev/stderr | "$python" -W ignore -B -c "$(cat <<'PY'
import gc, mmap, os, re, struct, sys, tempfile, time

import numpy
import torch
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

RANKS, SOURCES, SEQ, BATCH, VOCAB, TOKENS, DOCUMENT = 8, 100, 4096, 64, 32000, 400_000, 200
STEPS, WORKERS = 60, 2  # Megatron-LM's --num-workers
ROWS = BATCH // RANKS


class Tokenizer:  # of which data sets ask this much
    vocab_size, eod, pad = VOCAB, 0, -1
    unique_identifiers = {"class": "none"}


def write_sources(place):
    for source in range(SOURCES):
        builder = IndexedDatasetBuilder(f"{place}/s{source}.bin", numpy.uint16)
        tokens = numpy.random.default_rng(source).integers(1, VOCAB, TOKENS, dtype=numpy.uint16)
        for document in numpy.split(tokens, TOKENS // DOCUMENT):
            builder.add_document(document, [DOCUMENT])
        builder.finalize(f"{place}/s{source}.idx")


def open_sources(place):
    weights = [1 + source % 7 + 0.137 * source for source in range(SOURCES)]
    config = GPTDatasetConfig(random_seed=1, sequence_length=SEQ, split="1,0,0", path_to_cache=place + "/cache",
                              blend=([f"{place}/s{source}" for source in range(SOURCES)], weights), tokenizer=Tokenizer(),
                              reset_position_ids=False, reset_attention_mask=False, eod_mask_loss=False,
                              create_attention_mask=False)
    sizes = [STEPS * BATCH, 0, 0]
    return BlendedMegatronDatasetBuilder(GPTDataset, sizes, lambda: True, config).build()[0]


def batches(rank):
    return [range(step * BATCH + rank * ROWS, step * BATCH + (rank + 1) * ROWS) for step in range(STEPS)]


def join_group(place):  # data sets ask for it: one of this process alone
    torch.distributed.init_process_group("gloo", init_method=f"file://{place}/group-{os.getpid()}", rank=0, world_size=1)


def be_rank(rank, place, board, loads):
    seconds = 0.0
    join_group(place)
    if loads:
        loader = torch.utils.data.DataLoader(open_sources(place), batch_sampler=batches(rank), num_workers=WORKERS,
                                             persistent_workers=True)
        for step, batch in enumerate(loader):
            assert batch["tokens"].shape == (ROWS, SEQ)
            if step == 0:  # waits for the workers to start
                start = time.perf_counter()
        seconds = time.perf_counter() - start
    struct.pack_into("d", board, 8 * (rank + 1), seconds)
    board[RANKS * 8 + 8 + rank] = 1
    while not board[0]:
        time.sleep(0.01)
    os._exit(0)


def add_process(process, sums, inherited=frozenset()):  # open files of what was mapped before the fork are the parent's
    with open(f"/proc/{process}/smaps_rollup") as file:
        for key, kb in re.findall(r"^Pss_(Anon|Shmem):\s+(\d+)", file.read(), re.M):
            sums[key] += int(kb) / 1024
    with open(f"/proc/{process}/maps") as file:
        mapped = set(re.findall(r"^.*\.(?:idx|bin|npy)$", file.read(), re.M))
        sums["open"] += len(mapped - inherited)
    with open(f"/proc/{process}/task/{process}/children") as file:
        for child in file.read().split():
            add_process(child, sums, mapped)


def measure(place, loads):
    board = mmap.mmap(-1, 4096)  # ranks are done: bytes behind their seconds; the first byte: all may end
    gc.freeze()  # collecting would make copies of what ranks share
    ranks = []
    for rank in range(RANKS):
        process = os.fork()
        if process == 0:
            try:
                be_rank(rank, place, board, loads)
            finally:
                os._exit(1)
        ranks.append(process)
    while sum(board[RANKS * 8 + 8:RANKS * 9 + 8]) < RANKS:
        time.sleep(0.05)
        if os.waitpid(-1, os.WNOHANG)[0] > 0:
            sys.exit("a rank has ended")
    sums = {"Anon": 0.0, "Shmem": 0.0, "open": 0}
    for process in ranks:
        add_process(process, sums)
    board[0] = 1
    for process in ranks:
        os.waitpid(process, 0)
    return sums, max(struct.unpack_from(f"{RANKS}d", board, 8))


ours = re.search(r"dp 8 +node +([\d.]+) MB +([\d.]+) MB +[\d.]+ MB +(\d+) +([\d.]+) M", sys.stdin.read())
torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as place:
    write_sources(place)
    if os.fork() == 0:  # the first rank builds the indexes; that is not measured
        join_group(place)
        open_sources(place)
        os._exit(0)
    os.wait()
    without, _ = measure(place, False)
    theirs, seconds = measure(place, True)
anon, shared = theirs["Anon"] - without["Anon"], theirs["Shmem"] - without["Shmem"]
rate = (STEPS - 1) * BATCH * SEQ / seconds / 1e6
print(f"{'dp 8':12} {'Megatron':10} {anon:6.1f} MB {shared:6.1f} MB {'':>9} {theirs['open']:>8} {rate:8.1f} M")
own = float(ours[1]) + float(ours[2])
print(f"{'dp 8':12} {'ratio':10} memory {(anon + shared) / own:.1f}x less, open files {theirs['open'] / int(ours[3]):.1f}x "
      f"less, tokens/s {float(ours[4]) / rate:.1f}x")
PY
)"
