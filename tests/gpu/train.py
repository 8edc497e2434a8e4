#!/usr/bin/env python3
"""Trains on a GPU and says how fast: tokens/s, MFU by every convention, where the rest of the time goes, a layer's own
share, with attention deterministic and free, with operations timed and not, beside PyTorch's; and whether losses are the
CPU's and PyTorch's from the same weights and batches, and the same twice. What matters most comes first, and JSON is
written after each result: what the time did not suffice for is missing, not all. Prints a table last.

usage: tests/gpu/train.py BUILD OUT.json [--small] [--no-peer] [--peer-device cpu] [--budget SECONDS]
                          [--ceilings OPS.json] [--logs DIRECTORY] [--library-path PATH]
                          [--variants NAME...] [--steps N] [--no-losses]
"""

import argparse
import array
import json
import os
import pathlib
import random
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = {"gpt2-xl": "configs/gpu/gpt2-xl.toml", "llama-8b": "configs/gpu/llama-8b-16-layers.toml",
          "gpt-175b": "configs/gpu/gpt-175b-3-layers.toml"}
FILLED = 0.88  # of a GPU's memory by what 'ms-train plan' counts: libraries and PyTorch's allocator take some, too
FILLED_FP8 = 0.92  # no PyTorch runs so
SMALL = {"model.layers": 2, "model.hidden": 64, "model.heads": 8, "model.seq": 32, "model.vocab": 300,
         "train.global_batch": 4, "train.microbatch": 1}
FIRST = 3  # steps that are not counted: plans are made, memory grows
STEPS = 8
LONG_STEP_FLOPS = 5e14
MOST_S = 120  # of a run: one that hangs must not take the time of all others
# Of losses on the GPU against the CPU's and PyTorch's: of each step's, and of their mean. bf16 against fp32, both on the
# CPU, differs by up to 0.02 at a step.
TOLERANCE = {"largest": 0.05, "mean": 0.01}
NOISE = 2_000_000  # tokens
ERRORS = (LookupError, ValueError, OSError, subprocess.SubprocessError)  # of one measurement: the others are made


def text_of(value):
    return json.dumps(value) if isinstance(value, (str, bool)) else str(value)


def write_tokens(prefix, ids):
    """A token file of one document (libms/engine/data/token_file.h)."""
    ids = array.array("i", ids)
    with open(f"{prefix}.bin", "wb") as file:
        ids.tofile(file)
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, 1, 2) + struct.pack("<iqqq", len(ids), 0, 0, 1)
    pathlib.Path(f"{prefix}.idx").write_bytes(index)


def memory_of_gpu():
    """Bytes, or None where there is no GPU."""
    try:
        said = subprocess.run(["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"],
                              capture_output=True, text=True, check=True)
        return int(said.stdout.split()[0]) * 2**20
    except ERRORS:
        return None


class Bench:
    def __init__(self, work, arguments):
        self.build, self.work, self.small, self.logs = arguments.build, work, arguments.small, arguments.logs
        self.environment = dict(os.environ)  # of our programs: PyTorch brings libraries of its own
        if arguments.library_path:
            self.environment["LD_LIBRARY_PATH"] = arguments.library_path
        self.peer_device, self.steps = arguments.peer_device, 4 if arguments.small else arguments.steps
        self.most_s = 3 * MOST_S if arguments.small else MOST_S
        self.until = time.monotonic() + arguments.budget
        self.memory = arguments.memory * 2**30 if arguments.memory else memory_of_gpu()

    def layers(self, config):
        """As many layers as the GPU's memory holds, at most the configuration's; FP8 takes more of it for the same."""
        def fits(layers):
            def takes(fp8):
                return self.plan(config, {"model.layers": layers, "train.fp8": fp8})["stages"][0]["memory_bytes"]["total"]
            return takes(False) <= FILLED * self.memory and takes(True) <= FILLED_FP8 * self.memory

        layers = tomllib.loads((ROOT / config).read_text())["model"]["layers"]
        if self.small or self.memory is None:
            return layers
        while layers > 1 and not fits(layers):
            layers -= 1
        return layers

    def noise(self, vocab):
        """Small ids more often than large ones, as words are, and as peer_pytorch.py draws them."""
        prefix = self.work / f"noise-{vocab}"
        if not prefix.with_suffix(".idx").exists():
            draw = random.Random(1).random
            write_tokens(prefix, (int(draw() ** 3 * vocab) for _ in range(NOISE)))
        return str(prefix)

    def text(self):
        """This project's own source, byte by byte: a model has something to learn there."""
        prefix = str(self.work / "text")
        files = sorted(str(path) for path in ROOT.glob("libms/*/*/*.[hc]*"))
        subprocess.run([self.build / "bin/ms-data", "encode", "--tokenizer", "byte", "--output", prefix, *files],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.environment)
        return prefix

    def options(self, config, changes):
        changes = changes | ({"run.dir": str(self.work / "run")} if self.work else {})
        if self.small:
            layers = min(changes.get("model.layers", 2), 2)
            changes = SMALL | {k: v for k, v in changes.items() if k not in SMALL} | {"model.layers": layers}
        if "data.train" not in changes and self.work:
            vocab = changes.get("model.vocab", tomllib.loads((ROOT / config).read_text())["model"]["vocab"])
            changes |= {"data.train": [self.noise(vocab)]}
        return [word for key, value in changes.items()
                for word in ("--set", f"{key}={json.dumps(value) if isinstance(value, list) else text_of(value)}")]

    def left_s(self):
        return self.until - time.monotonic()

    def call(self, command, name, environment=None):
        """None, or why it failed. What it said to standard error is kept."""
        if self.left_s() < 15:
            return "no time was left"
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=min(self.left_s(), self.most_s),
                                  env=environment)
            said, code = done.stderr, done.returncode
        except subprocess.TimeoutExpired as late:
            said, code = (late.stderr or b"").decode(errors="replace"), None
        if self.logs:
            (self.logs / (re.sub("[^a-z0-9]+", "-", name) + ".log")).write_text(said)
        if code == 0:
            return None
        lines = said.strip().splitlines() or ["it said nothing"]
        return "it took too long" if code is None else next((line for line in lines if "error:" in line), lines[-1])

    def run(self, config, changes, name):
        """Rows of metrics.jsonl, or why there are none."""
        command = [self.build / "bin/ms-train", "run", ROOT / config, "--fresh", *self.options(config, changes)]
        failed = self.call(command, name, self.environment)
        return failed or [json.loads(line) for line in open(self.work / "run/metrics.jsonl")]

    def pytorch(self, config, changes):
        """The command that trains this in PyTorch."""
        trying = ["--device", "cpu", "--no-compile"] if self.peer_device == "cpu" else []
        return [sys.executable, ROOT / "tests/gpu/peer_pytorch.py", "--config", ROOT / config, *trying,
                *self.options(config, changes)]

    def peer(self, config, changes, options):
        """PyTorch's line of JSON, or why there is none."""
        out, plan = self.work / "peer.json", self.plan(config, changes)
        # A CUDA graph, which takes warming up, gains nothing where a step takes seconds.
        flops = plan["flops_per_token"]["full"] * plan["batch"]["tokens_per_step"]
        options = options + (["--warmup", str(FIRST)] if flops > LONG_STEP_FLOPS else [])
        command = [*self.pytorch(config, changes), *options, "--json", out, "--steps", str(self.steps),
                   "--budget", str(max(10, min(75, self.left_s() - 20)))]
        failed = self.call(command, f"peer {pathlib.Path(config).stem}")
        return {"failed": failed} if failed else json.loads(out.read_text())

    def peer_losses(self, config, changes):
        """PyTorch's rows of losses from our initial weights and over our batches, or why there are none."""
        start, out = self.work / "start", self.work / "peer-losses"
        failed = self.call([self.build / "bin/peer_start", "make", ROOT / config, start, *self.options(config, changes)],
                           "peer start", self.environment)
        if failed:
            return failed
        command = [*self.pytorch(config, changes), "--weights", start / "model.safetensors", "--tokens", start / "tokens",
                   "--losses", out, "--json", self.work / "peer.json", "--warmup", "0", "--no-compile"]
        return self.call(command, "peer losses") or [json.loads(line) for line in open(out)]

    def plan(self, config, changes):
        command = [self.build / "bin/ms-train", "plan", ROOT / config, "--json", *self.options(config, changes)]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=MOST_S,
                                         env=self.environment).stdout)


# In the order of what they are worth. The last two are a pair with the two before them: in turns, so that what changes
# meanwhile changes for both.
VARIANTS = {"deterministic": {}, "peer": None, "free": {"run.deterministic": False}, "fewer layers": None,
            "fp8": {"train.fp8": True}, "deterministic peer": None, "timed products": {}, "untimed": {"run.time_ops": False},
            "deterministic again": {}, "untimed again": {"run.time_ops": False}}

# PyTorch: its fastest attention, whose backward may add in any order, and one that gives the same bits twice. Each is held
# against our variant that does the same.
PEERS = {"peer": [], "deterministic peer": ["--deterministic"]}


def speed(rows, plan, peak):
    """Medians over the steps that count."""
    rows = rows[FIRST if len(rows) > 2 * FIRST else 1:]
    step_s = statistics.median(row["step_s"] for row in rows)
    tokens_per_s = plan["batch"]["tokens_per_step"] / step_s
    # Waiting for data is the host's, and may lie under operations of the step before.
    classes = {name: statistics.median(row["seconds"][name] for row in rows) / step_s for name in rows[0]["seconds"]
               if name != "data_wait"}
    return {"step_s": step_s, "tokens_per_s": tokens_per_s,
            "mfu": {name: flops * tokens_per_s / peak for name, flops in plan["flops_per_token"].items()},
            "share_of_step": classes | {"between operations": 1 - sum(classes.values())}}


def layers_alone(whole, fewer, plans, peak):
    """MFU of what is between the two: layers, without what a slice of a model has too much of."""
    plan, fewer_plan = plans
    seconds = whole["step_s"] - fewer["step_s"]
    rate = plan["batch"]["tokens_per_step"] / seconds / peak
    return {key: (plan["flops_per_token"][key] - fewer_plan["flops_per_token"][key]) * rate
            for key in plan["flops_per_token"]}


def measure(bench, name, variant, result, peak, ceilings):
    config, layers = MODELS[name], result["layers"]
    changes = {"train.steps": bench.steps, "model.layers": layers} | (VARIANTS[variant] or {})
    if variant in PEERS:
        result[variant] = bench.peer(config, {"model.layers": layers}, PEERS[variant])
        return
    if variant == "fewer layers":  # what is between the two is layers alone
        if layers == 1:
            result[variant] = {"failed": "one layer is all that fits"}
            return
        changes["model.layers"] = layers // 2
    if variant == "timed products":
        changes |= {"run.matmul_choices": bench.work / f"{name}.choices"}
    plan = bench.plan(config, changes)
    rows = bench.run(config, changes, f"{name} {variant}")
    result[variant] = {"failed": rows} if isinstance(rows, str) else speed(rows, plan, peak)
    whole, part = result.get("deterministic", {}), result[variant]
    if ceilings and variant == "deterministic" and "step_s" in part:
        part["where"] = where_time_goes(part, plan, peak, ceilings)
    if variant == "fewer layers" and "step_s" in whole and "step_s" in part:
        result["mfu_of_layers"] = layers_alone(whole, part, (bench.plan(config, {"model.layers": layers}), plan), peak)


def losses(bench, with_peer, keep):
    """A small model for 100 steps on the GPU, twice, on the CPU, and in PyTorch. `keep` is given what there is, each
    time that there is more."""
    config = "configs/gpu/gpt2-xl.toml"
    changes = {"model.layers": 4, "model.hidden": 256, "model.heads": 4, "model.seq": 256, "model.vocab": 300,
               "train.steps": 100, "train.global_batch": 8, "train.microbatch": 4, "optim.lr": 3e-4,
               "data.train": [bench.text()]}
    runs, result = {}, {"tolerance": TOLERANCE, "difference_to": {}, "failed": {}}
    for name, device in (("gpu", "cuda"), ("gpu again", "cuda"), ("cpu", "cpu"), ("pytorch", None)):
        if name == "pytorch" and not with_peer:
            continue
        rows = (bench.run(config, changes | {"run.device": device}, f"losses {name}") if device else
                bench.peer_losses(config, changes))
        if isinstance(rows, str):
            result["failed"][name] = rows
            keep(result)
            continue
        run = runs[name] = [row["loss"] for row in rows]
        if name == "gpu":
            result |= {"steps": len(run), "first": run[0], "last": run[-1]}
        elif name == "gpu again":
            result["same_bits"] = run == runs.get("gpu")
        elif "gpu" in runs:
            differences = [a - b for a, b in zip(runs["gpu"], run)]
            result["difference_to"][name] = {"largest": max(map(abs, differences)),
                                             "mean": abs(statistics.mean(differences))}
        keep(result)


def losses_agree(of_losses):
    return (not of_losses["failed"] and of_losses.get("same_bits", False) and
            all(row[kind] <= most for row in of_losses["difference_to"].values() for kind, most in TOLERANCE.items()))


def where_time_goes(result, plan, peak, ceilings):
    """By class of operation: its share of a step; what it would be were everything done at the ceilings that were
    measured (a product's rate, a copy's bandwidth); and what of MFU is lost there: of its time, the part in which the
    GPU could have done at its peak what the model asks for. All that is lost and MFU ("causal") are 100 %."""
    step_s, work, model = result["step_s"], plan["stages"][0]["work_of_step"], plan["flops_per_token"]
    counted = {"matmul": model["gemm"], "attention": model["causal"] - model["gemm"]}  # of a token; no recomputation
    table = {}
    for name, share in result["share_of_step"].items():
        flops, size = (work.get(name, {}).get(key, 0.0) for key in ("flops", "bytes"))
        least_s = max(flops / ceilings["matmul_tflops"] * 1e-12, size / ceilings["copy_gbs"] * 1e-9)
        table[name] = {"share": share, "at_ceiling": least_s / step_s,
                       "lost": share - counted.get(name, 0.0) * result["tokens_per_s"] / peak}
    return table


def line(model, what, rate, mfu):
    shares = f"{mfu['gemm']:6.1%} {mfu['causal']:6.1%} {mfu['full']:6.1%} {mfu['reported']:8.1%}" if mfu else ""
    return f"{model:22} {what:20} {rate:>9} {shares}"


def ratio(result, what, of):
    """The rate of one over that of another; None where one of them is missing."""
    rates = [statistics.mean(row["tokens_per_s"] for row in rows) for rows in
             ([result[name] for name in names if "tokens_per_s" in result.get(name, {})] for names in (what, of)) if rows]
    return rates[0] / rates[1] if len(rates) == 2 else None


def report_where(model, table):
    print(f"\n{model + ', a step':34} {'share':>7} {'at ceilings':>12} {'MFU lost':>9}")
    for name, row in sorted(table.items(), key=lambda item: -item[1]["lost"]):
        if abs(row["share"]) > 0.0005:
            print(f"  {name:32} {row['share']:7.1%} {row['at_ceiling']:12.1%} {row['lost']:9.1%}")


def report(results, of_losses):
    print(f"{'model':22} {'variant':20} {'tokens/s':>9} {'gemm':>6} {'causal':>6} {'full':>6} {'reported':>8}")
    for result in results:
        model = f"{result['model']}, {result['layers']} layers"
        for variant in (name for name in VARIANTS if name in result):
            row = result[variant]
            what = variant.replace("peer", "PyTorch")
            failed = f"failed: {row['failed']}" if "failed" in row else None
            print(f"{model:22} {what:20} {failed}" if failed else line(model, what, f"{row['tokens_per_s']:.0f}", row["mfu"]))
        if "mfu_of_layers" in result:
            print(line(model, "a layer alone", "", result["mfu_of_layers"]))
        timed, untimed = ("deterministic", "deterministic again"), ("untimed", "untimed again")
        for name, what, of in (("over PyTorch, free", ("free",), ("peer",)),
                               ("over PyTorch, determ.", ("deterministic",), ("deterministic peer",)),
                               ("fp8 over bf16", ("fp8",), timed),
                               ("timers on over off", timed, untimed)):
            times = ratio(result, what, of)
            if times:
                print(line(model, name, f"{times:.3f}", None))
    for result in results:
        if "where" in result.get("deterministic", {}):
            report_where(result["model"], result["deterministic"]["where"])
    print(f"losses: {json.dumps(of_losses)}")


def ceilings_of(arguments):
    """None where they were not measured."""
    if not arguments.ceilings or not arguments.ceilings.exists():
        return None
    ceilings = json.loads(arguments.ceilings.read_text())
    return ceilings if ceilings["matmul_tflops"] and ceilings["copy_gbs"] else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--small", action="store_true", help="whether it runs, where it is slow: an emulated GPU")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--no-losses", action="store_true")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS), help="in their order")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"of a training; beyond {2 * FIRST} the first {FIRST} do not count")
    parser.add_argument("--budget", type=float, default=540, help="seconds in all")
    parser.add_argument("--peer-device", default="cuda", choices=["cuda", "cpu"], help="where PyTorch computes: a CPU to try it out")
    parser.add_argument("--ceilings", type=pathlib.Path, help="what gpu_bench --json wrote")
    parser.add_argument("--logs", type=pathlib.Path, help="a directory for what all runs have said")
    parser.add_argument("--library-path", help="LD_LIBRARY_PATH of our programs")
    parser.add_argument("--memory", type=float, help="GiB of the GPU; default: what nvidia-smi says")
    parser.add_argument("--layers", action="store_true", help="only print how many layers of each model fit")
    parser.add_argument("--peak", type=float, default=989, help="TFLOP/s")
    arguments = parser.parse_args()
    if arguments.layers:
        bench = Bench(None, arguments)
        print(json.dumps({name: bench.layers(config) for name, config in MODELS.items()}))
        return 0
    results = [{"model": name} for name in MODELS]
    of_losses = {"failed": {"all": "not come to"}}

    def save():
        arguments.out.write_text(json.dumps({"losses": of_losses, "models": results}, indent=1))

    def keep_losses(result):
        of_losses.clear()
        of_losses.update(result)
        save()

    with tempfile.TemporaryDirectory() as work:
        bench = Bench(pathlib.Path(work), arguments)
        for result in results:
            result["layers"] = bench.layers(MODELS[result["model"]])
        try:
            if not arguments.no_losses:
                losses(bench, not arguments.no_peer, keep_losses)
        except ERRORS as error:
            of_losses["failed"]["all"] = f"{type(error).__name__}: {error}"
        for variant in arguments.variants:
            for result in results:
                if variant in PEERS and arguments.no_peer:
                    continue
                try:
                    measure(bench, result["model"], variant, result, arguments.peak * 1e12, ceilings_of(arguments))
                except ERRORS as error:
                    result[variant] = {"failed": f"{type(error).__name__}: {error}"}
                save()
    report(results, of_losses)
    failed = (not arguments.no_losses and not losses_agree(of_losses) or
              any("failed" in result.get(variant, {"failed": "missing"}) for result in results
                  for variant in ("deterministic", "free", "fp8") if variant in arguments.variants))
    if arguments.small:  # where it is tried out, everything is
        failed = failed or any("failed" in row for result in results for row in result.values() if isinstance(row, dict))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
