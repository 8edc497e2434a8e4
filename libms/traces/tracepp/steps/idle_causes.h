// Why the device of a rank computes nothing, for traces that record the host too (Kineto): by step, by cause, and where
// the host was meanwhile. Pure.
//
// A device is idle while no stream of it runs a kernel or a copy; waiting inside a kernel of a collective is
// communication, not idle. What ends such a gap was launched by a call on the host. If that call came after the device
// ran dry, the host is the cause, and what its thread did in between says why. If it came before, the host is not.
// Where no device computes, the rank is idle while no operator runs and no collective is under way.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tracepp/run_trace.h"

namespace ms::tracepp {

enum class IdleCause : std::uint8_t {
  synchronises,  // the host had waited for the device (aten::item, cudaStreamSynchronize, a copy to pageable memory),
                 // and so could not launch ahead: at most as long as it had waited
  data,          // a data loader
  save,          // a checkpoint is written
  collection,    // of garbage
  compilation,   // torch.compile, Triton, C++ extensions
  late,          // the launch came late for another reason: the host is slower than its device
  launch,        // from the launch, which came late, to the begin of the kernel
  between,       // queued kernels follow each other within 30 us
  event,         // the queued kernel's stream waited for an event
  queued,        // a kernel was queued longer, and the trace does not show what it waited for
  outside,       // no device computes: the host is outside of operators
  unknown,
};
inline constexpr std::size_t kIdleCauses = 12;
std::string_view to_string(IdleCause cause);
struct IdleStep {
  std::int32_t step = kNoStep;
  std::int64_t length_ns = 0;
  std::array<std::int64_t, kIdleCauses> ns{};
};

// Where the host was. Strings of the trace; 0: the trace does not say.
struct IdlePlace {
  IdleCause cause = IdleCause::unknown;
  std::uint32_t op = 0;      // the outermost operator
  std::uint32_t call = 0;    // of the device's runtime, inside the operator
  std::uint32_t below = 0;   // the annotation, module or function of a library around it
  std::uint32_t line = 0;    // the innermost Python function of the user: "train.py(212): step"
  std::uint32_t before = 0;  // where nothing else is known: what was launched next
  auto operator<=>(const IdlePlace&) const = default;
};
// Returns how sure the cause is, from 0 to 1: whether a launch came late is measured, what a queued kernel waits for is
// not, nor why a launch came late of whose thread the trace shows nothing.
double confidence_of(const IdlePlace& place);
struct IdleTime {
  IdlePlace place;
  std::int64_t ns = 0;
  std::uint64_t times = 0;
};

// The gaps between the kernels and copies of a stream as Holistic Trace Analysis counts them (get_idle_time_breakdown):
// without what the last profiler step launched, begins rounded up and ends down to microseconds. Streams overlap, so
// the sum over streams may be longer than the device's idle time.
struct StreamIdle {
  std::uint8_t lane = 0;
  std::int64_t host_wait_us = 0, kernel_wait_us = 0, other_us = 0;
};

struct RankIdle {
  bool has_device = false;
  std::string doubt;  // why much of the time has no cause; empty: little has none
  std::vector<IdleStep> steps;
  std::vector<IdleTime> places;  // the longest first
  std::vector<StreamIdle> streams;
  std::int64_t of(IdleCause cause) const;
  std::int64_t length_ns() const;
};

// Returns one for every rank; none if the trace records no host.
std::vector<RankIdle> idle_causes(const RunTrace& trace);

}  // namespace ms::tracepp
