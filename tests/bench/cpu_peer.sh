#!/usr/bin/env bash
# PyTorch on the CPU (eager and torch.compile) and ours, training the gpt-124m shape (batch 4 x 512) in turns, in one go
# and with the same threads: tokens/s, CPU seconds a step (which other load disturbs less), the share of what the GEMMs
# reach alone, where our time goes, start-up and memory. On a processor with AMX, ours also without it.
# With MODEL=moe, the mixture of experts of configs/moe-small.toml beside Qwen3MoeForCausalLM of transformers, whose
# experts are grouped matmuls; without the GEMMs alone.
# usage: tests/bench/cpu_peer.sh [STEPS [ROUNDS [THREADS [DTYPES]]]]: 4 steps a turn, 3 rounds, 2 threads, "bf16 fp32".
# PYTHON is one that has torch and transformers; where it is not set, a virtual environment is made in build/peer.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${BUILD:-build/release}
model=${MODEL:-gpt}
python=${PYTHON:-}
if [[ -z $python ]]; then
  python=build/peer/bin/python
  if [[ ! -x $python ]]; then
    python3 -m venv build/peer
    build/peer/bin/pip install --quiet torch transformers
  fi
fi
work=$(mktemp -d -p "$build" cpu-peer.XXXXXX)
trap 'rm -rf "$work"' EXIT
export PYTHONPATH=$PWD/tests/bench
cmake --build "$build" --target ms-train ms-data ops_bench >/dev/null
# Random text is enough: speed does not depend on what the tokens say.
head -c 3000000 /dev/urandom | base64 -w 0 >"$work/noise"
"$build/bin/ms-data" encode --tokenizer byte --output "$work/text" "$work/noise" >/dev/null 2>&1

# The peer: makes the model and takes one step, then takes as many as each line of its standard input says.
cat >"$work/peer.py" <<'PY'
import json, resource, sys, time

import torch
import torch.nn.functional as F
from torch import nn

from torch_gpt import HIDDEN, SEQ, VOCAB, Model

dtype, mode, threads, family = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
torch.set_num_threads(threads)
BATCH = 4


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM
        self.model = Qwen3MoeForCausalLM(Qwen3MoeConfig(
            vocab_size=32000, hidden_size=512, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=4,
            head_dim=64, num_experts=16, num_experts_per_tok=2, moe_intermediate_size=768, norm_topk_prob=True,
            output_router_logits=True, router_aux_loss_coef=0.01, tie_word_embeddings=False, use_cache=False,
            max_position_embeddings=SEQ))

    def forward(self, tokens, targets):
        return self.model(tokens, labels=targets).loss


def gemms():
    """The best of three of every product of a step: seconds and CPU seconds by name."""
    rows, found = BATCH * SEQ, {}
    shapes = {"qkv": (3 * HIDDEN, HIDDEN), "out": (HIDDEN, HIDDEN), "up": (4 * HIDDEN, HIDDEN),
              "down": (HIDDEN, 4 * HIDDEN), "head": (VOCAB, HIDDEN)}
    kind = torch.bfloat16 if dtype == "bf16" else torch.float32
    for name, (n, k) in shapes.items():
        x, w, dy = (torch.randn(shape).to(kind) for shape in ((rows, k), (n, k), (rows, n)))
        for part, run in (("fwd", lambda: F.linear(x, w)), ("dx", lambda: dy @ w), ("dw", lambda: dy.t() @ x)):
            run()
            times = []
            for _ in range(3):
                wall, cpu = time.perf_counter(), time.process_time()
                run()
                times.append((time.perf_counter() - wall, time.process_time() - cpu))
            found[f"{name}_{part}"] = [min(column) for column in zip(*times)]
    return found


if mode == "gemms":
    print(json.dumps(gemms()))
    sys.exit()
model = Experts() if family == "moe" else Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
run = torch.compile(model) if mode == "compile" else model
batch = torch.randint(0, 256, (2, BATCH, SEQ))


def step():
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16"):
        loss = run(batch[0], batch[1])
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


step()
print(json.dumps({"version": torch.__version__}), flush=True)
for line in sys.stdin:
    steps = int(line)
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"wall": (time.perf_counter() - wall) / steps, "cpu": (time.process_time() - cpu) / steps,
                      "peak": peak}), flush=True)
PY

taskset -c "0-$((${3:-2} - 1))" "$python" - "$build/bin" "$work" "$python" "${1:-4}" "${2:-3}" "${3:-2}" "${4:-bf16 fp32}" \
  "$model" <<'PY'
import json, os, resource, statistics, subprocess, sys, time

bin, work, python, steps, rounds, threads, dtypes, family = sys.argv[1:9]
config = {"gpt": "configs/gpt-124m.toml", "moe": "configs/moe-small.toml"}[family]
steps, rounds, tokens = int(steps), int(rounds), 4 * 512
warm = 2  # our first steps make primitives and touch pages


plan = subprocess.run([f"{bin}/ms-train", "plan", config, "--json"], check=True, capture_output=True).stdout
isa = json.loads(plan)["instruction_set"]
processor = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))


def ours(dtype, limit=None):
    run = f"{work}/run"
    subprocess.run(["rm", "-rf", run], check=True)
    start = time.perf_counter()
    process = subprocess.Popen(
        [f"{bin}/ms-train", "run", config, "--set", f"data.train={work}/text", "--set",
         f"train.dtype={dtype}", "--set", f"train.steps={warm + steps}", "--set", "train.eval_every=0", "--set",
         "optim.warmup_steps=0", "--set", f"run.dir={run}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=os.environ | ({"ONEDNN_MAX_CPU_ISA": limit} if limit else {}))

    def lines():
        try:
            return open(f"{run}/metrics.jsonl").read().splitlines()
        except FileNotFoundError:
            return []

    def cpu():  # seconds of the process so far
        words = open(f"/proc/{process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def until(count):
        while len(lines()) < count:
            assert process.poll() is None, "ms-train has ended early"
            time.sleep(0.01)
        return time.perf_counter() - start

    first = until(1)
    until(warm)
    at = cpu()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    assert status == 0, "ms-train has failed"
    rows = [json.loads(line) for line in lines()][warm:]
    classes = {}
    for row in rows:
        for name, value in row["seconds"].items():
            classes[name] = classes.get(name, 0) + value / len(rows)
    return {"wall": sum(row["step_s"] for row in rows) / len(rows), "peak": usage.ru_maxrss * 1024, "first": first,
            "cpu": (usage.ru_utime + usage.ru_stime - at) / steps, "classes": classes}


class Peer:
    def __init__(self, dtype, mode):
        start = time.perf_counter()
        self.process = subprocess.Popen([python, f"{work}/peer.py", dtype, mode, threads, family], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.version = json.loads(self.process.stdout.readline())["version"]
        self.first = time.perf_counter() - start

    def __call__(self):
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline()) | {"first": self.first}

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def gemms(dtype):
    """Seconds of all GEMMs of a step, alone: ours, PyTorch's, and the better of each."""
    kind = {"bf16": 1, "fp32": 0}[dtype]
    listing = subprocess.run(
        [f"{bin}/ops_bench", f"--benchmark_filter=product/.*bf16:{kind}/threads:{threads}/", "--benchmark_format=json",
         "--benchmark_min_time=0.01", "--benchmark_repetitions=3"], check=True, capture_output=True).stdout
    mine = {}
    for row in json.loads(listing)["benchmarks"]:
        if row["run_type"] == "iteration":
            times = (row["real_time"] * 1e-9, row["cpu_time"] * 1e-9)
            name = row["name"].split("/")[1]
            mine[name] = [min(pair) for pair in zip(mine.get(name, times), times)]
    theirs = json.loads(subprocess.run([python, f"{work}/peer.py", dtype, "gemms", threads, family], check=True,
                                       capture_output=True).stdout)
    assert mine.keys() == theirs.keys(), "not the same gemms"

    def total(choose):
        return [sum((1 if name.startswith("head") else 12) * choose(name)[i] for name in mine) for i in (0, 1)]

    return {"ours": total(mine.get), "PyTorch": total(theirs.get),
            "the better of each": total(lambda name: [min(pair) for pair in zip(mine[name], theirs[name])])}


for dtype in dtypes.split():
    peers = {"PyTorch eager": Peer(dtype, "eager"), "PyTorch compile": Peer(dtype, "compile")}
    kinds = {"ms": lambda: ours(dtype)} | peers
    if isa == "amx-bf16":
        kinds["ms without AMX"] = lambda: ours(dtype, "AVX512_CORE_BF16")
    seen = {name: [] for name in kinds}
    for _ in range(rounds):
        for name, turn in kinds.items():
            seen[name].append(turn())
    for peer in peers.values():
        peer.end()
    alone = gemms(dtype) if family == "gpt" else {}

    def median(name, what):
        return statistics.median(turn[what] for turn in seen[name])

    print(f"\n{processor}, {isa}: {dtype}, {threads} threads, {rounds} rounds of {steps} steps, medians; "
          f"torch {peers['PyTorch eager'].version}; load {os.getloadavg()[0]:.1f}")
    print(f"{'':<18}{'tokens/s':>10}{'CPU s/step':>12}{'ms is faster':>14}{'by CPU':>9}{'first step':>12}{'memory':>10}")
    for name in kinds:
        ratios = [statistics.median(turn[what] / mine[what] for turn, mine in zip(seen[name], seen["ms"]))
                  for what in ("wall", "cpu")]
        print(f"{name:<18}{tokens / median(name, 'wall'):>10.0f}{median(name, 'cpu'):>12.2f}{ratios[0]:>13.2f}x"
              f"{ratios[1]:>8.2f}x{seen[name][0]['first']:>10.1f} s{median(name, 'peak') / 1e9:>7.2f} GB")
    for name, (wall, cpu) in alone.items():
        print(f"GEMMs alone, {name}: {tokens / wall:.0f} tokens/s, {cpu:.2f} CPU s; ms reaches "
              f"{100 * wall / median('ms', 'wall'):.0f} %, by CPU {100 * cpu / median('ms', 'cpu'):.0f} %")
    step = median("ms", "wall")
    classes = {name: statistics.median(turn["classes"][name] for turn in seen["ms"]) for name in seen["ms"][0]["classes"]}
    classes["other"] = step - sum(classes.values())
    print("a step of ms: " + ", ".join(f"{name} {100 * value / step:.1f} %" for name, value in
                                       sorted(classes.items(), key=lambda item: -item[1]) if value / step > 5e-4))
PY
