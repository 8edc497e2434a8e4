#!/usr/bin/env python3
"""The side of transformers in the comparison of logits.

  hf_peer.py logits HF_DIR               its logits of the fixed tokens, in f32, with those tokens, as JSON
  hf_peer.py tokens THEIRS               those tokens, as words
  hf_peer.py make KIND DTYPE OUT         writes a random model of a kind (of KINDS), sharded
  hf_peer.py compare THEIRS OURS         two such lists of logits: exit 1 where they differ by more than 1e-4
  hf_peer.py golden [KIND...]            tests/golden/hf, anew: tiny models and their logits, for golden_hf
  hf_peer.py documents KIND...           logits of golden models whose tokens are several documents, beside them

Needs transformers and torch; shares nothing with libms.
"""

import json
import math
import pathlib
import sys

TOLERANCE = 1e-4  # absolute, f32
KINDS = {  # kind -> (type of the golden model, bytes of a shard there)
    "gpt2": ("float16", 10**9),
    "gpt2_untied": ("float32", 2500),
    "llama": ("bfloat16", 1000),
    "llama_tied": ("float32", 10**9),
    "llama3": ("float32", 10**9),
    "llama_linear": ("float32", 10**9),
    "llama_yarn": ("float32", 10**9),
    "qwen3_yarn": ("bfloat16", 10**9),
    "phi3": ("bfloat16", 10**9),
    "phi3_partial": ("float32", 10**9),
    "mistral": ("bfloat16", 10**9),
    "qwen2": ("float32", 10**9),
    "qwen2_window": ("float32", 10**9),
    "qwen3": ("bfloat16", 10**9),
    "mixtral": ("bfloat16", 10**9),
    "qwen3_moe": ("float32", 5000),
    "qwen3_moe_dense": ("float32", 10**9),
    "qwen2_moe": ("bfloat16", 10**9),
    "dots1": ("float32", 10**9),
    "neox": ("float32", 3000),
    "neox_serial": ("float16", 10**9),
}
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 6}
YARN = {"rope_type": "yarn", "factor": 4.0, "beta_slow": 0.05, "beta_fast": 1.0,
        "original_max_position_embeddings": 6}
WINDOW = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 0}
RELATIVES = {  # kind -> (model_type, keys)
    "llama": ("llama", {}),
    "llama_tied": ("llama", {"tie_word_embeddings": True}),
    "llama3": ("llama", {"rope_scaling": LLAMA3, "attention_bias": True, "mlp_bias": True, "head_dim": 6}),
    "llama_linear": ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 3.0}}),
    "llama_yarn": ("llama", {"rope_scaling": YARN, "head_dim": 8}),
    "qwen3_yarn": ("qwen3", {"head_dim": 10, "rope_scaling": {**YARN, "mscale": 2.0, "mscale_all_dim": 0.7}}),
    "phi3": ("phi3", {"sliding_window": 4, "pad_token_id": None}),
    "phi3_partial": ("phi3", {"partial_rotary_factor": 0.5, "tie_word_embeddings": True, "pad_token_id": None}),
    "mistral": ("mistral", {"sliding_window": 4, "head_dim": 10}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen2_window": ("qwen2", WINDOW),
    "qwen3": ("qwen3", {"head_dim": 10, "rope_scaling": LLAMA3}),
    "mixtral": ("mixtral", {"num_local_experts": 5, "num_experts_per_tok": 3, "sliding_window": 4}),
    "qwen3_moe": ("qwen3_moe", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 20, "head_dim": 10,
                                "norm_topk_prob": False, "decoder_sparse_step": 1, "mlp_only_layers": []}),
    "qwen3_moe_dense": ("qwen3_moe", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
                                      "head_dim": 6, "norm_topk_prob": True, "decoder_sparse_step": 2,
                                      "mlp_only_layers": []}),
    "qwen2_moe": ("qwen2_moe", {"num_experts": 4, "num_experts_per_tok": 3, "moe_intermediate_size": 8,
                                "shared_expert_intermediate_size": 24, "norm_topk_prob": True, "decoder_sparse_step": 1,
                                "mlp_only_layers": []}),
    "dots1": ("dots1", {"n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 8, "n_group": 4,
                        "topk_group": 2, "n_shared_experts": 2, "norm_topk_prob": True, "routed_scaling_factor": 1.7,
                        "first_k_dense_replace": 1, "head_dim": 6, "sliding_window": 4, "max_window_layers": 0}),
}


def tokens_of(seq, vocab):
    return [(7 * i * i + 3 * i + 1) % vocab for i in range(seq)]


def config_of(kind, small):
    """Nothing at its default: everything that is read must be read right."""
    from transformers import AutoConfig, GPT2Config
    size = 8 if small else 48
    common = {"vocab_size": 17 if small else 301, "bos_token_id": 0, "eos_token_id": 0}
    if kind.startswith("gpt2"):
        return GPT2Config(n_embd=size, n_layer=2, n_head=2, n_positions=9, n_inner=None if kind == "gpt2" else 3 * size,
                          layer_norm_epsilon=1e-3, tie_word_embeddings=kind == "gpt2", **common)
    if kind.startswith("neox"):
        keys = {"rotary_pct": 0.5} if kind == "neox" else {"rotary_pct": 1.0, "use_parallel_residual": False,
                                                           "hidden_act": "gelu_fast", "tie_word_embeddings": True}
        return AutoConfig.for_model("gpt_neox", hidden_size=size, num_hidden_layers=2, num_attention_heads=2 if small else 6,
                                    intermediate_size=12 if small else 80, max_position_embeddings=9, layer_norm_eps=1e-3,
                                    rotary_emb_base=50.0, **keys, **common)
    model_type, keys = RELATIVES[kind]
    keys = {"tie_word_embeddings": False, **keys}
    return AutoConfig.for_model(model_type, hidden_size=size, num_hidden_layers=2, num_attention_heads=2 if small else 6,
                                num_key_value_heads=1 if small else 2, intermediate_size=12 if small else 80,
                                max_position_embeddings=9, rms_norm_eps=1e-3, rope_theta=50.0, **keys, **common)


def random_model(kind, dtype, small):
    """Larger weights and less trivial norms and biases than in a real model: every term must matter."""
    import torch
    from transformers import AutoModelForCausalLM
    torch.manual_seed(sum(kind.encode()))
    model = AutoModelForCausalLM.from_config(config_of(kind, small))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape)
            if name.endswith("bias"):
                parameter.copy_(0.2 * noise)
            elif parameter.dim() == 1:
                parameter.copy_(1 + 0.2 * noise)
            else:
                parameter.copy_(noise / parameter.shape[-1] ** 0.5)
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(0.2 * torch.randn(buffer.shape))
    return model.to(getattr(torch, dtype))


def logits_of(directory):
    import torch
    from transformers import AutoModelForCausalLM
    model, report = AutoModelForCausalLM.from_pretrained(directory, torch_dtype=torch.float32, output_loading_info=True)
    wrong = {key: value for key, value in report.items() if value}
    if wrong:
        sys.exit(f"{directory}: transformers says {wrong}")
    model.eval()
    config = model.config
    with torch.no_grad():
        tokens = torch.tensor([tokens_of(config.max_position_embeddings, config.vocab_size)])
        return tokens[0].tolist(), model(tokens).logits[0].flatten().tolist()


def logits_of_documents(directory, starts):
    """With a block-diagonal mask, and positions that begin again in each document."""
    import torch
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(directory, torch_dtype=torch.float32, attn_implementation="eager").eval()
    seq = model.config.max_position_embeddings
    begins, place = torch.tensor(starts), torch.arange(seq)
    sees = (place[None, :] <= place[:, None]) & (place[None, :] >= begins[:, None])
    mask = torch.zeros(seq, seq).masked_fill(~sees, torch.finfo(torch.float32).min)[None, None]
    with torch.no_grad():
        tokens = torch.tensor([tokens_of(seq, model.config.vocab_size)])
        return model(tokens, attention_mask=mask, position_ids=(place - begins)[None]).logits[0].flatten().tolist()


def make(kind, dtype, out, shard_bytes=20000, small=False):
    random_model(kind, dtype, small).save_pretrained(out, safe_serialization=True, max_shard_size=shard_bytes)
    (pathlib.Path(out) / "generation_config.json").unlink(missing_ok=True)


def documents(*kinds):
    """Documents of 2, 3 and 4 tokens."""
    starts = [0, 0, 2, 2, 2, 5, 5, 5, 5]
    for kind in kinds:
        out = pathlib.Path(__file__).resolve().parent / "hf" / kind
        text = ", ".join(f"{value:.8g}" for value in logits_of_documents(out, starts))
        (out / "documents.json").write_text(f'{{"starts": {starts},\n"logits": [{text}]}}\n', encoding="ascii")


def golden(*kinds):
    root = pathlib.Path(__file__).resolve().parent / "hf"
    for kind in kinds or KINDS:
        dtype, shard_bytes = KINDS[kind]
        out = root / kind
        for old in out.glob("*"):
            old.unlink()
        make(kind, dtype, out, shard_bytes, small=True)
        tokens, logits = logits_of(out)
        text = ", ".join(f"{value:.8g}" for value in logits)
        (out / "golden.json").write_text(f'{{"tokens": {json.dumps(tokens)},\n"logits": [{text}]}}\n', encoding="ascii")


def compare(theirs, ours):
    a, b = (json.loads(pathlib.Path(path).read_text(encoding="ascii")) for path in (theirs, ours))
    a = a["logits"]
    if len(a) != len(b):
        sys.exit(f"{len(a)} logits there, {len(b)} here")
    if not all(map(math.isfinite, a + b)):
        sys.exit("logits that are not finite")
    largest, distance = max(map(abs, a)), max(abs(x - y) for x, y in zip(a, b))
    print(f"largest logit {largest:.3g}, largest difference {distance:.2g}")
    if distance > TOLERANCE:
        sys.exit(f"the logits differ by {distance:.3g}")


def main(command, *args):
    if command == "logits":
        print(json.dumps(dict(zip(("tokens", "logits"), logits_of(*args)))))
    elif command == "tokens":
        print(*json.loads(pathlib.Path(*args).read_text(encoding="ascii"))["tokens"])
    elif command == "make":
        make(*args)
    elif command == "compare":
        compare(*args)
    elif command == "golden":
        golden(*args)
    elif command == "documents":
        documents(*args)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:] or [""])
