// Remedies that a program can use on a node, and for which finding: two tables. Pure. A remedy runs on its node, which
// is drained by us and has no job (local.h); a reboot is Slurm's work (plan.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ms::health {

inline constexpr std::string_view kLeftovers = "kill-leftovers";
inline constexpr std::string_view kReboot = "reboot";

struct Remedy {
  std::string_view name;
  std::string_view doc;         // for the manual
  bool ends_leftovers = false;  // kill-leftovers comes first, where the policy allows it
  // One after the other, words separated by blanks; the remedy ends at the first that fails, unless it begins with '-'.
  // "{nvidia_smi}" is that of the policy. None: local.cpp does it.
  std::vector<std::string_view> commands = {};
  double deadline_s = 60;  // of each command
};
const std::vector<Remedy>& remedies();
const Remedy* find_remedy(std::string_view name);  // nullptr: there is none

// Returns the remedies of a drain for `code`, the mildest first. Empty: only a person can mend that.
std::vector<std::string_view> remedies_of(std::string_view code);
std::vector<std::pair<std::string, std::string>> remedy_terms();  // for the manual: what is done, and for which codes

std::string repair_description();  // of ms-diag repair, for its manual

}  // namespace ms::health
