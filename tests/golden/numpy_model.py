"""The second opinion of make_golden.py: the forward pass in numpy, one token and one head at a time, without PyTorch."""

import math

import numpy as np

IGNORED = -100  # a target


def has_experts(c, layer):
    return "experts" in c and layer not in c.get("dense_layers", [])


def is_buffer(name):
    """Of what has no gradient: the biases of routers."""
    return name.endswith("router.bias")


def head_dim_of(c):
    return c.get("head_dim", c["hidden"] // c["heads"])


def frequencies(c):
    size = c.get("rotary_dim", head_dim_of(c))
    plain = c["rotary_base"] ** (-2.0 * np.arange(size // 2) / size)
    if c.get("rotary_scaling") == "yarn":
        first, last = (size / 2 * np.log(c["rotary_original_seq"] / (turns * 2 * np.pi)) / np.log(c["rotary_base"])
                       for turns in (c["rotary_high_freq"], c["rotary_low_freq"]))
        lowered = np.interp(np.arange(size // 2), [max(np.floor(first), 0), min(np.ceil(last), size - 1)], [0, 1])
        return lowered * plain / c["rotary_factor"] + (1 - lowered) * plain
    if c.get("rotary_scaling") != "llama3":
        return plain / c.get("rotary_factor", 1)
    turns = c["rotary_original_seq"] * plain / (2 * np.pi)
    smooth = np.clip((turns - c["rotary_low_freq"]) / (c["rotary_high_freq"] - c["rotary_low_freq"]), 0, 1)
    return (1 - smooth) * plain / c["rotary_factor"] + smooth * plain


def targets_of(c, tokens):
    targets = tokens[..., 1:].copy()
    if c.get("ignores"):
        targets[(targets + np.arange(c["seq"])) % 5 < 2] = IGNORED
        targets[..., 0, :] = IGNORED
    return targets


def numpy_first_loss(c, init, tokens, targets):
    p = {n: v.astype(np.float64) for n, v in init.items()}
    gpt, llama = c["family"] == "gpt", c["family"] == "llama"
    head_dim = head_dim_of(c)

    def affine(name, x):
        return p[name + ".weight"] @ x + p.get(name + ".bias", 0.0)

    def normed(name, x):
        if not llama:
            x = x - x.mean()
            return x / np.sqrt(np.mean(x * x) + c["norm_eps"]) * p[name + ".weight"] + p[name + ".bias"]
        return x / np.sqrt(np.mean(x * x) + c["norm_eps"]) * p[name + ".weight"]

    def head(vector, h, position, rotated_by=None):
        part = vector[h * head_dim : (h + 1) * head_dim]
        if gpt or rotated_by is None:
            return part
        if c.get("qk_norm"):
            part = part / np.sqrt(np.mean(part * part) + c["norm_eps"]) * p[rotated_by + "_norm.weight"]
        turn = [c.get("rotary_attention_factor", 1) * np.exp(1j * position * f) for f in frequencies(c)]
        half = len(turn)
        pairs = (part[:half] + 1j * part[half : 2 * half]) * np.array(turn)  # a pair as a complex number
        return np.concatenate([pairs.real, pairs.imag, part[2 * half :]])

    def attended(layer, q, keys, values, position):
        first = max(0, position + 1 - c["window"]) if "window" in c else 0
        out = []
        for h in range(c["heads"]):
            source = h // (c["heads"] // c["kv_heads"])
            query = head(q, h, position, layer + "attn.q")
            near = [head(k, source, t, layer + "attn.k") for t, k in enumerate(keys) if t >= first]
            scores = [query @ k / np.sqrt(head_dim) for k in near]
            weights = np.exp(scores) / np.sum(np.exp(scores))
            out.append(sum(w * head(v, source, 0) for w, v in zip(weights, values[first:])))
        return affine(layer + "attn.out", np.concatenate(out))

    def best_experts(layer, scores):
        ranks = scores + p.get(layer + "mlp.router.bias", 0.0)
        groups = c.get("router_groups", 1)
        size = c["experts"] // groups
        best_two = [np.sort(ranks[g * size : (g + 1) * size])[-2:].sum() for g in range(groups)]
        chosen = sorted(range(groups), key=lambda g: -best_two[g])[: c.get("router_groups_per_token", 1)]
        return sorted((e for e in range(c["experts"]) if e // size in chosen), key=lambda e: -ranks[e])[: c["experts_per_token"]]

    def fed_forward(layer, n):
        if layer + "mlp.router.weight" not in p:
            return one_mlp(layer + "mlp", n)
        logits = p[layer + "mlp.router.weight"] @ n
        scores = 1 / (1 + np.exp(-logits)) if c.get("router") == "sigmoid" else np.exp(logits) / np.sum(np.exp(logits))
        best = best_experts(layer, scores)
        divisor = sum(scores[e] for e in best) if c.get("router_normalized", True) else 1.0
        out = sum(c.get("router_scale", 1.0) * scores[e] / divisor * one_mlp(f"{layer}mlp.experts.{e}", n) for e in best)
        if "shared_experts" in c:
            gated = layer + "mlp.shared.router.weight" in p
            gate = 1 / (1 + np.exp(-affine(layer + "mlp.shared.router", n))) if gated else 1.0
            out = out + one_mlp(layer + "mlp.shared", n) * gate
        return out

    def one_mlp(layer, n):
        up = affine(layer + ".up", n)
        if c.get("exact_gelu"):
            inner = np.array([value * 0.5 * math.erfc(-value / math.sqrt(2)) for value in up])
        elif not llama:
            inner = 0.5 * up * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (up + 0.044715 * up**3)))
        else:
            gate = affine(layer + ".gate", n)
            inner = gate / (1.0 + np.exp(-gate)) * up
        return affine(layer + ".down", inner)

    losses = []
    for row, wanted in zip(tokens[0], targets[0]):
        keys = [[] for _ in range(c["layers"])]  # grows with the position, so causality needs no mask here
        values = [[] for _ in range(c["layers"])]
        for s in range(c["seq"]):
            x = p["embed.tokens.weight"][row[s]] + (p["embed.positions.weight"][s] if gpt else 0.0)
            for i in range(c["layers"]):
                layer = f"layers.{i}."
                n = normed(layer + "norm1", x)
                keys[i].append(affine(layer + "attn.k", n))
                values[i].append(affine(layer + "attn.v", n))
                branch = attended(layer, affine(layer + "attn.q", n), keys[i], values[i], s)
                if c.get("parallel_block"):
                    x = x + branch + fed_forward(layer, normed(layer + "norm2", x) if c["family"] == "neox" else n)
                else:
                    x = x + branch
                    x = x + fed_forward(layer, normed(layer + "norm2", x))
            z = p["embed.tokens.weight" if c["tied"] else "head.weight"] @ normed("final_norm", x)
            if wanted[s] >= 0:
                losses.append(np.log(np.sum(np.exp(z))) - z[wanted[s]])
    return float(np.mean(losses))
