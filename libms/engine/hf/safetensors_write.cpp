// Implements the writer of safetensors.h, and how tensors are spread over files.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/json.h"
#include "hf/safetensors.h"

namespace ms::hf {
namespace {

constexpr std::size_t kAlignment = 8;  // of the data behind the header, as the reference implementation has it

std::string header_of(const std::vector<TensorInfo>& tensors) {
  Json header;
  header["__metadata__"] = {{"format", "pt"}};  // transformers refuses files without it
  std::int64_t offset = 0;
  for (const TensorInfo& tensor : tensors) {
    const std::int64_t end = offset + size_bytes(tensor);
    const char* dtype = tensor.dtype == Dtype::f32 ? "F32" : tensor.dtype == Dtype::bf16 ? "BF16" : "F16";
    header[tensor.name] = {{"dtype", dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  return text;
}

}  // namespace

std::int64_t size_bytes(const TensorInfo& tensor) {
  MS_ASSERT(tensor.dtype != Dtype::other, "'{}' has no type of parameters", tensor.name);
  std::int64_t bytes = tensor.dtype == Dtype::f32 ? 4 : 2;
  for (const std::int64_t dim : tensor.shape) bytes *= dim;
  return bytes;
}

TensorFileWriter::TensorFileWriter(std::string path, const std::vector<TensorInfo>& tensors)
    : path_(std::move(path)), fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
  if (!fd_) {
    throw Error("hf.write", Blame::storage, fmt::format("cannot create '{}': {}", path_, errno_text(errno)));
  }
  const std::string header = header_of(tensors);
  const std::uint64_t length = header.size();
  missing_bytes_ = static_cast<std::int64_t>(sizeof length + header.size());
  for (const TensorInfo& tensor : tensors) missing_bytes_ += size_bytes(tensor);
  write(std::as_bytes(std::span(&length, 1)));
  write(std::as_bytes(std::span(header)));
}

void TensorFileWriter::write(std::span<const std::byte> data) {
  missing_bytes_ -= static_cast<std::int64_t>(data.size());
  MS_ASSERT(missing_bytes_ >= 0, "{} bytes too many for '{}'", -missing_bytes_, path_);
  while (!data.empty()) {
    const ssize_t n = ::write(fd_.get(), data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Error("hf.write", Blame::storage, fmt::format("cannot write '{}': {}", path_, errno_text(errno)));
    data = data.subspan(static_cast<std::size_t>(n));
  }
}

void TensorFileWriter::close() {
  MS_ASSERT(missing_bytes_ == 0, "{} bytes of '{}' were not written", missing_bytes_, path_);
  if (::fsync(fd_.get()) != 0) {
    throw Error("hf.write", Blame::storage, fmt::format("cannot fsync '{}': {}", path_, errno_text(errno)));
  }
  fd_.close();
}

ShardPlan plan_shards(const std::vector<TensorInfo>& tensors, std::int64_t max_bytes) {
  ShardPlan plan;
  std::int64_t file_bytes = 0;
  for (const TensorInfo& tensor : tensors) {
    const std::int64_t bytes = size_bytes(tensor);
    if (plan.files.empty() || file_bytes + bytes > max_bytes) {
      plan.files.emplace_back();
      file_bytes = 0;
    }
    plan.files.back().tensors.push_back(tensor);
    file_bytes += bytes;
    plan.total_bytes += bytes;
  }
  // Wider elements first: every tensor then lies at a multiple of its element's size.
  for (ShardPlan::File& file : plan.files) {
    std::stable_partition(file.tensors.begin(), file.tensors.end(),
                          [](const TensorInfo& tensor) { return tensor.dtype == Dtype::f32; });
  }
  if (plan.files.size() == 1) {
    plan.files.front().name = kModelFile;
    return plan;
  }
  Json index;
  index["metadata"]["total_size"] = plan.total_bytes;
  for (std::size_t i = 0; i < plan.files.size(); ++i) {
    plan.files[i].name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, plan.files.size());
    for (const TensorInfo& tensor : plan.files[i].tensors) index["weight_map"][tensor.name] = plan.files[i].name;
  }
  plan.index_json = index.dump(2) + "\n";
  return plan;
}

}  // namespace ms::hf
