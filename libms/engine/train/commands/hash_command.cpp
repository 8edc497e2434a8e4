// ms-ckpt hash: what tensors a checkpoint holds, as one number, whatever format and layout hold them.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"
#include "ckpt/command_support.h"
#include "foreign/commands.h"
#include "foreign/hash.h"
#include "hf/safetensors.h"
#include "train/commands/checkpoint_commands.h"

namespace ms::train {
namespace {

using foreign::HashedTensor;

constexpr std::size_t kShownLine = 4096;

struct Hashed {
  std::string path;
  std::vector<HashedTensor> tensors;
};

std::vector<HashedTensor> tensors_of(const std::map<std::string, hf::TensorView>& views) {
  std::vector<HashedTensor> tensors;
  for (const auto& entry : views) {
    const hf::TensorView& view = entry.second;
    const foreign::Dtype* const dtype = foreign::dtype_of_safetensors(view.dtype_name);
    tensors.push_back({.name = entry.first,
                       .dtype = dtype == nullptr ? view.dtype_name : std::string(dtype->name),
                       .shape = view.shape,
                       .size_bytes = static_cast<std::int64_t>(view.size_bytes),
                       .open = [view] {
                         return [view](std::int64_t at, std::span<std::byte> to) {
                           view.read(static_cast<std::size_t>(at), to);
                         };
                       }});
  }
  return tensors;
}

// Leaves the tensors whose names begin with the prefix, under the rest of their names.
void keep(std::vector<HashedTensor>& tensors, const std::string& prefix) {
  std::erase_if(tensors, [&](const HashedTensor& tensor) { return !tensor.name.starts_with(prefix); });
  for (HashedTensor& tensor : tensors) tensor.name.erase(0, prefix.size());
}

Hashed hash_of(const std::string& path, const std::string& prefix, int threads,
               const std::function<void(std::int64_t)>& progress) {
  std::error_code error;
  const auto exists = [&](std::string_view name) {
    return std::filesystem::exists(fmt::format("{}/{}", path, name), error);
  };
  const auto read = [&](std::string of, std::vector<HashedTensor> tensors) {
    keep(tensors, prefix);
    foreign::hash_tensors(tensors, threads, progress);
    return Hashed{std::move(of), std::move(tensors)};
  };
  if (path.ends_with(".safetensors")) return read(path, tensors_of(hf::TensorFile(path).tensors()));
  if (exists(hf::kModelFile) || exists(hf::kIndexFile)) return read(path, tensors_of(hf::TensorSet(path).tensors()));
  if (const std::vector<foreign::Place> others = foreign::others_in(path); !others.empty()) {
    const foreign::Checkpoint checkpoint = foreign::open(others.back().path);
    return read(checkpoint.path, foreign::tensors_of(checkpoint));
  }
  const ckpt::Parameters parameters(ckpt::choose_complete_and_say(path).path);
  std::vector<HashedTensor> tensors = foreign::hashed_tensors(parameters, threads, progress);
  keep(tensors, prefix);
  return {parameters.path(), std::move(tensors)};
}

int run_hash(const Args& args) {
  ckpt::ByteProgress progress("hash", 0);
  Hashed hashed = hash_of(args.get("PATH"), args.get("prefix"), ckpt::threads_of(args), progress.update());
  progress.finish();
  if (hashed.tensors.empty())
    throw user_error("ckpt.none", fmt::format("{} holds no tensors{}", hashed.path,
                                              args.has("prefix") ? " whose names begin with --prefix" : ""));
  const std::string hash = hash_hex(foreign::content_hash(hashed.tensors));
  std::string text;
  Json tensors = Json::array();
  for (const HashedTensor& tensor : hashed.tensors) {
    if (args.has("tensors")) text += plain_text(tensor.line(), kShownLine) + "\n";
    tensors.push_back(
        {{"name", tensor.name}, {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"hash", hash_hex(tensor.hash)}});
  }
  text += fmt::format("{}  {}\n", hash, hashed.path);
  const Json json{{"schema", 1}, {"path", hashed.path}, {"hash", hash}, {"tensors", std::move(tensors)}};
  return ckpt::print_result(args, json.dump(2) + "\n", text);
}

}  // namespace

Command hash_command() {
  return {.name = "hash",
          .summary = "print a hash of the tensors, equal in all layouts and formats",
          .positionals = {{"PATH",
                           "A checkpoint of ms-train or of another program (ms-ckpt verify says which), a directory of "
                           "those: its newest one, or safetensors."}},
          .options = {{"tensors", "", "Also print the hash of each tensor."},
                      {"prefix", "TEXT",
                       "Hash only the tensors whose names begin with TEXT, and remove it from their names."},
                      ckpt::threads_option(),
                      ckpt::json_option()},
          .run = run_hash,
          .description =
              "Checkpoints have the same hash if they have the same tensors: names, types, shapes and bytes. For "
              "example, the hash of a model that torch.distributed.checkpoint saved on 8 ranks is that of its "
              "torch.save, and a checkpoint of ms-train keeps its hash when it is resharded. Objects that are not "
              "tensors do not count.\n\nThe hash of a tensor is XXH64 of its bytes in row-major order. The hash of "
              "the checkpoint is XXH64 of the lines that --tensors prints before the last, sorted by name. It is not "
              "cryptographic."};
}

}  // namespace ms::train
