// Programs of others that know a part of the node: smartctl, ipmitool, dcgmi. What they print is judged, never their
// exit status alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ms::diag {

struct ToolAnswer {
  std::string out = {};
  std::string why = {};  // not empty: it cannot be had, in the tool's own words
  bool ok = false;       // the tool ended by itself, with status 0
};

// `argv[0]`, an absolute path, must be there. `key`: where the policy has it, for the words.
ToolAnswer ask_tool(const std::vector<std::string>& argv, const std::string& key, double deadline_s);

}  // namespace ms::diag
