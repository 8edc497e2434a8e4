// Names that users of other programs have for our sections, keys and commands, for suggestions only.
#pragma once

#include <string_view>

namespace ms {

// A key ("model.hidden") or a section ("model"), and what others call it, separated by blanks: a name without a dot in
// any section.
struct OtherNames {
  std::string_view ours, theirs;
};

inline constexpr OtherNames kOtherNames[] = {
    {"mesh", "parallel parallelism"},
    {"train", "training trainer"},
    {"optim", "optimizer optimiser optimization"},
    {"data", "dataset datasets"},
    {"checkpoint", "checkpoints checkpointing ckpt"},
    {"run", "experiment exp_manager"},
    {"metrics", "logging logger"},
    {"model.layers", "num_layers num_hidden_layers n_layer n_layers depth"},
    {"model.hidden", "hidden_size hidden_dim n_embd d_model dim"},
    {"model.heads", "num_attention_heads num_heads n_head n_heads"},
    {"model.kv_heads", "num_key_value_heads num_query_groups n_kv_heads"},
    {"model.head_dim", "kv_channels head_size"},
    {"model.ffn_hidden", "ffn_hidden_size intermediate_size n_inner ffn_dim"},
    {"model.vocab", "vocab_size padded_vocab_size"},
    {"model.seq",
     "seq_length seq_len sequence_length max_seq_len max_seq_length max_position_embeddings n_positions block_size "
     "encoder_seq_length context_length n_ctx"},
    {"model.tied_embeddings", "tie_word_embeddings share_embeddings_and_output_weights"},
    {"model.norm_eps", "layernorm_epsilon layer_norm_epsilon norm_epsilon rms_norm_eps"},
    {"model.init_std", "init_method_std initializer_range"},
    {"model.rotary_base", "rope_theta rope_base"},
    {"model.rotary_scaling", "rope_scaling rope_type"},
    {"model.rotary_dim", "partial_rotary_factor rotary_percent rotary_pct"},
    {"model.rotary_factor", "rope_scaling_factor rotary_scaling_factor"},
    {"model.rotary_low_freq", "beta_slow"},
    {"model.rotary_high_freq", "beta_fast"},
    {"model.rotary_attention_factor", "attention_factor"},
    {"model.window", "sliding_window window_size"},
    {"model.qk_norm", "qk_layernorm"},
    {"model.experts", "num_moe_experts num_experts num_local_experts n_routed_experts"},
    {"model.experts_per_token", "moe_router_topk num_experts_per_tok top_k topk"},
    {"model.expert_ffn_hidden", "moe_ffn_hidden_size moe_intermediate_size"},
    {"model.dense_layers", "first_k_dense_replace mlp_only_layers decoder_sparse_step moe_layer_freq"},
    {"model.router", "moe_router_score_function scoring_func"},
    {"model.router_normalized", "norm_topk_prob"},
    {"model.router_scale", "moe_router_topk_scaling_factor routed_scaling_factor"},
    {"model.router_bias", "moe_router_enable_expert_bias"},
    {"model.router_groups", "moe_router_num_groups n_group"},
    {"model.router_groups_per_token", "moe_router_group_topk topk_group"},
    {"mesh.dp", "data_parallel data_parallel_size dp_size"},
    {"mesh.pp", "pipeline pipeline_parallel pipeline_model_parallel_size pp_size"},
    {"mesh.tp", "tensor tensor_parallel tensor_model_parallel_size model_parallel_size tp_size"},
    {"mesh.cp", "context_parallel context_parallel_size context_parallel_degree cp_size"},
    {"mesh.cp_type", "cp_comm_type context_parallel_rotate_method"},
    {"mesh.ep", "expert_model_parallel_size expert_parallel expert_parallel_size ep_size"},
    {"mesh.expert_tp", "expert_tensor_parallel_size expert_tensor_parallel etp etp_size"},
    {"mesh.chunks", "virtual_pipeline_model_parallel_size num_virtual_stages_per_pipeline_rank"},
    {"mesh.first_layers",
     "decoder_first_pipeline_num_layers num_layers_in_first_pipeline_stage account_for_embedding_in_pipeline_split"},
    {"mesh.last_layers",
     "decoder_last_pipeline_num_layers num_layers_in_last_pipeline_stage account_for_loss_in_pipeline_split"},
    {"mesh.schedule", "pipeline_schedule"},
    {"train.steps", "max_steps train_iters train_steps num_steps max_iters total_steps iterations"},
    {"train.global_batch", "global_batch_size batch_size train_batch_size"},
    {"train.microbatch", "micro_batch_size per_device_train_batch_size micro_batch"},
    {"train.rampup_start", "rampup_batch_size"},
    {"train.dtype", "precision torch_dtype params_dtype mixed_precision bf16 fp16"},
    {"train.recompute",
     "recompute_granularity recompute_activations activation_checkpointing activations_checkpoint_granularity "
     "gradient_checkpointing"},
    {"train.moe_aux_loss", "moe_aux_loss_coeff router_aux_loss_coef aux_loss_alpha"},
    {"train.moe_z_loss", "moe_z_loss_coeff router_z_loss_coef"},
    {"train.moe_aux_scope", "moe_router_load_balancing_type seq_aux"},
    {"train.moe_bias_rate", "moe_router_bias_update_rate"},
    {"train.seed", "random_seed"},
    {"train.eval_every", "eval_interval eval_steps val_check_interval"},
    {"train.eval_samples", "eval_iters limit_val_batches"},
    {"train.log_every", "log_interval logging_steps log_every_n_steps"},
    {"optim.name", "optimizer optimizer_type"},
    {"optim.lr", "learning_rate max_lr base_lr"},
    {"optim.min_lr_ratio", "min_lr min_lr_rate"},
    {"optim.schedule", "lr_scheduler_type lr_decay_style lr_scheduler scheduler"},
    {"optim.warmup_steps", "warmup num_warmup_steps lr_warmup_steps lr_warmup_iters"},
    {"optim.decay_steps", "lr_decay_iters lr_wsd_decay_iters"},
    {"optim.beta1", "adam_beta1"},
    {"optim.beta2", "adam_beta2"},
    {"optim.eps", "adam_eps adam_epsilon"},
    {"optim.weight_decay", "wd"},
    {"optim.clip", "clip_grad max_grad_norm grad_clip gradient_clip_val"},
    {"optim.zero", "zero_stage use_distributed_optimizer use_megatron_fsdp reshard_after_forward"},
    {"optim.shard_group", "data_parallel_shard_degree mics_shard_size"},
    {"data.train", "data.path data_path data_prefix train_data_path train_file dataset_name"},
    {"data.valid", "data.validation validation_file valid_data_path"},
    {"data.reset_attention", "reset_attention_mask"},
    {"checkpoint.dir", "checkpoint.save checkpoint_dir save_dir output_dir"},
    {"checkpoint.load", "resume_from_checkpoint load_dir restore_from_path model_name_or_path"},
    {"checkpoint.every_steps", "save_interval save_steps every_n_train_steps"},
    {"checkpoint.keep_last", "save_total_limit save_top_k"},
    {"metrics.tensorboard", "tensorboard_dir use_tensorboard"},
};

// Words that people type as a command of `tool`, separated by blanks, and what does that here.
struct OtherCommands {
  std::string_view tool, theirs, ours;
};

inline constexpr OtherCommands kOtherCommands[] = {
    {"ms-train", "resume restart continue train",
     "ms-train run CONFIG trains, and resumes from the newest checkpoint in checkpoint.dir"},
    {"ms-train", "infer inference chat sample", "ms-train generate CHECKPOINTS continues a prompt"},
    {"ms-train", "evaluate validate test perplexity", "ms-train eval CHECKPOINTS computes the perplexity on data sets"},
    {"ms-driver", "kill cancel", "ms-driver stop ends a run with a checkpoint"},
    {"ms-loan", "run start", "ms-loan act lends nodes and takes them back"},
    {"ms-loan", "replay", "ms-loan simulate replays a trace"},
    {"ms-netcheck", "run test check", "ms-netcheck locate names what is at fault, ms-netcheck pairs measures"},
    {"ms-driver", "resume restart continue start",
     "ms-driver run -- COMMAND starts the run, which resumes from its newest checkpoint"},
    {"ms-ckpt", "list", "ms-ckpt ls DIR lists checkpoints"},
    {"ms-ckpt", "convert", "ms-ckpt import and export convert from and to Hugging Face, reshard to another layout"},
    {"ms-ckpt", "delete remove rm", "ms-ckpt prune removes checkpoints"},
    {"ms-data", "tokenize preprocess prepare", "ms-data encode writes text as tokens"},
};

// Where people put an argument, or an option, that a command of `tool` does not have, and how it is given here.
struct OtherWords {
  std::string_view tool;
  std::string_view words;  // separated by blanks: commands, or options
  std::string_view ours;
};

// An argument too many for these commands.
inline constexpr OtherWords kOtherArguments[] = {
    {"ms-train", "generate", "a prompt is given with --prompt TEXT"},
    {"ms-train", "eval", "data sets are named with --data PREFIX"},
    {"ms-train", "simulate tune", "the cluster file is named with --cluster FILE"},
    {"ms-ckpt", "export import reshard", "the result is named with --output DIR"},
    {"ms-driver", "stop evict give-back resize", "the run is named with --run-dir DIR"},
    {"ms-loan", "observe act explain", "the policy is named with --policy FILE"},
    {"ms-loan", "simulate", "the files are named with --jobs, --demand and --policy"},
    {"ms-netcheck", "pairs locate ecmp counters config", "nodes are named with --nodes HOSTLIST"},
    {"ms-netcheck", "collectives", "a configuration of ms-train is named with --config FILE"},
};

inline constexpr OtherWords kOtherOptions[] = {
    {"ms-train", "--config --config-file", "the configuration is named without an option: ms-train run CONFIG"},
    {"ms-train", "--nproc --nproc_per_node --nproc-per-node --gpus --ngpus -n",
     "--ranks N runs N ranks as threads; srun and mpirun start processes"},
    {"ms-train", "--resume --load --checkpoint",
     "a run resumes by itself from the newest checkpoint in checkpoint.dir; checkpoint.load names another one"},
    {"ms-train", "--step --iteration", "the checkpoint of a step is named by its directory, DIR/step-00000060"},
    {"ms-ckpt", "--step --iteration", "the checkpoint of a step is named by its directory, DIR/step-00000060"},
    {"ms-data", "--input --input-file -i", "files are named without an option: ms-data encode --output PREFIX FILE"},
    {"ms-data", "--output-prefix --out", "--output PREFIX names the token file"},
    {"ms-data", "--json-keys --json-key --key --column --text-column", "--field NAME names the field with the text"},
    {"ms-data", "--tokenizer-type --tokenizer-model --tokenizer-name-or-path --vocab-file --model",
     "--tokenizer takes byte, or the path of a tokenizer.json"},
    {"ms-netcheck", "--host --hosts --hostfile --nodelist -w -N", "nodes are named with --nodes HOSTLIST"},
    {"ms-driver", "--nodes --ntasks --gres --gpus --mpi -N -n", "an option of srun is given as --srun=OPTION"},
    {"ms-driver", "--set --ranks --fresh",
     "an option of the command comes behind --: ms-driver run -- ms-train run CONFIG --set KEY=VALUE"},
    {"ms-driver", "--job --jobid", "a run is named by its directory, runs/JOBID"},
    {"ms-loan", "--config --config-file", "the policy is named with --policy FILE"},
};

}  // namespace ms
