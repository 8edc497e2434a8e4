// The answers of nodes and the events of a repair: implements the rest of repair.h.
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/print.h"
#include "base/text.h"
#include "health/act/decide.h"
#include "health/act/flow.h"
#include "health/checks/registry.h"
#include "health/repair/repair.h"

namespace ms::health {

std::string unreached(const Report& report) {
  const auto broken = std::ranges::find(report.results, "ssh", &Result::code);
  return broken == report.results.end() ? std::string() : broken->note;
}

Verdict verdict(const Report& report, const std::string& reason) {
  std::string other;
  for (const Finding& finding : report.findings()) {
    if (finding.severity != Severity::critical) continue;
    const Check* check = find_check(passive_checks(), finding.code);
    if (check != nullptr && check->user_can_cause) continue;
    const std::string text = fmt::format("{} {}: {}", finding.code, finding.entity, finding.message);
    if (finding.blame == Blame::node || finding.blame == Blame::gpu) return {Outcome3::bad, text};
    other = text;
  }
  if (const std::string note = unreached(report); !note.empty()) return {Outcome3::unknown, note};
  const std::string why = not_verified(std::string(kReasonPrefix) + code_of(reason), report.results);
  if (!why.empty()) return {Outcome3::unknown, "not verified, " + why};
  if (!other.empty()) return {Outcome3::unknown, other};
  return {Outcome3::good, plural(report.results.size(), "check") + " found nothing critical"};
}

std::string last_event(const std::string& spool, const std::string& node) {
  if (::access(spool.c_str(), F_OK) != 0) return {};
  std::string kind;
  for (const auto& [name, event] : spooled_events(spool)) {
    if (event.node == node) kind = event.kind;
  }
  return kind;
}

void spool_for_people(const std::string& spool, const Event& event) {
  try {
    if (event.kind != "withdrawn" || last_event(spool, event.node) != event.kind) spool_event(spool, event);
  } catch (const Error& error) {
    print_err("ms-diag: warning: no event of {} for notify: {}\n", event.node, error.message());
  }
}

}  // namespace ms::health
