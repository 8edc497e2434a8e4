// [overlap], [train], [checkpoint] and [run], and all sections together: the settings of a run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"
#include "ckpt/manifest.h"
#include "data/batch.h"
#include "data/config.h"
#include "mesh/config.h"
#include "nn/config.h"
#include "optim/config.h"
#include "tensor/team.h"
#include "trace/config.h"
#include "train/guard_config.h"

namespace ms::train {

struct TrainConfig {
  std::int64_t steps = 1000;
  std::int64_t global_batch = 8;
  std::int64_t rampup_start = 0, rampup_increment = 0, rampup_samples = 0;
  std::int64_t microbatch = 1;
  std::int64_t seed = 1234;
  std::string dtype = "bf16";
  bool fp8 = false;
  std::string recompute = "none";
  double z_loss = 0;
  double moe_aux_loss = 0;
  std::string moe_aux_scope = "microbatch";
  double moe_z_loss = 0;
  double moe_bias_rate = 1e-3;
  std::string moe_dispatch = "auto";
  double moe_capacity = 0;
  std::int64_t eval_every = 100;
  std::int64_t eval_samples = 64;
  std::int64_t log_every = 10;
};

inline constexpr Field<TrainConfig> kTrainFields[] = {
    {"steps", &TrainConfig::steps, "Optimizer steps of the run.", Unit::none, 1, 1e12},
    {"global_batch", &TrainConfig::global_batch, "Sequences per step, over all data-parallel ranks.", Unit::none, 1,
     1e9},
    {"rampup_start", &TrainConfig::rampup_start,
     "Batch-size ramp-up: sequences per step at the start, growing to global_batch; 0: no ramp-up.", Unit::none, 0,
     1e9},
    {"rampup_increment", &TrainConfig::rampup_increment, "Sequences that each increment of the ramp-up adds.",
     Unit::none, 0, 1e9},
    {"rampup_samples", &TrainConfig::rampup_samples,
     "Sequences in the whole ramp-up, which are divided evenly among the batch sizes.", Unit::none, 0, 1e15},
    {"microbatch", &TrainConfig::microbatch, "Sequences per microbatch.", Unit::none, 1, 1e6},
    {"seed", &TrainConfig::seed, "Seed of all random numbers: initial weights, order of samples, generated text.",
     Unit::none, 0, 9e15},
    {.key = "dtype",
     .member = &TrainConfig::dtype,
     .doc = "Data type of parameters and activations. Sums and norms are at least fp32, and so are main gradients and "
            "the optimizer's state unless optim.main_grads_dtype and optim.moments_dtype are bf16.",
     .choices = {"fp32", "bf16"}},
    {"fp8", &TrainConfig::fp8,
     "FP8 GEMMs in the layers, not in the head: operands are rounded to e4m3, gradients to e5m2, each tensor with its "
     "own scale from its current amax. Norms and activations compute the amax of their output, unless model.fused is "
     "false; other tensors are read once more for it. A step rounds weights once and keeps the result, 2 bytes per "
     "parameter of a layer's matrices. GPUs from H100 on have FP8 GEMMs. Other GPUs and the CPU compute the same "
     "numbers in bf16, more slowly than without fp8. On one H200 steps took 1.23 to 1.60 times as long in bf16, see "
     "ms-performance(7). Only with dtype = \"bf16\"."},
    {.key = "recompute",
     .member = &TrainConfig::recompute,
     .doc = "What the backward recomputes instead of storing. none: nothing; selective: outputs of norms and of the "
            "activation; full: everything but each layer's input.",
     .choices = {"none", "selective", "full"}},
    {"z_loss", &TrainConfig::z_loss,
     "Weight of the z-loss, the squared log of the softmax's denominator, which keeps logits from drifting. 1e-4 is "
     "common; 0: no z-loss. It contributes to the gradients, not to the reported loss.",
     Unit::none, 0, 1},
    {"moe_aux_loss", &TrainConfig::moe_aux_loss,
     "Weight of the loss that keeps the load of experts even: in each layer experts / experts_per_token times the sum, "
     "over the experts, of the share of tokens that chose it and its mean score; 1 if the load is even. 1e-2 to 1e-3 "
     "are common; 0: no such loss. It contributes to the gradients, not to the reported loss.",
     Unit::none, 0, 10},
    {.key = "moe_aux_scope",
     .member = &TrainConfig::moe_aux_scope,
     .doc = "Over which tokens moe_aux_loss counts the load: those of a microbatch, or of each sequence.",
     .choices = {"microbatch", "sequence"}},
    {"moe_z_loss", &TrainConfig::moe_z_loss,
     "Weight of the z-loss of routers, the mean square of the log of the sum of the exponentials of a token's logits. "
     "1e-3 is common; 0: none. It contributes to the gradients, not to the reported loss.",
     Unit::none, 0, 1},
    {"moe_bias_rate", &TrainConfig::moe_bias_rate,
     "With model.router_bias: what each step adds to the bias of experts that fewer tokens chose than the mean of "
     "their "
     "layer, over the global batch, and subtracts from that of others; 0: biases stay as they are.",
     Unit::none, 0, 1},
    {.key = "moe_dispatch",
     .member = &TrainConfig::moe_dispatch,
     .doc =
         "How tokens reach the experts of other ranks of mesh.ep. all_to_all: a row for each expert of a token goes to "
         "the rank that holds it, and comes back; over mesh.tp a rank sends those of its share of the tokens, and the "
         "holders of an expert's shards gather them. all_gather: every rank gathers the tokens of all, and sums are "
         "reduced. auto: what moves fewer bytes, which is all_to_all unless model.experts_per_token is above mesh.ep. "
         "all_to_all sums a token's experts in the order of their scores, as without mesh.ep; all_gather by rank.",
     .choices = {"auto", "all_to_all", "all_gather"}},
    {"moe_capacity", &TrainConfig::moe_capacity,
     "Capacity factor: rows that the experts of a rank of mesh.ep take, as a multiple of an even share; 1.25 to 2 are "
     "common. Rows beyond it are dropped, those of the rank's last experts first: such an expert adds nothing to that "
     "token, in training and in its evaluations (metrics.expert_load_every counts them). Over mesh.tp each share of "
     "the tokens has an equal part of the rows. 0: nothing is dropped, and memory is reserved for the case that all "
     "rows come to one rank, mesh.ep shares.",
     Unit::none, 0, 1e6},
    {"eval_every", &TrainConfig::eval_every,
     "Steps between evaluations; the last step is always evaluated. 0: no evaluations.", Unit::none, 0, 1e12},
    {"eval_samples", &TrainConfig::eval_samples, "Sequences per evaluation, rounded up to whole global batches.",
     Unit::none, 1, 1e9},
    {"log_every", &TrainConfig::log_every, "Steps between lines in the log.", Unit::none, 1, 1e9},
};

struct CheckpointConfig {
  std::string dir, load;
  bool weights_only = false;
  std::int64_t every_steps = 0;
  double every_s = 1800;
  double mtbf_s = 0;
  bool async = true;
  std::string when_busy = "skip";
  std::int64_t keep_last = 0;
  std::int64_t keep_every = 0;
  std::int64_t max_failed = 0;
  std::string data = "continue";
  std::string memory_dir;
};

inline constexpr Field<CheckpointConfig> kCheckpointFields[] = {
    {"dir", &CheckpointConfig::dir,
     "Directory of checkpoints. A run resumes from the newest complete one in it, and saves its last step. Empty: "
     "nothing is saved."},
    {"load", &CheckpointConfig::load,
     "Checkpoint to start from if dir has none: a checkpoint of another run, or the newest complete one of a "
     "directory. It is only read. If model.layers is not set, the keys of [model] that are not set have its values. "
     "Empty: start at step 0, with initial weights from train.seed."},
    {"weights_only", &CheckpointConfig::weights_only,
     "true: load only the weights of the checkpoint in load, with a fresh optimizer, and start at step 0 and at the "
     "first sample of the data, as for fine-tuning. false: continue training from the checkpoint's step, with the data "
     "as in checkpoint.data."},
    {"every_steps", &CheckpointConfig::every_steps, "Steps between saves; 0: saves are timed, see every and mtbf.",
     Unit::none, 0, 1e12},
    {.key = "every",
     .member = &CheckpointConfig::every_s,
     .doc =
         "Time between saves if every_steps and mtbf are 0. 0: save only the last step, and when the run is stopped. "
         "auto: the optimum by Young and Daly, as for mtbf, from 1 minute to 1 hour; the mean time between failures "
         "is that of the run so far under ms-driver (MS_MTBF), and without failures 1 in 264 days of a node "
         "(Llama 3 405B, arXiv 2407.21783).",
     .unit = Unit::seconds,
     .min = 0,
     .max = 30 * 86'400,
     .choices = {"auto"}},
    {"mtbf", &CheckpointConfig::mtbf_s,
     "Mean time between failures of the whole job. If it is above 0 and every_steps is 0, the time between saves is "
     "the optimum by Young and Daly for the measured cost of a save.",
     Unit::seconds, 0, 3650.0 * 86'400},
    {"async", &CheckpointConfig::async,
     "Write in the background while training continues. false: training waits until a save is committed."},
    {.key = "when_busy",
     .member = &CheckpointConfig::when_busy,
     .doc = "What to do when a save is due while the previous one is still being written.",
     .choices = {"skip", "wait"}},
    {"keep_last", &CheckpointConfig::keep_last, "When a new checkpoint is committed, keep the newest N; 0: keep all.",
     Unit::none, 0, 1e9},
    {"keep_every", &CheckpointConfig::keep_every,
     "With keep_last, also keep checkpoints of steps that are multiples of this; 0: none.", Unit::none, 0, 1e12},
    {.key = "data",
     .member = &CheckpointConfig::data,
     .doc = "What to do if the token files, their weights, model.seq or train.seed differ from those of the "
            "checkpoint. continue: refuse to run. restart: start at the beginning of the data. With the same data a "
            "run always resumes after the last sample that was trained on.",
     .choices = {"continue", "restart"}},
    {"max_failed", &CheckpointConfig::max_failed,
     "End the run with code 74 after this many failed saves in a row. 0: log a warning, continue training, and retry "
     "after a minute, then at intervals of up to ten minutes. The last save of a run must succeed.",
     Unit::none, 0},
    {"memory_dir", &CheckpointConfig::memory_dir,
     "Memory tier: a directory in the memory of every node, such as /dev/shm; empty: none. Each save is also copied to "
     "its subdirectory ms-UID, which must belong to the user and be closed to others. Each rank's part is copied to "
     "its own node and to another one, in another dp, pp and tp group if possible. After the loss of a node, a run "
     "that resumes in the same layout reads nothing from storage. The directory holds the newest save, and the "
     "previous one while the newest is copied. That is at most 4 parts for each rank of the node, which count as the "
     "job's memory. There is also a buffer for one more part. A failed copy does not fail the save. A run removes its "
     "copies when it is complete; those of an unfinished run remain. The copies are lost if Slurm empties the "
     "directory between two starts (job_container/tmpfs)."},
};

struct RunConfig {
  std::string dir = "runs/default";
  std::string device = "cpu";
  std::int64_t cpu_threads = 0;
  double comm_timeout_s = 600;
  double least_timeout_s = 15;
  double peak_tflops = 0;
  std::string cluster;
  bool deterministic = true;
  std::string matmul_choices;
  bool time_ops = true;
  bool nccl_register = false;
  std::int64_t sample_tokens = 0;
  double sample_temperature = 0.8;
};

inline constexpr Field<RunConfig> kRunFields[] = {
    {"dir", &RunConfig::dir,
     "Directory of config.toml, metrics.jsonl (the previous run's is kept as metrics.jsonl.previous) and verdict.json. "
     "Create a file 'stop' in it to end the run after a step. When a wait for peers has timed out, evidence/ has the "
     "stacks of all processes and the state of each node's GPUs and other devices (ms-diag collect), for the last "
     "eight starts. Like all paths, it is relative to the current directory."},
    {.key = "device",
     .member = &RunConfig::device,
     .doc = "The device that computes. cpu: the best instruction set of the processor that ONEDNN_MAX_CPU_ISA allows "
            "(SSE41, AVX2, AVX512_CORE, AVX512_CORE_BF16 or AVX512_CORE_AMX). It is recorded in the log, checkpoints "
            "and traces; different instruction sets give different bits. cuda: NVIDIA GPUs, bf16 only. Under "
            "mpirun or srun each process uses the GPU with its number on the node, and NCCL between GPUs; ranks that "
            "are threads share the first GPU. One H200 has been measured, see ms-performance(7); several GPUs have "
            "only been emulated.",
     .choices = {"cpu", "cuda"}},
    {"cpu_threads", &RunConfig::cpu_threads,
     "Threads per process that compute on the CPU, shared by its ranks. 0: OMP_NUM_THREADS if set, or else the "
     "process's share of the node's cores. Results do not depend on it.",
     Unit::none, 0, tensor::kMaxThreads},
    {"deterministic", &RunConfig::deterministic,
     "Every run gives the same bits. false, on GPUs: gradients of attention are summed in any order, which takes less "
     "memory and time: on an H200, true makes the backward of attention 1.09 to 1.13 times as long."},
    {"matmul_choices", &RunConfig::matmul_choices,
     "Autotuning of GEMMs on GPUs: a file with the algorithm of every GEMM shape. Missing shapes are timed before the "
     "first step, and rank 0 adds them. Runs with the same file, layout and GPUs give the same bits, and so do resumed "
     "runs, since checkpoints contain the choices. Empty: cuBLASLt's default algorithm."},
    {"time_ops", &RunConfig::time_ops,
     "Measure device time by class of operation on GPUs, for metrics.jsonl and traces. Costs one or two CUDA events "
     "per operation."},
    {"nccl_register", &RunConfig::nccl_register,
     "Register tensors with NCCL (user buffer registration), so that NCCL avoids internal copies if the links within a "
     "node or the network support it. It has only run on emulated GPUs."},
    {"comm_timeout", &RunConfig::comm_timeout_s,
     "Maximum time that an operation waits for its peers before the run stops and names them. After four steps the "
     "deadline of an operation is three times the longest of the last 64 steps, plus 5 s, but at least "
     "run.least_timeout. While ranks wait for data, evaluate, or read or write files, the deadline is comm_timeout.",
     Unit::seconds, 0.1, 1e6},
    {"least_timeout", &RunConfig::least_timeout_s,
     "Minimum of the deadline that is derived from step times (comm_timeout). It should exceed the time in which a "
     "network recovers from a fault. If it is not below comm_timeout, the deadline is always comm_timeout: use this "
     "under a debugger.",
     Unit::seconds, 0.1, 1e6},
    {"peak_tflops", &RunConfig::peak_tflops,
     "Peak of one rank's device in TFLOP/s, for the MFU in metrics.jsonl. 0: the data sheet's bf16 peak for A100, H100 "
     "and H200 that ranks do not share; no MFU for other devices. 'ms-train calibrate' measures the peak of a CPU.",
     Unit::none, 0, 1e9},
    {"cluster", &RunConfig::cluster,
     "Cluster file of the machines, ms-cluster(5), as ms-train calibrate writes it. After 100 steps, and when step "
     "times change, the run logs the measured and the simulated time of a step, as ms-tracepp report --expected does. "
     "With mesh.dp = \"auto\" it also logs the simulated speed of each number of replicas before the first step. "
     "Empty: neither."},
    {"sample_tokens", &RunConfig::sample_tokens,
     "Tokens to generate when training ends, with the tokenizer of the first file of data.train.", Unit::none, 0, 1e6},
    {"sample_temperature", &RunConfig::sample_temperature,
     "Sampling temperature of generated text; 0: always the most likely token.", Unit::none, 0, 100},
};

struct OverlapConfig {
  bool tp = false, pp = true, dp = true, ep = true;
  std::int64_t dp_message = 32 << 20;
};

inline constexpr Field<OverlapConfig> kOverlapFields[] = {
    {"tp", &OverlapConfig::tp,
     "Split the collectives of tensor parallelism and overlap them with the surrounding GEMMs. An all-reduce over tp "
     "then sums in another order."},
    {"pp", &OverlapConfig::pp,
     "Overlap transfers of activations and their gradients with compute. false: compute waits for each transfer."},
    {"dp", &OverlapConfig::dp,
     "Overlap the reduction of gradients with the rest of the backward, and the gathering of parameters with the "
     "forward. false: compute waits for each collective."},
    {"ep", &OverlapConfig::ep,
     "Overlap the all-to-alls of mesh.ep: the rows of some experts move while others are multiplied, and while the "
     "gradients of weights are computed. false: compute waits for each of them."},
    {"dp_message", &OverlapConfig::dp_message,
     "Bucket size: the gradients of a chunk, and its parameters, are split between layers into collectives of at least "
     "this size. Small ones start as soon as a layer is done, large ones suffer less from latency.",
     Unit::bytes, 1, 1e15},
};

struct Settings {
  nn::ModelConfig model;
  mesh::MeshConfig mesh;
  OverlapConfig overlap;
  TrainConfig train;
  optim::OptimConfig optim;
  GuardConfig guard;
  data::DataConfig data;
  CheckpointConfig checkpoint;
  trace::TraceConfig trace;
  trace::MetricsConfig metrics;
  RunConfig run;
};

// Binds every section; `settings` outlives the schema.
void bind(ConfigSchema& schema, Settings& settings);

// Whether ranks of mesh.ep exchange the rows of experts, or gather each other's tokens (train.moe_dispatch).
bool exchanges_slots(const Settings& settings);
// Returns mesh.cp_type, or what auto chooses.
nn::CpType cp_type_of(const Settings& settings);

// The batches that settings without problems ask for.
data::BatchShape batch_of(const Settings& settings);

// The rules between fields that are broken. What files hold is not looked at.
std::vector<nn::ModelProblem> problems_between(const Settings& settings);

// Clamps what a shorter run cannot have: a warm-up longer than the run. Returns a warning of each.
std::vector<std::string> clamp(Settings& settings);

// The model settings that a checkpoint was saved with; nullopt: it has none, or this program cannot read all.
std::optional<nn::ModelConfig> model_of(const ckpt::Manifest& manifest);

// Settings as a configuration file.
std::string to_toml(const Settings& settings);

// A configuration file with assignments ("train.steps=10") on top, checked: fields, and the rules between them. Throws
// Error("config.invalid", user) with every problem. Opens no data file.
struct Loaded {
  Settings settings;
  std::string resolved;                     // as TOML, every key, with who set it
  std::string values;                       // the same without who set it
  std::vector<std::string> warnings;        // of keys that have no effect, or another than their value says
  std::vector<std::int64_t> dp_sizes = {};  // what mesh.dp = "auto" may be; empty: mesh.dp is a number
};
// Without model.layers, the keys of [model] that are not set are those of the checkpoint in checkpoint.load.
// `world`: the ranks that there are, for mesh.dp = "auto"; nullopt: the most that it may be. Error("mesh.size", user)
// where it may not be what so many ranks make.
Loaded load(const std::string& path, const std::vector<std::string>& assignments,
            std::optional<std::int64_t> world = std::nullopt);
// The same from a text; `name` stands for it in messages. `adjust`, where given, changes the settings before the rules
// are checked.
Loaded load_text(std::string_view text, const std::string& name, const std::vector<std::string>& assignments,
                 const std::function<void(Settings&)>& adjust = {});

}  // namespace ms::train
