#include "health/checks/check.h"

#include <fnmatch.h>

#include <algorithm>

#include "base/text.h"

namespace ms::health {

std::string_view to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::pass: return "pass";
    case Outcome::warn: return "warn";
    case Outcome::critical: return "critical";
    case Outcome::skip: return "skip";
    case Outcome::broken: return "broken";
  }
  return "broken";
}

std::string_view to_string(Cost cost) {
  switch (cost) {
    case Cost::cheap: return "cheap";
    case Cost::seconds: return "seconds";
  }
  return "seconds";
}

std::vector<std::string_view> to_strings(Resources takes) {
  if ((takes & kNode) == kNode) return {"node"};
  std::vector<std::string_view> names;
  for (const auto& [bit, name] : {std::pair{kGpus, "gpus"}, {kBus, "bus"}, {kDisk, "disk"}, {kWire, "wire"}}) {
    if ((takes & bit) != 0) names.emplace_back(name);
  }
  return names;
}

std::string_view proof(const Check& check) {
  if (!check.proved.empty()) return check.proved;
  switch (check.lane) {
    case Lane::gpu: return "a fake NVML";
    case Lane::active:
    case Lane::mounts:
    case Lane::site: return "a real node";
    case Lane::kernel:
    case Lane::files: break;
  }
  return "a fake file tree";
}

Result passed(std::string note) { return {.outcome = Outcome::pass, .note = std::move(note)}; }
Result skipped(std::string why) { return {.outcome = Outcome::skip, .note = std::move(why)}; }
Result broken(std::string why) { return {.outcome = Outcome::broken, .note = std::move(why)}; }
Result not_measured(std::string_view why) {
  return skipped(fmt::format("not measured: {}; run it again while nothing else runs on the node", why));
}

Result judged(std::vector<Finding> findings, std::string note_if_none) {
  if (findings.empty()) return passed(std::move(note_if_none));
  Result result{.outcome = Outcome::pass, .findings = std::move(findings)};
  for (const Finding& finding : result.findings) {
    if (finding.severity == Severity::critical) result.outcome = Outcome::critical;
    if (finding.severity == Severity::warning && result.outcome == Outcome::pass) result.outcome = Outcome::warn;
  }
  return result;
}

bool matches(std::string_view globs, std::string_view code) {
  const std::vector<std::string> patterns = split(globs, ',');
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return fnmatch(pattern.c_str(), std::string(code).c_str(), 0) == 0;
  });
}

}  // namespace ms::health
