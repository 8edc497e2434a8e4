// Joins events to operations: the members' sides of a collective, the two ends of a send. Clock alignment,
// communication analysis and hang analysis use it. Flat arrays, two passes over the events, no map of events.
//
// An operation is (group, number in the group), whatever state its members reached and whatever kind each of them
// called: the analyses judge disagreements. Members without an event are absent. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tracepp/run_trace.h"

namespace ms::tracepp {

// One side of an operation: an event of RunTrace::ranks[rank].
struct Member {
  std::uint32_t rank = 0;   // index in RunTrace::ranks, not the rank's number
  std::uint32_t event = 0;  // index in its events
};

struct Operation {
  std::int32_t group = -1;
  std::uint32_t sequence = 0;  // Event::detail
  std::uint32_t first = 0;     // in Matches::members
};

struct Matches {
  std::vector<Operation> operations;              // by group, then sequence
  std::vector<Member> members;                    // by operation, then rank; a rank is there once
  std::vector<std::uint32_t> first_of;            // of each group, and one more: its operations lie in [g], [g + 1)
  std::map<std::string, std::uint64_t> problems;  // events that could not be matched, by problem

  std::span<const Member> members_of(std::size_t operation) const {
    const std::size_t first = operations[operation].first;
    const std::size_t end = operation + 1 < operations.size() ? operations[operation + 1].first : members.size();
    return std::span(members).subspan(first, end - first);
  }
  // Returns whether any operation has members of several ranks: else nothing tells which rank waited for which.
  bool tie_ranks() const { return members.size() > operations.size(); }
  // The indices of a group's operations: [first, end).
  struct Range {
    std::uint32_t first = 0, end = 0;
  };
  Range of_group(std::int32_t group) const {
    const auto g = static_cast<std::size_t>(group);
    return {first_of[g], first_of[g + 1]};
  }
  static constexpr std::uint32_t kNone = 0xffffffff;
  // Returns the index of an operation; kNone: there is none.
  std::uint32_t find(std::int32_t group, std::uint32_t sequence) const;
};

inline const Event& event_of(const RunTrace& trace, const Member& member) {
  return trace.ranks[member.rank].events[member.event];
}

Matches match_operations(const RunTrace& trace);

}  // namespace ms::tracepp
