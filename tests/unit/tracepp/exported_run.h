// A run for the tests of exports, and a decoder of Perfetto's files by the rules of protobuf.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tracepp/run_trace.h"

namespace ms::tracepp {

inline constexpr std::int64_t kOrigin = 1'700'000'000'000'000'123;
inline constexpr char kHostile[] = "</script>\"%s\\,\n";

// Two ranks, three steps: a section with a message that only overlaps it, a send to its receive, and at the end one
// that hangs and one that never began.
RunTrace exported_run();

struct Slice {
  std::string track, name;
  std::int64_t begin = 0, end = 0;
  std::int64_t arrived = 0;  // where an arrow leads to, of a receive that has one
};

// Expects that those of a track are apart or inside each other.
void expect_nested(const std::vector<Slice>& slices);

struct Decoded {
  std::vector<Slice> slices;
  std::vector<std::string> open, instants;
  std::map<std::uint64_t, std::vector<unsigned>> flows;  // by id: the fields that told of it
  std::map<std::string, std::string> parents;            // tracks by name
};

Decoded decode_perfetto(const std::string& text);

}  // namespace ms::tracepp
