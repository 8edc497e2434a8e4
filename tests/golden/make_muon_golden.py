#!/usr/bin/env python3
"""Reference losses of 200 steps with torch.optim.Muon for matrices of layers and torch.optim.AdamW for all other parameters:
muon_NAME.{json,bin}, in the format of make_golden.py, whose models and tokens these are. Needs torch 2.9 or newer.

Newton-Schulz turns the last bits of a momentum into some of bf16: `own_noise` is how far PyTorch's own losses move where the
initial parameters change by 1e-7 of themselves. The learning rate keeps that below the test's tolerance. Experts are left
out: tokens close to a tie change theirs. Invariant: nothing is written unless the loss falls, by other losses than AdamW's.
"""

import json
import os
import sys

from make_golden import F, MODELS, initial_parameters, logits_of, np, require, token_batches, torch

SHAPE = {"hidden": 32, "heads": 4, "layers": 3, "steps": 200, "batch": 8}
MUON = {"lr": 3e-4, "momentum": 0.95, "weight_decay": 0.1, "clip_norm": 1.0}
RUNS = {
    "muon_gpt": {**MODELS["gpt"], **SHAPE, **MUON, "ffn": 96, "muon_scale": "match-rms-adamw", "seed": 20240701},
    "muon_llama": {**MODELS["llama"], **SHAPE, **MUON, "ffn": 72, "muon_scale": "match-rms-adamw", "seed": 20240702},
    "muon_original": {**MODELS["llama"], **SHAPE, **MUON, "ffn": 24, "muon_scale": "original", "seed": 20240703},
}


def is_whole(name, p):
    return name.startswith("layers.") and p.dim() == 2 and min(p.shape) > 1


def optimizers(c, params, muon):
    whole = {n: p for n, p in params.items() if muon and is_whole(n, p)}
    groups = [{"params": [p], "weight_decay": c["weight_decay"] if p.dim() == 2 else 0.0}
              for n, p in params.items() if n not in whole]
    result = [torch.optim.AdamW(groups, lr=c["lr"], betas=(c["beta1"], c["beta2"]), eps=c["adam_eps"])]
    if whole:
        result.append(torch.optim.Muon(list(whole.values()), lr=c["lr"], momentum=c["momentum"], nesterov=True,
                                       weight_decay=c["weight_decay"], adjust_lr_fn=c["muon_scale"].replace("-", "_")))
    return result


def train(c, init, tokens, muon=True):
    params = {n: torch.tensor(v).requires_grad_() for n, v in init.items()}
    steps_of = optimizers(c, params, muon)
    losses = []
    for step in range(c["steps"]):
        batch = torch.tensor(tokens[step], dtype=torch.int64)
        for p in params.values():
            p.grad = None
        of_routers = []
        logits = logits_of(c, params, batch[:, :-1], of_routers).reshape(-1, c["vocab"])
        loss = F.cross_entropy(logits, batch[:, 1:].reshape(-1))
        (loss + sum(of_routers)).backward()
        norm = float(sum(p.grad.double().pow(2).sum() for p in params.values())) ** 0.5
        losses.append(loss.item())
        for p in params.values():
            p.grad *= min(1.0, c["clip_norm"] / norm)
        for optimizer in steps_of:
            optimizer.step()
    return losses


def worst_difference(a, b):
    return max(abs(x - y) for x, y in zip(a, b))


def moved(init):
    rng = np.random.default_rng(1)
    return {n: (v * (1 + 1e-7 * rng.standard_normal(v.shape))).astype(np.float32) for n, v in init.items()}


def write(folder, name, c, init, tokens, losses, noise):
    table, blob = {}, b""
    for key, value in {"tokens": tokens, **{f"init/{n}": v for n, v in init.items()}}.items():
        dtype = {"float32": "f32", "int32": "i32"}[value.dtype.name]
        table[key] = {"dtype": dtype, "shape": list(value.shape), "offset": len(blob)}
        blob += np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<")).tobytes()
    document = {"format": 1, "made_by": "tests/golden/make_muon_golden.py", "torch": torch.__version__, "config": c,
                "losses": losses, "own_noise": noise, "arrays": table}
    with open(os.path.join(folder, name + ".json"), "w", encoding="ascii") as file:
        json.dump(document, file, indent=1)
        file.write("\n")
    with open(os.path.join(folder, name + ".bin"), "wb") as file:
        file.write(blob)


def main():
    require(len(sys.argv) <= 2, "usage: make_muon_golden.py [FOLDER]")
    folder = sys.argv[1] if len(sys.argv) == 2 else os.path.dirname(os.path.abspath(__file__))
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name, c in RUNS.items():
        init, tokens = initial_parameters(c), token_batches(c)
        losses, of_adamw = train(c, init, tokens), train(c, init, tokens, muon=False)
        noise = worst_difference(losses, train(c, moved(init), tokens))
        print(f"{name}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, under AdamW {of_adamw[-1]:.4f}, own noise {noise:.1e}")
        require(losses[-1] < losses[0] - 1, f"{name}: the loss does not fall")
        require(worst_difference(losses, of_adamw) > 0.1, f"{name}: these are AdamW's losses")
        write(folder, name, c, init, tokens, losses, noise)


if __name__ == "__main__":
    main()
