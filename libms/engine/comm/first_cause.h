// The reason why a world stopped: the first cause wins, later ones are consequences. Used by all worlds; thread-safe.
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
  // Returns true for the first cause.
  bool set(int rank, const Error& error) {
    const std::lock_guard setting(setting_);  // whoever comes second finds the first cause here
    if (stopped()) return false;
    if (witness_) witness_({rank, error});
    const std::lock_guard lock(mutex_);
    cause_.emplace(World::Cause{rank, error});
    stopped_.store(true, std::memory_order_release);
    return true;
  }
  // As World::before_stop().
  void before_stop(World::Witness witness) {
    const std::lock_guard setting(setting_);
    witness_ = std::move(witness);
  }
  // Cheap: every operation calls it.
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }
  std::optional<World::Cause> get() const {
    std::lock_guard lock(mutex_);
    return cause_;
  }
  // Returns the error that operations of `rank` fail with: the cause itself on the rank where it happened; on other
  // ranks "comm.peer_lost" with the cause's operation and the rank that it accuses.
  Error error_for(int rank) const {
    const std::optional<World::Cause> cause = get();
    MS_ASSERT(cause, "an operation fails although nothing was aborted");
    if (cause->rank == rank) return cause->error;
    const Error error =
        Error("comm.peer_lost", Blame::peer, fmt::format("rank {} stopped: {}", cause->rank, cause->error.message()),
              cause->error.hint())
            .with_operation(cause->error.operation());
    const std::optional<int> accused = cause->accused();
    return accused ? error.with_rank(*accused) : error;
  }

 private:
  std::mutex setting_;  // before mutex_; guards witness_
  World::Witness witness_;
  mutable std::mutex mutex_;  // guards cause_
  std::optional<World::Cause> cause_;
  std::atomic<bool> stopped_ = false;
};

// Returns "rank 3" or "ranks 1, 3" for error messages; a long list is truncated.
std::string rank_list(const std::vector<int>& ranks);
// Returns the error "rank 0 waited 30.0 s for ranks 1, 3 in <what>"; blames the missing rank if there is exactly one.
Error deadline_error(int rank, std::chrono::nanoseconds waited, const std::vector<int>& missing,
                     const std::string& what);

}  // namespace ms::comm
