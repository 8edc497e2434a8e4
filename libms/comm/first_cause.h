// Why a world stopped: the first cause wins, later ones are consequences. Shared by the worlds; thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/world.h"

namespace ms::comm {

class FirstCause {
 public:
  // True for the first.
  bool set(int rank, const Error& error) {
    std::lock_guard lock(mutex_);
    if (cause_) return false;
    cause_.emplace(World::Cause{rank, error});
    stopped_.store(true, std::memory_order_release);
    return true;
  }
  // Cheap: asked by every operation.
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }
  std::optional<World::Cause> get() const {
    std::lock_guard lock(mutex_);
    return cause_;
  }
  // What an operation of `rank` fails with: the cause itself where it happened; elsewhere a lost peer, with the cause's
  // operation, and the rank that it blames or else comes from.
  Error error_for(int rank) const {
    const std::optional<World::Cause> cause = get();
    MS_ASSERT(cause, "an operation fails although nothing was aborted");
    if (cause->rank == rank) return cause->error;
    return Error("comm.peer_lost", Blame::peer, fmt::format("rank {} stopped: {}", cause->rank, cause->error.message()),
                 cause->error.hint())
        .with_operation(cause->error.operation())
        .with_rank(cause->error.rank().value_or(cause->rank));
  }

 private:
  mutable std::mutex mutex_;
  std::optional<World::Cause> cause_;
  std::atomic<bool> stopped_ = false;
};

// "rank 3", "ranks 1, 3": who, for messages; a long list is cut.
std::string rank_list(const std::vector<int>& ranks);
// "rank 0 waited 30.0 s for ranks 1, 3 in <what>"; blames the missing rank where it is one.
Error deadline_error(int rank, std::chrono::nanoseconds waited, const std::vector<int>& missing,
                     const std::string& what);

}  // namespace ms::comm
