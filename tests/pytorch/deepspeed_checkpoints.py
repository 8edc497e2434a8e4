#!/usr/bin/env python3
"""Checkpoints that DeepSpeed writes of a tiny model on the CPU. Needs deepspeed.

deepspeed_checkpoints.py make DIR [CASE ...]    DIR/CASE/global_step2, and DIR/CASE.json, the weights that DeepSpeed finds in it
"""
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from checkpoints import described

# name -> ranks, stage of ZeRO
CASES = {"zero-0": (2, 0), "zero-1": (2, 1), "zero-2": (2, 2), "zero-3": (2, 3), "zero-3-whole": (1, 3),
         "llama-2": (2, 2), "llama-3": (2, 3)}  # a model of transformers
LLAMA = {"vocab_size": 16, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2,
         "num_key_value_heads": 1, "max_position_embeddings": 16, "tie_word_embeddings": False}
STEP = 2


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM
    return LlamaForCausalLM(LlamaConfig(**LLAMA))


def logits_of(output):
    return getattr(output, "logits", output)


def rank_main(case, rank, port, directory):
    world, stage = CASES[case]
    os.environ.update(GLOO_SOCKET_IFNAME="lo", RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), DS_ACCELERATOR="cpu")
    import deepspeed
    import torch
    torch.set_num_threads(1)
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # a compiler's work, and nothing of it is in a checkpoint
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    torch.manual_seed(5)
    model = llama() if case.startswith("llama") else torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.Linear(4, 7), torch.nn.Linear(7, 8, bias=False))
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), optimizer=torch.optim.AdamW(
        model.parameters(), lr=0.01), config={
            "train_micro_batch_size_per_gpu": 1, "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
            "bf16": {"enabled": True}, "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0}})
    for step in range(STEP):
        tokens = torch.randint(0, 8, (1, 4), generator=torch.Generator().manual_seed(step))
        engine.backward(torch.nn.functional.cross_entropy(logits_of(engine(tokens)).flatten(0, 1).float(), tokens.flatten()))
        engine.step()
    engine.save_checkpoint(str(directory / case))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def finish(case, directory):
    """Writes down the weights, and makes the universal checkpoint."""
    import torch
    if not CASES[case][1]:
        return
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
    state = get_fp32_state_dict_from_zero_checkpoint(str(directory / case))
    found = {"tensors": {name: described(torch, value) for name, value in state.items()}}
    if case.startswith("llama"):
        found |= {"llama": found["tensors"],
                  "config": LLAMA | {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu"}}
    (directory / f"{case}.json").write_text(json.dumps(found, indent=1) + "\n")
    universal = directory / f"universal-{case}" / f"global_step{STEP}"
    command = [sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder",
               str(directory / case / f"global_step{STEP}"), "--output_folder", str(universal), "--inject_missing_state"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (directory / f"universal-{case}.json").write_text((directory / f"{case}.json").read_text())


def make(directory, wanted):
    context = multiprocessing.get_context("spawn")
    os.environ["DS_ACCELERATOR"] = "cpu"
    for number, (case, (world, _)) in enumerate(CASES.items()):
        if wanted and case not in wanted:
            continue
        import socket
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        ranks = [context.Process(target=rank_main, args=(case, rank, port, directory)) for rank in range(world)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        if any(rank.exitcode for rank in ranks):
            sys.exit(f"{case}: a rank failed")
        finish(case, directory)


if __name__ == "__main__":
    make(Path(sys.argv[2]), sys.argv[3:])
