// Implements find_delays of suspect_search.h: ranks that stalled although all inputs were there, waiting for tokens, in
// one step, or again and again.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "tracepp/findings/suspect_search.h"
#include "tracepp/robust.h"

namespace ms::tracepp {
namespace {

// A pause of a rank counts if it is longer than this share of a step, and than this many times the 90th percentile.
constexpr double kShareOfStep = 0.02, kTimesUsual = 5, kLeastS = 5e-3;
// A step that computes this many operations' time longer than others had a pause that its recorder counted as work.
constexpr double kDelayOperations = 2.5, kDelayDeviations = 10;
constexpr double kByData = 0.5;         // of being late, that waiting for tokens must explain
constexpr std::size_t kMany = 5;        // ranks or hosts that paused: no single one of them is the cause
constexpr double kAgainAndAgain = 0.3;  // of the steps
constexpr double kDeviationsOfCount = 6;
constexpr std::size_t kMostNamed = 8;
constexpr int kAllOfHost = -1;

struct Delay {
  int place = 0;
  std::size_t step = 0;
  double seconds = 0;
};

class DelaySearch {
 public:
  DelaySearch(const Evidence& evidence, const std::vector<bool>& is_slow)
      : evidence_(evidence), table_(evidence.table), is_slow_(is_slow), step_s_(evidence.step_s()) {}

  std::vector<Finding> find() {
    collect();
    std::vector<Finding> findings = data_stalls();
    for (Finding& finding : pauses()) findings.push_back(std::move(finding));
    return findings;
  }

 private:
  // Returns by how much the step exceeds its replayed length, which has no stalls; at most the delay itself.
  double cost_s(const Delay& delay) const {
    const double period = table_.periods[delay.step], usual = evidence_.what_if.measured_steps()[delay.step];
    return period > 0 ? std::clamp(period - usual, 0.0, delay.seconds) : delay.seconds;
  }
  // Returns the mean cost per step of the run. Delays of one step overlap, so only the longest counts.
  double mean_cost_s(const std::vector<Delay>& delays) const {
    std::map<std::size_t, double> by_step;
    for (const Delay& delay : delays) {
      double& most = by_step[delay.step];
      most = std::max(most, cost_s(delay));
    }
    double sum = 0;
    for (const auto& [step, cost] : by_step) sum += cost;
    return sum / static_cast<double>(table_.steps);
  }

  void collect() {
    std::vector<double> usual;
    std::vector<Delay> all;
    for (int place = 0; place < table_.mesh.size(); ++place) {
      if (evidence_.rank(place) < 0) continue;
      for (std::size_t step = 0; step < table_.steps; ++step) {
        const std::size_t at = table_.at(place, step);
        const double lost = table_.lost[at], late = table_.late[at], waited = table_.data_wait[at];
        if (std::isnan(lost)) continue;
        if (waited > kByData * late && late > kByData * lost && late >= std::max(kShareOfStep * step_s_, kLeastS)) {
          by_data_.push_back({place, step, std::min(late, waited)});
          continue;
        }
        usual.push_back(lost);
        all.push_back({place, step, lost});
      }
    }
    const double least = std::max({kShareOfStep * step_s_, kLeastS, kTimesUsual * quantile(usual, 0.9)});
    for (const Delay& delay : all)
      if (delay.seconds >= least) delays_.push_back(delay);
    within_computing(least);
  }

  void within_computing(double least) {
    std::vector<double> operations, of_rank, varied;
    const StepTrace& steps = evidence_.steps();
    for (std::size_t op = 0; op < steps.ops.size(); ++op) {
      if (steps.ops[op].type == OpType::forward_compute || is_backward(steps.ops[op].type))
        operations.push_back(evidence_.what_if.ideal(steps.ops[op].type));
    }
    const double longest = operations.empty() ? 0 : *std::ranges::max_element(operations);
    std::vector<double> middles(static_cast<std::size_t>(table_.mesh.size()), 0);
    const auto computed = [&](int place, std::size_t step) { return table_.compute[table_.at(place, step)]; };
    for (int place = 0; place < table_.mesh.size(); ++place) {
      of_rank.clear();
      for (std::size_t step = 0; step < table_.steps; ++step)
        if (computed(place, step) > 0) of_rank.push_back(computed(place, step));
      middles[static_cast<std::size_t>(place)] = quantile(of_rank, 0.5);
      for (const double value : of_rank) varied.push_back(std::abs(value - middles[static_cast<std::size_t>(place)]));
    }
    const double deviation = 1.4826 * quantile(varied, 0.5);
    const double most = std::max({least, kDelayOperations * longest, kDelayDeviations * deviation});
    for (int place = 0; place < table_.mesh.size(); ++place) {
      if (is_slow_[static_cast<std::size_t>(place)]) continue;
      for (std::size_t step = 0; step < table_.steps; ++step) {
        const double longer = computed(place, step) - middles[static_cast<std::size_t>(place)];
        if (longer >= most) delays_.push_back({place, step, longer});
      }
    }
  }

  std::vector<Finding> data_stalls() const {
    std::map<int, std::vector<Delay>> by_dp;
    for (const Delay& delay : by_data_) by_dp[table_.mesh.coord(delay.place).dp].push_back(delay);
    std::vector<Finding> findings;
    const bool all_wait = by_dp.size() > std::max<std::size_t>(static_cast<std::size_t>(table_.mesh.dp) / 2, 4);
    if (all_wait) {
      findings.push_back(data_stall(by_data_, "all dp ranks wait"));
      findings.back().ranks.clear();
      return findings;
    }
    for (const auto& [dp, delays] : by_dp) findings.push_back(data_stall(delays, fmt::format("dp {} waits", dp)));
    return findings;
  }

  Finding data_stall(const std::vector<Delay>& delays, const std::string& who) const {
    std::size_t first = table_.steps, last = 0;
    std::set<std::size_t> steps;
    std::set<int> ranks;
    double longest = 0;
    for (const Delay& delay : delays) {
      first = std::min(first, delay.step);
      last = std::max(last, delay.step);
      steps.insert(delay.step);
      ranks.insert(evidence_.rank(delay.place));
      longest = std::max(longest, delay.seconds);
    }
    Finding found = evidence_.finding(FindingCode::data_stall, first, last, mean_cost_s(delays), 0.95);
    found.ranks.assign(ranks.begin(), ranks.end());
    found.evidence = fmt::format("{} for tokens before {} of {} steps, up to {:.3f} s{}", who, steps.size(),
                                 table_.steps, longest, evidence_.since(found));
    return found;
  }

  std::vector<Finding> pauses() const {
    // A host that stalls stalls all its ranks: they are one pause.
    std::map<std::pair<std::string, std::size_t>, std::set<int>> together;  // by host and step
    for (const Delay& delay : delays_) together[{host(delay), delay.step}].insert(delay.place);
    std::map<std::pair<std::string, int>, std::map<std::size_t, std::vector<Delay>>> by_who;  // host and place, step
    for (const Delay& delay : delays_) {
      const bool is_host = !host(delay).empty() && together[{host(delay), delay.step}].size() > 1;
      by_who[{host(delay), is_host ? kAllOfHost : delay.place}][delay.step].push_back(delay);
    }
    const bool are_many = by_who.size() >= kMany;
    // The number of delays that a single host or rank has by chance if all have them equally often.
    const double share =
        static_cast<double>(delays_.size()) / static_cast<double>(std::max<std::size_t>(table_.ranks.size(), 1));
    const double by_chance = share + kDeviationsOfCount * std::sqrt(share) + (are_many ? 3 : 0);
    std::vector<Finding> findings;
    std::vector<Delay> rest;
    for (const auto& [who, by_step] : by_who) {
      const auto count = static_cast<double>(by_step.size());
      const bool again = count >= 3 && count > by_chance && count >= kAgainAndAgain * static_cast<double>(table_.steps);
      std::vector<Delay> all;
      for (const auto& [step, delays] : by_step) {
        all.insert(all.end(), delays.begin(), delays.end());
        if (!again && !are_many) findings.push_back(finding(FindingCode::pause, delays, 0.9));
      }
      if (again) {
        findings.push_back(finding(FindingCode::launch_delay, all, 0.9));
      } else if (are_many) {
        rest.insert(rest.end(), all.begin(), all.end());
      }
    }
    if (!rest.empty()) findings.push_back(finding(FindingCode::launch_delay, rest, 0.8));
    return findings;
  }

  const std::string& host(const Delay& delay) const { return table_.hosts[static_cast<std::size_t>(delay.place)]; }

  Finding finding(FindingCode code, std::vector<Delay> delays, double confidence) const {
    std::ranges::stable_sort(delays, std::ranges::greater{}, &Delay::seconds);
    std::size_t first = table_.steps, last = 0;
    std::set<int> places;
    std::set<std::size_t> steps;
    Finding found;
    std::vector<int> ranks;
    for (const Delay& delay : delays) {
      first = std::min(first, delay.step);
      last = std::max(last, delay.step);
      steps.insert(delay.step);
      if (places.insert(delay.place).second && ranks.size() < kMostNamed) ranks.push_back(evidence_.rank(delay.place));
    }
    found = evidence_.finding(code, first, last, mean_cost_s(delays), confidence);
    found.ranks = std::move(ranks);
    const Delay& worst = delays.front();
    const mesh::Coord at = table_.mesh.coord(worst.place);
    if (found.code == FindingCode::pause) {
      found.evidence = fmt::format(
          "rank {} (dp {} pp {} tp {}) stalled for {:.3f} s in step {}, although all that it needed was there",
          evidence_.rank(worst.place), at.dp, at.pp, at.tp, worst.seconds, evidence_.step(worst.step));
      if (places.size() > 1) found.evidence += fmt::format(", and so did {} more of its host", places.size() - 1);
    } else if (places.size() == 1) {
      found.evidence =
          fmt::format("rank {} (dp {} pp {} tp {}) stalled in {} of {} steps, up to {:.3f} s",
                      evidence_.rank(worst.place), at.dp, at.pp, at.tp, steps.size(), table_.steps, worst.seconds);
    } else {
      found.evidence = fmt::format("{} ranks stalled now and then, {} times in {} steps, up to {:.3f} s", places.size(),
                                   delays.size(), steps.size(), worst.seconds);
    }
    return found;
  }

  const Evidence& evidence_;
  const RankTable& table_;
  const std::vector<bool>& is_slow_;
  double step_s_;
  std::vector<Delay> delays_, by_data_;
};

}  // namespace

std::vector<Finding> find_delays(const Evidence& evidence, const std::vector<bool>& is_slow) {
  return DelaySearch(evidence, is_slow).find();
}

}  // namespace ms::tracepp
