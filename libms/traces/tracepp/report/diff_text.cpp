// Implements diff_text of text.h: a summary in a sentence, then tables of what changed.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "tracepp/report/text.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kMostRows = 8;
constexpr double kLeastChange = 0.01;                  // of a step: less is no difference
constexpr double kRankApart = 0.05, kRankShare = 0.4;  // of computing, and of what a step differs: then it is the rank

std::string ms(double seconds) { return fmt::format("{:.3f}", 1e3 * seconds); }
double relative(const BeforeAfter& s) { return s.before == 0 ? 0 : s.after / s.before - 1; }
// As it would be printed.
bool is_nothing(double part) { return std::abs(part) < 5e-4; }
bool is_same(const BeforeAfter& s) { return std::abs(s.change()) < 5e-7; }

// A table of at most kMostRows rows that says how many more there are.
class Cut {
 public:
  explicit Cut(std::vector<Column> columns) : table_(std::move(columns)) {}
  void row(std::vector<std::string> cells) {
    if (++rows_ <= kMostRows) table_.row(std::move(cells));
  }
  std::string str() const {
    if (rows_ == 0) return "";
    return "\n" + table_.str() + (rows_ > kMostRows ? fmt::format("and {} more\n", rows_ - kMostRows) : "");
  }

 private:
  TextTable table_;
  std::size_t rows_ = 0;
};

bool has_steps(const Diff& diff) { return diff.mean_step_s.before > 0 && diff.mean_step_s.after > 0; }

// Returns the largest part of a step's difference: a rank whose computing changed relative to the others, else a part
// of the step.
std::string most_text(const Diff& diff) {
  const double change_s = diff.mean_step_s.change();
  if (!diff.ranks.empty()) {
    const RankDiff& rank = diff.ranks.front();
    const double more_s = rank.busy_s.after * (1 - 1 / rank.ratio);
    if (std::abs(rank.ratio - 1) >= kRankApart && more_s / change_s >= kRankShare) {
      return fmt::format("most of it: rank {} computes {:.0f} % {} than it did, compared with the other ranks",
                         rank.rank, 100 * std::abs(rank.ratio - 1), rank.ratio > 1 ? "longer" : "shorter");
    }
  }
  const auto most =
      std::ranges::max_element(diff.parts, {}, [&](const PartDiff& p) { return p.s.change() / change_s; });
  if (most == diff.parts.end()) return "";
  return fmt::format("{}{}, {:+.3g} ms",
                     most->s.change() / change_s >= 0.5 ? "most of it: " : "the largest part: ", most->part,
                     1e3 * most->s.change());
}

std::string summary_text(const Diff& diff, bool knows_work) {
  const BeforeAfter& step = diff.mean_step_s;
  const std::string times = fmt::format("{} a step before, {} after; median {}, {}", format_duration(step.before),
                                        format_duration(step.after), format_duration(diff.median_step_s.before),
                                        format_duration(diff.median_step_s.after));
  if (std::abs(relative(step)) < kLeastChange) return fmt::format("no difference in the time of a step: {}\n", times);
  return fmt::format("{:.3g} ms {} a step ({}){}{}\n{}\n", 1e3 * std::abs(step.change()),
                     step.change() > 0 ? "slower" : "faster", signed_percent(relative(step)), knows_work ? "" : "; ",
                     knows_work ? "" : most_text(diff), times);
}

std::string parts_text(const Diff& diff) {
  const double whole_s = diff.mean_step_s.change();
  const bool differs = std::abs(relative(diff.mean_step_s)) >= kLeastChange;  // else the last column is noise
  Cut table(columns("part of a step|before ms>|after>|change>|of the difference>"));
  for (const PartDiff& part : diff.parts) {
    if (is_same(part.s) || (differs && is_nothing(part.s.change() / whole_s))) continue;
    table.row({part.part, ms(part.s.before), ms(part.s.after), fmt::format("{:+.3f}", 1e3 * part.s.change()),
               differs ? signed_percent(part.s.change() / whole_s) : "-"});
  }
  return table.str();
}

std::string kinds_text(const Diff& diff) {
  Cut table(columns("kind|before ms>|after>|change>"));
  for (const KindDiff& kind : diff.kinds) {
    if (is_same(kind.s)) continue;
    table.row({work_text(kind.work), ms(kind.s.before), ms(kind.s.after),
               kind.s.before > 0 ? signed_percent(relative(kind.s)) : "new"});
  }
  return table.str();
}

std::string communication_text(const Diff& diff) {
  Cut table(columns("communication|size>|transfer us>|after>|change>|bus GB/s>|after>"));
  for (const CommDiff& m : diff.comms) {
    if (is_nothing(relative(m.transfer_s))) continue;
    table.row({class_text(m.of_class), size_text(m.of_class.size_bytes), us_text(m.transfer_s.before),
               us_text(m.transfer_s.after), signed_percent(relative(m.transfer_s)), gb_text(m.bus_bandwidth.before),
               gb_text(m.bus_bandwidth.after)});
  }
  return table.str();
}

std::string ranks_text(const Diff& diff) {
  Cut table(columns("rank>|busy ms>|after>|against others>"));
  for (const RankDiff& rank : diff.ranks) {
    if (is_nothing(rank.ratio - 1)) continue;
    table.row(
        {std::to_string(rank.rank), ms(rank.busy_s.before), ms(rank.busy_s.after), signed_percent(rank.ratio - 1)});
  }
  return table.str();
}

}  // namespace

std::string diff_text(const Diff& diff, const WorkDiff& work) {
  std::string text;
  for (const std::string& why : diff.not_comparable) text += fmt::format("not comparable: {}\n", why);
  if (!has_steps(diff)) return text;
  const std::string of_work = work_diff_text(work);
  const std::string changed = parts_text(diff) + kinds_text(diff) + communication_text(diff) + ranks_text(diff);
  if (changed.empty() && of_work.empty() && diff.not_comparable.empty())
    return fmt::format("no difference: a step takes {} in both\n", format_duration(diff.mean_step_s.before));
  return text + summary_text(diff, work.unknown.empty()) + of_work + changed;
}

}  // namespace ms::tracepp
