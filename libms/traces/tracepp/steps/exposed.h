// Communication by group and operation: for how long some of it was in flight, and the part that no computing hid. For
// traces of other programs, whose events tell when a device computes. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "tracepp/run_trace.h"

namespace ms::tracepp {

struct ExposedComm {
  std::int32_t group = -1;  // in RunTrace::groups; -1: not known
  Kind kind = Kind::other_comm;
  std::uint64_t operations = 0;               // as seen by each rank
  std::int64_t total_ns = 0, exposed_ns = 0;  // of all ranks together; waiting for members is part of both
};
// Returns them with the most exposed one first, over the whole trace.
std::vector<ExposedComm> exposed_communication(const RunTrace& trace);

}  // namespace ms::tracepp
