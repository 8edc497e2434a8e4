// Implements work_diff_text of text.h, and work_diff_json of json.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "tracepp/report/json.h"
#include "tracepp/report/text.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kMostDiffRows = 8, kMostDiffRowsJson = 200;
constexpr double kLeastStepChange = 0.01, kLeastPart = 0.02;  // of a step; of its change

std::string name_text(const std::string& name) { return plain_text(name, 90); }
std::string part_text(const PathDiff& part) {
  return part.name.empty() && part.of == to_string(PathOf::host) ? "nothing recorded" : name_text(part.name);
}
std::string count_text(double calls) { return fmt::format("{:.4g}", calls); }
bool differs(const WorkDiff& diff) {
  return std::abs(diff.step_ms.change()) >= kLeastStepChange * std::max(diff.step_ms.before, diff.step_ms.after);
}

std::string swap_text(const OpSwap& swap) {
  return fmt::format("{} calls {} {} times a step ({} before), and {} {} times ({} before): {:+.3g} ms of work",
                     name_text(swap.above), name_text(swap.before.name), count_text(swap.before.calls.after),
                     count_text(swap.before.calls.before), name_text(swap.after.name),
                     count_text(swap.after.calls.after), count_text(swap.after.calls.before), swap.change_ms());
}

// The largest part of the change, what it is, and where.
std::string cause_text(const WorkDiff& diff) {
  const double change = diff.step_ms.change();
  const auto most =
      std::ranges::max_element(diff.classes, {}, [&](const PathDiff& p) { return p.ms.change() / change; });
  const auto inside = std::ranges::find_if(
      diff.path, [&](const PathDiff& p) { return p.of == most->of && p.ms.change() * change > 0; });
  std::string text = fmt::format("{} {}: {:+.3g} ms", most->ms.change() / change >= 0.5 ? "most of it is" : "most is",
                                 most->of, most->ms.change());
  if (inside != diff.path.end() && !inside->name.empty())
    text += fmt::format(", {:+.3g} ms in {} (rank {})", inside->ms.change(), name_text(inside->name), inside->rank);
  if (most->of == to_string(PathOf::unknown)) text += "; the traces do not show what that is";
  return text;
}

std::string names_text(const std::string& head, const std::vector<NameDiff>& names) {
  TextTable table(columns(head + "|calls a step>|after>|ms a step>|after>|us a call>|after>|"));
  std::size_t rows = 0;
  for (const NameDiff& name : names) {
    const bool is_same = std::abs(name.calls.change()) < 1e-3 &&
                         std::abs(name.ms.change()) < 0.01 * std::max(name.ms.before, name.ms.after);
    if (is_same || rows == kMostDiffRows) continue;
    ++rows;
    const auto each = [](double ms, double calls) { return calls > 0 ? fmt::format("{:.1f}", 1e3 * ms / calls) : "-"; };
    table.row({name_text(name.name), count_text(name.calls.before), count_text(name.calls.after),
               fmt::format("{:.3f}", name.ms.before), fmt::format("{:.3f}", name.ms.after),
               each(name.ms.before, name.calls.before), each(name.ms.after, name.calls.after),
               name.vanished()   ? "gone"
               : name.appeared() ? "new"
                                 : ""});
  }
  return rows == 0 ? "" : "\n" + table.str();
}

Json both_json(const BeforeAfter& of) { return {{"before", of.before}, {"after", of.after}}; }

}  // namespace

std::string work_diff_text(const WorkDiff& diff) {
  if (!diff.unknown.empty()) return {};
  std::string text;
  if (differs(diff)) {
    text += cause_text(diff) + "\n";
    for (std::size_t i = 0; i < std::min<std::size_t>(diff.swaps.size(), 3); ++i)
      text += swap_text(diff.swaps[i]) + "\n";
    TextTable table(columns("on the critical path|what|ms a step>|after>|change>|of the difference>|rank>"));
    double shown_ms = 0;
    std::size_t rows = 0;
    for (const PathDiff& part : diff.path) {
      const double of_change = part.ms.change() / diff.step_ms.change();
      if (rows == kMostDiffRows || std::abs(of_change) < kLeastPart) continue;
      ++rows;
      shown_ms += part.ms.change();
      table.row({part.of, part_text(part), fmt::format("{:.3f}", part.ms.before), fmt::format("{:.3f}", part.ms.after),
                 fmt::format("{:+.3f}", part.ms.change()), signed_percent(of_change), std::to_string(part.rank)});
    }
    const double rest_ms = diff.step_ms.change() - shown_ms;
    table.row(
        {"the rest", "", "", "", fmt::format("{:+.3f}", rest_ms), signed_percent(rest_ms / diff.step_ms.change()), ""});
    table.row({"step, until its work has ended", "", fmt::format("{:.3f}", diff.step_ms.before),
               fmt::format("{:.3f}", diff.step_ms.after), fmt::format("{:+.3f}", diff.step_ms.change()), "+100.0%",
               ""});
    text += "\n" + table.str();
  }
  return text + names_text("kernel", diff.kernels) + names_text("operator", diff.ops) + names_text("line", diff.lines);
}

Json work_diff_json(const WorkDiff& diff) {
  if (!diff.unknown.empty()) return {{"known", false}, {"why", diff.unknown}};
  Json json{{"known", true}, {"step_ms", both_json(diff.step_ms)}, {"unattributed_ms", diff.unattributed_ms}};
  const auto paths = [&](const std::vector<PathDiff>& parts) {
    Json rows = Json::array();
    for (const PathDiff& part : parts) {
      if (rows.size() == kMostDiffRowsJson) break;
      rows.push_back({{"of", part.of}, {"name", part.name}, {"ms", both_json(part.ms)}, {"rank", part.rank}});
    }
    return rows;
  };
  json["classes"] = paths(diff.classes);
  json["path"] = paths(diff.path);
  const auto name_json = [](const NameDiff& name) {
    return Json{{"name", name.name}, {"calls", both_json(name.calls)}, {"ms", both_json(name.ms)}};
  };
  const auto names = [&](const std::vector<NameDiff>& list) {
    Json rows = Json::array();
    for (std::size_t i = 0; i < std::min(list.size(), kMostDiffRowsJson); ++i) rows.push_back(name_json(list[i]));
    return rows;
  };
  json.update({{"kernels", names(diff.kernels)}, {"operators", names(diff.ops)}, {"lines", names(diff.lines)}});
  Json& swaps = json["swaps"] = Json::array();
  for (const OpSwap& swap : diff.swaps) {
    swaps.push_back({{"below", swap.above},
                     {"before", name_json(swap.before)},
                     {"after", name_json(swap.after)},
                     {"change_ms", swap.change_ms()}});
  }
  return json;
}

}  // namespace ms::tracepp
