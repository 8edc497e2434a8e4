#!/usr/bin/env python3
"""Tokens/s on a machine that computes other things too: ms-train and PyTorch with one and two threads, alone and beside
2, 4 and 6 busy processes, in turns. Fails if ms-train with two threads falls below half of its rate with one: threads that
spin while they wait take the time of those that they wait for.

usage: tests/bench/loaded.py [BUILD [--rounds N] [--seconds S] [--loads 0,2,4,6] [--python PYTHON]]
PYTHON has torch; without it only ms-train is measured. A round of all takes 16 turns of S seconds and their starts.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BATCH, SEQ, HIDDEN, HEADS, LAYERS, VOCAB = 8, 128, 256, 4, 4, 257
WARM = 3  # steps that are not counted
THREADS = (1, 2)
PEER = r"""
import json, sys, time
import torch
import torch.nn.functional as F
from torch import nn

threads, seconds, batch, seq, hidden, heads, layers, vocab, warm = (float(word) for word in sys.argv[1:])
batch, seq, hidden, heads, layers, vocab, warm = (int(n) for n in (batch, seq, hidden, heads, layers, vocab, warm))
torch.set_num_threads(int(threads))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        parts = (part.view(batch, seq, heads, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(hidden, 2))
        attention = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(attention.transpose(1, 2).reshape(batch, seq, hidden))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


tokens, positions = nn.Embedding(vocab, hidden), nn.Embedding(seq, hidden)
model = nn.ModuleList([tokens, positions, *(Block() for _ in range(layers)), nn.LayerNorm(hidden)])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
data = torch.randint(0, vocab, (2, batch, seq))
times = []
counted = end = None
began = time.perf_counter()
while end is None or time.perf_counter() < end:
    start = time.perf_counter()
    x = tokens(data[0]) + positions.weight
    for layer in model[2:]:
        x = layer(x)
    F.cross_entropy((x @ tokens.weight.t()).view(-1, vocab), data[1].view(-1)).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    times.append(time.perf_counter() - start)
    now = time.perf_counter()
    if end is None and (len(times) == warm or now - began > seconds):  # a step may take a minute
        counted, end = len(times), now + seconds
print(json.dumps(times[counted:] or times[-1:]))
"""


@contextlib.contextmanager
def load(processes):
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


class Bench:
    def __init__(self, work, arguments):
        self.work, self.arguments = work, arguments
        self.bin = pathlib.Path(arguments.build, "bin").resolve()
        text = work / "text"
        text.write_bytes(bytes(32 + byte % 90 for byte in os.urandom(400_000)))
        subprocess.run([self.bin / "ms-data", "encode", "--tokenizer", "byte", "--output", text, text], check=True,
                       capture_output=True)

    def ms(self, threads):
        """Seconds of the steps of a turn. A file in the run directory ends the run."""
        run = pathlib.Path(tempfile.mkdtemp(dir=self.work))
        settings = {"model.layers": LAYERS, "model.hidden": HIDDEN, "model.heads": HEADS, "model.vocab": VOCAB, "model.seq": SEQ,
                    "train.global_batch": BATCH, "train.microbatch": BATCH, "train.dtype": "fp32", "train.steps": 1_000_000,
                    "train.eval_every": 0, "optim.warmup_steps": 0, "data.train": self.work / "text", "checkpoint.dir": "",
                    "run.dir": run, "run.cpu_threads": threads}
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        with subprocess.Popen([self.bin / "ms-train", "run", ROOT / "configs/gpt-124m.toml", *words], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True) as process:
            def steps():
                with contextlib.suppress(FileNotFoundError):
                    lines = (run / "metrics.jsonl").read_text(encoding="ascii").splitlines()
                    return [json.loads(line)["step_s"] for line in lines if line.endswith("}")]
                return []

            while len(steps()) < WARM and process.poll() is None:
                time.sleep(0.05)
            time.sleep(self.arguments.seconds)
            (run / "stop").touch()
            errors = process.communicate(timeout=600)[1]
        found = steps()[WARM:]
        if not found:
            sys.exit(f"ms-train has made no steps:\n{errors}")
        return found

    def torch(self, threads):
        words = [threads, self.arguments.seconds, BATCH, SEQ, HIDDEN, HEADS, LAYERS, VOCAB, WARM]
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_", "KMP_"))}
        return json.loads(subprocess.run([self.arguments.python, "-c", PEER, *map(str, words)], check=True, capture_output=True,
                                         text=True, env=environment).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default="build/release")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--loads", default="0,2,4,6")
    parser.add_argument("--python", default="")
    arguments = parser.parse_args()
    loads = [int(word) for word in arguments.loads.split(",")]
    rates = {}
    with tempfile.TemporaryDirectory() as work:
        bench = Bench(pathlib.Path(work), arguments)
        programs = {"ms-train": bench.ms} | ({"PyTorch": bench.torch} if arguments.python else {})
        for _ in range(arguments.rounds):
            for busy in loads:
                with load(busy):
                    for threads in THREADS:
                        for name, turn in programs.items():
                            times = turn(threads)
                            rates.setdefault((busy, name, threads), []).append(BATCH * SEQ * len(times) / sum(times))
    found = {key: statistics.median(values) for key, values in rates.items()}
    columns = [(name, threads) for name in programs for threads in THREADS]
    print(f"tokens/s on {len(os.sched_getaffinity(0))} cores, medians of {arguments.rounds} turns of {arguments.seconds:g} s")
    print(f"{'busy processes':<16}" + "".join(f"{f'{name}, {threads}':>14}" for name, threads in columns))
    for busy in loads:
        print(f"{busy:<16}" + "".join(f"{found[busy, name, threads]:>14.0f}" for name, threads in columns))
    for busy in loads:
        if found[busy, "ms-train", 2] < found[busy, "ms-train", 1] / 2:
            sys.exit(f"beside {busy} busy processes, two threads of ms-train reach less than half of what one does")


if __name__ == "__main__":
    main()
