"""What peer_pytorch.py is told: configuration files of ms-train, and what follows from them alone."""

import math
import pathlib
import sys
import tomllib
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Keys and defaults of libms/engine/nn/config.h, libms/engine/train/config.h and libms/engine/optim/config.h. What makes no
# difference to what is computed here (fused, recompute, eval_*, log_every, zero, train.steps) is not read.
SECTIONS = {
    "model": {"family": "gpt", "layers": 12, "hidden": 768, "heads": 12, "kv_heads": 0, "ffn_hidden": 0,
              "vocab": 50257, "seq": 1024, "tied_embeddings": True, "norm_eps": 1e-5, "rotary_base": 10000.0,
              "parallel_block": False, "window": 0, "fused": True, "init_std": 0.02},
    "train": {"steps": 1000, "global_batch": 8, "microbatch": 1, "seed": 1234, "dtype": "bf16",
              "recompute": "none", "eval_every": 100, "eval_samples": 64, "log_every": 10},
    "optim": {"name": "adamw", "lr": 3e-4, "min_lr_ratio": 0.1, "schedule": "cosine", "warmup_steps": 0,
              "decay_fraction": 0.2, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1,
              "clip": 1.0, "zero": 1},
}
OTHER_SECTIONS = {"mesh", "overlap", "data", "checkpoint", "trace", "run"}
CHOICES = {"model.family": ("gpt", "llama"), "train.dtype": ("bf16", "fp32"), "optim.name": ("adamw",),
           "optim.schedule": ("cosine", "wsd", "constant")}
POSITIVE = {"model.layers", "model.hidden", "model.heads", "model.vocab", "model.seq", "train.global_batch",
            "train.microbatch"}


class Refusal(Exception):
    """Something that the user has to change."""


def say(text):
    print(f"peer_pytorch.py: {text}", file=sys.stderr, flush=True)


def typed(key, value, default):
    if isinstance(default, bool) or isinstance(value, bool):
        good = isinstance(default, bool) and isinstance(value, bool)
    elif isinstance(default, float):
        good = isinstance(value, (int, float))
    else:
        good = isinstance(value, type(default))
    if not good:
        raise Refusal(f"{key} = {value!r} is not of the type of its default, {default!r}")
    if key in CHOICES and value not in CHOICES[key]:
        raise Refusal(f"{key} = {value!r}: this script has {' and '.join(CHOICES[key])}")
    if key in POSITIVE and value < 1 or not isinstance(value, str) and value < 0:
        raise Refusal(f"{key} = {value} is too small")
    return type(default)(value)


def assign(tables, assignment):
    """SECTION.KEY=VALUE, as the --set of ms-train."""
    name, found, text = assignment.partition("=")
    section, dot, key = name.partition(".")
    if not found or not dot:
        raise Refusal(f"'{assignment}' is not SECTION.KEY=VALUE")
    try:
        value = tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        value = text
    tables.setdefault(section, {})[key] = value


def load_config(path, assignments):
    try:
        with open(path, "rb") as file:
            tables = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise Refusal(f"cannot read '{path}': {error}") from None
    for assignment in assignments:
        assign(tables, assignment)
    sections = {}
    for section, defaults in SECTIONS.items():
        given = tables.get(section, {})
        if not isinstance(given, dict):
            raise Refusal(f"{path}: '{section}' is not a section")
        for key in given:
            if key not in defaults:
                raise Refusal(f"{path}: unknown key {section}.{key}")
        values = {key: typed(f"{section}.{key}", given.get(key, default), default)
                  for key, default in defaults.items()}
        sections[section] = types.SimpleNamespace(**values)
    for section in tables:
        if section not in SECTIONS and section not in OTHER_SECTIONS:
            raise Refusal(f"{path}: unknown section or key '{section}'")
    config = types.SimpleNamespace(**sections)
    complete(config.model)
    check(config)
    return config


def complete(model):
    """What follows from the keys, as ModelConfig's functions do."""
    model.gpt = model.family == "gpt"
    model.kv = model.kv_heads or model.heads
    model.ffn = model.ffn_hidden or 4 * model.hidden
    model.head_dim = model.hidden // model.heads
    model.windowed = 0 < model.window < model.seq


def check(config):
    model, train = config.model, config.train
    for rule, message in (
            (model.hidden % model.heads == 0, "model.hidden is not divisible by model.heads"),
            (model.heads % model.kv == 0, "model.heads is not divisible by model.kv_heads"),
            (model.gpt or model.head_dim % 2 == 0, "rotary positions need an even head size"),
            (model.window <= model.seq, "model.window is longer than model.seq"),
            (train.global_batch % train.microbatch == 0,
             "train.global_batch is not divisible by train.microbatch")):
        if not rule:
            raise Refusal(message)


def find_model(name):
    for folder in ("configs", "configs/megascale"):
        path = ROOT / folder / f"{name}.toml"
        if path.is_file():
            return path
    known = sorted(path.stem for path in (ROOT / "configs").glob("*.toml"))
    raise Refusal(f"there is no model '{name}'; configs has {', '.join(known)}")


def count_parameters(m):
    """All parameters, and the weights of matrix products: count_parameters() of libms/core/cost/flops.cpp."""
    q, kv = m.heads * m.head_dim, m.kv * m.head_dim
    mlp_inputs = 1 if m.gpt else 2
    norm = m.hidden * (2 if m.gpt else 1)
    gemm_per_layer = m.hidden * (q + 2 * kv) + q * m.hidden + (mlp_inputs + 1) * m.hidden * m.ffn
    biases = q + 2 * kv + m.hidden + mlp_inputs * m.ffn + m.hidden
    per_layer = gemm_per_layer + (biases if m.gpt else 0) + (1 if m.parallel_block else 2) * norm
    embedding = (m.vocab + (m.seq if m.gpt else 0)) * m.hidden
    head = 0 if m.tied_embeddings else m.vocab * m.hidden
    return embedding + m.layers * per_layer + norm + head, m.layers * gemm_per_layer + m.vocab * m.hidden


def causal_pairs(seq, window):
    """causal_pairs() of libms/core/cost/flops.cpp."""
    reach = seq if window == 0 else min(window, seq)
    return reach * (reach + 1) // 2 + (seq - reach) * reach


def flops_per_token(m):
    """flops_per_token() of libms/core/cost/flops.cpp: forward and backward, nothing recomputed."""
    per_key = 3.0 * 2.0 * 2.0 * float(m.layers * m.heads * m.head_dim)
    seq = float(m.seq)
    reach = seq if m.window == 0 else float(min(m.window, m.seq))
    gemm = 3.0 * 2.0 * float(count_parameters(m)[1])
    return {"gemm": gemm, "causal": gemm + per_key * float(causal_pairs(m.seq, m.window)) / seq,
            "full": gemm + per_key * seq, "reported": gemm + per_key * reach}


def learning_rate(optim, step, steps):
    """learning_rate() of libms/engine/optim/config.cpp; step from 0."""
    if step < optim.warmup_steps:
        return optim.lr * (step + 1) / optim.warmup_steps
    low = optim.lr * optim.min_lr_ratio

    def progress(begin):
        return min(max((step - begin) / max(1, steps - 1 - begin), 0.0), 1.0)

    if optim.schedule == "cosine":
        return low + (optim.lr - low) * 0.5 * (1.0 + math.cos(math.pi * progress(optim.warmup_steps)))
    if optim.schedule == "wsd":
        begin = max(optim.warmup_steps, steps - math.floor(optim.decay_fraction * steps + 0.5))
        return optim.lr if step < begin else optim.lr + (low - optim.lr) * progress(begin)
    return optim.lr
