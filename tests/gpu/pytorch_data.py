"""Initial weights and batches of peer_pytorch.py, out of files or drawn."""

import json
import os
import pathlib

import torch

from pytorch_settings import Refusal


def hf_names(m):
    """Our name -> names in the file, to be stacked by rows, as libms/engine/hf/names.cpp has them."""
    if m.parallel_block:
        raise Refusal("--weights: Hugging Face's formats have no parallel block")
    names, prefix = {}, "transformer." if m.gpt else "model."

    def put(ours, *theirs):
        names[ours] = [prefix + name for name in theirs]

    def put_affine(ours, theirs):
        put(ours + ".weight", theirs + ".weight")
        put(ours + ".bias", theirs + ".bias")

    put("tokens", "wte.weight" if m.gpt else "embed_tokens.weight")
    for i in range(m.layers):
        if m.gpt:
            for ours, theirs in {"norm1": "ln_1", "qkv": "attn.c_attn", "out": "attn.c_proj", "norm2": "ln_2",
                                 "up": "mlp.c_fc", "down": "mlp.c_proj"}.items():
                put_affine(f"{i}.{ours}", f"h.{i}.{theirs}")
        else:
            for ours, theirs in {"norm1": ["input_layernorm"], "qkv": [f"self_attn.{x}_proj" for x in "qkv"],
                                 "out": ["self_attn.o_proj"], "norm2": ["post_attention_layernorm"],
                                 "up": ["mlp.gate_proj", "mlp.up_proj"], "down": ["mlp.down_proj"]}.items():
                put(f"{i}.{ours}.weight", *(f"layers.{i}.{name}.weight" for name in theirs))
    if m.gpt:
        put("positions", "wpe.weight")
        put_affine("final_norm", "ln_f")
    else:
        put("final_norm.weight", "norm.weight")
    if not m.tied_embeddings:
        names["head"] = ["lm_head.weight"]
    return names


class Safetensors:
    """Tensors by name, of a file or of a directory of them."""

    def __init__(self, path):
        path = pathlib.Path(path)
        self.where = {}
        files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
        if not files:
            raise Refusal(f"--weights: there is no .safetensors file in '{path}'")
        for name in files:
            self.read_header(name)

    def read_header(self, path):
        try:
            with open(path, "rb") as file:
                length = int.from_bytes(file.read(8), "little")
                if length > 100 << 20:
                    raise ValueError(f"a header of {length} bytes")
                header = json.loads(file.read(length))
        except (OSError, ValueError) as error:
            raise Refusal(f"--weights: cannot read '{path}': {error}") from None
        header.pop("__metadata__", None)
        for name, entry in header.items():
            self.where[name] = (path, 8 + length, entry)

    def get(self, name):
        if name not in self.where:
            raise Refusal(f"--weights: there is no tensor '{name}'")
        path, data, entry = self.where[name]
        kinds = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
        if entry["dtype"] not in kinds:
            raise Refusal(f"--weights: '{name}' is of type {entry['dtype']}")
        begin, end = entry["data_offsets"]
        with open(path, "rb") as file:
            file.seek(data + begin)
            content = bytearray(file.read(end - begin))
        return torch.frombuffer(content, dtype=kinds[entry["dtype"]]).view(entry["shape"])


def load_weights(m, params, path):
    source = Safetensors(path)
    for ours, theirs in hf_names(m).items():
        tensors = [source.get(name) for name in theirs]
        target = params.master_views[ours]
        # GPT-2's linear layers are Conv1D, which keeps [in, out].
        conv = m.gpt and ours.split(".")[-2:-1] in (["qkv"], ["out"], ["up"], ["down"]) and target.dim() == 2
        value = torch.cat([tensor.t() if conv else tensor for tensor in tensors])
        if value.shape != target.shape:
            raise Refusal(f"--weights: '{theirs[0]}' makes {list(value.shape)} where the model has "
                          f"{list(target.shape)}")
        target.copy_(value)
    params.copy_back()


def noise(config, device):
    """Four batches of small ids more than large ones, so that there is something to learn."""
    m = config.model
    generator = torch.Generator().manual_seed(config.train.seed)
    draw = torch.rand(4, config.train.global_batch, m.seq + 1, generator=generator)
    return (draw.pow(3) * m.vocab).long().clamp_(max=m.vocab - 1).to(device)


def read_tokens(config, path, device):
    m, row = config.model, config.train.global_batch * (config.model.seq + 1)
    try:
        size = os.path.getsize(path)
        if size == 0 or size % (4 * row) != 0:
            raise Refusal(f"--tokens: '{path}' has {size} bytes, not whole steps of "
                          f"{config.train.global_batch} x {m.seq + 1} int32")
        tokens = torch.from_file(str(path), shared=False, size=size // 4, dtype=torch.int32)
    except (OSError, RuntimeError) as error:
        raise Refusal(f"--tokens: cannot read '{path}': {error}") from None
    if int(tokens.min()) < 0 or int(tokens.max()) >= m.vocab:
        raise Refusal(f"--tokens: '{path}' has ids that are not below model.vocab = {m.vocab}")
    return tokens.view(-1, config.train.global_batch, m.seq + 1).long().to(device)


def batches(config, options, device):
    """Batches, and how many steps are timed."""
    if not options.tokens:
        return noise(config, device), options.steps or 20
    tokens = read_tokens(config, options.tokens, device)
    timed = options.steps or len(tokens) - options.warmup
    if timed < 1 or options.warmup + timed > len(tokens):
        raise Refusal(f"--tokens: '{options.tokens}' has {len(tokens)} steps, not {options.warmup} to warm "
                      f"up and {options.steps or 1} more")
    return tokens, timed
