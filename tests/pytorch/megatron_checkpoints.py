#!/usr/bin/env python3
"""Checkpoints that Megatron-LM's core writes of a tiny GPT, in several layouts. Needs megatron-core.

megatron_checkpoints.py make DIR [CASE ...]    DIR/CASE/iter_0000002, and DIR/CASE.json, what torch finds in it

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
}
STEP = 2


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


def built(shape, layers):
    """A tiny Llama-like GPT, wrapped for the distributed optimizer, and that."""
    import torch
    from megatron.core import parallel_state
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.transformer import TransformerConfig
    tp, pp, _ = shape
    parallel_state.initialize_model_parallel(tp, pp)
    config = TransformerConfig(num_layers=layers, hidden_size=8, num_attention_heads=4, num_query_groups=2, ffn_hidden_size=12,
                               gated_linear_unit=True, activation_func=torch.nn.functional.silu, add_bias_linear=False,
                               normalization="RMSNorm", use_cpu_initialization=True, tensor_model_parallel_size=tp,
                               pipeline_model_parallel_size=pp, pipeline_dtype=torch.bfloat16, bf16=True,
                               params_dtype=torch.bfloat16, gradient_accumulation_fusion=False)
    model = GPTModel(config, get_gpt_layer_local_spec(normalization="RMSNorm"), vocab_size=16, max_sequence_length=16,
                     pre_process=parallel_state.is_pipeline_first_stage(),
                     post_process=parallel_state.is_pipeline_last_stage(),
                     share_embeddings_and_output_weights=False, position_embedding_type="rope").bfloat16()
    model = DistributedDataParallel(config, DistributedDataParallelConfig(use_distributed_optimizer=True,
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
    return {name: described(torch, value) for name, value in state.items()}


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
    METADATA["distrib_optim_sharding_type"] = kind
    model, optimizer = built(shape, layers)
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
        (directory / f"{case}.json").write_text(json.dumps({"tensors": truth(target)}, indent=1) + "\n")
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
    make(Path(sys.argv[2]), sys.argv[3:])
