#!/usr/bin/env python3
"""Checkpoints that Megatron-LM's core writes of a tiny GPT, in several layouts. Needs megatron-core.

megatron_checkpoints.py make DIR [CASE ...]    DIR/CASE/iter_0000002, and DIR/CASE.json: what torch finds in it, and the same
                                               weights under the names of transformers' Llama
megatron_checkpoints.py logits TRUTH HF_DIR    exits 1 if the logits of transformers differ from those in the truth

The model, the distributed optimizer and the checkpoint are those of megatron-core. It asks for a GPU in many places: these
get the CPU, and collectives run on gloo.
"""
import hashlib
import json
import multiprocessing
import os
import sys
import tempfile
from pathlib import Path

from checkpoints import described

# name -> ranks over tp, pp and dp, how the optimizer's state is saved, layers
CASES = {
    "whole": ((1, 1, 1), "fully_reshardable", 2),
    "tp": ((2, 1, 1), "fully_reshardable", 2),
    "pp": ((1, 2, 1), "fully_reshardable", 2),
    "dp": ((1, 1, 2), "fully_reshardable", 2),
    "tp-pp": ((2, 2, 1), "fully_reshardable", 2),
    "small-tp": ((2, 1, 1), "fully_reshardable", 1),
    "buckets-whole": ((1, 1, 1), "dp_reshardable", 2),
    "buckets-dp": ((1, 1, 2), "dp_reshardable", 2),
    "qwen2": ((2, 1, 1), "fully_reshardable", 2),
    "qwen3": ((1, 1, 1), "fully_reshardable", 2),  # each layer has tensors of its own
}
STEP = 2
VOCAB, HIDDEN, HEADS, GROUPS, FFN = 16, 8, 4, 2, 12


def on_cpu():
    """What asks for a GPU gets the CPU."""
    import torch
    from torch.overrides import TorchFunctionMode

    class OnCpu(TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), options=None):
            options = dict(options or {})
            if str(options.get("device", "")).startswith("cuda"):
                options["device"] = "cpu"
            return function(*arguments, **options)
    kind = torch.Tensor.type
    torch.Tensor.type = lambda self, *a, **k: (
        kind(self, *a, **k) if a or k else "torch.cuda." + kind(self).rsplit(".", 1)[-1])
    torch.Tensor.cuda = lambda self, *_, **__: self
    for name in ("synchronize", "empty_cache", "set_device"):
        setattr(torch.cuda, name, lambda *_, **__: None)
    torch.cuda.current_device = lambda: torch.device("cpu")
    OnCpu().__enter__()


def gpt(kind, shape, layers, dtype):
    """A tiny GPT that is a Llama, Qwen2 or Qwen3."""
    import torch
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer import TransformerConfig
    config = TransformerConfig(num_layers=layers, hidden_size=HIDDEN, num_attention_heads=HEADS, num_query_groups=GROUPS,
                               ffn_hidden_size=FFN, gated_linear_unit=True, activation_func=torch.nn.functional.silu,
                               add_bias_linear=False, normalization="RMSNorm", use_cpu_initialization=True,
                               tensor_model_parallel_size=shape[0], pipeline_model_parallel_size=shape[1],
                               pipeline_dtype=dtype, bf16=dtype == torch.bfloat16, params_dtype=dtype,
                               gradient_accumulation_fusion=False, add_qkv_bias=kind == "qwen2", qk_layernorm=kind == "qwen3")
    layer = get_gpt_layer_local_spec(normalization="RMSNorm", qk_layernorm=kind == "qwen3")
    return GPTModel(config, layer, vocab_size=VOCAB, max_sequence_length=16,
                    pre_process=parallel_state.is_pipeline_first_stage(), post_process=parallel_state.is_pipeline_last_stage(),
                    share_embeddings_and_output_weights=False, position_embedding_type="rope").to(dtype)


def built(kind, shape, layers):
    """The model, wrapped for the distributed optimizer, and that."""
    import torch
    from megatron.core import parallel_state
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    parallel_state.initialize_model_parallel(*shape[:2])
    model = gpt(kind, shape, layers, torch.bfloat16)
    model = DistributedDataParallel(model.config, DistributedDataParallelConfig(use_distributed_optimizer=True,
                                                                                grad_reduce_in_fp32=True), model)
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=0.01, bf16=True, params_dtype=torch.bfloat16,
                                                       use_distributed_optimizer=True, clip_grad=0.0), [model])
    return model, optimizer


def fill(model):
    """Values by the global name and place of each parameter, so that all layouts hold the same model."""
    import torch
    from megatron.core.dist_checkpointing.mapping import ShardedTensor, apply_factories
    from megatron.core.dist_checkpointing.dict_utils import nested_values
    state = model.module.sharded_state_dict(metadata=METADATA)
    apply_factories(state)
    for shard in nested_values(state):
        if isinstance(shard, ShardedTensor) and shard.data is not None:
            seed = int.from_bytes(hashlib.sha256(shard.key.encode()).digest()[:4], "little")
            full = torch.randn(shard.global_shape, generator=torch.Generator().manual_seed(seed))
            place = [slice(o, o + 1 if i < shard.prepend_axis_num else o + shard.local_shape[i - shard.prepend_axis_num])
                     for i, o in enumerate(shard.global_offset)]
            with torch.no_grad():
                shard.data.copy_(full[tuple(place)].reshape(shard.local_shape))


METADATA = {"distrib_optim_sharding_type": None, "singleton_local_shards": False, "chained_optim_avoid_prefix": True}


def truth(directory):
    """The tensors of a checkpoint as torch reads them."""
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata
    entries = dcp.FileSystemReader(str(directory)).read_metadata().state_dict_metadata
    state = {name: torch.empty(entry.size, dtype=entry.properties.dtype) for name, entry in entries.items()
             if isinstance(entry, TensorStorageMetadata)}
    dcp.load(state, checkpoint_id=str(directory), no_dist=True)
    return {"tensors": {name: described(torch, value) for name, value in state.items()},
            "llama": {name: described(torch, value) for name, value in as_llama(state).items()}, "config": as_llama_config(state)}


def layers_of(state, name):
    if f"decoder.layers.{name}" in state:
        return list(state[f"decoder.layers.{name}"])
    return [state[key] for layer in range(99) if (key := f"decoder.layers.{layer}.{name}") in state]


def as_llama(state):
    named = {"model.embed_tokens.weight": state["embedding.word_embeddings.weight"], "lm_head.weight": state["output_layer.weight"],
             "model.norm.weight": state["decoder.final_layernorm.weight"]}
    for layer in range(len(layers_of(state, "mlp.linear_fc2.weight"))):
        def of(name, layer=layer):
            return layers_of(state, name)[layer]
        gate, up = of("mlp.linear_fc1.weight").chunk(2)
        named |= {f"model.layers.{layer}.{name}.weight": value for name, value in {
            "input_layernorm": of("self_attention.linear_qkv.layer_norm_weight"),
            "self_attn.o_proj": of("self_attention.linear_proj.weight"), "mlp.gate_proj": gate, "mlp.up_proj": up,
            "post_attention_layernorm": of("mlp.linear_fc1.layer_norm_weight"), "mlp.down_proj": of("mlp.linear_fc2.weight")}.items()}
        for kind in ("weight", "bias"):
            if layers_of(state, f"self_attention.linear_qkv.{kind}"):
                joined = of(f"self_attention.linear_qkv.{kind}")
                groups = joined.view(GROUPS, HEADS // GROUPS + 2, HIDDEN // HEADS, *joined.shape[1:])
                for part, value in (("q", groups[:, :-2].flatten(0, 2)), ("k", groups[:, -2].flatten(0, 1)),
                                    ("v", groups[:, -1].flatten(0, 1))):
                    named[f"model.layers.{layer}.self_attn.{part}_proj.{kind}"] = value
        for part in "qk":
            if layers_of(state, f"self_attention.{part}_layernorm.weight"):
                named[f"model.layers.{layer}.self_attn.{part}_norm.weight"] = of(f"self_attention.{part}_layernorm.weight")
    return named


def as_llama_config(state):
    kind = ("Qwen2" if "self_attn.q_proj.bias" in " ".join(as_llama(state)) else
            "Qwen3" if "q_norm" in " ".join(as_llama(state)) else "Llama")
    return {"architectures": [f"{kind}ForCausalLM"], "model_type": kind.lower(), "head_dim": HIDDEN // HEADS, "vocab_size": VOCAB, "hidden_size": HIDDEN,
            "intermediate_size": FFN, "num_hidden_layers": len(layers_of(state, "mlp.linear_fc2.weight")),
            "num_attention_heads": HEADS, "num_key_value_heads": GROUPS, "max_position_embeddings": 16, "hidden_act": "silu",
            "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}


TOKENS = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3]]


def logits_of(kind, weights, layers):
    """What the model computes of them in fp32."""
    import contextlib
    import torch
    from megatron.core.tensor_parallel.random import CudaRNGStatesTracker
    CudaRNGStatesTracker.fork = lambda *_: contextlib.nullcontext()  # of dropout, which is off
    model = gpt(kind, (1, 1, 1), layers, torch.float32)
    model.load_state_dict(weights, strict=False)  # without states of FP8, which are empty
    hidden = torch.ones(1, 1, len(TOKENS[0]), len(TOKENS[0])).triu(1).bool()
    with torch.no_grad():
        return model.eval()(torch.tensor(TOKENS), torch.arange(len(TOKENS[0]))[None], hidden)


def compare_logits(truth_file, hf_dir):
    import torch
    from transformers import AutoModelForCausalLM
    wanted = torch.tensor(json.loads(Path(truth_file).read_text())["logits"])
    with torch.no_grad():
        got = AutoModelForCausalLM.from_pretrained(hf_dir, dtype=torch.float32)(torch.tensor(TOKENS)).logits
    apart = (got - wanted).abs().max().item() / wanted.abs().max().item()
    print(f"logits of transformers and Megatron-LM: apart by {apart:.1e} of the largest")
    sys.exit(apart > 1e-5)  # sums of single precision in other orders, over two layers


def rank_main(case, rank, store, directory):
    shape, kind, layers = CASES[case]
    world = shape[0] * shape[1] * shape[2]
    os.environ.update(GLOO_SOCKET_IFNAME="lo", RANK=str(rank), LOCAL_RANK="0", WORLD_SIZE=str(world))
    import torch
    import torch.distributed as dist
    on_cpu()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, store=dist.FileStore(str(store), world))
    from megatron.core import dist_checkpointing
    METADATA.update(distrib_optim_sharding_type=kind, non_homogeneous_layers=case == "qwen3")
    model, optimizer = built(case, shape, layers)
    fill(model)
    optimizer.reload_model_params()
    for _ in range(STEP):
        for parameter in model.parameters():  # the same on all layouts, and without a rounding
            parameter.main_grad.copy_(parameter.detach().float() / 8)
        optimizer.step()
    state = {"checkpoint_version": 3.0, "iteration": STEP, "content_metadata": METADATA,
             "model": model.module.sharded_state_dict(metadata=METADATA)}
    state["optimizer"] = optimizer.sharded_state_dict(state["model"], metadata=METADATA)
    target = directory / case / f"iter_{STEP:07}"
    target.mkdir(parents=True, exist_ok=True)
    dist.barrier()
    dist_checkpointing.save(state, str(target), content_metadata=METADATA)
    dist.barrier()
    if rank == 0:
        found = truth(target)
        if world == 1:
            found["logits"] = logits_of(case, model.module.state_dict(), layers).tolist()
        (directory / f"{case}.json").write_text(json.dumps(found, indent=1) + "\n")
    dist.barrier()
    dist.destroy_process_group()


def make(directory, wanted):
    context = multiprocessing.get_context("spawn")
    for case, (shape, *_) in CASES.items():
        if wanted and case not in wanted:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            ranks = [context.Process(target=rank_main, args=(case, rank, Path(scratch) / "store", directory))
                     for rank in range(shape[0] * shape[1] * shape[2])]
            for rank in ranks:
                rank.start()
            for rank in ranks:
                rank.join()
        if any(rank.exitcode for rank in ranks):
            sys.exit(f"{case}: a rank failed")


if __name__ == "__main__":
    make(Path(sys.argv[2]), sys.argv[3:]) if sys.argv[1] == "make" else compare_logits(*sys.argv[2:])
