// Judges what NCCL chose, by its own logs: where it fell back to something slower. What is normal comes from the other
// hosts of the same logs, or from what the same host says it has; where neither tells, nothing is a finding. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/finding.h"
#include "net/measure/nccl_log.h"

namespace ms::net {

struct NcclChoiceCode {
  std::string_view code, summary;
};
const std::vector<NcclChoiceCode>& nccl_choice_codes();  // for the manual

struct NcclJudged {
  std::vector<Finding> findings;     // hosts with the same one folded into its entity
  std::vector<std::string> not_run;  // what these logs cannot tell
};
NcclJudged judge_nccl(const NcclLog& log);

}  // namespace ms::net
