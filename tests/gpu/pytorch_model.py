"""The models of ms-train in PyTorch: parameters in flat tensors, and functions of weights and activations."""

import math

import torch
import torch.nn.functional as F

ALIGNMENT = 64  # elements; parameters start on cache lines in every type


def layer_parameters(m):
    """Name -> shape and initial value ("normal", "residual", 0 or 1) of a block. Matmuls of one input are
    one matrix, as in libms: q, k, v; gate, up; all of them in a parallel block."""
    qkv, up = (m.heads + 2 * m.kv) * m.head_dim, m.ffn if m.gpt else 2 * m.ffn
    weights = {"out": (m.hidden, m.hidden), "down": (m.hidden, m.ffn)}
    if m.parallel_block:
        weights["in"] = (qkv + up, m.hidden)
    else:
        weights.update({"qkv": (qkv, m.hidden), "up": (up, m.hidden)})
    table = {}
    for norm in ("norm1",) if m.parallel_block else ("norm1", "norm2"):
        table.update(norm_parameters(m, norm))
    for name, shape in weights.items():
        table[f"{name}.weight"] = (shape, "residual" if name in ("out", "down") else "normal")
        if m.gpt:
            table[f"{name}.bias"] = (shape[:1], 0)
    return table


def norm_parameters(m, name):
    table = {f"{name}.weight": ((m.hidden,), 1)}
    if m.gpt:
        table[f"{name}.bias"] = ((m.hidden,), 0)
    return table


def parameter_table(m):
    table = {"tokens": ((m.vocab, m.hidden), "normal")}
    if m.gpt:
        table["positions"] = ((m.seq, m.hidden), "normal")
    for layer in range(m.layers):
        table.update({f"{layer}.{name}": row for name, row in layer_parameters(m).items()})
    table.update(norm_parameters(m, "final_norm"))
    if not m.tied_embeddings:
        table["head"] = ((m.vocab, m.hidden), "normal")
    return table


class Parameters:
    """Weights, fp32 masters and gradients, in flat tensors: matrices, which decay, and the rest."""

    def __init__(self, m, device, dtype):
        self.values, self.masters, self.grads = {}, {}, {}
        self.by_name, self.grad_views, self.master_views = {}, [], {}
        table = parameter_table(m)
        for decay in (True, False):
            mine = {name: row[0] for name, row in table.items() if (len(row[0]) > 1) == decay}
            padded = [-(-math.prod(shape) // ALIGNMENT) * ALIGNMENT for shape in mine.values()]
            self.masters[decay] = torch.zeros(sum(padded), device=device)
            self.grads[decay] = torch.zeros(sum(padded), device=device)
            # In fp32 a parameter is its own master copy.
            own = dtype == torch.float32
            self.values[decay] = self.masters[decay] if own else self.masters[decay].to(dtype)
            begin = 0
            for (name, shape), size in zip(mine.items(), padded):
                end = begin + math.prod(shape)
                self.by_name[name] = torch.nn.Parameter(self.values[decay][begin:end].view(shape))
                self.master_views[name] = self.masters[decay][begin:end].view(shape)
                self.grad_views.append(self.grads[decay][begin:end].view(shape))
                begin += size
        self.all = list(self.by_name.values())  # in the order of grad_views

    def initialise(self, m, seed):
        generator = torch.Generator(self.all[0].device).manual_seed(seed)
        for name, (_, value) in parameter_table(m).items():
            if isinstance(value, str):
                std = m.init_std / (math.sqrt(2.0 * m.layers) if value == "residual" else 1.0)
                self.master_views[name].normal_(std=std, generator=generator)
            else:
                self.master_views[name].fill_(value)
        self.copy_back()

    def copy_back(self):
        with torch.no_grad():
            for decay, values in self.values.items():
                if values is not self.masters[decay]:
                    values.copy_(self.masters[decay])

    def of_layer(self, layer):
        prefix = f"{layer}."
        return {name[len(prefix):]: value for name, value in self.by_name.items() if name.startswith(prefix)}


# B sequences of a microbatch, S tokens, H heads, D their size.


class Model:
    """Functions of weights and activations; what they have in common is settled here. A block takes the
    residual stream as two summands, x + h, and leaves its last sum to who comes next."""

    def __init__(self, m, device, attention, compiled):
        self.m, self.expand = m, attention["expand"]
        self.rope = None if m.gpt else rotary_tables(m, device)
        self.mask = self.flex = None
        if m.windowed and attention["backend"] == "flex":
            from torch.nn.attention.flex_attention import create_block_mask, flex_attention
            self.flex = flex_attention
            window = m.window
            self.mask = create_block_mask(lambda b, h, q, k: (q >= k) & (q - k < window), None, None, m.seq,
                                          m.seq, device=device)
        elif m.windowed:
            at = torch.arange(m.seq, device=device)
            distance = at[:, None] - at[None, :]
            self.mask = (distance >= 0) & (distance < m.window)
        parts = (self.front, self.block, self.back)
        self.parts = parts
        if compiled:
            self.parts = tuple(torch.compile(part, dynamic=False, fullgraph=True) for part in parts)

    def loss(self, outer, layers, inputs, targets):
        front, block, back = self.parts
        x, h = front(outer, inputs)
        for layer in layers:
            x, h = block(layer, x, h)
        return back(outer, x, h, targets)

    def front(self, p, inputs_BS):
        x = F.embedding(inputs_BS, p["tokens"])
        if self.m.gpt:
            x = x + p["positions"]
        return x, x * 0.0  # a second summand, so that the first block is compiled as all others are

    def block(self, p, x, h):
        x = x + h
        n = self.norm(p, "norm1", x)
        if self.m.parallel_block:
            qkv_size = (self.m.heads + 2 * self.m.kv) * self.m.head_dim
            both = affine(p, "in", n)
            attended = self.attention(both[..., :qkv_size])
            return x, affine(p, "out", attended) + affine(p, "down", self.activation(both[..., qkv_size:]))
        x = x + affine(p, "out", self.attention(affine(p, "qkv", n)))
        return x, affine(p, "down", self.activation(affine(p, "up", self.norm(p, "norm2", x))))

    def back(self, p, x, h, targets):
        x = self.norm(p, "final_norm", x + h)
        logits = F.linear(x, p["tokens" if self.m.tied_embeddings else "head"])
        return F.cross_entropy(logits.view(-1, self.m.vocab).float(), targets)

    def norm(self, p, name, x):
        gain = p[name + ".weight"]
        if self.m.gpt:
            return F.layer_norm(x, x.shape[-1:], gain, p[name + ".bias"], self.m.norm_eps)
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.m.norm_eps) * gain.float()
        return wide.to(x.dtype)

    def activation(self, up):
        if self.m.gpt:
            return F.gelu(up, approximate="tanh")
        gate, up = up.chunk(2, -1)
        return F.silu(gate) * up

    def attention(self, qkv):
        m = self.m
        batch, seq = qkv.shape[:2]
        sizes = [count * m.head_dim for count in (m.heads, m.kv, m.kv)]
        q, k, v = (part.view(batch, seq, -1, m.head_dim) for part in qkv.split(sizes, -1))
        if self.rope is not None:
            q, k = rotate(q, *self.rope), rotate(k, *self.rope)
        if self.expand:
            k, v = (part.repeat_interleave(m.heads // m.kv, 2) for part in (k, v))
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        shared = m.kv != m.heads and not self.expand
        if self.flex is not None:
            o = self.flex(q, k, v, block_mask=self.mask, enable_gqa=shared)
        else:
            o = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask, is_causal=self.mask is None,
                                               enable_gqa=shared)
        return o.transpose(1, 2).reshape(batch, seq, m.hidden)


def affine(p, name, x):
    return F.linear(x, p[name + ".weight"], p.get(name + ".bias"))


def rotary_tables(m, device):
    half = m.head_dim // 2
    turn = m.rotary_base ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.outer(torch.arange(m.seq, dtype=torch.float64), turn)[:, None, :]
    return angle.cos().float().to(device), angle.sin().float().to(device)


def rotate(x_BSHD, cos, sin):
    a, b = x_BSHD.float().chunk(2, -1)  # element i turns with i + D/2
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x_BSHD.dtype)
