// Pieces of a checkpoint one after another, for who goes through all of it: many are read at a time, so that a block
// that several of them share is read once for all of them. diff and the offline reshard stand on it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ckpt/load.h"

namespace ms::ckpt {

inline constexpr std::int64_t kBatchBytes = std::int64_t{256} << 20;

class BatchReader {
 public:
  // The pieces in the order in which next() gives them. A batch takes `budget_bytes` of memory, or what its only piece
  // takes. `manifest` is that of `checkpoint` and outlives the reader.
  BatchReader(std::string checkpoint, const Manifest& manifest, std::vector<Piece> pieces,
              std::int64_t budget_bytes = kBatchBytes, int threads = 2);

  // The bytes of the next piece, verified; they stay until the call after this. Errors of load().
  std::span<const std::byte> next();

 private:
  void read_batch();

  std::string checkpoint_;
  PieceIndex index_;
  std::vector<Piece> pieces_;
  std::int64_t budget_bytes_;
  int threads_;
  std::size_t next_ = 0, batch_begin_ = 0, batch_end_ = 0;
  std::vector<std::size_t> offsets_;  // of the pieces of the batch in memory_
  std::vector<std::byte> memory_;
};

}  // namespace ms::ckpt
