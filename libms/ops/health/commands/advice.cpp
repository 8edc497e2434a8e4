#include "health/commands/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "health/act/decide.h"
#include "slurm/hostlist.h"

namespace ms::health {
namespace {

// Returns whom an operator calls when the remedy did not help. A user's process that does not end is the node team's.
std::string_view callee(Blame blame) {
  switch (blame) {
    case Blame::user:
    case Blame::node: return "the node team";
    case Blame::gpu: return "the GPU team";
    case Blame::fabric: return "the network team";
    case Blame::storage: return "the storage team";
    case Blame::slurm: return "Slurm's administrators";
    case Blame::peer:
    case Blame::bug: break;
  }
  return "the developers of ms";
}

// "the node team (host.mce, host.memory); the network team (net.link)": one team a cause, in the order of the findings.
std::string callees(const std::vector<Explained>& findings) {
  std::vector<std::pair<std::string_view, std::vector<std::string>>> calls;
  for (const auto& [finding, cause, sure, depth] : findings) {
    if (cause) continue;
    const std::string_view who = callee(finding.blame);
    auto call = std::ranges::find(calls, who, &std::pair<std::string_view, std::vector<std::string>>::first);
    if (call == calls.end()) call = calls.insert(call, {who, {}});
    if (std::ranges::find(call->second, finding.code) == call->second.end()) call->second.push_back(finding.code);
  }
  std::vector<std::string> texts;
  for (const auto& [who, codes] : calls) texts.push_back(fmt::format("{} ({})", who, fmt::join(codes, ", ")));
  return fmt::format("{}", fmt::join(texts, "; "));
}

// Whether something surely follows from it that is worse than itself.
bool is_worse_below(const Explained& explained, const std::vector<Explained>& all) {
  return std::ranges::any_of(all, [&](const Explained& other) {
    return other.cause && other.sure && &all[*other.cause] == &explained &&
           other.finding.severity > explained.finding.severity;
  });
}

// The finding that it surely follows from, or itself.
const Finding& root_of(const Explained& explained, const std::vector<Explained>& all) {
  return explained.cause && explained.sure ? root_of(all[*explained.cause], all) : explained.finding;
}

}  // namespace

std::string remedy_of(const Explained& explained, const std::vector<Explained>& all) {
  const std::string& own = explained.finding.remedy;
  if (!explained.cause) return (is_worse_below(explained, all) ? "The cause of what is critical below. " : "") + own;
  const Finding& cause = all[*explained.cause].finding;
  if (explained.sure) return fmt::format("Follows from {} {}: fix that first.", cause.code, cause.entity);
  return fmt::format("May follow from {} {}, or be a fault of its own.{}", cause.code, cause.entity,
                     own.empty() ? "" : " " + own);
}

std::vector<std::string> advice_of(const std::string& node, const std::vector<Explained>& findings) {
  std::vector<std::string> lines;
  const auto faults = std::ranges::count_if(findings, [](const Explained& f) { return !f.cause; });
  if (faults > 1) lines.push_back(fmt::format("{} faults, not known to be connected: fix each", faults));
  const auto worst = std::ranges::find(findings, Severity::critical, [](const auto& f) { return f.finding.severity; });
  const bool unfit = worst != findings.end();
  const bool named = slurm::is_host_name(node);
  if (unfit && named) {
    std::vector<Finding> reasons{root_of(*worst, findings)};
    if (reasons[0].code != worst->finding.code) reasons.push_back(worst->finding);
    lines.push_back(fmt::format("unfit for jobs, drain it: scontrol update NodeName={} State=DRAIN Reason='{}'", node,
                                drain_reason(reasons)));
  }
  if (!unfit)
    lines.emplace_back(
        "need not be drained for warnings; where a fix needs a reboot, drain it first, so that its jobs end");
  if (named) {
    lines.push_back(fmt::format("when it is fixed, log in to {} and {}", node,
                                unfit ? "run \"ms-diag undrain\": it looks again, without kernel messages from before "
                                        "the drain, and brings the node back if nothing is critical"
                                      : "look again: \"ms-diag run\""));
  }
  lines.push_back(fmt::format("if that does not help, call {}", callees(findings)));
  return lines;
}

}  // namespace ms::health
