#include "tracepp/findings/suspects.h"

#include "tracepp/steps/straggler_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "trace/format.h"
#include "tracepp/findings/suspect_search.h"
#include "tracepp/findings/undisturbed.h"
#include "tracepp/robust.h"

namespace ms::tracepp {
namespace {

constexpr double kLeastSlowRank = 0.025;
constexpr double kWorthTelling = 0.002;  // of a step
// Where so much of a step is delays that no finding explains, or so many computations are much longer than others with
// the same work, ranks share cores: then all times vary together with theirs. Only what costs so much of a step is
// told, and who is slow in computations that nothing disturbed.
constexpr double kContended = 0.25, kDisturbed = 0.1, kWorthTellingThere = 0.02;

// The trust in findings, by the share of a step that the replay does not explain: full up to the first share, least
// from the second on. Measured by tests/tracepp/calibrate.py.
constexpr double kExplained = 0.1, kNotExplained = 0.6;
constexpr double kLeastTrust = 0.5, kLeastTrustUndisturbed = 0.92, kQuiet = 0.95, kQuietContended = 0.5;

double trust(double unexplained, double least) {
  const double part = std::clamp((std::abs(unexplained) - kExplained) / (kNotExplained - kExplained), 0.0, 1.0);
  return 1 - (1 - least) * part;
}

// Ranks with the same work: those of a stage.
std::vector<int> peers_of(const mesh::Mesh& mesh) {
  std::vector<int> peers;
  for (int place = 0; place < mesh.size(); ++place) peers.push_back(mesh.coord(place).pp);
  return peers;
}

// Returns outliers among the ranks of one host and stage: hosts may differ by more than a fault makes, and then only
// those beside it tell that a rank is slow.
std::vector<Outlier> find_outliers_on_hosts(const RankTable& table) {
  constexpr int kLeastRanks = 3;  // the slower one of two may as well be the usual one
  std::map<std::pair<std::string, int>, std::vector<int>> ranks;
  for (int place = 0; place < table.mesh.size(); ++place) {
    if (const std::string& host = table.hosts[static_cast<std::size_t>(place)]; !host.empty())
      ranks[{host, table.mesh.coord(place).pp}].push_back(place);
  }
  std::vector<float> values(table.pace.size(), std::numeric_limits<float>::quiet_NaN());
  std::vector<int> peers(static_cast<std::size_t>(table.mesh.size()), 0);
  int group = 0;
  for (const auto& [of, places] : ranks) {
    if (std::ssize(places) < kLeastRanks) continue;
    ++group;
    for (const int place : places) {
      peers[static_cast<std::size_t>(place)] = group;
      const auto from = table.pace.begin() + static_cast<std::ptrdiff_t>(table.at(place, 0));
      std::copy_n(from, table.steps, values.begin() + static_cast<std::ptrdiff_t>(table.at(place, 0)));
    }
  }
  return find_outliers(values, table.steps, peers, kLeastSlowRank);
}

std::vector<float> cells_of(const Evidence& evidence) {
  const StepTrace& steps = evidence.steps();
  std::vector<double> cells, some;
  for (int dp = 0; dp < steps.dp; ++dp) {
    for (int pp = 0; pp < steps.pp; ++pp) {
      some.clear();
      for (std::size_t step = 0; step < steps.steps.size(); ++step) {
        double most = 0;
        for (int tp = 0; tp < evidence.mesh().tp; ++tp) {
          const int place = evidence.mesh().rank({.dp = steps.dp_rank(dp), .pp = pp, .tp = tp});
          if (const float value = evidence.table.compute[evidence.table.at(place, step)]; value > 0)
            most = std::max<double>(most, value);
        }
        some.push_back(most);
      }
      cells.push_back(median(some));
    }
  }
  some = cells;
  const double usual = median(some);
  std::vector<float> shares;
  for (const double cell : cells) shares.push_back(usual > 0 ? static_cast<float>(cell / usual) : 1);
  return shares;
}

// Ranks of findings before all others, and those of a fault before those of the layout, which are no worse than others
// with their work, whatever costs more. Among the tp ranks of a worker the replay cannot tell: there the one that
// computes longest is as suspect as its worker, one that computes as usual is not.
std::vector<Suspect> rank_suspects(const Evidence& evidence, const Stragglers& stragglers,
                                   const std::vector<Finding>& findings) {
  const RankTable& table = evidence.table;
  const mesh::Mesh& mesh = evidence.mesh();
  std::vector<Suspect> suspects;
  std::map<int, int> place_of;  // by rank
  for (int place = 0; place < mesh.size(); ++place)
    if (evidence.rank(place) >= 0) place_of[evidence.rank(place)] = place;
  std::vector<double> worker_scores(static_cast<std::size_t>(mesh.dp * mesh.pp), 1);
  for (const Suspect& worker : stragglers.workers)
    worker_scores[static_cast<std::size_t>(evidence.steps().dp_rank(worker.dp) * mesh.pp + worker.pp)] = worker.score;
  std::set<int> named;
  const double step_s = evidence.mean_step_s();
  std::vector<Finding> faults_first = findings;
  std::ranges::stable_partition(faults_first, [](const Finding& finding) { return is_fault(finding); });
  for (const Finding& finding : faults_first) {
    if (!finding.doubt.empty() || finding.ranks.size() > static_cast<std::size_t>(mesh.size()) / 2) continue;
    std::vector<int> ranks = finding.ranks;
    // The ranks of a slow stage are all equally likely: they go by the replay.
    if (finding.code == FindingCode::last_stage || finding.code == FindingCode::slow_stage) {
      std::ranges::stable_sort(ranks, std::ranges::greater{}, [&](int rank) {
        const auto place = place_of.find(rank);
        const mesh::Coord at = mesh.coord(place == place_of.end() ? 0 : place->second);
        return worker_scores[static_cast<std::size_t>(at.dp * mesh.pp + at.pp)];
      });
    }
    for (const int rank : ranks) {
      if (!place_of.contains(rank) || !named.insert(rank).second) continue;
      const mesh::Coord at = mesh.coord(place_of[rank]);
      const double left_s = std::max(step_s - finding.cost_s, step_s / 100);
      const double of_worker = worker_scores[static_cast<std::size_t>(at.dp * mesh.pp + at.pp)];
      suspects.push_back({rank, at.dp, at.pp, at.tp, std::max(step_s / left_s, of_worker)});
    }
  }
  for (const Suspect& worker : stragglers.workers) {
    if (suspects.size() >= kMostSuspects) break;
    const int dp = evidence.steps().dp_rank(worker.dp);
    std::vector<std::pair<double, int>> by_compute;  // of the worker's tp ranks: how long they compute
    for (int tp = 0; tp < mesh.tp; ++tp) {
      const int place = mesh.rank({.dp = dp, .pp = worker.pp, .tp = tp});
      if (evidence.rank(place) < 0) continue;
      double sum = 0;
      for (std::size_t step = 0; step < table.steps; ++step) {
        const float value = table.compute[table.at(place, step)];
        sum += value > 0 ? static_cast<double>(value) : 0;
      }
      by_compute.emplace_back(sum, place);
    }
    if (by_compute.empty()) continue;
    std::ranges::stable_sort(by_compute, std::ranges::greater{}, &std::pair<double, int>::first);
    const auto [most, place] = by_compute.front();
    if (named.contains(evidence.rank(place))) continue;
    const mesh::Coord at = mesh.coord(place);
    suspects.push_back({evidence.rank(place), at.dp, at.pp, at.tp, worker.score});
  }
  if (suspects.size() > kMostSuspects) suspects.resize(kMostSuspects);
  return suspects;
}

// Returns [place in the mesh]: a rank without a trace is in one of its groups, or next to it in its pipeline; -1: none.
std::vector<int> missing_beside(const RankTable& table) {
  const mesh::Mesh& mesh = table.mesh;
  std::vector<int> beside(table.ranks.size(), -1);
  for (int place = 0; place < mesh.size(); ++place) {
    if (table.ranks[static_cast<std::size_t>(place)] >= 0) continue;
    const mesh::Coord at = mesh.coord(place);
    const auto mark = [&](const mesh::Coord& other) { beside[static_cast<std::size_t>(mesh.rank(other))] = place; };
    for (int dp = 0; dp < mesh.dp; ++dp) mark({.dp = dp, .pp = at.pp, .tp = at.tp});
    for (int tp = 0; tp < mesh.tp; ++tp) mark({.dp = at.dp, .pp = at.pp, .tp = tp});
    for (const int to : {1, mesh.pp - 1}) mark({.dp = at.dp, .pp = (at.pp + to) % mesh.pp, .tp = at.tp});
  }
  return beside;
}

// Caps the confidence of faults that may as well lie in what is missing, and says why.
void doubt(const RankTable& table, const Gaps& gaps, std::vector<Finding>& findings) {
  constexpr double kMostInDoubt = 0.5;
  const std::vector<int> beside = missing_beside(table);
  for (Finding& finding : findings) {
    if (!is_fault(finding)) continue;
    for (const int rank : finding.ranks) {
      const auto place = static_cast<std::size_t>(rank);  // ranks of ms-train are places in the mesh
      if (place >= beside.size() || beside[place] < 0) continue;
      finding.doubt = fmt::format(
          "rank {}, with which rank {} exchanges data, has no trace that could be used: the cause may be there",
          beside[place], rank);
      break;
    }
    if (finding.doubt.empty() && is_delay(finding) && gaps.has_lost(finding.first_step - 1))
      finding.doubt = "events of the step before it are lost: what it waited for may be among them";
    if (!finding.doubt.empty()) finding.confidence = std::min(finding.confidence, kMostInDoubt);
  }
}

// Returns the share of the steps' events that is not on lost pages, on the rank that lost most.
double seen_of_steps(const RunTrace& trace) {
  double least = 1;
  for (const RankTrace& rank : trace.ranks) {
    const double lost = static_cast<double>(rank.lost_pages) * trace::format::kRecordsAPage;
    if (lost > 0) least = std::min(least, 1 - lost / (lost + static_cast<double>(rank.events.size())));
  }
  return least;
}

double seen_of_ranks(const RankTable& table) {
  const auto used = static_cast<double>(std::ranges::count_if(table.ranks, [](int rank) { return rank >= 0; }));
  return used / static_cast<double>(table.ranks.size());
}

Diagnosis judge(const StepTrace& steps, const RankTable& table, const WhatIf& what_if, Gaps gaps = {},
                double seen_steps = 1) {
  const Evidence evidence{table, what_if};
  Diagnosis diagnosis;
  diagnosis.stragglers = find_stragglers(what_if);
  const bool has_periods = std::ranges::any_of(table.periods, [](double period) { return !std::isnan(period); });
  for (std::size_t step = 0; step < steps.steps.size(); ++step) {
    diagnosis.step_s.push_back(!std::isnan(table.periods[step]) ? table.periods[step]
                               : has_periods                    ? what_if.measured_steps()[step]
                                                                : diagnosis.stragglers.step_spans_s[step]);
    diagnosis.measured_s += diagnosis.step_s.back() / static_cast<double>(steps.steps.size());
  }
  // A wait for a rank that is not there looks like communication: the replay has it twice, and hides other delays.
  const bool lacks_ranks = gaps.any() && std::ranges::any_of(table.ranks, [](int rank) { return rank < 0; });
  diagnosis.knows_slowdown = !lacks_ranks || what_if.measured_s() <= diagnosis.measured_s;
  if (!diagnosis.knows_slowdown) diagnosis.stragglers.workers.clear();
  if (gaps.any()) diagnosis.seen_share = seen_of_ranks(table) * seen_steps;
  const std::vector<int> peers = peers_of(table.mesh);
  std::vector<Outlier> outliers = find_outliers(table.pace, table.steps, peers, kLeastSlowRank);
  std::vector<bool> is_slow(static_cast<std::size_t>(table.mesh.size()), false);
  const auto named = [&](const Outlier& outlier) -> std::vector<bool>::reference {
    return is_slow[static_cast<std::size_t>(outlier.unit)];
  };
  for (const Outlier& outlier : outliers) named(outlier) = true;
  std::vector<Outlier> on_hosts = find_outliers_on_hosts(table);
  // Where most of its host is slow, too, that is another cause.
  const auto host_of = [&](const Outlier& outlier) { return table.hosts[static_cast<std::size_t>(outlier.unit)]; };
  std::erase_if(on_hosts, [&](const Outlier& outlier) {
    return named(outlier) && 2 * std::ranges::count(outliers, host_of(outlier), host_of) <=
                                 std::ranges::count(table.hosts, host_of(outlier));
  });
  for (const Outlier& outlier : on_hosts) named(outlier) = true;
  std::vector<Finding> delays = find_delays(evidence, is_slow);
  const double mean_step_s = lacks_ranks && diagnosis.measured_s > 0 ? diagnosis.measured_s : evidence.mean_step_s();
  double unexplained_s = mean_step_s - what_if.measured_s();
  for (const Finding& finding : delays) unexplained_s -= finding.cost_s;
  diagnosis.unexplained = unexplained_s / mean_step_s;
  diagnosis.is_contended =
      (table.may_share_cores && unexplained_s > kContended * mean_step_s) || disturbed_share(table) > kDisturbed;
  const bool is_contended = diagnosis.is_contended || (table.may_share_cores && lacks_ranks);  // may be: be careful

  std::vector<Finding> surely_slow;
  if (is_contended && can_find_undisturbed(table)) {
    outliers.clear();
    on_hosts.clear();
    surely_slow = find_slow_ranks(evidence, find_undisturbed_outliers(table, kLeastSlowRank), Compared::undisturbed);
  }
  const auto add = [&](std::vector<Finding>&& found) {
    diagnosis.findings.insert(diagnosis.findings.end(), std::make_move_iterator(found.begin()),
                              std::make_move_iterator(found.end()));
  };
  diagnosis.quiet_confidence =
      (is_contended ? kQuietContended : kQuiet) * trust(diagnosis.unexplained, kLeastTrust) * diagnosis.seen_share;
  add(find_slow_ranks(evidence, outliers, Compared::all));
  add(find_slow_ranks(evidence, on_hosts, Compared::on_host));
  add(find_slow_stages(evidence, is_contended ? Compared::undisturbed : Compared::all));
  add(find_uneven_sequences(evidence));
  add(find_slow_links(evidence));
  add(std::move(delays));
  if (is_contended)
    std::erase_if(diagnosis.findings, [](const Finding& finding) { return finding.cost_share < kWorthTellingThere; });
  for (Finding& finding : diagnosis.findings) finding.confidence *= trust(diagnosis.unexplained, kLeastTrust);
  for (Finding& finding : surely_slow) finding.confidence *= trust(diagnosis.unexplained, kLeastTrustUndisturbed);
  add(std::move(surely_slow));
  // For a short time and at no cost of the whole run: by chance, or not worth a word.
  std::erase_if(diagnosis.findings, [&](const Finding& finding) {
    const auto lasted = static_cast<std::size_t>(std::ranges::count_if(
        steps.steps, [&](std::int64_t step) { return step >= finding.first_step && step <= finding.last_step; }));
    return 2 * lasted < steps.steps.size() && finding.cost_share * seen_steps < kWorthTelling;
  });
  if (gaps.any()) doubt(table, gaps, diagnosis.findings);
  std::ranges::stable_sort(diagnosis.findings, std::ranges::greater{}, [](const Finding& finding) {
    return std::pair(std::round(finding.cost_share * 1e4),
                     finding.confidence);  // what costs the same: the surest first
  });
  diagnosis.suspects = rank_suspects(evidence, diagnosis.stragglers, diagnosis.findings);
  diagnosis.steps = steps.steps;
  diagnosis.left_out = steps.left_out;
  diagnosis.mesh = table.mesh;
  for (int i = 0; i < steps.dp; ++i) diagnosis.dp_ranks.push_back(steps.dp_rank(i));
  diagnosis.cells = cells_of(evidence);
  diagnosis.gaps = std::move(gaps);
  for (Finding& finding : diagnosis.findings)
    finding.cost_share = diagnosis.measured_s > 0 ? finding.cost_s / diagnosis.measured_s : 0;
  return diagnosis;
}

}  // namespace

double Evidence::step_s() const {
  std::vector<double> known;
  std::ranges::copy_if(table.periods, std::back_inserter(known), [](double period) { return period > 0; });
  return known.empty() ? what_if.measured_s() : median(known);
}

double Evidence::mean_step_s() const {
  double sum = 0;
  for (std::size_t step = 0; step < table.steps; ++step)
    sum += std::max(what_if.measured_steps()[step], table.periods[step] > 0 ? table.periods[step] : 0.0);
  return std::max(sum / static_cast<double>(table.steps), std::numeric_limits<double>::min());
}

Finding Evidence::finding(FindingCode code, std::size_t first, std::size_t last, double cost_s,
                          double confidence) const {
  Finding found;
  found.code = code;
  found.first_step = step(first);
  found.last_step = step(last);
  found.cost_s = std::max(cost_s, 0.0);
  found.cost_share = found.cost_s / mean_step_s();
  found.confidence = std::clamp(confidence, 0.0, 1.0);
  return found;
}

std::string Evidence::since(const Finding& found) const {
  const bool from_begin = found.first_step == steps().steps.front(), to_end = found.last_step == steps().steps.back();
  if (from_begin && to_end) return "";
  if (to_end) return fmt::format(", since about step {}", found.first_step);
  if (found.first_step == found.last_step) return fmt::format(", in step {}", found.first_step);
  return fmt::format(", in steps {} to {}", found.first_step, found.last_step);
}

Diagnosis find_suspects(const RunTrace& trace) {
  // Timelines whose operations have the names of the model already.
  if (trace.source->is_pipeline) { return find_suspects(straggler_steps(trace)); }
  const BuiltSteps built = build_steps(trace);
  const WhatIf what_if(built.steps);
  return judge(built.steps, built.ranks, what_if, find_gaps(trace), seen_of_steps(trace));
}

Diagnosis find_suspects(const StepTrace& trace) {
  const WhatIf what_if(trace);
  return judge(trace, table_of(trace, what_if.measured()), what_if);
}

}  // namespace ms::tracepp
