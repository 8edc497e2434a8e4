// The ring of batches of a node: memory that one loader fills and the node's ranks read, threads of its process and
// others. Like a queue, it has a few slots, and a slot is filled again only after every reader has released it.
//
// The memory is a memfd: it has no name, so nothing is left behind however its processes end; it is not of /dev/shm,
// which containers keep small; and it is sealed, so nobody can cut it under a reader. Others open it by the process
// that made it (/proc/PID/fd), which the kernel allows to processes of the same user alone.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/handle.h"
#include "data/batch_order.h"

namespace ms::data {

// The sizes of a ring, which all of its processes know without asking.
struct RingShape {
  int readers = 1;
  int parts = 1;          // of a batch, one for each dp rank that has readers here
  std::int64_t rows = 0;  // of a part, at most
  std::int64_t seq = 0;   // tokens of a row
  bool has_starts = false;
  std::int64_t patch_size = 0;  // numbers of an input's patch; 0: no images are read

  std::size_t size_bytes() const;  // of the whole ring
};

class BatchRing {
 public:
  // A batch that is read, and one that was filled while it was. Another slot would hide longer pauses of the storage,
  // and cost as much memory again.
  static constexpr std::uint64_t kSlots = 2;
  using Patience = std::chrono::milliseconds;

  // Makes a ring, its memory reserved. Error("data.ring", node): there is none.
  explicit BatchRing(const RingShape& shape);
  // Maps that of another thread or process of this node, which gave this address. Error("data.ring", node): it is not
  // to be had, or is not this one.
  BatchRing(const RingShape& shape, std::string_view address);
  ~BatchRing();
  BatchRing(const BatchRing&) = delete;
  BatchRing& operator=(const BatchRing&) = delete;

  const RingShape& shape() const { return shape_; }
  // For the others; valid while this object is there, and of no use on other nodes.
  std::string address() const;

  // The arrays of one part of a slot: rows of seq + 1 tokens, marked as target_mask.h says, and seq starts for each;
  // none unless the shape has them, as of the inputs' patches.
  struct Part {
    std::span<std::int32_t> rows, starts;
    std::span<std::int8_t> patches;
  };
  // The part of a slot that is not tokens.
  struct Label {
    BatchId id;
    std::int64_t rows = 0;         // of each part
    std::int64_t num_targets = 0;  // BatchPlan::num_targets
    std::uint64_t digest = 0;
  };
  Part part(std::uint64_t batch, int part) const;
  Label& label(std::uint64_t batch) const;

  // The writer's: batches are counted from 0. Returns whether the slot of `batch` is free, waiting for it. A batch that
  // is published stays as it is until all readers have released it.
  bool wait_free(std::uint64_t batch, Patience patience) const;
  void publish(std::uint64_t batch);
  std::uint64_t published() const;  // batches
  bool is_awaited() const;          // a reader waits for the batch that is published next
  // The readers'. Returns whether `batch` is published, waiting for it.
  bool wait_published(std::uint64_t batch, Patience patience) const;
  // `reader` no longer reads this batch. Each reader releases every batch, one after another.
  void release(int reader, std::uint64_t batch);

 private:
  struct Counter;
  std::uint64_t& nonce() const;
  Counter& published_counter() const;
  std::span<Counter> released() const;  // by reader
  std::byte* slot(std::uint64_t batch) const;
  void map(int fd);

  const RingShape shape_;
  UniqueFd fd_;  // of who has made it: others open it
  std::byte* memory_ = nullptr;
};

}  // namespace ms::data
