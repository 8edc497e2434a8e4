// Joins the work of a device with the calls that launched it, by the number that both have in Kineto's traces. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "tracepp/run_trace.h"

namespace ms::tracepp {

// The work of a rank's device and the calls that launched it: their correlation, and their index.
struct LaunchLinks {
  using End = std::pair<std::int32_t, std::uint32_t>;
  std::vector<End> calls, work;

  // Returns the work whose call is known, in the order of the work.
  std::vector<Launch> joined() {
    std::ranges::stable_sort(calls, {}, &End::first);
    std::vector<Launch> launches;
    launches.reserve(work.size());
    for (const auto& [correlation, event] : work) {
      const auto call = std::ranges::lower_bound(calls, correlation, {}, &End::first);
      if (call != calls.end() && call->first == correlation) launches.push_back({event, call->second});
    }
    return launches;
  }
};

}  // namespace ms::tracepp
