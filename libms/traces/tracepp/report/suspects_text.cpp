// Implements the texts of suspects.h for a terminal. They contain no strings of a trace.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <ranges>

#include "base/text.h"
#include "tracepp/findings/suspects.h"
#include "tracepp/report/text.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kThings = 3, kRanksNamed = 4;
constexpr std::size_t kMostLeftOut = 4;  // steps that are named
constexpr double kWorthASum = 1e-3;      // of a step
// With less the causes cannot be told apart (Lin et al., section 5).
constexpr double kWorthTelling = 1.03;
constexpr double kMuchLost = 1 - 1 / 1.1;  // of a step, without a cause that is sure: the S of a straggling job there
constexpr double kReplayTolerance = 0.1;   // of a step: the largest difference between replay and measurement
constexpr double kSure = 0.9;              // confidence of a statement that is made without "but"
constexpr std::size_t kSuspectsWidth = 110;
constexpr std::size_t kLines = 12;  // of a table
constexpr std::size_t kMapRows = 32, kMapColumns = 64;

using Out = std::back_insert_iterator<std::string>;

std::string share_text(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string ranks_text(const std::vector<int>& ranks) {
  if (ranks.empty()) return "no rank in particular";
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (std::size_t i = 0; i < std::min(ranks.size(), kRanksNamed); ++i)
    text += fmt::format("{}{}", i == 0 ? " " : ", ", ranks[i]);
  if (ranks.size() > kRanksNamed) text += fmt::format(" and {} more", ranks.size() - kRanksNamed);
  return text;
}

// Sequences are never quite even.
bool is_worth_telling(const Finding& finding) {
  return finding.code != FindingCode::uneven_sequences || finding.cost_share >= kWorthASum;
}
bool is_once(const Diagnosis& diagnosis, const Finding& finding) {
  return finding.first_step == finding.last_step && diagnosis.steps.size() > 1;
}

const Contribution* worst_of(const std::vector<Contribution>& parts) {
  const auto worst = std::ranges::max_element(parts, {}, &Contribution::slowdown);
  return parts.size() > 1 ? &*worst : nullptr;
}

// Returns why the replay is not meaningful; empty if it took about as long as the run.
std::string not_explained_text(const Diagnosis& diagnosis) {
  if (!diagnosis.knows_slowdown) {
    return fmt::format(
        "replayed, a step takes {:.4f} s, more than it did: waits for ranks without a trace look like communication; "
        "S, M_W, M_S and the slowdowns are not known",
        diagnosis.stragglers.without_delays_s);
  }
  if (std::abs(diagnosis.unexplained) <= kReplayTolerance) return "";
  return fmt::format(
      "replayed, a step takes {:.4f} s, {}: the replay does not explain these steps, as where ranks share cores or "
      "do what is not traced; S, M_W, M_S and the slowdowns say little",
      diagnosis.stragglers.without_delays_s, diagnosis.unexplained > 0 ? "less than it did" : "more than it did");
}

void paragraph(std::string& text, const std::string& words, std::string_view indent) {
  for (const std::string& line : lines_of(words, kSuspectsWidth - indent.size()))
    text += fmt::format("{}{}\n", indent, line);
}

// Prints the worst parts, the worst first.
void table(Out out, std::string_view title, std::vector<Contribution> parts) {
  std::ranges::stable_sort(parts, std::ranges::greater{}, &Contribution::slowdown);
  fmt::format_to(out, "\n{:<32} slowdown\n", title);
  for (std::size_t i = 0; i < std::min(parts.size(), kLines); ++i)
    fmt::format_to(out, "  {:<30} {:8.4f}\n", parts[i].name, parts[i].slowdown);
  if (parts.size() > kLines) fmt::format_to(out, "  and {} more\n", parts.size() - kLines);
}

void steps_table(Out out, const Diagnosis& diagnosis) {
  std::vector<std::size_t> order(diagnosis.steps.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t i) { return diagnosis.step_s[i]; });
  fmt::format_to(out, "\n{:<16} {:>12} {:>12}\n", "the longest steps", "seconds", "slowdown");
  for (std::size_t i = 0; i < std::min(order.size(), kLines); ++i) {
    const std::size_t step = order[i];
    const double slowdown = diagnosis.stragglers.step_slowdowns[step];
    fmt::format_to(out, "  {:<15} {:12.4f} {:>12}\n", diagnosis.steps[step], diagnosis.step_s[step],
                   diagnosis.knows_slowdown ? fmt::format("{:.4f}", slowdown) : "-");
  }
}

// Each character is a worker, or the worst of a few neighbours where there are many.
void map(Out out, const Diagnosis& diagnosis) {
  constexpr std::string_view kShades = ".:-=+*%@#";
  const std::size_t dp = diagnosis.dp_ranks.size(), pp = static_cast<std::size_t>(diagnosis.mesh.pp);
  if (diagnosis.cells.size() != dp * pp || dp == 0 || pp == 0) return;
  const float most = std::max(*std::ranges::max_element(diagnosis.cells), 1.02F);
  const std::size_t tall = (dp + kMapRows - 1) / kMapRows, wide = (pp + kMapColumns - 1) / kMapColumns;
  fmt::format_to(out, "\ncomputing of each worker: '{}' as the median or less, '{}' {:.2f} times it\n", kShades.front(),
                 kShades.back(), most);
  fmt::format_to(out, "{:>12}  pp 0 to {}\n", "", pp - 1);
  for (std::size_t row = 0; row < dp; row += tall) {
    const std::string name =
        tall == 1 ? fmt::format("dp {}", diagnosis.dp_ranks[row])
                  : fmt::format("dp {}-{}", diagnosis.dp_ranks[row], diagnosis.dp_ranks[std::min(row + tall, dp) - 1]);
    fmt::format_to(out, "{:>12}  ", name);
    for (std::size_t column = 0; column < pp; column += wide) {
      float worst = 0;
      for (std::size_t i = row; i < std::min(row + tall, dp); ++i)
        for (std::size_t k = column; k < std::min(column + wide, pp); ++k)
          worst = std::max(worst, diagnosis.cells[i * pp + k]);
      const float share = std::clamp((worst - 1) / (most - 1), 0.0F, 1.0F);
      fmt::format_to(out, "{}",
                     kShades[static_cast<std::size_t>(std::lround(share * static_cast<float>(kShades.size() - 1)))]);
    }
    fmt::format_to(out, "\n");
  }
}

}  // namespace

std::string quiet_text(const Diagnosis& diagnosis) {
  const std::string sure = fmt::format("confidence {:.2f}", diagnosis.quiet_confidence);
  if (diagnosis.gaps.any())
    return "nothing stands out in what was traced, which says nothing of what is missing; " + sure;
  if (diagnosis.quiet_confidence >= kSure)
    return "nothing stands out: no rank, link or step is slower than others like it; " + sure;
  return fmt::format("nothing stands out, which says little, {}: {}", sure,
                     diagnosis.is_contended ? "ranks wait for cores that they share, and a slow one may hide among them"
                                            : "the replay does not explain these steps");
}

std::string cost_text(const Diagnosis& diagnosis, const Finding& finding) {
  if (is_once(diagnosis, finding)) {
    return fmt::format("cost {:.3g} s once, in step {}", finding.cost_s * static_cast<double>(diagnosis.steps.size()),
                       finding.first_step);
  }
  if (finding.cost_share < kWorthASum) return "costs next to nothing";
  return fmt::format("costs {:.4f} s of a step, {}", finding.cost_s, share_text(finding.cost_share));
}

std::string lost_text(const Diagnosis& diagnosis) {
  if (!diagnosis.knows_slowdown) return "";
  const Stragglers& found = diagnosis.stragglers;
  double rest_s = found.without_delays_s - found.ideal_s;
  for (const Finding& finding : diagnosis.findings)
    if (!is_delay(finding)) rest_s -= finding.cost_s;
  if (!(diagnosis.measured_s > 0) || rest_s < kMuchLost * diagnosis.measured_s) return "";
  std::string text = fmt::format("{:.4f} s of a step, {}, are lost as operations take longer than others of their kind",
                                 rest_s, share_text(rest_s / diagnosis.measured_s));
  if (!not_explained_text(diagnosis).empty()) return text;
  std::string where;
  const Contribution *dp = worst_of(found.by_dp), *stage = worst_of(found.by_stage), *type = worst_of(found.by_type);
  const Contribution* const part = dp == nullptr || (stage != nullptr && stage->slowdown > dp->slowdown) ? stage : dp;
  if (part != nullptr) where = fmt::format(" on {}", part->name);
  if (type != nullptr) where += fmt::format("{} in {}", where.empty() ? "" : " and", type->name);
  if (!where.empty()) text += ", most of it" + where;
  return text + "; nothing is sure enough to be named as the cause";
}

std::string suspects_text(const Diagnosis& diagnosis) {
  std::string text;
  if (diagnosis.gaps.any()) paragraph(text, "not everything was traced: " + gaps_text(diagnosis.gaps), "");
  text += fmt::format("a step takes {:.4f} s, the mean of {}; shares are of it\n", diagnosis.measured_s,
                      plural(diagnosis.steps.size(), "measured step"));
  std::size_t shown = 0, more = 0;
  for (const Finding& finding : diagnosis.findings) {
    if (!is_worth_telling(finding)) continue;
    if (shown == kThings) {
      ++more;
      continue;
    }
    text += fmt::format("{}. {}: {}; {}, confidence {:.2f}\n", ++shown, to_string(finding.code),
                        ranks_text(finding.ranks), cost_text(diagnosis, finding), finding.confidence);
    paragraph(text, finding.evidence, "   ");
    if (!finding.doubt.empty()) paragraph(text, "in doubt: " + finding.doubt, "   ");
  }
  if (more > 0) text += fmt::format("and {} more\n", more);
  const std::string lost = lost_text(diagnosis), not_explained = not_explained_text(diagnosis);
  if (!lost.empty()) paragraph(text, (shown > 0 ? "another " : "") + lost, "");
  if (shown == 0 && lost.empty()) text += quiet_text(diagnosis) + "\n";
  if (!not_explained.empty()) paragraph(text, not_explained, "");
  return text;
}

std::string stragglers_text(const Diagnosis& diagnosis) {
  const Stragglers& found = diagnosis.stragglers;
  std::string text;
  const Out out(text);
  fmt::format_to(out, "{} steps of dp {} pp {} tp {}", diagnosis.steps.size(), diagnosis.mesh.dp, diagnosis.mesh.pp,
                 diagnosis.mesh.tp);
  if (!diagnosis.left_out.empty()) fmt::format_to(out, ", {} left out", diagnosis.left_out.size());
  if (diagnosis.dp_ranks.size() != static_cast<std::size_t>(diagnosis.mesh.dp)) {
    fmt::format_to(out, "; {} dp ranks left out, of which not every stage was traced",
                   static_cast<std::size_t>(diagnosis.mesh.dp) - diagnosis.dp_ranks.size());
  }
  fmt::format_to(out, "\n");
  for (const StepLeftOut& left : diagnosis.left_out | std::views::take(kMostLeftOut))
    fmt::format_to(out, "  step {} is left out: {}\n", left.step, left.why);
  if (diagnosis.left_out.size() > kMostLeftOut)
    fmt::format_to(out, "  and {} more\n", diagnosis.left_out.size() - kMostLeftOut);
  if (!diagnosis.knows_slowdown) {
    steps_table(out, diagnosis);
    map(out, diagnosis);
    return text;
  }
  fmt::format_to(out, "replayed without delays {:.4f} s a step, {:.4f} s if all were equally fast: S {:.4f}\n",
                 found.without_delays_s, found.ideal_s, found.S);
  if (found.S >= kWorthTelling) {
    const auto part = [](double share) { return share_text(std::clamp(share, 0.0, 1.0)); };
    fmt::format_to(out, "gone of that loss if the slowest 3 % of the workers were as fast as others: {}",
                   part(found.M_W));
    if (diagnosis.mesh.pp > 1) fmt::format_to(out, ", if the last stage was: {}", part(found.M_S));
    fmt::format_to(out, "\n");
  }
  steps_table(out, diagnosis);
  table(out, "by dp rank", found.by_dp);
  table(out, "by stage", found.by_stage);
  table(out, "by kind of operation", found.by_type);
  map(out, diagnosis);
  return text;
}

}  // namespace ms::tracepp
