// Reads from srun's words where it did not start tasks, or which node failed.
#include <algorithm>
#include <regex>

#include "driver/judge.h"

namespace ms::driver {

bool was_not_started(const AttemptEvidence& e) {
  return !e.trained && std::ranges::any_of(e.lines, [](const SaidLine& line) {
    return line.known->cause == slurm::kLaunchFailed && line.rank < 0;
  });
}

std::string node_in_slurms_words(const AttemptEvidence& e, std::string_view cause) {
  static const std::regex kNode("(?:failed on node|Node failure on) ([A-Za-z0-9._-]+)"),
      kTask("task ([0-9]{1,7}) launch failed");
  std::string found;
  for (const SaidLine& line : e.lines) {
    if (line.known->cause != cause || line.rank >= 0) continue;
    if (line.text.find("Application launch failed") != std::string::npos) continue;  // srun's last word of any
    if (line.text.find("DUE TO NODE FAILURE") != std::string::npos) continue;        // names the step's first
    std::smatch match;
    std::string node;
    if (std::regex_search(line.text, match, kNode)) {
      node = match[1];
    } else if (e.tasks_per_node > 0 && std::regex_search(line.text, match, kTask)) {
      const auto at = static_cast<std::size_t>(std::stoi(match[1]) / e.tasks_per_node);
      if (at < e.nodes.size()) node = e.nodes[at];
    }
    if (node.empty() || (!found.empty() && node != found)) return {};
    found = node;
  }
  const bool is_one_of_several = e.nodes.size() > 1 && std::ranges::find(e.nodes, found) != e.nodes.end();
  return is_one_of_several ? found : std::string();
}

}  // namespace ms::driver
