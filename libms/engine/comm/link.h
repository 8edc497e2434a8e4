// The time that an operation takes, for experiments with ranks as threads: arithmetic only; thread_hub.cpp waits.
#pragma once

#include <chrono>
#include <cstdint>

#include "comm/communicator.h"

namespace ms::comm {

// An operation ends no earlier than `latency_s` after the last member has reached it, plus the time that the bytes sent
// by one member take at `bytes_per_s`. Waiting costs no processor time; the members' work on memory takes its real
// time. Each group has a link of its own. A rate of 0: no limit.
struct Link {
  double latency_s = 0, bytes_per_s = 0;

  bool delays() const { return latency_s > 0 || bytes_per_s > 0; }
};

// Returns the bytes that one of `members` sends in a ring algorithm for an operation on `size_bytes` (of the whole,
// where members have parts): each part passes every link but one, twice for an all-reduce.
inline double bytes_sent(OpKind kind, std::int64_t size_bytes, int members) {
  const double others = static_cast<double>(size_bytes) * (members - 1) / members;
  switch (kind) {
    case OpKind::barrier: return 0;
    case OpKind::all_reduce: return 2 * others;
    case OpKind::reduce_scatter:
    case OpKind::all_gather:
    case OpKind::all_to_all: return others;  // of the whole that a member sends
    case OpKind::broadcast:
    case OpKind::send:
    case OpKind::recv: return static_cast<double>(size_bytes);
  }
  return 0;
}

inline std::chrono::nanoseconds travel_time(const Link& link, OpKind kind, std::int64_t size_bytes, int members) {
  const double sending_s = link.bytes_per_s > 0 ? bytes_sent(kind, size_bytes, members) / link.bytes_per_s : 0;
  return std::chrono::nanoseconds(static_cast<std::int64_t>((link.latency_s + sending_s) * 1e9));
}

}  // namespace ms::comm
