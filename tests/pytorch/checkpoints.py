#!/usr/bin/env python3
"""Checkpoints of a tiny model as PyTorch saves them, and what is in them. Needs PyTorch.

checkpoints.py make DIR [CASE ...]     trains on gloo and saves: DIR/CASE/step-2, and DIR/CASE.json, what torch finds in it
checkpoints.py read HF_DIR MODEL_DIR   loads a model that ms-ckpt exported by torch.distributed.checkpoint into shards on two
                                       ranks; exits 1 if its weights are not those of MODEL_DIR
"""
import json
import os
import sys
from pathlib import Path

from xxh64 import xxh64

# name -> ranks, how parameters are spread, how they are saved
CASES = {
    "plain-1": (1, "plain", "dcp"),
    "fsdp-2": (2, "fsdp", "dcp"),
    "fsdp-4-async": (4, "fsdp", "async"),
    "hsdp-4": (4, "hsdp", "dcp"),
    "ddp-2": (2, "ddp", "dcp"),
    "fsdp1-2": (2, "fsdp1", "dcp"),  # ShardedTensor, which came before DTensor
    "file-1": (1, "plain", "file"),
    "even-2": (2, "even", "dcp"),  # both files have the same layout
    "megatron-2": (2, "even", "megatron"),  # the files around it as Megatron-LM and DeepSpeed write them
    "deepspeed-2": (2, "even", "deepspeed"),
    "whole-2": (2, "even", "whole"),  # the weights of even-2
    "legacy-1": (1, "plain", "legacy"),
}


def model(torch, spread):
    if spread == "even":
        torch.manual_seed(5)
        return torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.Linear(4, 6, bias=False),
                                   torch.nn.Linear(6, 8, bias=False))

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.wq = torch.nn.Linear(6, 5, bias=False)
            self.norm = torch.nn.LayerNorm(6)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.tok_embeddings = torch.nn.Embedding(7, 6)
            self.layers = torch.nn.ModuleList([Block()])
            self.output = torch.nn.Linear(5, 7, dtype=torch.bfloat16)

        def forward(self, tokens):
            x = self.layers[0].norm(self.tok_embeddings(tokens))
            return self.output(self.layers[0].wq(x).bfloat16()).float()

    torch.manual_seed(3)
    return Model()


def described(torch, value):
    """What ms-ckpt hash prints of a tensor."""
    return {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape),
            "hash": f"{xxh64(value.contiguous().view(-1).view(torch.uint8).numpy().tobytes()):016x}"}


def whole(value):
    if hasattr(value, "local_shards"):
        import torch
        import torch.distributed as dist
        parts = [None] * dist.get_world_size()
        dist.all_gather_object(parts, [(shard.metadata.shard_offsets, shard.tensor.detach()) for shard in value.local_shards()])
        full = torch.empty(value.size(), dtype=value.dtype)
        for offsets, part in sum(parts, []):
            full[tuple(slice(begin, begin + size) for begin, size in zip(offsets, part.shape))] = part
        return full
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def deepspeed(torch, rank, world, weights, target):
    """ZeRO 1: the model by one rank, and of the optimizer each rank's part of all parameters in one row."""
    target.mkdir(parents=True, exist_ok=True)
    if rank == 0:
        for name, value in weights.items():  # as ds_to_universal.py
            (target / "zero" / name).mkdir(parents=True, exist_ok=True)
            torch.save({"param": value, "cat_dim": 0}, target / "zero" / name / "fp32.pt")
        shapes = [{name: value.shape for name, value in weights.items()}]
        torch.save({"module": weights, "param_shapes": shapes, "dp_world_size": world, "mp_world_size": 1, "global_steps": 2,
                    "ds_version": "0.17.0"}, target / "mp_rank_00_model_states.pt")
    flat = torch.cat([value.flatten() for value in weights.values()])
    part = flat.split(-(-len(flat) // world))[rank].clone()
    torch.save({"optimizer_state_dict": {"zero_stage": 1, "partition_count": world, "single_partition_of_fp32_groups": [part],
                                         "base_optimizer_state": {"state": {0: {"step": 2, "exp_avg": part / 2}}}}},
               target / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")


def train(torch, run, optimizer, seed):
    for step in range(2):
        torch.manual_seed(10 * step + seed)
        tokens = torch.randint(0, 7, (2, 4))
        torch.nn.functional.cross_entropy(run(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()


def rank_main(case, rank, store, directory):
    os.environ.update(GLOO_SOCKET_IFNAME="lo", RANK=str(rank), LOCAL_RANK=str(rank))
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    torch.set_num_threads(1)
    world, spread, how = CASES[case]
    os.environ["WORLD_SIZE"] = str(world)
    dist.init_process_group("cpu:gloo", rank=rank, world_size=world, store=dist.FileStore(str(store), world))
    net = model(torch, spread)
    trains_first = False
    if spread in ("fsdp", "hsdp", "even"):
        trains_first = not hasattr(torch.cpu.Stream, "record_event")  # FSDP2 of torch 2.6 needs a GPU to train
        if trains_first:
            train(torch, net, torch.optim.AdamW(net.parameters(), lr=0.01), 0)
        from torch.distributed.device_mesh import init_device_mesh
        try:
            from torch.distributed.fsdp import fully_shard
        except ImportError:
            from torch.distributed._composable.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")) if spread == "hsdp" else \
            init_device_mesh("cpu", (world,))
        if spread != "even":
            fully_shard(net.output, mesh=mesh)  # of one type each
        fully_shard(net, mesh=mesh)
    if spread == "fsdp1":
        fsdp1 = torch.distributed.fsdp.FullyShardedDataParallel
        net.output = fsdp1(net.output, device_id=torch.device("cpu"), use_orig_params=True)  # of one type each
        net = fsdp1(net, device_id=torch.device("cpu"), use_orig_params=True)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    if not trains_first:
        train(torch, torch.nn.parallel.DistributedDataParallel(net) if spread == "ddp" else net, optimizer, rank)
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict
    flat = how in ("dcp", "async") and hasattr(StateDictOptions(), "flatten_optimizer_state_dict")  # since torch 2.4
    options = StateDictOptions(flatten_optimizer_state_dict=True) if flat else StateDictOptions()
    # FSDP1 of torch 2.2 gathers the optimizer's state on GPUs only.
    weights, state = (get_model_state_dict(net), {}) if spread == "fsdp1" else get_state_dict(net, optimizer, options=options)
    if flat:  # each item has a kilobyte of its own
        state = {key: value for key, value in state.items() if key.startswith("state.") or key.endswith(".lr")}
    target = directory / case / {"megatron": "iter_0000002", "deepspeed": "global_step2"}.get(how, "step-2")
    everything = {"model": weights} if spread == "even" else {"model": weights, "optimizer": state, "step": 2}
    target.parent.mkdir(parents=True, exist_ok=True)
    if how in ("dcp", "megatron"):
        dcp.save(everything, storage_writer=dcp.FileSystemWriter(str(target)))
    elif how == "async":
        dcp.async_save(everything, storage_writer=dcp.FileSystemWriter(str(target))).result()
    elif how == "whole":
        full = {name: whole(value).t().contiguous().t() if value.ndim == 2 else whole(value) for name, value in weights.items()}
        if rank == 0:  # transposed in memory, which torch.save keeps
            torch.save({"model": full}, f"{target}.pt")
    elif how == "deepspeed":
        deepspeed(torch, rank, world, {name: whole(value) for name, value in weights.items()}, target)
    else:
        torch.save(everything, f"{target}.pt", _use_new_zipfile_serialization=how == "file")

    values = {name: whole(value) for name, value in sorted(weights.items())}
    if rank == 0 and how == "megatron":
        torch.save({"args": {"num_layers": 1}, "checkpoint_version": 3.0, "iteration": 2}, target / "common.pt")
        (target / "metadata.json").write_text(json.dumps({"sharded_backend": "torch_dist", "sharded_backend_version": 1}))
    if rank == 0:
        truth = {"model." + name: described(torch, value) for name, value in values.items()}
        (directory / f"{case}.json").write_text(json.dumps({"torch": torch.__version__, "tensors": truth}, indent=1) + "\n")
    dist.barrier()
    dist.destroy_process_group()


TITAN = {"model.embed_tokens": "tok_embeddings", "model.layers": "layers", "self_attn.q_proj": "attention.wq",
         "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv", "self_attn.o_proj": "attention.wo",
         "mlp.gate_proj": "feed_forward.w1", "mlp.down_proj": "feed_forward.w2", "mlp.up_proj": "feed_forward.w3",
         "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm", "model.norm": "norm", "lm_head": "output"}


def llama_main(_, rank, store, directory):
    """One Llama: as transformers saves it (hf), sharded by FSDP2 (fsdp/step-2), and under torchtitan's names (titan/step-2)."""
    os.environ.update(GLOO_SOCKET_IFNAME="lo", RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from transformers import LlamaConfig, LlamaForCausalLM
    dist.init_process_group("cpu:gloo", rank=rank, world_size=2, store=dist.FileStore(str(store), 2))
    torch.manual_seed(7)
    net = LlamaForCausalLM(LlamaConfig(vocab_size=16, hidden_size=8, intermediate_size=12, num_hidden_layers=1,
                                       num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=16,
                                       tie_word_embeddings=False))
    if rank == 0:
        net.save_pretrained(directory / "hf")
    titan = LlamaForCausalLM(net.config)
    titan.load_state_dict(net.state_dict())
    with torch.no_grad():  # pairs lie side by side there
        for layer in titan.model.layers:
            for proj in (layer.self_attn.q_proj, layer.self_attn.k_proj):
                rows, columns = proj.weight.shape
                proj.weight.copy_(proj.weight.view(-1, 2, 2, columns).transpose(1, 2).reshape(rows, columns))
    for model, name in ((net, "fsdp"), (titan, "titan")):
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
        state = model.state_dict()
        if name == "titan":
            for theirs, ours in TITAN.items():
                state = {key.replace(theirs, ours): value for key, value in state.items()}
        optimizer = {"state": {next(iter(state)) + ".exp_avg": torch.zeros(3)}}
        dcp.save({"model" if name == "fsdp" else "": state, "optimizer": optimizer} if name == "fsdp" else
                 {**state, "optimizer": optimizer}, checkpoint_id=str(directory / name / "step-2"))
    dist.barrier()
    dist.destroy_process_group()


def kept_llama_main(_, rank, store, directory):
    """The Llama of checkpoints/llama as DTensors, without transformers: DIR/dtensor-2/step-2."""
    os.environ.update(GLOO_SOCKET_IFNAME="lo", RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    try:
        from torch.distributed.tensor import Shard, distribute_tensor
    except ImportError:
        from torch.distributed._tensor import Shard, distribute_tensor
    dist.init_process_group("cpu:gloo", rank=rank, world_size=2, store=dist.FileStore(str(store), 2))
    hf = Path(__file__).resolve().parent / "checkpoints/llama/hf"
    data = (hf / "model.safetensors").read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    weights = {name: torch.frombuffer(bytearray(data[begin + info["data_offsets"][0]:begin + info["data_offsets"][1]]),
                                      dtype=torch.float32).view(info["shape"])
               for name, info in json.loads(data[8:begin]).items() if name != "__metadata__"}
    mesh = init_device_mesh("cpu", (2,))
    shards = {name: distribute_tensor(value, mesh, [Shard(0)]) for name, value in weights.items()}
    directory.parent.mkdir(parents=True, exist_ok=True)
    dcp.save({"model": shards, "step": 2}, storage_writer=dcp.FileSystemWriter(str(directory / "step-2")))
    if rank == 0:
        truth = {name: described(torch, value) for name, value in weights.items()}
        directory.with_suffix(".json").write_text(json.dumps({
            "torch": torch.__version__, "config": json.loads((hf / "config.json").read_text()), "llama": truth,
            "tensors": {"model." + name: value for name, value in truth.items()}}))
    dist.barrier()
    dist.destroy_process_group()


def read_main(rank, store, exported, original):
    os.environ.update(GLOO_SOCKET_IFNAME="lo", RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from transformers import AutoConfig, AutoModelForCausalLM
    dist.init_process_group("cpu:gloo", rank=rank, world_size=2, store=dist.FileStore(str(store), 2))
    wanted = AutoModelForCausalLM.from_pretrained(original).state_dict()
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(exported))
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    state = model.state_dict()
    dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(exported))
    assert state.keys() == wanted.keys()
    for name, value in state.items():
        assert torch.equal(whole(value), wanted[name]), name
    dist.barrier()
    dist.destroy_process_group()


def read(*directories):
    import multiprocessing
    import tempfile
    with tempfile.TemporaryDirectory() as scratch:
        context = multiprocessing.get_context("spawn")
        ranks = [context.Process(target=read_main, args=(rank, Path(scratch) / "store", *directories)) for rank in range(2)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
    if any(rank.exitcode for rank in ranks):
        sys.exit("torch.distributed.checkpoint does not read what ms-ckpt exported")
    print("torch.distributed.checkpoint reads what ms-ckpt exported")


def make(directory, wanted):
    import multiprocessing
    import tempfile
    context = multiprocessing.get_context("spawn")
    others = [("llama", 2, llama_main), ("dtensor-2", 2, kept_llama_main)]
    for case, world, main in [(case, row[0], rank_main) for case, row in CASES.items()] + others:
        if wanted and case not in wanted:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            ranks = [context.Process(target=main, args=(case, rank, Path(scratch) / "store",
                                                        directory if main == rank_main else directory / case))
                     for rank in range(world)]
            for rank in ranks:
                rank.start()
            for rank in ranks:
                rank.join()
        if any(rank.exitcode for rank in ranks):
            sys.exit(f"{case}: a rank failed")


if __name__ == "__main__":
    make(Path(sys.argv[2]), sys.argv[3:]) if sys.argv[1] == "make" else read(*sys.argv[2:])
