// A rank's end of the ring: its dp rank's rows of one batch of the run after another.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "data/batch_ring.h"
#include "data/token_rows.h"

namespace ms::data {

// The rows of a dp rank, in the ring; seq tokens each.
struct Batch {
  TokenRows tokens, targets;
  std::span<const std::int32_t> starts;  // empty unless the data has them
  std::span<const std::int8_t> patches;  // of the tokens, the same
  std::uint64_t digest = 0;              // Loader::digest(), where wanted
  std::int64_t num_targets = 0;          // BatchPlan::num_targets
};

class BatchReader {
 public:
  // The ring outlives it. `reader` and `part` are this rank's in there. next() calls `check` while it waits, which
  // throws where no batch will come, and throws itself after `timeout_s`.
  BatchReader(BatchRing& ring, int reader, int part, double timeout_s, std::function<void()> check);

  // Returns the batch that follows the one before; the caller passes which one that must be. Valid until release() or
  // the next call. Error("data.timeout", storage).
  Batch next(const BatchId& id);
  // The caller no longer needs the batch: its memory can be filled again.
  void release();

 private:
  BatchRing& ring_;
  const int reader_, part_;
  const double timeout_s_;
  const std::function<void()> check_;
  std::uint64_t batch_ = 0;  // the one that next() returns next
};

}  // namespace ms::data
