#include "train/commands/checkpoint_commands.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/print.h"
#include "base/utc.h"
#include "base/version.h"
#include "ckpt/command_support.h"
#include "hf/companions.h"
#include "hf/convert.h"
#include "hf/model_json.h"
#include "train/checkpoint/reshard.h"
#include "train/checkpoint/tokenizer_files.h"
#include "train/config.h"

namespace ms::train {
namespace {

using namespace ckpt;  // NOLINT: all of a command's support

void require_word(const Args& args, const std::string& option, std::initializer_list<std::string_view> words) {
  if (std::find(words.begin(), words.end(), args.get(option)) != words.end()) return;
  throw user_error("cli.value",
                   fmt::format("--{} '{}' is not known: {}", option, args.get(option), fmt::join(words, ", ")));
}

Loaded config_of(const Found& found, const std::vector<std::string>& assignments) {
  return load_text(found.manifest->config, fmt::format("the configuration in {}", found.path), assignments);
}

Option format_option() { return {"format", "FORMAT", "Format of the model: hf.", "hf"}; }
Option axis(std::string name, std::string doc) {
  return {.name = std::move(name), .value = "N", .doc = std::move(doc)};
}

int run_reshard(const Args& args) {
  const std::string output = args.get("output");
  const Found found = choose_complete_and_say(args.get("PATH"));
  std::vector<std::string> assignments{"train.dtype=" + found.manifest->dtype};
  for (const std::string axis : {"dp", "pp", "tp", "chunks"}) {
    if (args.has(axis)) assignments.push_back(fmt::format("mesh.{}={}", axis, args.get(axis)));
  }
  if (args.has("dp")) assignments.insert(assignments.end(), {"mesh.cp=1", "optim.shard_group=0"});  // of another dp
  if (args.has("zero")) assignments.push_back("optim.zero=" + args.get("zero"));
  for (const std::string& assignment : args.list("set")) assignments.push_back(assignment);
  const Loaded target = config_of(found, assignments);
  Resharded made = reshard(found.path, *found.manifest, target, threads_of(args));
  made.manifest.created = utc_text(SystemClock().wall_s());
  ByteProgress progress("reshard", found.manifest->size_bytes());
  const std::string path = write_checkpoint(output, made.manifest, made.files, progress.update());
  progress.finish();
  print_out("{}\n", path);
  return kOk;
}

int run_import(const Args& args) {
  require_word(args, "format", {"hf"});
  const std::string output = args.get("output"), from = args.get("HF_DIR");
  const std::string config = args.has("config") ? args.get("config") : from;
  const nn::ModelConfig model = hf::read_model(config);
  std::random_device random;
  Manifest manifest;
  manifest.run = hash_hex(std::uint64_t{random()} << 32U | random());
  manifest.created = utc_text(SystemClock().wall_s());
  manifest.version = kVersion;
  manifest.config = load_text(hf::to_toml(model), config, {}).resolved;
  ByteProgress progress("import", 0);
  hf::ForeignOptions foreign{.say = [&](const std::string& text) { log::warn("import", "{}: {}", from, text); }};
  if (args.has("prefix")) foreign.prefix = args.get("prefix");
  const std::string path = hf::import_model(from, model, manifest, output, progress.update(), foreign);
  hf::copy_companions(args.has("config") ? parent_directory(config) : from, hf::companions_beside(path));
  progress.finish();
  print_out("{}\n", path);
  return kOk;
}

int run_export(const Args& args) {
  require_word(args, "format", {"hf"});
  if (args.has("dtype")) require_word(args, "dtype", {"fp32", "bf16"});
  const std::string output = args.get("output");
  const Found found = choose_complete_and_say(args.get("PATH"));
  hf::ExportOptions options;
  options.max_shard_bytes = size_of_option(args, "max-shard-size");
  if (args.has("dtype")) options.dtype = args.get("dtype") == "bf16" ? tensor::DType::bf16 : tensor::DType::f32;
  if (args.has("files") && !std::filesystem::is_directory(args.get("files"))) {
    throw user_error("hf.export", fmt::format("--files '{}' is not a directory", args.get("files")));
  }
  options.companions = args.has("files") ? args.get("files") : hf::companions_beside(found.path);
  const Settings settings = config_of(found, {}).settings;
  TokenizerFiles tokenizer = tokenizer_files(options.companions, settings);
  options.files = std::move(tokenizer.files);
  options.end_of_document = tokenizer.end_of_document;
  const Parameters parameters(found.path);
  ByteProgress progress("export", hf::export_bytes(parameters, options));
  options.progress = progress.update();
  hf::export_model(parameters, settings.model, output, options);
  progress.finish();
  print_out("{}\n", output);
  return kOk;
}

}  // namespace

Command reshard_command() {
  return {
      .name = "reshard",
      .summary = "rewrite a checkpoint for another layout",
      .positionals = {checkpoint_positional()},
      .options = {output_option("The directory of checkpoints to write into."),
                  axis("dp", "Data-parallel replicas, with ranks of mesh.cp among them; optim.shard_group becomes 0."),
                  axis("pp", "Pipeline stages."),
                  axis("tp", "Tensor-parallel ranks."),
                  axis("chunks", "Virtual stages of a pipeline rank."),
                  axis("zero", "ZeRO stage."),
                  {.name = "set",
                   .value = "KEY=VALUE",
                   .doc = "Override another key of the stored configuration.",
                   .many = true},
                  threads_option()},
      .run = run_reshard,
      .description =
          "Other settings stay as they are. A run loads any layout without this command; use it if you need the "
          "files in one layout. Prints the path of the new checkpoint."};
}

Command import_command() {
  return {
      .name = "import",
      .summary = "convert a Hugging Face model or the weights of a PyTorch checkpoint to a checkpoint",
      .positionals = {{"HF_DIR",
                       "A directory with config.json and safetensors, or a checkpoint of PyTorch (ms-ckpt show lists "
                       "its tensors) whose names are those of transformers, of torchtitan's Llama or of the models of "
                       "Megatron-LM's core that are like Llama, Qwen2 or Qwen3 without experts."}},
      .options = {output_option("The directory of checkpoints to write into."),
                  {"config", "FILE", "config.json of the model, for a checkpoint of PyTorch (default: in HF_DIR)."},
                  {"prefix", "TEXT",
                   "Import only the tensors whose names begin with TEXT, if a checkpoint of PyTorch has several copies "
                   "of the weights (default: the copy whose names are as of model or module)."},
                  format_option()},
      .run = run_import,
      .description =
          "The checkpoint has step 0 and no optimizer state. Prints its path. To start a run from it, set "
          "checkpoint.load to this path. The run takes [model] from there if its configuration has none, and saves in "
          "its own checkpoint.dir. Tokenizer and generation files are kept in 'hf' beside the checkpoint, for export "
          "and ms-train generate."};
}

Command export_command() {
  return {.name = "export",
          .summary = "write a checkpoint's weights as a Hugging Face model",
          .positionals = {checkpoint_positional()},
          .options = {output_option("The directory to write. It must be new or empty."),
                      format_option(),
                      {"dtype", "fp32|bf16", "Data type of the weights (default: as stored)."},
                      {"max-shard-size", "SIZE", "Maximum size of a file of weights, unless a single tensor is larger.",
                       "5GB"},
                      {"files", "DIR",
                       "Copy tokenizer and generation files from DIR (default: the directory 'hf' beside the "
                       "checkpoint, which import and runs write)."}},
          .run = run_export,
          .description =
              "The tokenizer goes along: that in 'hf', or else that of the first file of data.train. eos_token_id is "
              "the token that ends its documents.\n\ntorch.distributed.checkpoint loads the directory into any "
              "sharding: dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(DIR))."};
}

}  // namespace ms::train
