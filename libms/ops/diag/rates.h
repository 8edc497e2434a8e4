// Numbers that were measured, and what the policy's section [active] makes of them. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "diag/limits.h"
#include "diag/share.h"
#include "health/checks/check.h"

namespace ms::diag {

inline constexpr std::string_view kLooksSlow =
    "Run it again while nothing else runs on the node; if it stays slow, compare the BIOS's power and memory settings "
    "and the installed memory with those of a node that is not slow.";  // Check::remedy

struct Rate {
  std::string entity;     // "memory", "eth0", "fp32"
  double measured = 0;    // of this process
  double expected = -1;   // of a healthy node by the policy, or negative: `known` counts
  std::string unit;       // "GB/s"
  KnownLimit known = {};  // of the model
};

enum class Scope {
  cores,  // what is expected of the node is expected of all its cores together: a share answers for its part
  whole,  // the number does not depend on how many cores are loaded
  device  // nor on what else they do
};

// Below min_fraction of what is expected, or below what is known of the model, is a warning; below half of what is
// expected is critical, where `worst` allows it. The note tells the numbers in any case. Where other programs took part
// of the processors meanwhile, only what is too low even if that is made up for is a finding; what may be theirs is not
// measured.
health::Result judge_rates(const std::vector<Rate>& rates, double min_fraction, const Share& share, Scope scope,
                           const std::string& how, Severity worst = Severity::critical);

// The result with these findings in it, too, and the outcome that all of them have.
health::Result with_findings(health::Result result, std::vector<Finding> more);

}  // namespace ms::diag
