// Tells what a slow rank executes longer than others with its work, for traces that record the host (Kineto): each
// kernel takes longer, it calls them more often, or it calls others. Only the first may be a slow device. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tracepp/run_trace.h"

namespace ms::tracepp {

struct SlowWork {
  enum class Is : std::uint8_t {
    unknown,  // no one difference explains at least half of it
    slower,   // its calls take longer, with the same shapes
    longer,   // they take longer, and the shapes are not recorded or do not say why
    larger,   // they take longer, and their shapes need more FLOPs
    more,     // it makes more of the calls that others make, too
    others,   // it makes calls that others do not make
  };
  Is is = Is::unknown;
  std::string name = {};                 // of the kernel or operator with most of it; empty: all alike
  std::string sentence = {}, hint = {};  // may be empty
  std::string line = {};                 // where the host launches most of it: "train.py(212): step"; may be empty
};
// Compares a rank, by its index, with a few others of its stage. Less than `least_ms` of a step is not worth a word.
SlowWork find_slow_work(const RunTrace& trace, std::size_t rank, double least_ms);

}  // namespace ms::tracepp
