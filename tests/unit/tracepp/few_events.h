// Traces of a few events, for what counts as a hang.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tracepp/run_trace.h"

namespace ms::tracepp {

// Ranks of one group and their operations, as readers make them.
struct FewRanks {
  RunTrace trace;
  Tables tables{trace};
  std::int32_t group = 0;
  explicit FewRanks(int ranks = 2) {
    trace.source = &kOwnSource;
    std::vector<int> all;
    for (int i = 0; i < ranks; ++i) all.push_back(i);
    group = tables.group({.name = "dp[pp 0 tp 0]", .ranks = all, .axis = GroupAxis::dp});
    for (const int i : all) {
      RankTrace& rank = trace.ranks.emplace_back();
      rank.rank = i;
      rank.realtime_ns = 1;
      rank.ending = Ending::running;
    }
  }
  void add(int rank, State state, double begin_s, double duration_s, std::uint32_t sequence,
           Kind kind = Kind::all_reduce, std::int64_t size_bytes = 64) {
    const bool is_comm = trace::is_comm(kind);
    Event event{.begin_ns = static_cast<std::int64_t>(begin_s * 1e9)};
    event.duration_ns = static_cast<std::int64_t>(duration_s * 1e9);
    event.detail = sequence;
    event.state = state;
    event.info = tables.info({.kind = kind, .group = is_comm ? group : -1, .size_bytes = is_comm ? size_bytes : -1});
    RankTrace& it = trace.ranks[static_cast<std::size_t>(rank)];
    it.events.push_back(event);
    it.last_flush_ns = std::max(it.last_flush_ns, event.end_ns());
  }
  void flush(double at_s) {
    for (RankTrace& rank : trace.ranks) rank.last_flush_ns = static_cast<std::int64_t>(at_s * 1e9);
  }
};

}  // namespace ms::tracepp
