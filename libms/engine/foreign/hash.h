// Hashes of what checkpoints hold, whatever formats and layouts hold it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ckpt/offline.h"
#include "foreign/checkpoint.h"

namespace ms::foreign {

// A tensor, and the function that opens it: the result reads bytes of it in row-major order.
struct HashedTensor {
  std::string name, dtype;  // "float32"
  std::vector<std::int64_t> shape;
  std::uint64_t hash = 0;  // XXH64 of its bytes
  std::int64_t size_bytes = 0;
  std::function<std::function<void(std::int64_t at, std::span<std::byte> to)>()> open = {};
  std::string line() const;  // "NAME DTYPE [2, 3] HASH"
};

// Those of a checkpoint, to which they refer. Error("ckpt.incomplete" or "ckpt.damaged", storage): it has problems.
std::vector<HashedTensor> tensors_of(const Checkpoint& checkpoint);
// Those of ours, already hashed: parameters, and "NAME.exp_avg" and the like. Each is read once, and verified.
std::vector<HashedTensor> hashed_tensors(const ckpt::Parameters& parameters, int threads,
                                         const std::function<void(std::int64_t)>& progress);

// Fills in the hashes. Holds a few megabytes for each thread. Errors of the readers. `progress`: bytes; any thread.
void hash_tensors(std::vector<HashedTensor>& tensors, int threads, const std::function<void(std::int64_t)>& progress);

// Sorts the tensors by name, and returns XXH64 of their lines.
std::uint64_t content_hash(std::vector<HashedTensor>& tensors);

}  // namespace ms::foreign
