#include "net/commands/check.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>

#include "base/clock.h"
#include "base/text.h"
#include "net/judge/group_search.h"
#include "net/judge/scope.h"
#include "slurm/hostlist.h"

namespace ms::net {
namespace {

constexpr int kAllUpTo = 64;  // nodes: beyond that pairs are covered, not all tried

class Run {
 public:
  Run(Workers& workers, const CheckOptions& options, std::string command)
      : options_(options), workers_(workers), begin_s_(clock_.now_s()) {
    if (workers.invited() < 2)
      throw user_error("net.nodes",
                       fmt::format("{} to check: a fabric begins with two", plural(workers.invited(), "node")));
    checked_.command = std::move(command);
    checked_.nodes = workers.nodes();
    checked_.missing = workers.missing();
    checked_.why_missing = workers.why_missing();
    checked_.not_run = workers.not_run();
    if (options.topology) checked_.layout = layout_of(checked_.nodes, *options.topology);
  }

  int nodes() const { return static_cast<int>(checked_.nodes.size()); }
  Checked& checked() { return checked_; }

  // How much it will be, before it is; `again`: rounds that may follow for what looks bad.
  void announce(std::size_t rounds, std::size_t again = 0) const {
    if (!options_.announce || nodes() < 2) return;
    const PairSpec& spec = options_.spec;
    double most_gbps = spec.max_gbps;
    for (int node = 0; node < nodes(); ++node)
      if (spec.max_gbps == 0) most_gbps = std::max(most_gbps, workers_.link_gbps(node));
    const double streamed =
        std::min(static_cast<double>(spec.bytes), most_gbps > 0 ? most_gbps * 1e9 / 8 * spec.seconds : HUGE_VAL);
    constexpr double kBetween_s = 0.05;  // rounds
    PairSpec alone = spec;               // what is tested again is tested one direction after the other
    alone.both_at_once = false;
    const double cover_s = static_cast<double>(rounds) * (most_seconds(spec) + kBetween_s);
    const double again_s = static_cast<double>(again) * (most_seconds(alone) + kBetween_s);
    options_.announce(fmt::format(
        "{}, {} of up to {}: about {} and {} sent by a node{}{}", plural(checked_.nodes.size(), "node"),
        plural(rounds, "round"), plural(checked_.nodes.size() / 2, "pair"), format_duration(cover_s),
        format_size(static_cast<double>(rounds) * streamed),
        spec.max_gbps > 0 ? fmt::format(", at {} Gbit/s", spec.max_gbps) : "",
        again > 0
            ? fmt::format("; what looks bad is tested again, which may make it {}", format_duration(cover_s + again_s))
            : ""));
  }

  std::vector<PairResult> test(const Round& round, const PairSpec& spec, int source_port = 0) {
    ++checked_.rounds;
    return workers_.test(round, spec, source_port);
  }
  void progress(std::size_t of) const {
    if (options_.progress) options_.progress(checked_.rounds, static_cast<int>(of));
  }

  Checked finish() {
    checked_.seconds = clock_.now_s() - begin_s_;
    checked_.unauthenticated = workers_.unauthenticated();
    checked_.undecided = workers_.undecided();
    return std::move(checked_);
  }

 private:
  SystemClock clock_;
  const CheckOptions& options_;
  Workers& workers_;
  double begin_s_;
  Checked checked_;
};

std::vector<Round> rounds_of(Cover cover, int n, const Layout& layout) {
  switch (cover) {
    case Cover::quick: return quick_cover(n);
    case Cover::ring: return ring_shifts(n);
    case Cover::all: return round_robin(n);
    case Cover::distance: {
      std::vector<Round> rounds;
      for (DistanceRounds& near : by_distance(n, [&](int a, int b) { return layout.distance(a, b); }))
        std::ranges::move(near.rounds, std::back_inserter(rounds));
      return rounds;
    }
    case Cover::automatic: break;
  }
  return n <= kAllUpTo ? round_robin(n) : quick_cover(n);
}

}  // namespace

Cover parse_cover(const std::string& text) {
  static const std::map<std::string, Cover, std::less<>> kCovers{{"auto", Cover::automatic},
                                                                 {"quick", Cover::quick},
                                                                 {"ring", Cover::ring},
                                                                 {"all", Cover::all},
                                                                 {"distance", Cover::distance}};
  const auto cover = kCovers.find(text);
  if (cover == kCovers.end())
    throw user_error("cli.value", fmt::format("a schedule is auto, quick, ring, all or distance, not '{}'", text));
  return cover->second;
}

FlowsChecked check_flows(Workers& workers, const CheckOptions& options, const FlowOptions& flows) {
  constexpr int kFirstPort = 20011;
  Run run(workers, options, "ecmp");
  if (run.nodes() < 2) return {.base = run.finish(), .pairs = {}};
  const Round pairs = quick_cover(run.nodes()).front();
  if (run.nodes() % 2 != 0) {
    run.checked().remarks.push_back(
        fmt::format("{} has no neighbour left, and was not tested", run.checked().nodes.back()));
  }
  PairSpec spec = options.spec;
  spec.back = false;
  spec.pings = 0;
  spec.datagrams = 0;
  spec.sizes = false;
  spec.flows = 1;
  PairSpec all = spec;
  all.flows = flows.flows;
  const std::size_t rounds =
      pairs.size() * static_cast<std::size_t>(flows.rolls * (2 * flows.flows + flows.repeats)) + 1;
  run.announce(rounds);
  std::vector<PairFlows> found;
  for (const Pair& pair : pairs) {
    PairFlows& of = found.emplace_back();
    of.a = pair.first;
    of.b = pair.second;
    const auto test = [&](const PairSpec& with, int port) {
      run.progress(rounds);
      const PairResult result = run.test({pair}, with, port).front();
      if (!result.error.empty()) of.error = result.error;
      return result.there.flow_gbps;
    };
    std::vector<double> sums;
    for (int roll = 0; roll < flows.rolls && of.error.empty(); ++roll) {
      PairFlows::Roll& rolled = of.rolls.emplace_back();
      rolled.first_port = kFirstPort + roll * flows.flows;
      for (int flow = 0; flow < flows.flows && of.error.empty(); ++flow) {
        double best = 0;  // of two: a bad moment is no slow path
        for (int i = 0; i < 2 && of.error.empty(); ++i)
          for (const double gbps : test(spec, rolled.first_port + flow)) best = std::max(best, gbps);
        rolled.alone.push_back(best);
      }
      // TCP shares fairly in the long run only: the mean of several.
      rolled.together.assign(static_cast<std::size_t>(flows.flows), 0);
      for (int repeat = 0; repeat < flows.repeats && of.error.empty(); ++repeat) {
        const std::vector<double> gbps = test(all, rolled.first_port);
        for (std::size_t i = 0; i < std::min(gbps.size(), rolled.together.size()); ++i)
          rolled.together[i] += gbps[i] / flows.repeats;
      }
      if (of.error.empty())
        rolled.judgement = judge_flows(rolled.alone, rolled.together, workers.link_gbps(pair.first));
      double sum = 0;
      for (const double gbps : rolled.together) sum += gbps;
      sums.push_back(sum);
    }
    if (!sums.empty()) of.together_gbps = *std::ranges::max_element(sums);
  }
  run.progress(rounds);
  const std::vector<PairResult> beside = run.test(pairs, all, kFirstPort);
  for (std::size_t i = 0; i < beside.size(); ++i) {
    found[i].beside_others_gbps = beside[i].there.gbps;
    if (!beside[i].error.empty()) found[i].error = beside[i].error;
  }
  return {.base = run.finish(), .pairs = std::move(found)};
}

Checked check_pairs(Workers& workers, const CheckOptions& options) {
  Run run(workers, options, "pairs");
  const std::vector<Round> rounds = rounds_of(options.cover, run.nodes(), run.checked().layout);
  PairSpec spec = options.spec;
  if (options.cover == Cover::ring) {  // everybody sends to one and receives from another
    spec.back = false;
    spec.pings = 0;
    spec.datagrams = 0;
    spec.sizes = false;
  }
  run.announce(rounds.size());
  for (const Round& round : rounds) {
    if (!workers.works()) break;
    run.progress(rounds.size());
    std::ranges::move(run.test(round, spec), std::back_inserter(run.checked().results));
  }
  for (int node = 0; node < run.nodes(); ++node) {
    const bool answered = std::ranges::any_of(
        run.checked().results, [&](const PairResult& r) { return (r.a == node || r.b == node) && r.error.empty(); });
    if (answered) run.checked().healthy.push_back(node);
  }
  return run.finish();
}

Checked locate(Workers& workers, const CheckOptions& options) {
  Run run(workers, options, "locate");
  Locator locator(run.nodes(), {.layout = run.checked().layout, .thresholds = options.thresholds});
  run.announce(static_cast<std::size_t>(locator.cover_rounds()), Locator::kMostRounds);
  while (workers.works()) {
    const std::optional<Round> round = locator.next();
    if (!round) break;
    run.progress(0);
    PairSpec spec = options.spec;
    spec.both_at_once = locator.covering() && !spec.rdma;
    locator.take(run.test(*round, spec));
  }
  Checked& checked = run.checked();
  checked.faults = locator.faults();
  const std::size_t seen = checked.faults.size();
  if (!workers.works()) checked.faults = locator.decided_faults();
  if (const std::size_t open = seen - checked.faults.size(); open > 0) {
    checked.remarks.push_back(
        fmt::format("{} left out, because the tests ended before it could be tested again", plural(open, "finding")));
  }
  checked.healthy = locator.healthy();
  checked.untested_pairs = locator.pairs_untested();
  if (const int ways = locator.crowded_ways(); ways > 0) {
    checked.remarks.push_back(fmt::format(
        "{} carried less while other pairs sent, and not alone: they share a limit, or are hashed to one path",
        plural(static_cast<std::size_t>(ways), "way")));
  }
  if (const int pairs = locator.undecided_pairs(); pairs > 0 && workers.works()) {
    checked.not_judged += pairs;
    checked.remarks.push_back(fmt::format("{} looked bad once, and there were too many to test them again",
                                          plural(static_cast<std::size_t>(pairs), "pair")));
  }
  if (const int ways = locator.ways_by_chance(); ways > 0) {
    checked.not_judged += ways;
    checked.remarks.push_back(
        fmt::format("{} carried less each time, but healthy ones often do as well here, as where processes wait for a "
                    "CPU: not judged",
                    plural(static_cast<std::size_t>(ways), "way")));
  }
  if (const int pairs = locator.pairs_without_cpu(); pairs > 0) {
    checked.not_judged += pairs;
    checked.remarks.push_back(
        fmt::format("{} answered late while processes at an end waited for a CPU: that time is not counted as latency",
                    plural(static_cast<std::size_t>(pairs), "pair")));
  }
  checked.results = locator.results();
  return run.finish();
}

Checked locate_by_groups(Workers& workers, const CheckOptions& options, const TimeGroups& time) {
  Run run(workers, options, "locate");
  Checked& checked = run.checked();
  checked.not_run = {"latencies, losses and links between groups: groups of nodes are timed as a whole"};
  GroupSearch search(run.nodes(), 1 / options.thresholds.slow);
  while (true) {
    const std::vector<GroupSearch::Nodes>& groups = search.next();
    if (groups.empty()) break;
    ++checked.rounds;
    run.progress(0);
    search.take(time(groups));
  }
  std::vector<bool> slow(static_cast<std::size_t>(run.nodes()));
  for (const GroupSearch::Slow& of : search.found()) {
    const double times = of.seconds / search.normal_s();
    if (of.nodes.size() > 2) {
      std::vector<std::string> names;
      for (const int node : of.nodes) names.push_back(checked.nodes[static_cast<std::size_t>(node)]);
      checked.remarks.push_back(fmt::format(
          "{} take {:.1f} times as long as a pair, and neither half of them does: they share a limit, or one "
          "link between the halves is slow (locate without --by groups tells which)",
          slurm::fold_hostlist(names), times));
      continue;
    }
    for (const int node : of.nodes) slow[static_cast<std::size_t>(node)] = true;
    checked.faults.push_back({.culprit = {.kind = of.nodes.size() == 1 ? Kind::node : Kind::link,
                                          .a = of.nodes.front(),
                                          .b = of.nodes.size() == 1 ? -1 : of.nodes.back(),
                                          .bad = of.slow,
                                          .of = of.of},
                              .symptoms = {Symptom::bandwidth},
                              .times = times,
                              .normal = {},
                              .confidence = (of.slow + 1.0) / (of.of + 2.0)});
  }
  for (int node = 0; node < run.nodes(); ++node)
    if (!slow[static_cast<std::size_t>(node)]) checked.healthy.push_back(node);
  checked.remarks.push_back(fmt::format("{} of groups", plural(static_cast<std::size_t>(search.tests()), "test")));
  return run.finish();
}

}  // namespace ms::net
