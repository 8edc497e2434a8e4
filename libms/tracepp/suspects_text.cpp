// A verdict for a terminal. Everything printed is our own words and numbers: no string of a trace gets here.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>

#include "tracepp/suspects.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kThings = 3, kRanksNamed = 4;
constexpr double kWorthASum = 1e-3;  // of a step
// With less there is nothing to tell the causes of apart (Lin et al., section 5).
constexpr double kWorthTelling = 1.03;
constexpr std::size_t kLines = 12;  // of a table
constexpr std::size_t kMapRows = 32, kMapColumns = 64;

using Out = std::back_insert_iterator<std::string>;

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string ranks_text(const std::vector<int>& ranks) {
  if (ranks.empty()) return "no rank in particular";
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (std::size_t i = 0; i < std::min(ranks.size(), kRanksNamed); ++i)
    text += fmt::format("{}{}", i == 0 ? " " : ", ", ranks[i]);
  if (ranks.size() > kRanksNamed) text += fmt::format(" and {} more", ranks.size() - kRanksNamed);
  return text;
}

// The worst of them, in order of how bad they are.
void table(Out out, std::string_view title, std::vector<Contribution> parts) {
  std::ranges::stable_sort(parts, std::ranges::greater{}, &Contribution::slowdown);
  fmt::format_to(out, "\n{:<32} slowdown\n", title);
  for (std::size_t i = 0; i < std::min(parts.size(), kLines); ++i)
    fmt::format_to(out, "  {:<30} {:8.4f}\n", parts[i].name, parts[i].slowdown);
  if (parts.size() > kLines) fmt::format_to(out, "  and {} more\n", parts.size() - kLines);
}

void steps_table(Out out, const Verdict& verdict) {
  std::vector<std::size_t> order(verdict.steps.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t i) { return verdict.step_s[i]; });
  fmt::format_to(out, "\n{:<16} {:>12} {:>12}\n", "the longest steps", "seconds", "slowdown");
  for (std::size_t i = 0; i < std::min(order.size(), kLines); ++i) {
    const std::size_t step = order[i];
    fmt::format_to(out, "  {:<15} {:12.4f} {:12.4f}\n", verdict.steps[step], verdict.step_s[step],
                   verdict.stragglers.step_slowdowns[step]);
  }
}

// Each character is a worker, or the worst of a few neighbours where there are many.
void map(Out out, const Verdict& verdict) {
  constexpr std::string_view kShades = ".:-=+*%@#";
  const std::size_t dp = verdict.dp_ranks.size(), pp = static_cast<std::size_t>(verdict.mesh.pp);
  if (verdict.cells.size() != dp * pp || dp == 0 || pp == 0) return;
  const float most = std::max(*std::ranges::max_element(verdict.cells), 1.02F);
  const std::size_t tall = (dp + kMapRows - 1) / kMapRows, wide = (pp + kMapColumns - 1) / kMapColumns;
  fmt::format_to(out, "\ncomputing of each worker: '{}' as the median or less, '{}' {:.2f} times it\n", kShades.front(),
                 kShades.back(), most);
  fmt::format_to(out, "{:>12}  pp 0 to {}\n", "", pp - 1);
  for (std::size_t row = 0; row < dp; row += tall) {
    const std::string name =
        tall == 1 ? fmt::format("dp {}", verdict.dp_ranks[row])
                  : fmt::format("dp {}-{}", verdict.dp_ranks[row], verdict.dp_ranks[std::min(row + tall, dp) - 1]);
    fmt::format_to(out, "{:>12}  ", name);
    for (std::size_t column = 0; column < pp; column += wide) {
      float worst = 0;
      for (std::size_t i = row; i < std::min(row + tall, dp); ++i)
        for (std::size_t k = column; k < std::min(column + wide, pp); ++k)
          worst = std::max(worst, verdict.cells[i * pp + k]);
      const float share = std::clamp((worst - 1) / (most - 1), 0.0F, 1.0F);
      fmt::format_to(out, "{}",
                     kShades[static_cast<std::size_t>(std::lround(share * static_cast<float>(kShades.size() - 1)))]);
    }
    fmt::format_to(out, "\n");
  }
}

}  // namespace

std::string suspects_text(const Verdict& verdict) {
  const Stragglers& found = verdict.stragglers;
  std::string text;
  const Out out(text);
  fmt::format_to(out, "a step takes {:.4f} s, {} more than if all ranks were equally fast, and {} of it is delays\n",
                 found.measured_s, percent(found.S - 1), percent(1 - 1 / std::max(found.launch_slowdown, 1.0)));
  if (verdict.findings.empty()) {
    fmt::format_to(out, "nothing stands out: no rank, link or step is slower than others like it\n");
    return text;
  }
  for (std::size_t i = 0; i < std::min(verdict.findings.size(), kThings); ++i) {
    const Finding& finding = verdict.findings[i];
    const std::string cost = finding.cost_share < kWorthASum ? "costs next to nothing"
                                                             : fmt::format("costs {:.4f} s of a step ({})",
                                                                           finding.cost_s, percent(finding.cost_share));
    fmt::format_to(out, "{}. {}: {}; {}, confidence {:.2f}\n   {}\n", i + 1, finding.code, ranks_text(finding.ranks),
                   cost, finding.confidence, finding.evidence);
  }
  if (verdict.findings.size() > kThings) fmt::format_to(out, "and {} more\n", verdict.findings.size() - kThings);
  return text;
}

std::string stragglers_text(const Verdict& verdict) {
  const Stragglers& found = verdict.stragglers;
  std::string text;
  const Out out(text);
  fmt::format_to(out, "{} steps of dp {} pp {} tp {}", verdict.steps.size(), verdict.mesh.dp, verdict.mesh.pp,
                 verdict.mesh.tp);
  if (verdict.steps_left_out > 0)
    fmt::format_to(out, ", {} left out: not whole on all ranks, or not only training", verdict.steps_left_out);
  if (verdict.dp_ranks.size() != static_cast<std::size_t>(verdict.mesh.dp)) {
    fmt::format_to(out, "; {} dp ranks left out, of which not every stage was traced",
                   static_cast<std::size_t>(verdict.mesh.dp) - verdict.dp_ranks.size());
  }
  fmt::format_to(out, "\nslowdown S {:.4f}, of launches {:.4f}", found.S, found.launch_slowdown);
  if (found.S >= kWorthTelling) {
    fmt::format_to(out, "; gone with the slowest 3 % of the workers {}, with the last stage {}", percent(found.M_W),
                   percent(found.M_S));
  }
  fmt::format_to(out, "\n");
  steps_table(out, verdict);
  table(out, "by dp rank", found.by_dp);
  table(out, "by stage", found.by_stage);
  table(out, "by kind of operation", found.by_type);
  map(out, verdict);
  return text;
}

}  // namespace ms::tracepp
