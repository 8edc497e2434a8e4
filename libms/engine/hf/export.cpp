// Implements the exporter of convert.h: from a checkpoint of ours to a Hugging Face directory.
#include <unistd.h>

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "base/user_path.h"
#include "hf/companions.h"
#include "hf/convert.h"
#include "hf/model_json.h"
#include "hf/names.h"
#include "hf/problems.h"
#include "hf/safetensors.h"

namespace ms::hf {
namespace {

namespace fs = std::filesystem;
using ckpt::Parameters;
using ckpt::State;
using tensor::DType;

Dtype dtype_of(DType dtype) { return dtype == DType::bf16 ? Dtype::bf16 : Dtype::f32; }

void check_parameters(const Parameters& from, const std::vector<Mapped>& tensors) {
  Problems problems("hf.export", fmt::format("'{}' is not a checkpoint of this model", from.path()));
  std::set<std::string> known;
  for (const Mapped& tensor : tensors) {
    for (const Part& part : tensor.parts) {
      known.insert(part.name);
      const Parameters::Info* info = from.find(part.name);
      if (info == nullptr) {
        problems.add(fmt::format("{} is missing", part.name));
      } else if (info->rows != part.rows || info->cols != part.cols) {
        problems.add(
            fmt::format("{} is {} x {}, expected {} x {}", part.name, info->rows, info->cols, part.rows, part.cols));
      }
    }
  }
  for (const Parameters::Info& info : from.list()) {
    if (!known.contains(info.name)) problems.add(fmt::format("{} is not part of the model", info.name));
  }
  problems.throw_if_any();
}

// The type that a tensor is written in. Parts of several types do not happen in a run; f32 holds them all.
DType written_as(const Parameters& from, const Mapped& tensor, const ExportOptions& options) {
  if (tensor.is_f32) return DType::f32;
  if (options.dtype) return *options.dtype;
  for (const Part& part : tensor.parts) {
    if (from.find(part.name)->weight_dtype != DType::bf16) return DType::f32;
  }
  return DType::bf16;
}

// One of our parameters in the type that is written.
void read_part(const Parameters& from, const Part& part, DType dtype, std::span<std::byte> to) {
  if (from.find(part.name)->weight_dtype == dtype && dtype == DType::bf16) {
    from.read(State::weight, part.name, to);
    return;
  }
  const std::vector<float> values = from.read_f32(part.name);
  convert(Dtype::f32, std::as_bytes(std::span(values)), dtype, to);
}

// The blocks of the parts in turns; parts have one size.
std::vector<std::byte> in_blocks(const std::vector<std::byte>& bytes, const Mapped& tensor) {
  const auto blocks = static_cast<std::size_t>(tensor.blocks);
  const std::size_t parts = tensor.parts.size(), size = bytes.size() / parts / blocks;
  std::vector<std::byte> turns(bytes.size());
  for (std::size_t part = 0; part < parts; ++part) {
    for (std::size_t b = 0; b < blocks; ++b)
      std::memcpy(&turns[(b * parts + part) * size], &bytes[(part * blocks + b) * size], size);
  }
  return turns;
}

std::vector<std::byte> read_tensor(const Parameters& from, const Mapped& tensor, DType dtype) {
  const std::int64_t element = tensor::size_of(dtype);
  std::int64_t elements = 0, rows = 0;
  for (const Part& part : tensor.parts) elements += part.size(), rows += part.rows;
  std::vector<std::byte> bytes(static_cast<std::size_t>(elements * element));
  std::span<std::byte> rest = bytes;
  for (const Part& part : tensor.parts) {
    const auto size = static_cast<std::size_t>(part.size() * element);
    read_part(from, part, dtype, rest.first(size));
    rest = rest.subspan(size);
  }
  if (tensor.blocks > 1) return in_blocks(bytes, tensor);
  if (!tensor.transposed) return bytes;
  std::vector<std::byte> turned(bytes.size());
  transpose(bytes.data(), elements / rows, rows, elements / rows, element, turned.data());
  return turned;
}

// A directory under a name that says that it is not finished, until it takes its place; gone again where it does not.
class Unfinished {
 public:
  explicit Unfinished(std::string out)
      : out_(std::move(out)), path_(fmt::format("{}.incomplete-{}", out_, ::getpid())) {
    std::error_code error;
    make_user_directories(fs::path(path_).parent_path());
    if (!fs::create_directory(path_, error)) {
      const std::string words = error ? error.message() : "it already exists";
      const bool path_is_wrong = error && is_wrong_path(error.value());
      throw Error("hf.export", path_is_wrong ? Blame::user : Blame::storage,
                  fmt::format("cannot make the directory '{}': {}", out_, words));
    }
  }
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
  ~Unfinished() {
    std::error_code ignored;
    if (!finished_) fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  // The error with the name that the directory is to have.
  Error named(const Error& error) const {
    std::string message = error.message();
    if (const std::size_t at = message.find(path_); at != std::string::npos) message.replace(at, path_.size(), out_);
    return {error.kind(), error.blame(), std::move(message), error.hint()};
  }
  void finish() {
    sync_directory(path_);
    rename_synced(path_, out_);  // over an empty directory, too
    finished_ = true;
  }

 private:
  std::string out_, path_;
  bool finished_ = false;
};

// The real path of `out`; refuses one that holds something.
std::string free_directory(const std::string& out) {
  std::error_code error;
  const fs::path absolute = fs::absolute(out, error);
  std::string path = error ? "" : fs::weakly_canonical(absolute, error).string();
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  if (error) throw user_error("hf.export", fmt::format("cannot write to '{}': {}", out, error.message()));
  if (!fs::exists(path, error)) return path;
  if (!fs::is_directory(path, error)) throw user_error("hf.export", fmt::format("'{}' is not a directory", out));
  if (!fs::is_empty(path, error) || error) {
    throw user_error("hf.export", fmt::format("'{}' is not empty", out), "name a directory that is empty or not there");
  }
  return path;
}

// Weights, companions and config.json.
void write_files(const Parameters& from, const ShardPlan& plan, const std::map<std::string, const Mapped*>& mapped,
                 const std::string& config, const ExportOptions& options, const std::string& to) {
  std::int64_t done = 0;
  for (const ShardPlan::File& file : plan.files) {
    TensorFileWriter writer(to + "/" + file.name, file.tensors);
    for (const TensorInfo& info : file.tensors) {
      const std::vector<std::byte> bytes = read_tensor(from, *mapped.at(info.name), stored_as(info.dtype));
      writer.write(bytes);
      done += static_cast<std::int64_t>(bytes.size());
      if (options.progress) options.progress(done);
    }
    writer.close();
  }
  if (!plan.index_json.empty()) write_file_atomic(to + "/" + std::string(kIndexFile), plan.index_json);
  for (const auto& [name, text] : options.files) write_file_atomic(to + "/" + name, text);
  copy_companions(options.companions, to);
  write_file_atomic(to + "/config.json", config);  // ours, over the copy
}

}  // namespace

std::int64_t export_bytes(const Parameters& from, const ExportOptions& options) {
  std::int64_t bytes = 0;
  for (const Parameters::Info& info : from.list()) {
    bytes += info.rows * info.cols * tensor::size_of(options.dtype.value_or(info.weight_dtype));
  }
  return bytes;
}

void export_model(const Parameters& from, const nn::ModelConfig& model, const std::string& out,
                  const ExportOptions& options) {
  const std::vector<Mapped> tensors = tensors_of(model, export_layout(model));
  Json tokens = token_ids(options.companions);
  if (const Json* end = tokens.find("eos_token_id"); options.end_of_document && (end == nullptr || end->is_null()))
    tokens["eos_token_id"] = *options.end_of_document;
  std::string config = config_json(model, DType::f32, tokens);  // refuses before anything else
  const std::string path = free_directory(out);
  check_parameters(from, tensors);

  std::map<std::string, const Mapped*> mapped;
  std::vector<TensorInfo> infos;
  bool all_bf16 = true;
  for (const Mapped& tensor : tensors) {
    const DType dtype = written_as(from, tensor, options);
    all_bf16 = all_bf16 && (dtype == DType::bf16 || tensor.is_f32);
    infos.push_back({tensor.name, dtype_of(dtype), tensor.shape});
    mapped[tensor.name] = &tensor;
  }
  if (all_bf16) config = config_json(model, DType::bf16, tokens);

  const ShardPlan plan = plan_shards(infos, options.max_shard_bytes);
  Unfinished directory(path);
  try {
    write_files(from, plan, mapped, config, options, directory.path());
  } catch (const Error& error) { throw directory.named(error); }
  directory.finish();
}

}  // namespace ms::hf
