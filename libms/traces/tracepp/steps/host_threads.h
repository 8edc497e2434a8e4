// The threads of a rank's host in traces that record them (Kineto): what is under way in a thread at a time, and where
// that is: the operator, the call of the device's runtime, the Python line. Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "tracepp/run_trace.h"
#include "tracepp/steps/host_roles.h"
#include "tracepp/steps/idle_causes.h"

namespace ms::tracepp {

inline constexpr std::uint32_t kAbsentEvent = 0xffffffff;
// Between host and device: a host that waited is back a little after it.
inline constexpr std::int64_t kHostClockError_ns = 20'000;
// Kernels that follow each other so closely are queued; HTA's consecutive_kernel_delay.
inline constexpr std::int64_t kBetweenKernels_ns = 30'000;

inline bool is_device_work(const EventInfo& info) {
  return info.origin == Origin::kernel || info.origin == Origin::copy;
}
// Returns the roles of trace.infos.
std::vector<HostRole> host_roles(const RunTrace& trace);

class HostThreads {
 public:
  // `roles` must be of the same trace, and outlive this, as must the trace.
  HostThreads(const RunTrace& trace, const std::vector<HostRole>& roles, const RankTrace& rank);

  // The lane of the thread that runs the steps.
  std::size_t main() const { return main_; }
  bool has_device() const { return has_device_; }
  // Returns false if kernels begin before their launch.
  bool clocks_agree() const { return clocks_agree_; }
  // Returns the innermost event of a thread that is under way at a time; kAbsentEvent: none is.
  std::uint32_t innermost(std::size_t lane, std::int64_t time_ns) const;
  // Returns the next event of a thread to begin or end after a time, and the newest one until it.
  std::int64_t next_change(std::size_t lane, std::int64_t time_ns) const;
  std::int64_t last_change(std::size_t lane, std::int64_t time_ns) const;
  // Returns the newest call of a thread that waits for the device, of those that began until a time; kAbsentEvent:
  // none.
  std::uint32_t newest_wait(std::size_t lane, std::int64_t time_ns) const;
  // Returns the event of the same thread around one; kAbsentEvent: none.
  std::uint32_t around(std::uint32_t event) const { return around_[event]; }
  // Returns where a thread is while `innermost` is its innermost event. A data loader, a save and the like are the
  // cause whatever runs inside them; else the cause is `otherwise`.
  IdlePlace place(std::uint32_t innermost, IdleCause otherwise) const;
  HostRole role(std::uint32_t event) const { return blocks_[event] ? HostRole::synchronises : roles_[info_of(event)]; }
  // The events of a thread, by begin, the outer one first.
  const std::vector<std::uint32_t>& events(std::size_t lane) const { return threads_[lane].events; }
  // The calls of a thread that wait for the device, by begin.
  const std::vector<std::uint32_t>& waits(std::size_t lane) const { return threads_[lane].waits; }
  std::size_t lanes() const { return threads_.size(); }

  static bool is_cause(const IdlePlace& place) {
    return place.cause >= IdleCause::data && place.cause <= IdleCause::compilation;
  }
  static bool is_empty(const IdlePlace& place) {
    return place.op == 0 && place.call == 0 && place.below == 0 && place.line == 0;
  }

 private:
  struct Thread {
    std::vector<std::uint32_t> events;  // by begin; of those that begin together, the outer one first
    std::vector<std::uint32_t> waits;
    mutable std::size_t begun = 0;  // the result of the newest search
  };
  std::uint32_t info_of(std::uint32_t event) const { return rank_.events[event].info; }
  void nest(Thread& thread);
  // Returns how many events of a thread began until a time.
  std::size_t begun(const Thread& thread, std::int64_t time_ns) const;

  const RunTrace& trace_;
  const std::vector<HostRole>& roles_;
  const RankTrace& rank_;
  std::vector<Thread> threads_;        // by lane
  std::vector<std::uint32_t> around_;  // by event: the one around it; kAbsentEvent: none
  std::vector<bool> blocks_;           // by event: calls that copy from or to pageable memory
  std::size_t main_ = 0;
  bool has_device_ = false, clocks_agree_ = true;
};

}  // namespace ms::tracepp
