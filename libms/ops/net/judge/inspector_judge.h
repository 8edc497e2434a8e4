// Judges operations that NCCL's Inspector recorded: which process comes last to collectives, and which group or pair of
// hosts is slower than others like it. Pure.
//
// In one collective the rank with the shortest time came last: the others waited for it. What remains of the time once
// it is there is the transfer, so the bus bandwidth of a collective is that of its last rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/finding.h"
#include "net/judge/nccl_choices.h"
#include "net/measure/inspector.h"

namespace ms::net {

// Operations of one kind and size in groups of one shape.
struct InspectorRow {
  std::string kind;
  std::int64_t size_bytes = 0;
  int ranks = 0, nodes = 0;
  std::int64_t groups = 0, calls = 0;
  double bus_gbs = 0, slowest_gbs = 0;  // median over the groups, and the group with the least
  double waiting = 0;                   // share of the time in these calls that the median rank waits; 0 of pairs
};

struct InspectorJudged {
  NcclJudged judged;
  std::vector<InspectorRow> rows;  // by the time in them, the most first
};
InspectorJudged judge_inspector(const InspectorLog& log);
const std::vector<NcclChoiceCode>& inspector_codes();  // for the manual

}  // namespace ms::net
