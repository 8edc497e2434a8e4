// Implements the searches of suspect_search.h for long computations: of a rank, of a stage, of all stages for some
// microbatches.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "base/text.h"
#include "tracepp/findings/suspect_search.h"
#include "tracepp/findings/undisturbed.h"
#include "tracepp/robust.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kMostSlowRanks = 16;  // of slow ranks: each costs a replay
constexpr double kLittle = 0.01;            // of a step
constexpr double kLeastSlowStage = 0.05;
// A part that microbatches share between forward and backward: its deviation, and its share of all that varies.
constexpr double kLeastUneven = 0.02, kLeastShared = 0.5;

bool is_computation(const StepOp& op) { return op.type == OpType::forward_compute || is_backward(op.type); }

std::string place_text(const Evidence& evidence, int place) {
  const mesh::Coord at = evidence.mesh().coord(place);
  return fmt::format("rank {} (dp {} pp {} tp {})", evidence.rank(place), at.dp, at.pp, at.tp);
}

std::string_view than_whom(Compared compared) {
  switch (compared) {
    case Compared::on_host: return "the ranks of its host with the same work";
    case Compared::undisturbed: return "ranks with the same work where nothing disturbs them";
    default: return "ranks with the same work";
  }
}

std::string size_text(const Outlier& outlier, Compared compared) {
  if (outlier.is_size_known) return fmt::format("{:.1f} % longer than {}", 100 * outlier.excess, than_whom(compared));
  return "longer than ranks with the same work; by how much cannot be known, as hardly one of its computations is "
         "undisturbed, and its waits for cores are in what it costs";
}

// Returns what else than more work may make stages slow, from where their ranks are; may be empty.
std::string doubt_text(const Evidence& evidence, const std::set<int>& stages) {
  std::set<std::string> hosts;
  int ranks = 0;
  for (int place = 0; place < evidence.mesh().size(); ++place) {
    if (!stages.contains(evidence.mesh().coord(place).pp) || evidence.rank(place) < 0) continue;
    ++ranks;
    hosts.insert(evidence.table.hosts[static_cast<std::size_t>(place)]);
  }
  if (ranks == 1) return "; if it has no more layers than they have, its one rank is slow";
  for (int place = 0; place < evidence.mesh().size(); ++place) {
    if (stages.contains(evidence.mesh().coord(place).pp) || evidence.rank(place) < 0) continue;
    if (hosts.contains(evidence.table.hosts[static_cast<std::size_t>(place)])) return "";
  }
  const std::string& host = *hosts.begin();
  if (hosts.size() > 1 || host.empty()) return "";
  return fmt::format("; if it has no more layers than they have, its host {} is slow", printable(host, 80));
}

// Returns by how much the median of a stage may exceed that of others because hosts differ; 0 where each stage is one
// host.
double host_doubt(const RankTable& table) {
  constexpr double kDeviationsOfHosts = 4, kErrorOfMedian = 1.25;
  std::map<std::pair<int, std::string>, std::vector<float>> paces;
  for (int place = 0; place < table.mesh.size(); ++place) {
    for (std::size_t step = 0; step < table.steps; ++step)
      if (const float value = table.pace[table.at(place, step)]; value > 0)
        paces[{table.mesh.coord(place).pp, table.hosts[static_cast<std::size_t>(place)]}].push_back(value);
  }
  std::map<int, std::vector<double>> hosts;  // by stage
  for (auto& [of, values] : paces) hosts[of.first].push_back(quantile(values, 0.5));
  std::vector<double> differ;
  for (auto& [stage, values] : hosts) {
    if (values.size() < 2) continue;
    const double middle = median(values);
    for (const double value : values) differ.push_back(value / middle - 1);
  }
  if (differ.empty()) return 0;
  const double of_stage = static_cast<double>(differ.size()) / static_cast<double>(hosts.size());
  return kDeviationsOfHosts * kErrorOfMedian * robust_spread(differ).sigma / std::sqrt(of_stage);
}

// Returns by how much each stage computes longer than the others where nothing disturbs it; empty if it is not known.
std::vector<double> undisturbed_excess(const RankTable& table) {
  const std::vector<double> stages = undisturbed_stages(table);
  if (std::ranges::any_of(stages, [](double seconds) { return std::isnan(seconds); })) return {};
  std::vector<double> some = stages, excess;
  const double usual = some.empty() ? 0 : quantile(some, 0.5);
  for (const double seconds : stages) excess.push_back(seconds / usual - 1);
  return excess;
}

}  // namespace

std::vector<Finding> find_slow_ranks(const Evidence& evidence, const std::vector<Outlier>& outliers,
                                     Compared compared) {
  // Ranks of one host that are slow in the same steps have one cause.
  std::vector<std::vector<const Outlier*>> causes;
  std::map<std::tuple<std::string, std::size_t, std::size_t>, std::size_t> by_host;
  for (const Outlier& outlier : outliers) {
    const std::string& host = evidence.table.hosts[static_cast<std::size_t>(outlier.unit)];
    const auto [at, is_new] = by_host.try_emplace({host, outlier.first, outlier.last}, causes.size());
    if (host.empty() || is_new) {
      causes.push_back({&outlier});
    } else {
      causes[at->second].push_back(&outlier);
    }
  }
  if (causes.size() > kMostSlowRanks) causes.resize(kMostSlowRanks);
  std::vector<Finding> findings;
  for (const auto& ranks : causes) {
    std::map<std::pair<int, int>, double> slow;  // by stage and lane: the excess of the slowest there
    for (const Outlier* of : ranks) {
      const mesh::Coord at = evidence.mesh().coord(of->unit);
      double& excess = slow[{at.pp, evidence.lane(at.dp)}];
      excess = std::max(excess, of->excess);
    }
    std::set<int> stages;
    for (const auto& [cell, excess] : slow) stages.insert(cell.first);
    const Outlier& worst = *ranks.front();
    const double without =
        evidence.what_if.with_scaled([&](const StepOp& op) { return is_computation(op) && stages.contains(op.stage); },
                                     [&](std::size_t op, std::size_t step, int lane) {
                                       if (step < worst.first || step > worst.last) return 1.0;
                                       const auto found = slow.find({evidence.steps().ops[op].stage, lane});
                                       return found == slow.end() ? 1.0 : 1 / (1 + found->second);
                                     });
    Finding found =
        evidence.finding(FindingCode::slow_rank, worst.first, worst.last, evidence.what_if.measured_s() - without,
                         confidence_of(worst) / (ranks.size() > 1 ? 2 : 1));
    for (const Outlier* of : ranks) found.ranks.push_back(evidence.rank(of->unit));
    found.evidence = fmt::format("{} computes {}{}", place_text(evidence, worst.unit), size_text(worst, compared),
                                 evidence.since(found));
    if (ranks.size() > 1) {
      const mesh::Coord at = evidence.mesh().coord(worst.unit);
      const bool is_cell = slow.size() == 1 && ranks.size() == static_cast<std::size_t>(evidence.mesh().tp);
      found.evidence +=
          is_cell ? fmt::format(", and so do all tp ranks of dp {} pp {}: it may be any of them", at.dp, at.pp)
                  : fmt::format(", and so do {} more of its host", ranks.size() - 1);
    }
    if (compared == Compared::undisturbed && found.cost_share < kLittle)
      found.evidence += "; it costs little here, where ranks wait for cores that they share";
    findings.push_back(std::move(found));
  }
  return findings;
}

std::vector<Finding> find_slow_stages(const Evidence& evidence, Compared compared) {
  const mesh::Mesh& mesh = evidence.mesh();
  std::vector<Finding> findings;
  if (mesh.pp < 2) return findings;
  const std::size_t steps = evidence.table.steps;
  std::vector<float> stages;  // [stage][step]: the median of its ranks
  for (int pp = 0; pp < mesh.pp; ++pp) {
    for (std::size_t step = 0; step < steps; ++step) {
      std::vector<float> of_stage;
      for (int place = pp * mesh.dp * mesh.tp; place < (pp + 1) * mesh.dp * mesh.tp; ++place)
        if (const float value = evidence.table.pace[evidence.table.at(place, step)]; value > 0)
          of_stage.push_back(value);
      stages.push_back(quantile(of_stage, 0.5));
    }
  }
  const std::vector<int> peers(static_cast<std::size_t>(mesh.pp), 0);
  const std::vector<double> undisturbed =
      compared == Compared::undisturbed ? undisturbed_excess(evidence.table) : std::vector<double>();
  std::map<int, double> slow;  // by stage: its excess
  double confidence = 1;
  const double least = std::max(kLeastSlowStage, host_doubt(evidence.table));
  for (Outlier outlier : find_outliers(stages, steps, peers, kLeastSlowStage)) {
    const int pp = outlier.unit;
    // Where ranks share cores, a stage may only have waited for them more often.
    if (!undisturbed.empty()) outlier.excess = std::min(outlier.excess, undisturbed[static_cast<std::size_t>(pp)]);
    if (outlier.excess < std::max(outlier.threshold, least)) continue;
    // The division of work does not change during a run, so the cause is another one.
    if (2 * (outlier.last - outlier.first + 1) < steps) continue;
    slow[pp] = outlier.excess;
    confidence = std::min(confidence, confidence_of(outlier));
  }
  if (slow.empty()) return findings;
  const double without = evidence.what_if.with_scaled(
      [&](const StepOp& op) { return is_computation(op) && slow.contains(op.stage); },
      [&](std::size_t op, std::size_t, int) { return 1 / (1 + slow.at(evidence.steps().ops[op].stage)); });
  const bool is_last = slow.size() == 1 && slow.begin()->first == mesh.pp - 1;
  // In a stage of one rank, a slow rank looks the same.
  Finding found =
      evidence.finding(is_last ? FindingCode::last_stage : FindingCode::slow_stage, 0, evidence.table.steps - 1,
                       evidence.what_if.measured_s() - without, confidence / (mesh.dp * mesh.tp == 1 ? 2 : 1));
  std::set<int> which;
  std::string names;
  double most = 0;
  for (const auto& [pp, excess] : slow) {
    names += fmt::format("{}{}", which.empty() ? "" : ", ", pp);
    which.insert(pp);
    most = std::max(most, excess);
  }
  for (int place = 0; place < mesh.size(); ++place)
    if (which.contains(mesh.coord(place).pp) && evidence.rank(place) >= 0) found.ranks.push_back(evidence.rank(place));
  const bool is_own = evidence.steps().exact;  // of ms-train, which spreads the layers evenly by itself
  const std::string_view remedy = !is_own ? slow.size() > 1 ? "give them fewer layers" : "give it fewer layers"
                                  : is_last
                                      ? "it has the head, too, whose work grows with model.vocab; more mesh.chunks "
                                        "or a smaller mesh.pp make that weigh less"
                                      : "other mesh.chunks or mesh.pp spread the layers differently";
  found.evidence =
      slow.size() > 1
          ? fmt::format("stages {} compute up to {:.1f} % longer than the others, on all their ranks: {}", names,
                        100 * most, remedy)
          : fmt::format("stage {}{} computes {:.1f} % longer than the others, on all its ranks: {}{}", names,
                        is_last ? ", the last one," : "", 100 * most, remedy, doubt_text(evidence, which));
  findings.push_back(std::move(found));
  return findings;
}

// A microbatch with more work takes longer forward and backward, in all stages, and the next one does not: what both
// directions have in common, less what is common to a whole step of a dp rank, is the work of microbatches. Noise of
// single operations has nothing in common, and slow ranks have it in all microbatches.
std::vector<Finding> find_uneven_sequences(const Evidence& evidence) {
  const StepTrace& steps = evidence.steps();
  const std::size_t lanes = steps.lanes();
  int count = 0;
  std::map<std::tuple<bool, int, int>, int> next;  // operations by direction, stage, chunk
  std::vector<int> microbatch(steps.ops.size(), -1);
  for (std::size_t op = 0; op < steps.ops.size(); ++op) {
    const StepOp& of = steps.ops[op];
    if (!is_computation(of) || of.type == OpType::backward_weight) continue;
    // All schedules go through a chunk in order of microbatch.
    microbatch[op] = next[{of.type == OpType::forward_compute, of.stage, of.chunk}]++;
    count = std::max(count, microbatch[op] + 1);
  }
  if (count < 2 || lanes * static_cast<std::size_t>(count) < 16) return {};
  const auto samples = static_cast<std::size_t>(count);
  std::vector<double> excess[2], number(samples, 0), some;  // [microbatch][lane]: backward, forward
  for (int direction = 0; direction < 2; ++direction) {
    excess[direction].assign(samples * lanes, 0);
    std::ranges::fill(number, 0);
    for (std::size_t op = 0; op < steps.ops.size(); ++op) {
      if (microbatch[op] < 0 || (steps.ops[op].type == OpType::forward_compute) != (direction == 1)) continue;
      const double* const row = evidence.what_if.measured().data() + op * lanes;
      some.assign(row, row + lanes);
      const double usual = quantile(some, 0.5);
      if (!(usual > 0)) continue;
      double* const to = excess[direction].data() + static_cast<std::size_t>(microbatch[op]) * lanes;
      for (std::size_t lane = 0; lane < lanes; ++lane) to[lane] += row[lane] / usual - 1;
      ++number[static_cast<std::size_t>(microbatch[op])];
    }
    for (std::size_t m = 0; m < samples; ++m) {
      for (std::size_t lane = 0; lane < lanes; ++lane) excess[direction][m * lanes + lane] /= std::max(number[m], 1.0);
    }
  }
  double common = 0, forward = 0, backward = 0;
  std::vector<double> of_dp(static_cast<std::size_t>(steps.dp), 0);
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    double mean[2] = {0, 0};
    for (int direction = 0; direction < 2; ++direction) {
      for (std::size_t m = 0; m < samples; ++m) mean[direction] += excess[direction][m * lanes + lane];
      mean[direction] /= static_cast<double>(samples);
    }
    of_dp[lane % static_cast<std::size_t>(steps.dp)] += (mean[0] + mean[1]) / 2;
    for (std::size_t m = 0; m < samples; ++m) {
      const double b = excess[0][m * lanes + lane] - mean[0], f = excess[1][m * lanes + lane] - mean[1];
      common += b * f;
      backward += b * b;
      forward += f * f;
    }
  }
  const double degrees = static_cast<double>(lanes) * static_cast<double>(samples - 1);
  const double uneven = std::sqrt(std::max(common, 0.0) / degrees);
  const double shared = common / std::max(std::sqrt(forward * backward), 1e-30);
  if (uneven < kLeastUneven || shared < kLeastShared) return {};
  for (double& sum : of_dp) sum /= static_cast<double>(steps.steps.size());
  const double without = evidence.what_if.with_scaled(is_computation, [&](std::size_t op, std::size_t step, int dp) {
    const int m = microbatch[op];
    if (m < 0) return 1.0;
    const std::size_t at = static_cast<std::size_t>(m) * lanes + steps.at(0, step, dp);
    const double work = (excess[0][at] + excess[1][at]) / 2 - of_dp[static_cast<std::size_t>(dp)];
    return 1 / std::max(1 + work, 0.1);
  });
  Finding found = evidence.finding(FindingCode::uneven_sequences, 0, steps.steps.size() - 1,
                                   evidence.what_if.measured_s() - without, shared * (1 - 0.5 * kLeastUneven / uneven));
  found.evidence = fmt::format(
      "microbatches differ by {:.1f} % in work, forward and backward alike and on no rank in particular: balance the "
      "lengths of their sequences",
      100 * uneven);
  return {std::move(found)};
}

}  // namespace ms::tracepp
