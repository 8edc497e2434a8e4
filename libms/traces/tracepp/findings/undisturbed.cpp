#include "tracepp/findings/undisturbed.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <span>

#include "tracepp/robust.h"

namespace ms::tracepp {
namespace {

constexpr double kBest = 0.1;  // share of computations that nothing disturbs, where that can be known
constexpr std::size_t kLeastUnits = 4, kMostUnits = 256;
constexpr std::size_t kManyPeers = 8;  // of a stage tell enough: in others ranks wait for cores at other times
constexpr std::size_t kLeastBlocks = 4, kMostCandidates = 16;
// Units that are not slow differ by less than that: of others the part that is counted, and how many times theirs.
constexpr double kOfOthers = 0.75, kTimesOthers = 4;
constexpr double kMeanOfLeast = 0.37;  // of squares of normal values, of the part kOfOthers that is least
constexpr double kFalseAlarms = 1e-2;  // of a run
constexpr double kMuchLonger = 1.5;    // times: by more than work differs
constexpr double kVeryBest = 0.01;  // share of computations: much shorter than the kBest, they leave the size unknown

class BaselineSearch {
 public:
  BaselineSearch(const RankTable& table, double least_excess)
      : table_(table), least_excess_(least_excess), units_(static_cast<std::size_t>(table.mesh.size())) {
    for (int place = 0; place < table.mesh.size(); ++place) peers_.push_back(table.mesh.coord(place).pp);
  }

  std::vector<Outlier> find() {
    const std::size_t steps = table_.steps;
    std::vector<std::size_t> blocks;
    for (std::size_t block = 1; block < steps && steps / block >= kLeastBlocks; block *= 2) blocks.push_back(block);
    blocks.push_back(steps);
    looks_ = blocks.size();
    for (const std::size_t block : blocks) look_in(block);
    std::vector<Outlier> found;
    for (const auto& [unit, sure] : sure_) found.push_back(sure.outlier);
    std::ranges::stable_sort(found, std::ranges::greater{}, &Outlier::excess);
    return found;
  }

  std::vector<double> stages() {
    std::vector<std::vector<double>> ranks(static_cast<std::size_t>(table_.mesh.pp));
    for (std::size_t unit = 0; unit < units_; ++unit) {
      const double seconds = sum(best(unit, 0, table_.steps - 1));
      if (seconds > 0) ranks[static_cast<std::size_t>(peers_[unit])].push_back(seconds);
    }
    std::vector<double> stages;
    for (std::vector<double>& of : ranks)
      stages.push_back(of.empty() ? std::numeric_limits<double>::quiet_NaN() : quantile(of, 0.5));
    return stages;
  }

 private:
  struct Sure {
    Outlier outlier;
    double surprise = 0;
  };

  // With so many steps put together. Of the intervals of a unit the least likely one stays.
  void look_in(std::size_t block) {
    const std::size_t count = table_.steps / block;
    std::vector<Outlier> candidates = find_outliers(blocks(block), count, peers_, least_excess_);
    if (candidates.size() > kMostCandidates) candidates.resize(kMostCandidates);
    for (Outlier& outlier : candidates) {
      outlier.last = outlier.last + 1 == count ? table_.steps - 1 : (outlier.last + 1) * block - 1;
      outlier.first *= block;
      const double surprise = surprise_of(outlier);
      if (surprise < needed(outlier.last - outlier.first + 1)) continue;
      Sure& sure = sure_[outlier.unit];
      if (surprise > sure.surprise) sure = {outlier, surprise};
    }
  }

  // The surprise that an interval of so many steps must be: there are as many chances of a false alarm as there are
  // units, places for such an interval beside each other, and sizes that were looked at.
  double needed(std::size_t steps) const {
    const auto places = static_cast<double>((table_.steps + steps - 1) / steps);
    return std::log(static_cast<double>(units_ * looks_) * places / kFalseAlarms);
  }

  const std::vector<std::size_t>& works(std::size_t unit) const {
    return table_.works[static_cast<std::size_t>(peers_[unit])];
  }
  std::span<const float> computed(std::size_t unit, std::size_t step) const {
    return {table_.each.data() + (unit * table_.steps + step) * table_.computations, table_.computations};
  }

  // [work]: how long the shortest computations take in these steps, all of a step together; NaN where not known.
  std::vector<double> best(std::size_t unit, std::size_t first, std::size_t last, double share = kBest) {
    std::vector<double> bests;
    std::size_t begin = 0;
    for (const std::size_t count : works(unit)) {
      some_.clear();
      for (std::size_t step = first; step <= last; ++step) {
        for (const float value : computed(unit, step).subspan(begin, count))
          if (value > 0) some_.push_back(value);
      }
      begin += count;
      bests.push_back(some_.empty() ? std::numeric_limits<double>::quiet_NaN()
                                    : static_cast<double>(quantile(some_, share)) * static_cast<double>(count));
    }
    return bests;
  }

  // [unit][steps / block]: the last one has what is left over, too.
  std::vector<float> blocks(std::size_t block) {
    std::vector<float> all;
    const std::size_t count = table_.steps / block;
    for (std::size_t unit = 0; unit < units_; ++unit) {
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t last = i + 1 == count ? table_.steps - 1 : (i + 1) * block - 1;
        all.push_back(static_cast<float>(sum(best(unit, i * block, last))));
      }
    }
    return all;
  }

  static double sum(const std::vector<double>& values) {
    double all = 0;
    for (const double value : values) all += value;
    return all;
  }

  // Others that it is compared with, and itself.
  struct Measured {
    std::size_t unit = 0;
    std::vector<double> best, usual = {};  // [work]
    double excess = 0;
    std::vector<double> count = {}, long_ones = {};  // [step of the interval]: computations
    double all_count = 0, all_long = 0;
  };

  std::vector<Measured> compare(const Outlier& outlier) {
    std::vector<Measured> all;
    const int own_stage = peers_[static_cast<std::size_t>(outlier.unit)];
    const std::size_t of_stage_count = units_ / static_cast<std::size_t>(table_.mesh.pp);
    const bool peers_only = of_stage_count >= kManyPeers;
    const std::size_t stride = ((peers_only ? of_stage_count : units_) + kMostUnits - 1) / kMostUnits;
    std::vector<std::vector<std::size_t>> of_stage(static_cast<std::size_t>(table_.mesh.pp));
    for (std::size_t unit = 0; unit < units_; ++unit) {
      const bool is_own = static_cast<int>(unit) == outlier.unit;
      if (!is_own && (unit % stride != 0 || (peers_only && peers_[unit] != own_stage))) continue;
      Measured one{.unit = unit, .best = best(unit, outlier.first, outlier.last)};
      if (std::isnan(sum(one.best))) continue;
      of_stage[static_cast<std::size_t>(peers_[unit])].push_back(all.size());
      all.push_back(std::move(one));
    }
    std::vector<double> values;
    for (const auto& peers : of_stage) {
      for (const std::size_t i : peers) {
        Measured& one = all[i];
        // One without peers is compared with itself when it was fastest.
        if (peers.size() == 1) one.usual = best(one.unit, 0, table_.steps - 1);
        for (std::size_t work = 0; peers.size() > 1 && work < one.best.size(); ++work) {
          values.clear();
          for (const std::size_t peer : peers) values.push_back(all[peer].best[work]);
          one.usual.push_back(quantile(values, 0.5));
        }
        one.excess = sum(one.best) / sum(one.usual) - 1;
      }
    }
    return all;
  }

  // Sets its excess to that of its shortest computations in that time. 0 where it is not slow by them.
  double surprise_of(Outlier& outlier) {
    std::vector<Measured> all = compare(outlier);
    const auto own = std::ranges::find(all, static_cast<std::size_t>(outlier.unit), &Measured::unit);
    if (all.size() < kLeastUnits || own == all.end()) return 0;
    std::iter_swap(own, all.begin());
    const std::span<Measured> others = std::span(all).subspan(1);
    std::vector<double> differ;
    for (const Measured& other : others) differ.push_back(other.excess);
    const double middle = std::max(median(differ), 0.0);
    for (double& value : differ) value = std::abs(value - middle);
    outlier.excess = all.front().excess - middle;
    outlier.threshold = std::max(least_excess_, kTimesOthers * quantile(differ, kOfOthers));
    if (!(outlier.excess >= outlier.threshold)) return 0;
    outlier.is_size_known =
        sum(all.front().best) <= kMuchLonger * sum(best(all.front().unit, outlier.first, outlier.last, kVeryBest));
    for (Measured& one : all) count_long(one, outlier, 1 + middle + outlier.excess / 2);
    return surprise(all.front(), others);
  }

  void count_long(Measured& one, const Outlier& outlier, double limit) const {
    for (std::size_t step = outlier.first; step <= outlier.last; ++step) {
      const std::span<const float> row = computed(one.unit, step);
      std::size_t at = 0;
      double of_step = 0, long_ones = 0;
      for (std::size_t work = 0; work < one.usual.size(); ++work) {
        const std::size_t count = works(one.unit)[work];
        const double least = one.usual[work] / static_cast<double>(count) * limit;
        for (const float value : row.subspan(at, count)) {
          if (!(value > 0)) continue;
          ++of_step;
          if (value >= least) ++long_ones;
        }
        at += count;
      }
      one.count.push_back(of_step);
      one.long_ones.push_back(long_ones);
      one.all_count += of_step;
      one.all_long += long_ones;
    }
  }

  // -ln of the probability that one of them has so many long ones by chance, at the most: Chernoff's bound of a
  // binomial distribution, of so many less draws as others differ more than such a distribution would let them, from
  // rank to rank or from step to step: who waits for a core does so again and again.
  static double surprise(const Measured& own, std::span<const Measured> others) {
    double count = 1, long_ones = 1;
    for (const Measured& other : others) {
      count += other.all_count;
      long_ones += other.all_long;
    }
    const double by_chance = long_ones / count, share = own.all_long / own.all_count;
    if (share <= by_chance || by_chance >= 1) return 0;
    const auto varies = [&](double of, double long_of) {
      const double off = long_of - by_chance * of;
      return off * off / (of * by_chance * (1 - by_chance));
    };
    std::vector<double> ranks;
    double steps = 0, known = 0;
    for (const Measured& other : others) {
      ranks.push_back(varies(other.all_count, other.all_long));
      for (std::size_t i = 0; i < other.count.size(); ++i) {
        if (other.count[i] == 0) continue;
        steps += varies(other.count[i], other.long_ones[i]);
        ++known;
      }
    }
    // Some of the others may be slow, too.
    std::ranges::sort(ranks);
    ranks.resize(static_cast<std::size_t>(std::ceil(kOfOthers * static_cast<double>(ranks.size()))));
    const double draws = std::max({1.0, sum(ranks) / static_cast<double>(ranks.size()) / kMeanOfLeast, steps / known});
    double of_one = share * std::log(share / by_chance);
    if (share < 1) of_one += (1 - share) * std::log((1 - share) / (1 - by_chance));
    return own.all_count / draws * of_one;
  }

  const RankTable& table_;
  double least_excess_;
  std::size_t units_, looks_ = 0;
  std::vector<int> peers_;
  std::map<int, Sure> sure_;  // by unit
  std::vector<float> some_;
};

}  // namespace

bool can_find_undisturbed(const RankTable& table) {
  return table.computations > 0 && std::ranges::count_if(table.ranks, [](int rank) { return rank >= 0; }) >=
                                       static_cast<std::ptrdiff_t>(kLeastUnits);
}

std::vector<Outlier> find_undisturbed_outliers(const RankTable& table, double least_excess) {
  if (!can_find_undisturbed(table)) return {};
  return BaselineSearch(table, least_excess).find();
}

std::vector<double> undisturbed_stages(const RankTable& table) {
  if (table.computations == 0 || table.steps == 0) return {};
  return BaselineSearch(table, 0).stages();
}

double disturbed_share(const RankTable& table) {
  if (table.computations == 0) return 0;
  std::vector<double> shares;
  std::vector<float> all, some;
  for (std::size_t unit = 0; unit < table.ranks.size(); ++unit) {
    double count = 0, disturbed = 0;
    std::size_t begin = 0;
    for (const std::size_t works : table.works[static_cast<std::size_t>(table.mesh.coord(static_cast<int>(unit)).pp)]) {
      all.clear();
      for (std::size_t step = 0; step < table.steps; ++step) {
        const float* const row = table.each.data() + (unit * table.steps + step) * table.computations + begin;
        std::copy_if(row, row + works, std::back_inserter(all), [](float value) { return value > 0; });
      }
      begin += works;
      some = all;
      const double least = kMuchLonger * static_cast<double>(quantile(some, kBest));
      count += static_cast<double>(all.size());
      disturbed += static_cast<double>(std::ranges::count_if(all, [&](float value) { return value > least; }));
    }
    if (count > 0) shares.push_back(disturbed / count);
  }
  return median(shares);
}

}  // namespace ms::tracepp
