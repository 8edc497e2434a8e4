// CPU time of a process's threads, as the kernel's scheduler counts it.
#pragma once

#include <cstdint>
#include <map>

#include "base/sysroot.h"

namespace ms {

// Nanoseconds for which each thread of a process, by number, has had a processor and has waited for one. Empty where
// the kernel does not report them.
struct ThreadTime {
  std::int64_t ran_ns = 0, waited_ns = 0;
};
using ThreadTimes = std::map<int, ThreadTime>;
ThreadTimes thread_times(const Sysroot& root, int pid);

// Returns the longest time, in seconds, that any one thread waited for a CPU between two readings.
double longest_wait_s(const ThreadTimes& before, const ThreadTimes& after);

// The waits of the thread that makes it, from then on; the same thread asks.
class OwnWaits {
 public:
  OwnWaits();
  // Returns the share of the time since then for which the thread waited for a CPU, 0 to 1; 0 where the kernel does
  // not report it.
  double share() const;

 private:
  std::int64_t waited_ns_;
  double begin_s_;
};

}  // namespace ms
