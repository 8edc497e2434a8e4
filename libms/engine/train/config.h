// [overlap], [train], [checkpoint] and [run], and all sections together: the settings of a run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"
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
  std::int64_t eval_every = 100;
  std::int64_t eval_samples = 64;
  std::int64_t log_every = 10;
};

inline constexpr Field<TrainConfig> kTrainFields[] = {
    {.key = "steps", .member = &TrainConfig::steps, .doc = "Optimizer steps of the run.", .min = 1, .max = 1e12},
    {.key = "global_batch",
     .member = &TrainConfig::global_batch,
     .doc = "Sequences of a step, over all of dp.",
     .min = 1,
     .max = 1e9},
    {.key = "rampup_start",
     .member = &TrainConfig::rampup_start,
     .doc = "Sequences of the first steps, whose batch then grows to global_batch; 0: all steps have the same.",
     .min = 0,
     .max = 1e9},
    {.key = "rampup_increment",
     .member = &TrainConfig::rampup_increment,
     .doc = "Sequences that the batch grows by at a time.",
     .min = 0,
     .max = 1e9},
    {.key = "rampup_samples",
     .member = &TrainConfig::rampup_samples,
     .doc = "Sequences of all steps of the ramp-up together: the batch grows in even parts of them.",
     .min = 0,
     .max = 1e15},
    {.key = "microbatch",
     .member = &TrainConfig::microbatch,
     .doc = "Sequences that go through the model at once.",
     .min = 1,
     .max = 1e6},
    {.key = "seed",
     .member = &TrainConfig::seed,
     .doc = "Key of all random numbers: initial weights, order of samples, generated text.",
     .min = 0,
     .max = 9e15},
    {.key = "dtype",
     .member = &TrainConfig::dtype,
     .doc = "Type of parameters and activations; sums, norms and optimizer state are fp32 or better, and so are main "
            "gradients unless optim.main_grads_dtype says otherwise.",
     .choices = {"fp32", "bf16"}},
    {.key = "fp8",
     .member = &TrainConfig::fp8,
     .doc = "true: GEMMs of the layers, not of the head, round their operands to FP8, each tensor with a scale of its "
            "own, from its current amax: e4m3, and e5m2 for gradients. Norms and activations find the amax of what "
            "they write, unless model.fused is off; other tensors are read for it. A step rounds weights once, and "
            "keeps them so: 2 bytes for each parameter of a layer's matrices. GPUs from H100 on have FP8 GEMMs; others "
            "and the CPU compute the same numbers in bf16, slower than without. What it gains has not been measured on "
            "a GPU. Only with dtype = \"bf16\"."},
    {.key = "recompute",
     .member = &TrainConfig::recompute,
     .doc = "What the backward computes again instead of keeping it: none; selective: outputs of norms and of the "
            "activation; full: everything but each layer's input.",
     .choices = {"none", "selective", "full"}},
    {.key = "z_loss",
     .member = &TrainConfig::z_loss,
     .doc =
         "Weight of the z-loss, the squared log of the softmax's denominator, which keeps logits from drifting; 1e-4 "
         "is usual, 0 is none. It has a part in the gradients; losses are reported without it.",
     .min = 0,
     .max = 1},
    {.key = "eval_every",
     .member = &TrainConfig::eval_every,
     .doc = "Steps between evaluations; the last step is always evaluated; 0 means never.",
     .min = 0,
     .max = 1e12},
    {.key = "eval_samples",
     .member = &TrainConfig::eval_samples,
     .doc = "Sequences of an evaluation, rounded up to whole global batches.",
     .min = 1,
     .max = 1e9},
    {.key = "log_every",
     .member = &TrainConfig::log_every,
     .doc = "Steps between lines in the log.",
     .min = 1,
     .max = 1e9},
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
    {.key = "dir",
     .member = &CheckpointConfig::dir,
     .doc = "Where checkpoints are; a run resumes from the newest complete one there, and saves its last step. Empty: "
            "nothing is saved."},
    {.key = "load",
     .member = &CheckpointConfig::load,
     .doc = "What a run begins with that finds no checkpoint in dir: a checkpoint of another run, or a directory of "
            "them, of which the newest complete one counts. Nothing is written there. Empty: a run begins at step 0, "
            "with the weights that train.seed gives."},
    {.key = "weights_only",
     .member = &CheckpointConfig::weights_only,
     .doc = "true: of the checkpoint that load names only the weights are used. The optimizer is fresh, and the run "
            "begins at step 0 and at the first sample of its data: fine-tuning, or another experiment. false: "
            "training continues from its step, as checkpoint.data says."},
    {.key = "every_steps",
     .member = &CheckpointConfig::every_steps,
     .doc = "Steps between saves; 0: they are made by time.",
     .min = 0,
     .max = 1e12},
    {.key = "every",
     .member = &CheckpointConfig::every_s,
     .doc = "Time between saves where every_steps and mtbf are 0; 0: only the last step, and what a stop asks for.",
     .unit = Unit::seconds,
     .min = 0,
     .max = 30 * 86'400},
    {.key = "mtbf",
     .member = &CheckpointConfig::mtbf_s,
     .doc = "Mean time between failures of the whole job. Above 0, and every_steps 0, the time between saves is chosen "
            "so that least is lost (Young, Daly), from what saves are measured to cost.",
     .unit = Unit::seconds,
     .min = 0,
     .max = 3650.0 * 86'400},
    {.key = "async",
     .member = &CheckpointConfig::async,
     .doc = "Write in the background while training goes on; otherwise training waits until a save is committed."},
    {.key = "when_busy",
     .member = &CheckpointConfig::when_busy,
     .doc = "What happens to a save that is due while the one before is still being written.",
     .choices = {"skip", "wait"}},
    {.key = "keep_last",
     .member = &CheckpointConfig::keep_last,
     .doc = "Checkpoints that stay when a new one is committed, the newest ones; 0: all.",
     .min = 0,
     .max = 1e9},
    {.key = "keep_every",
     .member = &CheckpointConfig::keep_every,
     .doc = "With keep_last, those of steps that are multiples of this stay too; 0: none.",
     .min = 0,
     .max = 1e12},
    {.key = "data",
     .member = &CheckpointConfig::data,
     .doc =
         "Where the data resumes when the token files, their weights, model.seq or train.seed are not those of the "
         "checkpoint. continue: nowhere, the run is refused. restart: at the beginning. The same data always resumes "
         "after the last sample that was trained on.",
     .choices = {"continue", "restart"}},
    {.key = "max_failed",
     .member = &CheckpointConfig::max_failed,
     .doc = "As many saves on end may fail before the run ends with code 74; 0: it trains on, says so, and tries again "
            "after a minute, then after longer, up to ten. The last save of a run has to succeed.",
     .min = 0},
    {.key = "memory_dir",
     .member = &CheckpointConfig::memory_dir,
     .doc =
         "A directory in every node's memory, /dev/shm say; empty: none. Each save is copied there, into ms-UID, which "
         "must belong to the user and be closed to others, every rank's part on its own node and on another one (in "
         "another dp, pp and tp group where that can be), so that a run that has lost a node and resumes in the same "
         "layout reads nothing of it from storage. It holds the newest save, and the one before while that is made: "
         "at most 4 parts for each rank of the node, which count as memory of the job; a buffer for one more comes on "
         "top. Where a copy fails, or the directory is somebody else's, the save does not. A run that is done removes "
         "its copies; of one that nobody resumes they stay. They are of no use where Slurm empties the directory "
         "between two starts (job_container/tmpfs)."},
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
    {.key = "dir",
     .member = &RunConfig::dir,
     .doc =
         "Where the run writes config.toml, metrics.jsonl (that of the run before is kept as "
         "metrics.jsonl.previous) and verdict.json; a file 'stop' that is put here ends it after a step. When a wait "
         "for peers has expired, evidence has the stacks of all processes and the state of each node's GPUs and other "
         "devices (ms-diag collect), of the last eight starts. Relative to the current directory, as all paths are."},
    {.key = "device",
     .member = &RunConfig::device,
     .doc =
         "What computes. cpu: on the best instruction set of the processor that ONEDNN_MAX_CPU_ISA allows (SSE41, "
         "AVX2, AVX512_CORE, AVX512_CORE_BF16 or AVX512_CORE_AMX); the log, checkpoints and traces name it, and from "
         "one to another bits differ. cuda, tried on an emulated GPU only so far: in bf16; under mpirun or srun a GPU "
         "for each process, by its number on the node, and NCCL between them; ranks that are threads share the first "
         "GPU.",
     .choices = {"cpu", "cuda"}},
    {.key = "cpu_threads",
     .member = &RunConfig::cpu_threads,
     .doc =
         "Threads of a process that compute on the CPU, shared by its ranks; 0: OMP_NUM_THREADS if that is set, else "
         "as many as cores that it may use, shared with the other processes of its node. They change no bits.",
     .min = 0,
     .max = tensor::kMaxThreads},
    {.key = "deterministic",
     .member = &RunConfig::deterministic,
     .doc = "The same bits from every run. false, on GPUs: gradients of attention are added up in whatever order they "
            "come, which takes less memory, and should take less time."},
    {.key = "matmul_choices",
     .member = &RunConfig::matmul_choices,
     .doc = "On GPUs, a file with the algorithm of every form of GEMM: missing ones are timed before the first "
            "step, and added by rank 0. Runs with the same file, the same layout and the same GPUs compute the "
            "same bits, and so do resumed runs: checkpoints keep the choices. Empty: cuBLASLt's own first choice."},
    {.key = "time_ops",
     .member = &RunConfig::time_ops,
     .doc =
         "false, on GPUs: no seconds by class of operation in metrics.jsonl and traces, which take two events each."},
    {.key = "nccl_register",
     .member = &RunConfig::nccl_register,
     .doc = "true, between GPUs: tensors are in memory of NCCL's, which is told what messages are in, and needs no "
            "copies of its own on the way where the GPUs of a node or the network allow that (its user buffer "
            "registration). Not tried on real GPUs yet."},
    {.key = "comm_timeout",
     .member = &RunConfig::comm_timeout_s,
     .doc = "How long an operation may wait for its peers before the run stops and names them: at most, and until four "
            "steps have ended. From then on it is three times the longest of the last 64 steps, and 5 s more, but at "
            "least run.least_timeout. Ranks that wait for data, evaluate, or read or write files have all of "
            "comm_timeout.",
     .unit = Unit::seconds,
     .min = 0.1,
     .max = 1e6},
    {.key = "least_timeout",
     .member = &RunConfig::least_timeout_s,
     .doc = "The shortest deadline that the run learns for its steps (comm_timeout). It should be longer than what a "
            "network needs to recover by itself. comm_timeout or more: none is learned, for a debugger, say.",
     .unit = Unit::seconds,
     .min = 0.1,
     .max = 1e6},
    {.key = "peak_tflops",
     .member = &RunConfig::peak_tflops,
     .doc = "Peak of one rank's device in TFLOP/s, for the MFU in metrics.jsonl; 0: the data sheet's bf16 peak of an "
            "A100, H100 or H200 that ranks do not share, and no MFU on anything else. 'ms-train calibrate' measures "
            "that of a CPU.",
     .min = 0,
     .max = 1e9},
    {.key = "cluster",
     .member = &RunConfig::cluster,
     .doc = "An ms-cluster(5) of the machines, as ms-train calibrate writes it. After 100 steps, and when steps have "
            "changed, the run then says how long a step takes and how long it should, by simulation, as ms-tracepp "
            "report --expected does. A run with mesh.dp = \"auto\" also says before its first step how fast each "
            "number of replicas would be. Empty: neither."},
    {.key = "sample_tokens",
     .member = &RunConfig::sample_tokens,
     .doc = "Tokens of text to generate when training ends, with the tokenizer of the first file of data.train.",
     .min = 0,
     .max = 1e6},
    {.key = "sample_temperature",
     .member = &RunConfig::sample_temperature,
     .doc = "Sharpness of generated text; 0 takes the likeliest token.",
     .min = 0,
     .max = 100},
};

struct OverlapConfig {
  bool tp = false, pp = true, dp = true;
  std::int64_t dp_message = 32 << 20;
};

inline constexpr Field<OverlapConfig> kOverlapFields[] = {
    {.key = "tp",
     .member = &OverlapConfig::tp,
     .doc = "Collectives of tensor parallelism are split and overlap the GEMMs around them; an all-reduce over tp then "
            "sums in another order."},
    {.key = "pp",
     .member = &OverlapConfig::pp,
     .doc = "Transfers of activations and their gradients overlap compute; off, compute waits for each transfer."},
    {.key = "dp",
     .member = &OverlapConfig::dp,
     .doc = "Reducing gradients overlaps the rest of the backward, gathering parameters overlaps the forward before "
            "they are needed; off, compute waits for each."},
    {.key = "dp_message",
     .member = &OverlapConfig::dp_message,
     .doc = "The gradients of a chunk are cut between layers into messages of at least this size (and the parameters "
            "alike): small ones leave as soon as a layer is done, large ones lose less time to latency.",
     .unit = Unit::bytes,
     .min = 1,
     .max = 1e15},
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

// The batches that settings without problems ask for.
data::BatchShape batch_of(const Settings& settings);

// The rules between fields that are broken. What files hold is not looked at.
std::vector<nn::ModelProblem> problems_between(const Settings& settings);

// Clamps what a shorter run cannot have: a warm-up longer than the run. Returns a warning of each.
std::vector<std::string> clamp(Settings& settings);

// Settings as a configuration file.
std::string to_toml(const Settings& settings);

// A configuration file with assignments ("train.steps=10") on top, checked: fields, and the rules between them. Throws
// Error("config.invalid", user) with every problem. Opens no data file.
struct Loaded {
  Settings settings;
  std::string resolved;                     // as TOML, every key, with who set it
  std::vector<std::string> warnings;        // of keys that have no effect, or another than their value says
  std::vector<std::int64_t> dp_sizes = {};  // what mesh.dp = "auto" may be; empty: mesh.dp is a number
};
// `world`: the ranks that there are, for mesh.dp = "auto"; nullopt: the most that it may be. Error("mesh.size", user)
// where it may not be what so many ranks make.
Loaded load(const std::string& path, const std::vector<std::string>& assignments,
            std::optional<std::int64_t> world = std::nullopt);
// The same from a text; `name` stands for it in messages. `adjust`, where given, changes the settings before the rules
// are checked.
Loaded load_text(std::string_view text, const std::string& name, const std::vector<std::string>& assignments,
                 const std::function<void(Settings&)>& adjust = {});

}  // namespace ms::train
