#!/usr/bin/env python3
"""Reference numbers for a tiny GPT and Llama, with parallel blocks, a window or both, and Llama's relatives: NAME.{json,bin}.

Run by hand when the definitions change (README.md says how); the C++ golden test only reads what it wrote. It shares no code
and no conventions with libms beyond parameter names and shapes, so agreement means something. Invariant: nothing is written
unless the reference passed its own checks: a numpy forward pass that uses no PyTorch, torch.optim.AdamW against the update
below, a loss that falls, and clipping that was active in some steps and not in others. Same versions, same machine: same bytes.

B batch, S sequence, V vocabulary, H heads, D head dim. Weights are [out, in], row-major.
"""

import json
import os
import sys
from types import SimpleNamespace

os.environ["ATEN_CPU_CAPABILITY"] = "default"  # the same kernels whatever vector units this machine has

import numpy as np
import torch
import torch.nn.functional as F

from numpy_model import IGNORED, frequencies, has_experts, head_dim_of, is_buffer, numpy_first_loss, targets_of

FORMAT = 1
TRAINING = {"batch": 4, "steps": 10, "lr": 1e-2, "beta1": 0.9, "beta2": 0.95, "adam_eps": 1e-8, "weight_decay": 0.1,
            "clip_norm": 1.0}
MODELS = {
    "gpt": {"family": "gpt", "vocab": 61, "hidden": 16, "layers": 2, "heads": 4, "kv_heads": 4, "ffn": 64, "seq": 16,
            "tied": True, "norm_eps": 1e-5, "seed": 20240501, **TRAINING},
    "llama": {"family": "llama", "vocab": 61, "hidden": 16, "layers": 2, "heads": 4, "kv_heads": 2, "ffn": 40, "seq": 16,
              "tied": False, "norm_eps": 1e-5, "rotary_base": 10000.0, "seed": 20240502, **TRAINING},
}
# Keys that the plain models do not have: parallel_block, and window, the number of keys a query sees.
VARIANTS = {"parallel": {"parallel_block": True}, "window": {"window": 5},
            "parallel_window": {"parallel_block": True, "window": 5}}
MODELS.update({f"{name}_{variant}": {**c, **keys, "seed": c["seed"] + 40 * i}
               for name, c in list(MODELS.items()) for i, (variant, keys) in enumerate(VARIANTS.items(), 1)})
# Keys of Llama's relatives: experts in place of the MLP, with the router's losses, biases, norms of heads, heads of another size than hidden / heads, scaled rotary frequencies.
BIASES = dict.fromkeys(("qkv_bias", "out_bias", "mlp_bias"), True)
LLAMA3 = dict(rotary_scaling="llama3", rotary_factor=4.0, rotary_low_freq=1.0, rotary_high_freq=4.0, rotary_original_seq=12)
RELATIVES = {"llama3": {**BIASES, **LLAMA3},
             "qwen2": {"qkv_bias": True, "rotary_scaling": "linear", "rotary_factor": 3.0},
             "qwen3": {"qk_norm": True, "head_dim": 6},
             "qwen3_parallel_window": {**BIASES, **LLAMA3, **VARIANTS["parallel_window"], "qk_norm": True, "head_dim": 10},
             "mixtral": {"experts": 5, "experts_per_token": 2, "aux_loss": 0.05, "z_loss": 0.01},
             "qwen3_moe": {"experts": 6, "experts_per_token": 3, "expert_ffn": 24, "router_normalized": False,
                           "aux_loss": 0.03, "z_loss": 0.0, "qk_norm": True, "head_dim": 6},
             "shared_moe": {"experts": 4, "experts_per_token": 2, "expert_ffn": 12, "shared_experts": 2, "qkv_bias": True,
                            "shared_expert_gate": True, "aux_loss": 0.02, "z_loss": 0.0},
             "sigmoid_moe": {"experts": 4, "experts_per_token": 2, "router": "sigmoid", "router_scale": 1.7,
                             "aux_loss": 0.05, "z_loss": 0.01},
             "yarn": {"head_dim": 10, "rotary_dim": 8, "rotary_scaling": "yarn", "rotary_factor": 4.0,
                      "rotary_low_freq": 0.01, "rotary_high_freq": 1.0, "rotary_original_seq": 12,
                      "rotary_attention_factor": 1.3},
             "dots": {"experts": 8, "experts_per_token": 3, "expert_ffn": 12, "router": "sigmoid", "router_scale": 1.7,
                      "router_bias": True, "bias_rate": 0.02, "router_groups": 4, "router_groups_per_token": 2,
                      "shared_experts": 2, "dense_layers": [0], "qk_norm": True, "aux_loss": 0.02, "z_loss": 0.0}}
for number, (variant, keys) in enumerate(RELATIVES.items()):
    MODELS[variant] = {**MODELS["llama"], **keys, "clip_norm": 1.4, "seed": 20240600 + number}
# Ignored targets: a part of each row, and all of the first one.
MODELS["masked"] = {**MODELS["llama"], "ignores": True, "clip_norm": 1.4, "seed": 20240801}
# GPT-NeoX: a parallel block has a norm for each branch.
NEOX = {**MODELS["gpt"], "family": "neox", "tied": False, "rotary_base": 500.0, "hidden": 24, "ffn": 40,
        "clip_norm": 1.2}
MODELS["neox"] = {**NEOX, "parallel_block": True, "exact_gelu": True, "rotary_dim": 4, "seed": 20240701}
MODELS["neox_serial"] = {**NEOX, "seed": 20240702}


def has_bias(c, linear):
    key = "mlp_bias" if linear.startswith("mlp") else "out_bias" if linear == "attn.out" else "qkv_bias"
    return c["family"] != "llama" or c.get(key)


def norms_of(c):
    return ("norm1",) if c.get("parallel_block") and c["family"] != "neox" else ("norm1", "norm2")


# ------------------------------------------------------------------ parameters and tokens


def parameter_shapes(c):
    """Name -> shape, in the order the random numbers are drawn."""
    hidden, ffn = c["hidden"], c["ffn"]
    q, kv = head_dim_of(c) * c["heads"], head_dim_of(c) * c["kv_heads"]
    llama = c["family"] == "llama"
    shapes = {"embed.tokens.weight": (c["vocab"], hidden)}
    if c["family"] == "gpt":
        shapes["embed.positions.weight"] = (c["seq"], hidden)
    for i in range(c["layers"]):
        linears = {"attn.q": (q, hidden), "attn.k": (kv, hidden), "attn.v": (kv, hidden), "attn.out": (hidden, q)}
        if llama:
            linears["mlp.gate"] = (ffn, hidden)
        linears.update({"mlp.up": (ffn, hidden), "mlp.down": (hidden, ffn)})
        if has_experts(c, i):
            linears = {name: shape for name, shape in linears.items() if name.startswith("attn")}
            linears["mlp.router"] = (c["experts"], hidden)
            width = c.get("expert_ffn", ffn)
            if "shared_experts" in c:
                shared = c["shared_experts"] * width
                if c.get("shared_expert_gate"):
                    linears["mlp.shared.router"] = (1, hidden)
                linears.update({"mlp.shared.gate": (shared, hidden), "mlp.shared.up": (shared, hidden),
                                "mlp.shared.down": (hidden, shared)})
            for e in range(c["experts"]):
                linears.update({f"mlp.experts.{e}.gate": (width, hidden), f"mlp.experts.{e}.up": (width, hidden),
                                f"mlp.experts.{e}.down": (hidden, width)})
        for norm in norms_of(c):
            shapes[f"layers.{i}.{norm}.weight"] = (hidden,)
            if not llama:
                shapes[f"layers.{i}.{norm}.bias"] = (hidden,)
        for name, shape in linears.items():
            shapes[f"layers.{i}.{name}.weight"] = shape
            if has_bias(c, name):
                shapes[f"layers.{i}.{name}.bias"] = shape[:1]
        if c.get("router_bias") and has_experts(c, i):
            shapes[f"layers.{i}.mlp.router.bias"] = (c["experts"],)
        if c.get("qk_norm"):
            shapes.update({f"layers.{i}.attn.{which}_norm.weight": (head_dim_of(c),) for which in "qk"})
    shapes["final_norm.weight"] = (hidden,)
    if not llama:
        shapes["final_norm.bias"] = (hidden,)
    if not c["tied"]:
        shapes["head.weight"] = (c["vocab"], hidden)
    return shapes


def initial_parameters(c):
    """Weights are larger, gains and biases less trivial, than in a real run: every term must matter in the gradients."""
    rng = np.random.default_rng(c["seed"])
    params = {}
    for name, shape in parameter_shapes(c).items():
        n = rng.standard_normal(shape)
        if name.endswith(".bias"):
            value = 0.05 * n
        elif "norm" in name:
            value = 1.0 + 0.1 * n
        else:
            value = (0.5 if "router" in name else 0.08) * n
        params[name] = value.astype(np.float32)
    return params


def token_batches(c):
    """[steps, B, S + 1] int32. The next token is 7 t + 3 mod V nine times in ten, so that there is something to learn."""
    rng = np.random.default_rng(c["seed"] + 1000)
    tokens = np.empty((c["steps"], c["batch"], c["seq"] + 1), dtype=np.int32)
    tokens[..., 0] = rng.integers(0, c["vocab"], tokens.shape[:2])
    for s in range(1, c["seq"] + 1):
        noise = rng.integers(0, c["vocab"], tokens.shape[:2])
        rule = (7 * tokens[..., s - 1] + 3) % c["vocab"]
        tokens[..., s] = np.where(rng.random(tokens.shape[:2]) < 0.1, noise, rule)
    return tokens


# ------------------------------------------------------------------ the reference, in PyTorch


def linear(p, name, x):
    return F.linear(x, p[name + ".weight"], p.get(name + ".bias"))


def norm(c, p, name, x):
    if c["family"] != "llama":
        return F.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"], c["norm_eps"])
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + c["norm_eps"]) * p[name + ".weight"]


def rotate(c, x_BHSD):
    half = c.get("rotary_dim", head_dim_of(c)) // 2
    angle_SD = torch.outer(torch.arange(x_BHSD.shape[2], dtype=torch.float64), torch.tensor(frequencies(c)))
    cos, sin = angle_SD.cos().to(x_BHSD.dtype), angle_SD.sin().to(x_BHSD.dtype)
    a, b, as_it_is = x_BHSD.split([half, half, x_BHSD.shape[-1] - 2 * half], dim=-1)
    factor = c.get("rotary_attention_factor", 1)
    return torch.cat([factor * (a * cos - b * sin), factor * (b * cos + a * sin), as_it_is], dim=-1)


def attention(c, p, name, x):
    batch, seq, _ = x.shape
    head_dim = head_dim_of(c)

    def heads(which, count):
        return linear(p, f"{name}.{which}", x).view(batch, seq, count, head_dim).transpose(1, 2)

    q, k, v = heads("q", c["heads"]), heads("k", c["kv_heads"]), heads("v", c["kv_heads"])
    if c.get("qk_norm"):
        q, k = norm(c, p, name + ".q_norm", q), norm(c, p, name + ".k_norm", k)
    if c["family"] != "gpt":
        q, k = rotate(c, q), rotate(c, k)
    share = c["heads"] // c["kv_heads"]  # query head h reads kv head h // share
    k, v = k.repeat_interleave(share, dim=1), v.repeat_interleave(share, dim=1)
    scores = q @ k.transpose(-1, -2) / head_dim**0.5
    distance = torch.arange(seq)[:, None] - torch.arange(seq)[None, :]  # of a query to a key before it
    unseen = (distance < 0) | (distance >= c.get("window", seq))
    mixed = torch.softmax(scores.masked_fill(unseen, float("-inf")), dim=-1) @ v
    return linear(p, name + ".out", mixed.transpose(1, 2).reshape(batch, seq, -1))


def mlp(c, p, name, x):
    if c["family"] != "llama":
        inner = F.gelu(linear(p, name + ".up", x), approximate="none" if c.get("exact_gelu") else "tanh")
    else:
        inner = F.silu(linear(p, name + ".gate", x)) * linear(p, name + ".up", x)
    return linear(p, name + ".down", inner)


def ranks_of(c, p, name, scores):
    """Scores plus bias, and minus infinity outside of the groups that a token chooses from."""
    if not c.get("router_bias"):
        return scores
    by_group = (scores.detach() + p[name + ".router.bias"]).unflatten(-1, (c["router_groups"], -1))
    best = by_group.topk(2, dim=-1).values.sum(-1).topk(c["router_groups_per_token"], dim=-1).indices
    closed = torch.ones_like(by_group[..., 0]).scatter(-1, best, 0.0).bool()
    return by_group.masked_fill(closed[..., None], float("-inf")).flatten(-2)


def moe(c, p, name, x, routers):
    """Every expert computes all tokens: what it was not chosen for has the weight 0."""
    logits = F.linear(x, p[name + ".router.weight"])
    sigmoid = c.get("router") == "sigmoid"
    scores = torch.sigmoid(logits) if sigmoid else torch.softmax(logits, dim=-1)
    best = ranks_of(c, p, name, scores).topk(c["experts_per_token"], dim=-1).indices
    chosen = torch.zeros_like(scores).scatter(-1, best, 1.0)
    routers.loads[name + ".router.bias"] = chosen.sum((0, 1))
    weights = scores * chosen
    if c.get("router_normalized", True):
        weights = weights / weights.sum(-1, keepdim=True)
    out = sum(c.get("router_scale", 1.0) * weights[..., e, None] * mlp(c, p, f"{name}.experts.{e}", x)
              for e in range(c["experts"]))
    if "shared_experts" in c:
        gate = torch.sigmoid(linear(p, name + ".shared.router", x)) if c.get("shared_expert_gate") else 1.0
        out = out + gate * mlp(c, p, name + ".shared", x)
    shares = scores / scores.sum(-1, keepdim=True) if sigmoid else scores
    of_sequences = (chosen.mean(1) * shares.mean(1)).sum(-1) * c["experts"] / c["experts_per_token"]
    routers.losses.append(c["aux_loss"] * of_sequences.mean() + c["z_loss"] * torch.logsumexp(logits, dim=-1).pow(2).mean())
    return out


def logits_of(c, p, inputs_BS, routers):
    x = p["embed.tokens.weight"][inputs_BS]
    if c["family"] == "gpt":
        x = x + p["embed.positions.weight"]
    for i in range(c["layers"]):
        layer = f"layers.{i}."
        normed = norm(c, p, layer + "norm1", x)
        mixed = x + attention(c, p, layer + "attn", normed)
        if "norm2" in norms_of(c):
            normed = norm(c, p, layer + "norm2", x if c.get("parallel_block") else mixed)
        feed = moe(c, p, layer + "mlp", normed, routers) if has_experts(c, i) else mlp(c, p, layer + "mlp", normed)
        x = mixed + feed
    x = norm(c, p, "final_norm", x)
    return x @ p["embed.tokens.weight" if c["tied"] else "head.weight"].T


def decay_of(c, p):
    return c["weight_decay"] if p.dim() == 2 else 0.0


class AdamW:
    """The update as libms defines it: decoupled decay of the old value, bias-corrected moments, eps outside the root."""

    def __init__(self, c, params):
        self.c, self.params, self.step_count = c, params, 0
        self.m = {n: torch.zeros_like(p) for n, p in params.items()}
        self.v = {n: torch.zeros_like(p) for n, p in params.items()}

    def step(self, factor):
        c = self.c
        self.step_count += 1
        correct1 = 1.0 - c["beta1"] ** self.step_count
        correct2 = 1.0 - c["beta2"] ** self.step_count
        with torch.no_grad():
            for name, p in self.params.items():
                g = p.grad * factor
                m, v = self.m[name], self.v[name]
                m.copy_(c["beta1"] * m + (1.0 - c["beta1"]) * g)
                v.copy_(c["beta2"] * v + (1.0 - c["beta2"]) * g * g)
                update = (m / correct1) / ((v / correct2).sqrt() + c["adam_eps"])
                p.copy_(p - c["lr"] * (update + decay_of(c, p) * p))


def train(c, init, tokens, dtype, clip=True, library_optimizer=False):
    """Runs all steps. Norms are summed in float64 whatever the dtype; everything else is computed in it."""
    params = {n: torch.tensor(v).to(dtype).requires_grad_() for n, v in init.items() if not is_buffer(n)}
    biases = {n: torch.tensor(v).to(dtype) for n, v in init.items() if is_buffer(n)}
    if library_optimizer:
        groups = [{"params": [p], "weight_decay": decay_of(c, p)} for p in params.values()]
        library = torch.optim.AdamW(groups, lr=c["lr"], betas=(c["beta1"], c["beta2"]), eps=c["adam_eps"])
    else:
        own = AdamW(c, params)
    losses, norms, first = [], [], {}
    for step in range(c["steps"]):
        batch = torch.tensor(tokens[step], dtype=torch.int64)
        for p in params.values():
            p.grad = None
        routers = SimpleNamespace(losses=[], loads={})  # loads: the tokens of each expert, by the name of the bias
        logits = logits_of(c, params | biases, batch[:, :-1], routers).reshape(-1, c["vocab"])
        loss = F.cross_entropy(logits, torch.tensor(targets_of(c, tokens[step])).long().reshape(-1), ignore_index=IGNORED)
        (loss + sum(routers.losses)).backward()
        norm_of_all = float(sum(p.grad.double().pow(2).sum() for p in params.values())) ** 0.5
        losses.append(loss.item())
        norms.append(norm_of_all)
        if step == 0:
            first = {"logits": logits.detach().numpy().copy(), "grad": {n: p.grad.numpy().copy() for n, p in params.items()}}
        if library_optimizer:
            library.step()
        else:
            own.step(min(1.0, c["clip_norm"] / norm_of_all) if clip else 1.0)
        for name, bias in biases.items():
            load = routers.loads[name]
            bias += c["bias_rate"] * torch.sign(load.mean() - load)
    final = {n: p.detach().numpy().copy() for n, p in (params | biases).items()}
    return {"losses": losses, "grad_norms": norms, "logits": first["logits"], "grad": first["grad"], "final": final}


# ------------------------------------------------------------------ checks and files


def require(condition, message):
    if not condition:
        sys.exit(f"make_golden.py: {message}")


def relative_l2(a, b):  # b is float64, and so is the difference
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def check(name, c, init, tokens, single, double):
    second = numpy_first_loss(c, init, tokens, targets_of(c, tokens))
    for run, tolerance in ((single, 1e-5), (double, 1e-12)):
        require(abs(run["losses"][0] - second) < tolerance, f"{name}: first loss {run['losses'][0]}, numpy says {second}")
    # In float64, so that only a different formula (and not rounding) can make a difference.
    mine = train(c, init, tokens, torch.float64, clip=False)
    theirs = train(c, init, tokens, torch.float64, library_optimizer=True)
    # Adam amplifies the rounding left in a zero gradient (see write), by up to lr / eps = 1e6: hence 1e-10, not 1e-15.
    worst = max(float(np.abs(mine["final"][n] - theirs["final"][n]).max()) for n in init)
    require(worst < 1e-10, f"{name}: parameters differ by {worst} from those of torch.optim.AdamW")
    require(single["losses"][-1] < single["losses"][0] - 0.2, f"{name}: the loss does not fall: {single['losses']}")
    clipped = [n > c["clip_norm"] for n in single["grad_norms"]]
    require(any(clipped) and not all(clipped), f"{name}: clipping must be active in some steps only: {single['grad_norms']}")


def write(folder, name, c, init, tokens, single, double):
    arrays = {"tokens": tokens, "logits": single["logits"]} | ({"targets": targets_of(c, tokens)} if c.get("ignores") else {})
    for kind, values in (("init", init), ("grad", single["grad"]), ("final", single["final"])):
        arrays.update({f"{kind}/{n}": v for n, v in values.items()})
    # Gradients that are zero in exact arithmetic (a key bias shifts all scores of a query alike): only rounding is left, Adam
    # amplifies it, and neither grad/ nor final/ of these is a reference for anything.
    noise = [n for n in single["grad"] if np.linalg.norm(double["grad"][n]) < 1e-12]
    table, blob = {}, b""
    for key, value in arrays.items():
        dtype = {"float32": "f32", "int32": "i32"}[value.dtype.name]
        table[key] = {"dtype": dtype, "shape": list(value.shape), "offset": len(blob)}
        blob += np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<")).tobytes()
    document = {
        "format": FORMAT,
        "made_by": "tests/golden/make_golden.py",
        "torch": torch.__version__,
        "numpy": np.__version__,
        "config": c,
        "losses": single["losses"],
        "grad_norms": single["grad_norms"],
        "losses_f64": double["losses"],
        "grad_norms_f64": double["grad_norms"],
        # What float32 alone costs, so that a tolerance can be justified: |f32 - f64| / |f64| per step, and L2 per parameter.
        "losses_rel_diff": [abs(a - b) / b for a, b in zip(single["losses"], double["losses"])],
        "grad_rel_l2": {n: relative_l2(single["grad"][n], double["grad"][n]) for n in single["grad"] if n not in noise},
        "final_rel_l2": {n: relative_l2(single["final"][n], double["final"][n]) for n in init if n not in noise},
        "noise_gradients": noise,
        "arrays": table,
    }
    lines = []
    for key, value in document.items():
        if isinstance(value, dict) and key != "config":
            inner = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
            lines.append(f" {json.dumps(key)}: {{\n{inner}\n }}")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    with open(os.path.join(folder, name + ".json"), "w", encoding="ascii") as f:
        f.write("{\n" + ",\n".join(lines) + "\n}\n")
    with open(os.path.join(folder, name + ".bin"), "wb") as f:
        f.write(blob)


def main():
    require(len(sys.argv) <= 2, "usage: make_golden.py [FOLDER]")
    folder = sys.argv[1] if len(sys.argv) == 2 else os.path.dirname(os.path.abspath(__file__))
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name, c in MODELS.items():
        init, tokens = initial_parameters(c), token_batches(c)
        single, double = (train(c, init, tokens, dtype) for dtype in (torch.float32, torch.float64))
        check(name, c, init, tokens, single, double)
        write(folder, name, c, init, tokens, single, double)
        print(f"{name}: loss {single['losses'][0]:.4f} -> {single['losses'][-1]:.4f}, "
              f"norms {min(single['grad_norms']):.3f} to {max(single['grad_norms']):.3f}")


if __name__ == "__main__":
    main()
