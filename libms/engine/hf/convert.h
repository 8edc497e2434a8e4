// Models between our checkpoints and Hugging Face's directories: config.json and safetensors. One tensor is in memory
// at a time; what is refused is refused before anything is written, with all problems at once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "ckpt/offline.h"
#include "hf/foreign_tensors.h"
#include "nn/config.h"

namespace ms::hf {

struct ExportOptions {
  std::optional<tensor::DType> dtype = {};  // f32 (from the master where there is one) or bf16; absent: as stored
  std::int64_t max_shard_bytes = 5'000'000'000;
  std::string companions = {};  // a directory whose companions (companions.h) are copied; it need not be there
  std::map<std::string, std::string> files = {};     // by name, where the companions have no such file
  std::optional<std::int32_t> end_of_document = {};  // eos_token_id, where the companions do not have it
  std::function<void(std::int64_t)> progress = {};   // bytes of tensors so far
};

// Bytes of tensors that export_model writes: the total of its progress.
std::int64_t export_bytes(const ckpt::Parameters& from, const ExportOptions& options);

// Writes the directory `out`, which is absent or empty; its parents are made. It appears whole, by a rename, or not at
// all: until then it is called OUT.incomplete-PID. Error("hf.export", user): `out` holds something, the checkpoint is
// not of this model, or the model is none that the family there can be.
void export_model(const ckpt::Parameters& from, const nn::ModelConfig& model, const std::string& out,
                  const ExportOptions& options);

// The model that a directory's config.json describes, or that file itself. Errors of parse_config().
nn::ModelConfig read_model(const std::string& path);

// Writes the weights of a model's directory, or of a checkpoint of another program, as a checkpoint of step 0 into
// `dir` and returns its path. `manifest` brings what only the caller knows (run, created, version, config); step,
// layout, type and files are filled in. bf16 stays bf16; where anything is f32 or f16, all becomes f32.
// Error("hf.import", user): tensors missing, left over, of another shape or type. `progress`: as of
// ckpt::write_checkpoint. `options` are of a checkpoint of another program.
std::string import_model(const std::string& hf_dir, const nn::ModelConfig& model, ckpt::Manifest manifest,
                         const std::string& dir, const std::function<void(std::int64_t)>& progress = {},
                         const ForeignOptions& options = {});

}  // namespace ms::hf
