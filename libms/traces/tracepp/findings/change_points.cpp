#include "tracepp/findings/change_points.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "trace/format.h"
#include "tracepp/findings/level_shift.h"
#include "tracepp/parallel.h"
#include "tracepp/robust.h"

namespace ms::tracepp {
namespace {

constexpr float kMissing = std::numeric_limits<float>::quiet_NaN();
// A rank's part explains a step's change if it makes up this share of it and differs by this many sigmas from other
// ranks.
constexpr double kLeastOfChange = 0.25, kRankSigmas = 6;
constexpr std::size_t kMostRanksNamed = 16;
constexpr std::size_t kRareStep = 16;    // a step has to be on one in so many ranks
constexpr std::size_t kFewestPeers = 3;  // ranks of a stage, for their median to mean something

using Parts = std::array<float, kStepParts>;

Parts parts_of(const StepTime& step) {
  const auto seconds = [](std::int64_t ns) { return static_cast<float>(1e-9 * static_cast<double>(ns)); };
  return {seconds(step.busy_ns),
          seconds(step.data_wait_ns),
          seconds(step.save_ns),
          seconds(step.stalled_ns),
          seconds(step.axis(GroupAxis::tp).total_ns),
          seconds(step.axis(GroupAxis::dp).total_ns),
          seconds(step.axis(GroupAxis::pp).total_ns),
          seconds(step.axis(GroupAxis::world).total_ns + step.axis(GroupAxis::other).total_ns)};
}

Parts parts_of(const StepSum& sum) {
  using trace::format::SumOf;
  const auto column = [&](SumOf of) {
    const auto at = static_cast<std::size_t>(of);
    return at < sum.seconds.size() ? sum.seconds[at] : 0.0F;
  };
  return {column(SumOf::busy),
          column(SumOf::data_wait),
          column(SumOf::save),
          column(SumOf::stalled),
          column(SumOf::tp),
          column(SumOf::params) + column(SumOf::grads),
          column(SumOf::pp_forward) + column(SumOf::pp_backward),
          column(SumOf::other_comm)};
}

// The time series that are searched for changes, by rank, part and step.
class Table {
 public:
  Table(const RunTrace& trace, const Breakdown& breakdown) : ranks_(trace.ranks.size()) {
    // Sums know more steps than events do, where there are any.
    bool has_sums = false, all_have = true;
    for (std::size_t r = 0; r < ranks_; ++r) {
      has_sums |= !trace.ranks[r].sums.empty();
      all_have &= trace.ranks[r].sums.size() >= breakdown.of_rank(r).size();
    }
    std::vector<std::vector<Row>> rows(ranks_);
    for (std::size_t r = 0; r < ranks_; ++r)
      rows[r] = has_sums && all_have ? rows_of(trace.ranks[r].sums) : rows_of(breakdown.of_rank(r));
    for (const std::vector<Row>& of_rank : rows)
      for (const Row& row : of_rank) steps.push_back(row.step);
    std::ranges::sort(steps);
    leave_out_rare_steps();
    values_.assign(ranks_ * (kStepParts + 1) * steps.size(), kMissing);
    for (std::size_t r = 0; r < ranks_; ++r) {
      for (const Row& row : rows[r]) {
        const auto s = static_cast<std::size_t>(std::ranges::lower_bound(steps, row.step) - steps.begin());
        if (s == steps.size() || steps[s] != row.step) continue;
        for (std::size_t p = 0; p < kStepParts; ++p) series(r, p)[s] = row.parts[p];
        series(r, kStepParts)[s] = row.length_s;
      }
    }
  }

  std::size_t ranks() const { return ranks_; }
  std::span<float> series(std::size_t rank, std::size_t part) {
    return std::span(values_).subspan((rank * (kStepParts + 1) + part) * steps.size(), steps.size());
  }
  std::span<const float> series(std::size_t rank, std::size_t part) const {
    return std::span(values_).subspan((rank * (kStepParts + 1) + part) * steps.size(), steps.size());
  }
  // Returns the median over the ranks that have the value; 0 if none has it.
  double median_of_ranks(std::size_t part, std::size_t step, std::span<const std::uint32_t> ranks) const {
    std::vector<float> values;
    for (const std::uint32_t r : ranks)
      if (const float value = series(r, part)[step]; !std::isnan(value)) values.push_back(value);
    return median(values);
  }
  double median_of_steps(std::size_t rank, std::size_t part, const Level& level) const {
    const std::span<const float> of_rank = series(rank, part);
    std::vector<float> values;
    for (std::size_t s = level.begin; s < level.end; ++s)
      if (!std::isnan(of_rank[s])) values.push_back(of_rank[s]);
    return median(values);
  }

  std::vector<std::int32_t> steps;

 private:
  // Removes duplicates from the sorted steps, which hold one entry per rank and step, and drops the steps that few
  // ranks have. If every rank had steps of its own, the table would have a million columns of one value each.
  void leave_out_rare_steps() {
    std::size_t kept = 0;
    for (std::size_t i = 0, end = 0; i < steps.size(); i = end) {
      while (end < steps.size() && steps[end] == steps[i]) ++end;
      if ((end - i) * kRareStep >= ranks_) steps[kept++] = steps[i];
    }
    steps.resize(kept);
  }

  struct Row {
    std::int32_t step;
    float length_s;
    Parts parts;
  };

  static std::vector<Row> rows_of(std::span<const StepTime> times) {
    std::vector<Row> rows;
    for (const StepTime& time : times)
      rows.push_back({time.step, static_cast<float>(1e-9 * static_cast<double>(time.length_ns)), parts_of(time)});
    return rows;
  }
  // The host runs ahead: a step lasts from the end of the one before it.
  static std::vector<Row> rows_of(const std::vector<StepSum>& sums) {
    std::vector<Row> rows;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const bool follows = i > 0 && sums[i - 1].step + 1 == sums[i].step;
      const std::int64_t begin_ns = follows ? sums[i - 1].end_ns : sums[i].begin_ns;
      rows.push_back({static_cast<std::int32_t>(sums[i].step),
                      static_cast<float>(1e-9 * static_cast<double>(sums[i].end_ns - begin_ns)), parts_of(sums[i])});
    }
    return rows;
  }

  std::size_t ranks_;
  std::vector<float> values_;
};

std::vector<std::uint32_t> all_ranks(std::size_t count) {
  std::vector<std::uint32_t> ranks(count);
  for (std::uint32_t r = 0; r < count; ++r) ranks[r] = r;
  return ranks;
}

// Names the ranks whose own part explains the change of the step from level a to level b.
void explain(const Table& table, const Level& a, const Level& b, ChangePoint& point) {
  const double change_s = point.after_s - point.before_s, sign = change_s > 0 ? 1 : -1;
  double most = 0;
  for (std::size_t p = 0; p < kStepParts; ++p) {
    std::vector<PartChange> changes;
    std::vector<double> by_rank_s;
    for (std::size_t r = 0; r < table.ranks(); ++r) {
      changes.push_back({static_cast<StepPart>(p), table.median_of_steps(r, p, a), table.median_of_steps(r, p, b)});
      by_rank_s.push_back(changes.back().after_s - changes.back().before_s);
    }
    const Spread spread = robust_spread(by_rank_s);
    if (spread.median * sign > most) {
      most = spread.median * sign;
      std::vector<double> before_s, after_s;
      for (const PartChange& change : changes) {
        before_s.push_back(change.before_s);
        after_s.push_back(change.after_s);
      }
      point.usual = {static_cast<StepPart>(p), median(before_s), median(after_s)};
    }
    if (p >= kOwnParts) continue;
    const double limit_s = std::max(kLeastOfChange * std::abs(change_s), kRankSigmas * spread.sigma);
    for (std::uint32_t r = 0; r < table.ranks(); ++r)
      if ((by_rank_s[r] - spread.median) * sign >= limit_s) point.ranks.push_back({r, changes[r]});
  }
  std::ranges::stable_sort(point.ranks, std::greater<>{},
                           [&](const RankChange& r) { return (r.change.after_s - r.change.before_s) * sign; });
  if (point.ranks.size() > kMostRanksNamed) point.ranks.resize(kMostRanksNamed);
}

// The medians of all ranks' own parts in a level. Pauses in the level are compared with them.
class UsualParts {
 public:
  void of(const Table& table, const Level& level) {
    if (!values_s_.empty() && level.begin == begin_) return;
    begin_ = level.begin;
    values_s_.clear();
    for (std::size_t p = 0; p < kOwnParts; ++p)
      for (std::size_t r = 0; r < table.ranks(); ++r) values_s_.push_back(table.median_of_steps(r, p, level));
    ranks_ = table.ranks();
  }
  double seconds(std::size_t part, std::size_t rank) const { return values_s_[part * ranks_ + rank]; }

 private:
  std::vector<double> values_s_;
  std::size_t begin_ = 0, ranks_ = 0;
};

void explain(const Table& table, const UsualParts& usual, std::size_t step, Pause& pause) {
  double most = kLeastOfChange * (pause.step_s - pause.usual_s);
  for (std::size_t p = 0; p < kOwnParts; ++p) {
    for (std::uint32_t r = 0; r < table.ranks(); ++r) {
      const double now_s = static_cast<double>(table.series(r, p)[step]);
      if (std::isnan(now_s)) continue;
      const double usual_s = usual.seconds(p, r);
      if (now_s - usual_s <= most) continue;
      most = now_s - usual_s;
      pause.has_rank = true;
      pause.at = {r, {static_cast<StepPart>(p), usual_s, now_s}};
    }
  }
}

// Finds the steps in which a rank's busy time shifted against the median of `peers`, the ranks of its stage. Finds none
// among fewer than kFewestPeers.
void find_rank_shifts(const Table& table, std::span<const std::uint32_t> peers, std::vector<RankShift>& shifts) {
  constexpr auto kBusy = static_cast<std::size_t>(StepPart::busy);
  const std::size_t count = table.steps.size();
  if (peers.size() < kFewestPeers) return;
  std::vector<double> usual_s(count);
  for (std::size_t s = 0; s < count; ++s) usual_s[s] = table.median_of_ranks(kBusy, s, peers);
  const auto ranks = static_cast<double>(table.ranks());
  std::mutex mutex;  // guards shifts
  in_blocks(peers.size(), [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const std::span<const float> busy_s = table.series(peers[i], kBusy);
      std::vector<double> ratios;
      std::vector<std::size_t> places;
      for (std::size_t s = 0; s < count; ++s) {
        if (std::isnan(busy_s[s]) || usual_s[s] <= 0) continue;
        ratios.push_back(static_cast<double>(busy_s[s]) / usual_s[s]);
        places.push_back(s);
      }
      // The cheap test settles most ranks. A change that a single split misses shows in the step times.
      if (most_unlikely_split(ratios) < surprise_limit(kFalseAlarms, ranks * static_cast<double>(count))) continue;
      const std::vector<Level> levels = find_levels(ratios, kFalseAlarms / ranks);
      const std::lock_guard lock(mutex);
      for (std::size_t l = 1; l < levels.size(); ++l)
        shifts.push_back({peers[i], table.steps[places[levels[l].begin]], levels[l - 1].median, levels[l].median});
    }
  });
}

}  // namespace

std::string_view to_string(StepPart part) {
  constexpr std::array<std::string_view, kStepParts> kNames{"busy", "data_wait", "save", "stalled",
                                                            "tp",   "dp",        "pp",   "other_messages"};
  return kNames[static_cast<std::size_t>(part)];
}

ChangePoints find_change_points(const RunTrace& trace, const Breakdown& breakdown) {
  const Table table(trace, breakdown);
  ChangePoints found;
  found.steps = table.steps;
  const std::vector<std::uint32_t> everybody = all_ranks(table.ranks());
  for (std::size_t s = 0; s < table.steps.size(); ++s)
    found.step_s.push_back(table.median_of_ranks(kStepParts, s, everybody));
  found.long_enough = found.steps.size() >= kShortestSeries;

  const std::vector<Level> levels = find_levels(found.step_s);
  for (std::size_t l = 1; l < levels.size(); ++l) {
    ChangePoint point{.step = found.steps[levels[l].begin],
                      .before_s = levels[l - 1].median,
                      .after_s = levels[l].median,
                      .ranks = {},
                      .usual = {}};
    explain(table, levels[l - 1], levels[l], point);
    found.points.push_back(std::move(point));
  }
  UsualParts usual;
  for (const std::size_t s : find_pauses(found.step_s, levels)) {
    const Level& level = *std::ranges::upper_bound(levels, s, {}, &Level::end);
    Pause pause{.step = found.steps[s], .step_s = found.step_s[s], .usual_s = level.median, .at = {}};
    usual.of(table, level);
    explain(table, usual, s, pause);
    found.pauses.push_back(pause);
  }
  if (!found.long_enough) return found;
  std::map<int, std::vector<std::uint32_t>> stages;
  for (std::uint32_t r = 0; r < trace.ranks.size(); ++r) stages[trace.ranks[r].at.pp].push_back(r);
  for (const auto& [stage, peers] : stages) find_rank_shifts(table, peers, found.rank_shifts);
  std::ranges::sort(found.rank_shifts, [](const RankShift& a, const RankShift& b) {
    const double change_a = std::abs(a.after - a.before), change_b = std::abs(b.after - b.before);
    return change_a != change_b ? change_a > change_b : std::pair(a.rank, a.step) < std::pair(b.rank, b.step);
  });
  return found;
}

}  // namespace ms::tracepp
