#!/usr/bin/env python3
"""PyTorch training the models of ms-train on one GPU: what the CUDA device is measured against.

Reads the configuration files of ms-train ([model], [train] and [optim]; the mesh is one GPU) and prints a
line of JSON for each model. bf16, torch.compile, fused attention, fused AdamW, CUDA graphs where they
help:

  * Parameters and activations are bf16, and so is a microbatch's gradient; it is added in fp32. Master
    weights and moments are fp32, AdamW is PyTorch's fused one on them. All of a kind lies in one flat
    tensor, so that the norm, the update and the copy back to bf16 are a few kernels whatever the number
    of parameters, and clipping costs no pass of its own: the update divides by grad_scale. (fp32
    parameters under autocast would be cast in every microbatch.)
  * Compiled are one block, what comes before the blocks and what comes after: seconds, not a minute. A
    block begins with the sum that the block before it leaves undone, so that it is one kernel with the
    norm, as in a whole graph.
  * The logits are bf16 in memory; the cross entropy is fp32 inside the kernels that read them.

Batches are of --tokens, else noise: speed does not depend on what the tokens say. Exit status: 1 out of
memory or failed, 2 something is wrong with the arguments or the configuration, 77 there is no GPU or no
PyTorch.
"""

import argparse
import gc
import json
import os
import pathlib
import statistics
import sys
import time
import traceback

from pytorch_settings import Refusal, count_parameters, find_model, flops_per_token, load_config, say

try:
    import torch
except ImportError:  # said when the arguments are found to be right
    torch = None
else:
    from pytorch_data import batches
    from pytorch_training import Clock, Trainer, attention_choices, first_line

DEFAULT_MODELS = ["gpt-124m", "llama-1b"]
TRIAL_STEPS = 3  # of the warm-up, with and without a CUDA graph; the first of them is not timed


class Run:
    """One model, from its configuration to its line of JSON."""

    def __init__(self, name, path, config, options):
        self.name, self.path, self.config, self.options = name, path, config, options
        self.begin = time.perf_counter()
        self.device = torch.device(options.device)
        # A CPU is for trying the script out.
        on_device = config.train.dtype if options.device == "cuda" else "fp32"
        self.dtype_name = options.dtype or on_device
        self.dtype = torch.bfloat16 if self.dtype_name == "bf16" else torch.float32
        self.notes, self.graph_ms = [], {}

    def note(self, text):
        self.notes.append(text)
        say(text)

    def timed(self, count, budget=None):
        """Milliseconds of that many steps; of fewer, but three at least, where the budget is spent."""
        clock = Clock(self.device)
        clock.mark()
        for done in range(1, count + 1):
            self.trainer.step(self.tokens[self.trainer.step_count % len(self.tokens)])
            clock.mark()
            clock.wait(2)
            if budget and done >= 3 and time.perf_counter() - self.begin > budget:
                break
        return clock.milliseconds()

    def start(self):
        """A trainer with the fastest attention that trains, and its first step behind it."""
        options = self.options
        self.attention_ms = attention_choices(self.config, self.device, self.dtype, options.sdpa,
                                              options.compile)
        failure = None
        for self.attention in self.attention_ms:
            if failure:
                self.note(f"this attention does not train: {failure}")
                self.trainer = None
                forget()
            try:
                self.first_step()
                return
            except (torch.OutOfMemoryError, Refusal):
                raise
            except Exception as error:  # compiled code asserts, too
                failure = first_line(error)
                if self.attention is self.attention_ms[-1]:
                    raise

    def first_step(self):
        options = self.options
        begin = time.perf_counter()
        self.trainer = Trainer(self.config, self.device, self.dtype, self.attention, options.compile,
                               options.warmup + self.steps, options.weights)
        self.timed(min(options.warmup, 1))
        self.first_step_s = time.perf_counter() - begin

    def warm_up(self):
        """What is left of the warm-up; a CUDA graph of a microbatch where it is faster."""
        left = max(self.options.warmup - 1, 0)
        if self.device.type != "cuda" or self.options.no_graph or left < 2 * TRIAL_STEPS:
            self.timed(left)
            return
        self.timed(left - 2 * TRIAL_STEPS)
        self.graph_ms["plain"] = min(self.timed(TRIAL_STEPS)[1:])
        try:
            self.trainer.capture()
        except Exception as error:  # whatever it is, training goes on without
            self.note(f"no CUDA graph: {first_line(error)}")
        trial = min(self.timed(TRIAL_STEPS)[1:])
        if self.trainer.graph:
            self.graph_ms["graph"] = trial
            if trial >= self.graph_ms["plain"]:
                self.trainer.graph = None

    def measure(self):
        self.tokens, self.steps = batches(self.config, self.options, self.device)
        self.start()
        self.warm_up()
        budget = None if self.options.losses else self.options.budget
        return self.result(self.timed(self.steps, budget))

    def result(self, step_ms):
        m, train = self.config.model, self.config.train
        tokens = train.global_batch * m.seq
        rate = tokens / statistics.median(step_ms) * 1e3
        flops = flops_per_token(m)
        losses = [float(row[1]) for row in self.trainer.history]
        cuda = self.device.type == "cuda"
        peak = self.options.peak * 1e12
        return {
            "model": self.name, "config": str(self.path), "engine": "pytorch", "torch": torch.__version__,
            "cuda": torch.version.cuda if cuda else None,
            "cudnn": torch.backends.cudnn.version() if cuda else None,
            "device": torch.cuda.get_device_name() if cuda else "cpu", "dtype": self.dtype_name,
            "deterministic": self.options.deterministic,
            "compile": self.options.compile, "compiled_graphs": graphs_compiled(),
            "sdpa": self.attention["backend"], "sdpa_copies_keys": self.attention["expand"],
            "sdpa_ms": self.attention_ms, "cuda_graph": self.trainer.graph is not None,
            "cuda_graph_trial_ms": self.graph_ms, "layers": m.layers, "hidden": m.hidden, "seq": m.seq,
            "microbatch": train.microbatch, "global_batch": train.global_batch,
            "parameters": count_parameters(m)[0], "warmup_steps": self.options.warmup,
            "timed_steps": len(step_ms), "tokens_per_step": tokens, "tokens_per_s": rate,
            "step_ms": {"min": min(step_ms), "median": statistics.median(step_ms), "max": max(step_ms)},
            "memory_bytes": {"allocated": torch.cuda.max_memory_allocated(),
                             "reserved": torch.cuda.max_memory_reserved()} if cuda else None,
            "flops_per_token": flops,
            "mfu": {**{name: value * rate / peak for name, value in flops.items()},
                    "peak_tflops": self.options.peak} if cuda else None,
            "first_loss": losses[0], "last_loss": losses[-1], "first_step_s": self.first_step_s,
            "seconds": time.perf_counter() - self.begin, "notes": self.notes,
        }

    def write_losses(self, path):
        """The keys of the metrics.jsonl of ms-train."""
        with open(path, "w", encoding="ascii") as file:
            for step, loss, norm, rate in self.trainer.history:
                row = {"step": step, "loss": float(loss), "grad_norm": float(norm), "lr": rate}
                file.write(json.dumps(row) + "\n")


def graphs_compiled():
    counters = sys.modules.get("torch._dynamo.utils")
    return counters.counters["stats"]["unique_graphs"] if counters else 0


def forget():
    """Nothing of a model stays for the next one: neither memory nor code compiled for its shapes."""
    gc.collect()
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def table_row(row):
    memory, mfu = row["memory_bytes"], row["mfu"]
    copies = " copied keys" if row["sdpa_copies_keys"] else ""
    return (f"{row['model']:<16}{row['tokens_per_s']:>12.0f}{row['step_ms']['min']:>10.2f}"
            f"{row['step_ms']['median']:>10.2f}{row['step_ms']['max']:>10.2f}"
            f"{memory['allocated'] / 2**30 if memory else 0:>9.1f}"
            + "".join(f"{100 * mfu[name] if mfu else 0:>9.1f}" for name in row["flops_per_token"])
            + f"  {row['sdpa']}{copies}{', CUDA graph' if row['cuda_graph'] else ''}")


TABLE_HEAD = (f"{'model':<16}{'tokens/s':>12}{'ms min':>10}{'median':>10}{'max':>10}{'GiB':>9}{'gemm %':>9}"
              f"{'causal %':>9}{'full %':>9}{'rep. %':>9}  attention")


def out_of_memory(name, config, free):
    m = config.model
    state = count_parameters(m)[0] * 20 / 2**30
    fewer = f"fewer layers (--set model.layers={max(1, m.layers // 2)})" if m.layers > 1 else "a smaller model"
    return (f"{name}: out of memory: {free[0] / 2**30:.1f} of {free[1] / 2**30:.1f} GiB were free when it "
            f"began, parameters, gradients and optimizer take about {state:.1f} GiB; try {fewer} or a "
            f"smaller train.microbatch")


def run_model(name, path, config, options):
    """The line of JSON, or None where memory has not sufficed."""
    forget()
    free = torch.cuda.mem_get_info() if options.device == "cuda" else (0, 0)
    run = Run(name, path, config, options)
    try:
        row = run.measure()
        if options.losses:
            run.write_losses(options.losses)
        return row
    except torch.OutOfMemoryError:
        say(out_of_memory(name, config, free))
        return None


def run_all(models, options):
    rows, failed = [], False
    out = open(options.json, "w", encoding="ascii") if options.json else sys.stdout
    for name, path, config in models:
        try:
            row = run_model(name, path, config, options)
        except Refusal:
            raise
        except Exception:  # the other models are measured all the same
            traceback.print_exc()
            row = None
        failed = failed or row is None
        if row:
            rows.append(row)
            print(json.dumps(row), file=out, flush=True)
    if rows:
        kind, dtype = rows[0]["device"], "/".join(sorted({row["dtype"] for row in rows}))
        print(f"\n{kind}, torch {torch.__version__}, {dtype}; MFU of {options.peak:g} TFLOP/s\n{TABLE_HEAD}\n"
              + "\n".join(table_row(row) for row in rows), file=sys.stderr)
    return 1 if failed else 0


def parse(arguments):
    parser = argparse.ArgumentParser(description="PyTorch training the models of ms-train on one GPU.")
    add = parser.add_argument
    add("--model", nargs="+", action="extend", default=[], metavar="NAME",
        help=f"of configs; {' and '.join(DEFAULT_MODELS)} where neither this nor --config is given")
    add("--config", nargs="+", action="extend", default=[], metavar="FILE", help="as ms-train takes it")
    add("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="on top of the files")
    add("--steps", type=int, help="timed; 20, or what --tokens has")
    add("--warmup", type=int, default=8,
        help="steps before; the schedule of the learning rate is as long as both. From 7 on, the last 6 try "
             "a CUDA graph")
    add("--budget", type=float, default=75, metavar="SECONDS",
        help="of a model: fewer steps are timed where it is spent, at least 3; 0: none")
    add("--json", metavar="OUT", help="a file for what goes to standard output")
    add("--sdpa", choices=["cudnn", "flash", "auto"], default="auto", help="auto tries both")
    add("--deterministic", action="store_true", help="only what gives the same bits twice")
    add("--no-compile", dest="compile", action="store_false")
    add("--no-graph", action="store_true", help="no CUDA graph")
    add("--device", choices=["cuda", "cpu"], default="cuda")
    add("--dtype", choices=["bf16", "fp32"], help="train.dtype; on the CPU fp32")
    add("--peak", type=float, default=989.0, metavar="TFLOPS", help="of the device, for MFU")
    add("--weights", metavar="PATH", help="initial weights: what 'ms-ckpt export' wrote, or one of its files")
    add("--tokens", metavar="FILE", help="batches: raw int32 [steps, global_batch, seq + 1]")
    add("--losses", metavar="FILE", help="write step, loss and gradient norm, a line of JSON for each step")
    return parser.parse_args(arguments)


def load_models(options):
    names = [(name, find_model(name)) for name in options.model]
    names += [(pathlib.Path(path).stem, path) for path in options.config]
    names = names or [(name, find_model(name)) for name in DEFAULT_MODELS]
    if len(names) > 1 and (options.weights or options.tokens or options.losses):
        raise Refusal("--weights, --tokens and --losses are for one model")
    if options.warmup < 0 or options.steps is not None and options.steps < 1 or options.peak <= 0:
        raise Refusal("--steps, --warmup and --peak cannot be that small")
    return [(name, path, load_config(path, options.set)) for name, path in names]


def main():
    options = parse(sys.argv[1:])
    try:
        models = load_models(options)
        if torch is None:
            say("there is no PyTorch here")
            return 77
        if options.deterministic:
            os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # PyTorch refuses without
            torch.use_deterministic_algorithms(True)
        if options.device == "cpu":
            return run_all(models, options)
        if not torch.cuda.is_available():
            say("PyTorch sees no CUDA device here; --device cpu is for trying the script out")
            return 77
        with torch.cuda.stream(torch.cuda.Stream()):  # a graph cannot be captured on the default one
            return run_all(models, options)
    except Refusal as refusal:
        say(refusal)
        return 2


if __name__ == "__main__":
    sys.exit(main())
