#include "foreign/hash.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <tuple>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "ckpt/batch.h"
#include "ckpt/file_pool.h"
#include "foreign/read.h"

namespace ms::foreign {
namespace {

constexpr std::int64_t kHashBytes = std::int64_t{4} << 20;       // a multiple of all element sizes
constexpr std::int64_t kPieceElements = std::int64_t{16} << 20;  // of ours

std::string dtype_name_of(tensor::DType dtype) {
  return dtype == tensor::DType::f32    ? "float32"
         : dtype == tensor::DType::bf16 ? "bfloat16"
                                        : std::string(tensor::to_string(dtype));
}

}  // namespace

std::string HashedTensor::line() const {
  return fmt::format("{} {} [{}] {}", name, dtype, fmt::join(shape, ", "), hash_hex(hash));
}

std::vector<HashedTensor> tensors_of(const Checkpoint& checkpoint) {
  // A hash of what is left of it would be taken for that of a checkpoint that never had more.
  const std::vector<Problem>& wrong = checkpoint.problems.empty() ? checkpoint.unread : checkpoint.problems;
  if (!wrong.empty())
    throw Error(checkpoint.finished ? "ckpt.damaged" : "ckpt.incomplete", Blame::storage,
                fmt::format("{}: {}", checkpoint.path, plain_text(wrong.front().text, 1000)),
                "'ms-ckpt verify' says more");
  std::vector<HashedTensor> tensors;
  for (const Tensor& tensor : checkpoint.tensors) {
    const std::int64_t size_bytes = TensorReader(checkpoint, tensor).size_bytes();  // refuses one that is damaged
    tensors.push_back({.name = tensor.name,
                       .dtype = std::string(tensor.dtype->name),
                       .shape = tensor.shape,
                       .size_bytes = size_bytes,
                       .open = [&checkpoint, &tensor] {
                         return [reader = std::make_shared<TensorReader>(checkpoint, tensor)](
                                    std::int64_t at, std::span<std::byte> to) { reader->read(at, to); };
                       }});
  }
  return tensors;
}

std::vector<HashedTensor> hashed_tensors(const ckpt::Parameters& parameters, int threads,
                                         const std::function<void(std::int64_t)>& progress) {
  std::vector<HashedTensor> tensors;
  std::vector<ckpt::Piece> pieces;
  for (const ckpt::Parameters::Info& info : parameters.list()) {
    for (const ckpt::State state : info.states) {
      const tensor::DType dtype = parameters.index().find(state, info.name)->dtype;
      const bool is_weight = state == ckpt::State::weight;
      tensors.push_back({.name = is_weight ? info.name : fmt::format("{}.{}", info.name, ckpt::to_string(state)),
                         .dtype = dtype_name_of(dtype),
                         .shape = {info.rows, info.cols}});
      ckpt::Piece piece{.state = state, .dtype = dtype, .slice = ckpt::whole(info.name, info.rows, info.cols)};
      const std::int64_t elements = piece.slice.size();
      for (std::int64_t begin = 0; begin < elements; begin += kPieceElements) {
        piece.slice.elements = {begin, std::min(begin + kPieceElements, elements)};
        tensors.back().size_bytes += piece.size_bytes();
        pieces.push_back(piece);
      }
    }
  }
  ckpt::BatchReader reader(parameters.path(), parameters.manifest(), std::move(pieces), ckpt::kBatchBytes, threads);
  std::int64_t done = 0;
  for (HashedTensor& tensor : tensors) {
    Hasher hasher;
    for (std::int64_t at = 0; at < tensor.size_bytes;) {
      const std::span<const std::byte> bytes = reader.next();
      hasher.update(bytes);
      at += std::ssize(bytes);
      progress(done += std::ssize(bytes));
    }
    tensor.hash = hasher.digest();
  }
  return tensors;
}

void hash_tensors(std::vector<HashedTensor>& tensors, int threads, const std::function<void(std::int64_t)>& progress) {
  std::atomic<std::int64_t> done{0};
  ckpt::for_each_file(std::vector<std::int64_t>(tensors.size(), 1), threads, [&](std::size_t i, int) {
    HashedTensor& tensor = tensors[i];
    const auto read = tensor.open();
    Hasher hasher;
    std::vector<std::byte> bytes;
    for (std::int64_t at = 0; at < tensor.size_bytes; at += std::ssize(bytes)) {
      bytes.resize(static_cast<std::size_t>(std::min(kHashBytes, tensor.size_bytes - at)));
      read(at, bytes);
      hasher.update(bytes);
      progress(done += std::ssize(bytes));
    }
    tensor.hash = hasher.digest();
  });
}

std::uint64_t content_hash(std::vector<HashedTensor>& tensors) {
  std::ranges::sort(tensors, {}, [](const HashedTensor& t) { return std::tie(t.name, t.dtype, t.shape, t.hash); });
  Hasher hasher;
  for (const HashedTensor& tensor : tensors) hasher.update(tensor.line() + "\n");
  return hasher.digest();
}

}  // namespace ms::foreign
