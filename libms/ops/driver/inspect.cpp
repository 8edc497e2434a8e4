#include "driver/inspect.h"

#include <algorithm>
#include <set>

#include "base/sysroot.h"
#include "base/text.h"
#include "base/user_path.h"
#include "driver/findings.h"
#include "slurm/hostlist.h"

namespace ms::driver {
namespace {

constexpr std::size_t kMostAnswer_bytes = std::size_t{16} << 20;

std::string step_name(int step) { return step < 0 ? "the batch script" : fmt::format("step {}", step); }

}  // namespace

void read_looks(Inspection& inspection) {
  const std::vector<std::string> names = Sysroot().list(inspection.dir);
  const auto text_of = [&](const std::string& name) {
    return std::ranges::count(names, name) > 0 ? read_user_file(inspection.dir + "/" + name, kMostAnswer_bytes)
                                               : std::string();
  };
  for (const std::string& node : inspection.nodes) {
    if (std::optional<NodeLook> look = read_node_look(text_of(fmt::format("look-{}.json", node))))
      inspection.looks.push_back(*std::move(look));
    if (const std::optional<std::string> found = critical_finding(text_of(fmt::format("check-{}.json", node))))
      inspection.findings[node] = *found;
  }
}

std::map<std::string, std::vector<std::string>> Inspection::missing() const {
  std::map<std::string, std::vector<std::string>> found;
  std::set<int> steps;
  for (const std::string& node : nodes) {
    const auto look = std::ranges::find(looks, node, &NodeLook::node);
    if (look == looks.end()) {
      found["an answer of the node"].push_back(node);
      continue;
    }
    for (const std::string& what : look->missing) found[what].push_back(node);
    if (look->ranks > 0) steps.insert(look->step);
  }
  if (!unjudged.empty()) found["a verdict of ms-tracepp hang: " + unjudged] = nodes;
  if (!unread.empty()) found["a log of the job: " + unread] = nodes;
  if (steps.size() > 1) found["one run: nodes run different steps, choose one with --step"] = nodes;
  return found;
}

std::string to_json(const Inspection& it) {
  Json looks = Json::array(), findings = Json::array(), missing = Json::array();
  for (const NodeLook& look : it.looks)
    looks.push_back({{"node", look.node}, {"step", look.step}, {"ranks", look.ranks}});
  for (const auto& [node, text] : it.findings) findings.push_back({{"node", node}, {"text", text}});
  for (const auto& [what, nodes] : it.missing()) missing.push_back({{"what", what}, {"nodes", nodes}});
  Json json{{"schema", 1}, {"job", it.job}, {"dir", it.dir}};
  json["nodes"] = std::move(looks);
  json["verdict"] = it.verdict;
  json["findings"] = std::move(findings);
  json["missing"] = std::move(missing);
  return json.dump(2) + "\n";
}

std::string inspection_text(const Inspection& it) {
  int ranks = 0;
  for (const NodeLook& look : it.looks) ranks += look.ranks;
  std::string text = fmt::format("job {}, {}: {} of {} answered, {}\n", it.job,
                                 it.looks.empty() ? "no step" : step_name(it.looks.front().step), it.looks.size(),
                                 plural(it.nodes.size(), "node"), plural(static_cast<std::size_t>(ranks), "rank"));
  text += it.verdict_text.empty() ? "nothing was found to judge\n" : it.verdict_text;
  for (const auto& [node, found] : it.findings) text += fmt::format("ms-diag finds on {}: {}\n", node, found);
  for (const auto& [what, nodes] : it.missing())
    text += fmt::format("not had, {}: {}\n", slurm::fold_hostlist(nodes), plain_text(what, 300));
  return text + fmt::format("the evidence is in {}\n", it.dir);
}

}  // namespace ms::driver
