#include "net/judge/locate.h"

#include <algorithm>
#include <set>

namespace ms::net {
namespace {

constexpr int kPartners = 5;    // that a node in doubt is tested with, all in all
constexpr int kOneWay = 3;      // tests of one direction at a time that decide for a node
constexpr double kRare = 0.01;  // the chance of any other symptom than bandwidth in a measurement of a healthy way

bool touches(const Culprit& culprit, int node, const Layout& layout) {
  if (culprit.kind == Kind::group)
    return layout.below(node, culprit.a) || (culprit.other >= 0 && layout.below(node, culprit.other));
  return culprit.a == node || culprit.b == node;
}

// More than a link: a node or a switch whose fault makes this way bad.
bool explains(const Culprit& culprit, int from, int to, const Layout& layout) {
  switch (culprit.kind) {
    case Kind::node: return from == culprit.a || to == culprit.a;
    case Kind::sending: return from == culprit.a;
    case Kind::receiving: return to == culprit.a;
    case Kind::group: return touches(culprit, from, layout) || touches(culprit, to, layout);
    case Kind::link:
    case Kind::direction: break;
  }
  return false;
}
// An interface went or came meanwhile: that explains whatever else was measured.
bool is_disturbed(const PairResult& result) {
  return std::max({result.counts_a.carrier_losses, result.counts_a.carrier_gains, result.counts_b.carrier_losses,
                   result.counts_b.carrier_gains}) > 0;
}
// Returns whether a node's symptom causes that of its pairs. A stream takes round trips to reach its rate and to repair
// losses, so some ways of a late or lossy node look slow by chance. A slow port has a queue, so pings of some ways wait
// behind what earlier streams left there. A flap explains no loss.
bool causes(Symptom of_node, Symptom of_pair) {
  return of_node == Symptom::silent || of_node == of_pair ||
         (of_pair == Symptom::bandwidth && (of_node == Symptom::latency || of_node == Symptom::loss)) ||
         (of_pair == Symptom::latency && of_node == Symptom::bandwidth);
}
// Returns whether the result tells something of its pair.
bool tells(const PairResult& result) { return result.at_fault < 0 && !result.cut_short && !is_disturbed(result); }
Pair way_of(const PairResult& result, bool there) {
  return there ? Pair(result.a, result.b) : Pair(result.b, result.a);
}
bool is_node(Kind kind) { return kind == Kind::node || kind == Kind::sending || kind == Kind::receiving; }

}  // namespace

Locator::Locator(int nodes, LocateOptions options)
    : n_(nodes), options_(std::move(options)), cover_(round_robin(nodes)) {
  const auto n = static_cast<std::size_t>(n_);
  tests_.resize(n * n);
  const std::size_t wanted = nodes <= kAllPairs ? cover_.size() : static_cast<std::size_t>(kCover);
  if (wanted < cover_.size()) {  // spread over all distances between nodes' numbers
    std::vector<Round> some;
    for (std::size_t i = 0; i < wanted; ++i) some.push_back(std::move(cover_[i * cover_.size() / wanted]));
    cover_ = std::move(some);
  }
}

// With whom a node was tested one direction at a time.
std::set<int> Locator::one_way_peers(int node) const {
  std::set<int> peers;
  for (const PairResult& result : results_) {
    if (result.at_once || !result.error.empty()) continue;
    if (result.a == node) peers.insert(result.b);
    if (result.b == node) peers.insert(result.a);
  }
  return peers;
}

std::vector<Locator::Of> Locator::judge() const {
  std::set<int> known_one_way;
  for (const int node : slow_nodes_)
    if (static_cast<int>(one_way_peers(node).size()) >= std::min(kOneWay, n_ - 1)) known_one_way.insert(node);
  const std::vector<Normal> normal = normal_of(results_, [&](int a, int b) { return options_.layout.distance(a, b); });
  const auto normal_for = [&](const PairResult& result) -> const Normal& {
    return normal[static_cast<std::size_t>(options_.layout.distance(result.a, result.b))];
  };
  SlowByChance slow;
  for (const PairResult& result : results_) {
    for (const bool there : {true, false}) {
      if (tells(result) && tried(result, there, Symptom::bandwidth)) {
        slow.add(way_of(result, there), (there ? result.there : result.back).cpu_wait,
                 has(result, there, Symptom::bandwidth, normal_for(result), options_.thresholds));
      }
    }
  }
  std::vector<Of> judged;
  for (int s = 0; s < kWaySymptoms; ++s) {
    const auto symptom = static_cast<Symptom>(s);
    Ways ways(n_);
    std::set<Pair> set_aside;
    for (const PairResult& result : results_) {
      if (!tells(result)) continue;
      for (const bool there : {true, false}) {
        if (!tried(result, there, symptom)) continue;
        const bool is_bad = has(result, there, symptom, normal_for(result), options_.thresholds);
        const Pair way = way_of(result, there);
        if (symptom == Symptom::bandwidth && result.at_once &&
            (known_one_way.contains(result.a) || known_one_way.contains(result.b))) {
          if (is_bad) set_aside.insert(way);
          continue;
        }
        Ways::Cell& cell = ways.at(way.first, way.second);
        ++cell.measured;
        cell.chance *=
            symptom == Symptom::bandwidth ? slow.chance((there ? result.there : result.back).cpu_wait) : kRare;
        if (is_bad) {
          ++cell.bad;
        } else if (symptom == Symptom::bandwidth) {
          cell.cleared = true;  // other work on a node lowers a rate, and nothing raises it
        }
      }
    }
    std::vector<Culprit> culprits = explain(ways, options_.layout);
    judged.push_back({std::move(ways), std::move(culprits), std::move(set_aside)});
  }
  return judged;
}

// Pairs that were bad once and that no node or switch explains are tested again, alone: beside others they may only
// have shared a limit. Their ends, as nodes that few tests speak against, are tested with nodes that are good.
Locator::Doubts Locator::doubtful() {
  const std::vector<Of> judged = judge();
  std::set<Pair> wanted, again;
  const std::set<int> lost = gone();
  std::set<int> in_doubt, bad_nodes, accused;
  for (const Of& of : judged) {
    // Two or three peers are too few to outvote a bad moment: what they say is measured again, but for silence, which
    // takes too long.
    const bool voted = n_ > kPartners || &of == &judged[static_cast<std::size_t>(Symptom::silent)];
    const int measured = of.ways.measured();
    for (int a = 0; a < n_; ++a) {
      for (int b = 0; b < n_; ++b) {
        const Ways::Cell& cell = of.ways.at(a, b);
        if (a == b || cell.bad == 0) continue;
        bad_nodes.insert(a);
        bad_nodes.insert(b);
        const bool explained = std::ranges::any_of(
            of.culprits, [&](const Culprit& culprit) { return explains(culprit, a, b, options_.layout); });
        if (explained && voted) continue;
        // Tests that measured nothing do not decide, but they end.
        const int most = cell.most_tests(measured);
        const bool decided = (cell.is_decided() && most == Ways::Cell::kMeasurements) || tests(a, b) >= most;
        if (!decided && !lost.contains(a) && !lost.contains(b)) again.emplace(std::min(a, b), std::max(a, b));
        if (explained) continue;
        in_doubt.insert(a);
        in_doubt.insert(b);
      }
    }
    // Ways that were set aside, and that no measurement of one direction has replaced.
    for (const auto& [from, to] : of.set_aside) {
      const bool explained = std::ranges::any_of(of.culprits, [&, from = from, to = to](const Culprit& culprit) {
        return explains(culprit, from, to, options_.layout);
      });
      if (!explained && of.ways.at(from, to).measured == 0 && tests(from, to) < Ways::Cell::kMeasurements &&
          !lost.contains(from) && !lost.contains(to))
        again.emplace(std::min(from, to), std::max(from, to));
    }
    for (const Culprit& culprit : of.culprits)
      if (is_node(culprit.kind)) accused.insert(culprit.a);
  }
  in_doubt.insert(accused.begin(), accused.end());
  // With whom was everybody tested?
  std::vector<std::set<int>> partners(static_cast<std::size_t>(n_));
  for (const PairResult& result : results_) {
    if (!result.error.empty()) continue;
    partners[static_cast<std::size_t>(result.a)].insert(result.b);
    partners[static_cast<std::size_t>(result.b)].insert(result.a);
  }
  for (const int node : in_doubt) {
    const std::set<int>& known = partners[static_cast<std::size_t>(node)];
    int missing = std::min(kPartners, n_ - 1) - static_cast<int>(known.size());
    for (int step = 1; step < n_ && missing > 0; ++step) {
      const int peer = (node + step) % n_;
      if (bad_nodes.contains(peer) || known.contains(peer) || lost.contains(peer)) continue;
      if (wanted.emplace(std::min(node, peer), std::max(node, peer)).second) --missing;
    }
  }
  for (const Culprit& culprit : judged[static_cast<std::size_t>(Symptom::bandwidth)].culprits) {
    if (!is_node(culprit.kind)) continue;
    slow_nodes_.insert(culprit.a);
    const std::set<int> peers = one_way_peers(culprit.a);
    int missing = kOneWay - static_cast<int>(peers.size());
    for (int step = 1; step < n_ && missing > 0; ++step) {
      const int peer = (culprit.a + step) % n_;
      if (accused.contains(peer) || peers.contains(peer) || lost.contains(peer)) continue;
      wanted.emplace(std::min(culprit.a, peer), std::max(culprit.a, peer));
      --missing;
    }
  }
  std::erase_if(wanted, [&](const Pair& pair) { return lost.contains(pair.first) || lost.contains(pair.second); });
  return {.nodes = {wanted.begin(), wanted.end()}, .pairs = {again.begin(), again.end()}};
}

int Locator::unexplained_ways(const std::function<bool(const Ways::Cell&, int measured)>& is_meant) const {
  const Of bandwidth = std::move(judge()[static_cast<std::size_t>(Symptom::bandwidth)]);
  const int measured = bandwidth.ways.measured();
  int ways = 0;
  for (int a = 0; a < n_; ++a) {
    for (int b = 0; b < n_; ++b) {
      if (a == b || bandwidth.ways.at(a, b).bad == 0 || !is_meant(bandwidth.ways.at(a, b), measured)) continue;
      const bool explained = std::ranges::any_of(
          bandwidth.culprits, [&](const Culprit& culprit) { return explains(culprit, a, b, options_.layout); });
      if (!explained) ++ways;
    }
  }
  return ways;
}

int Locator::crowded_ways() const {
  return unexplained_ways([](const Ways::Cell& cell, int) { return !cell.is_bad(); });
}

int Locator::ways_by_chance() const {
  return unexplained_ways([](const Ways::Cell& cell, int measured) {
    return cell.is_bad() && cell.is_decided() && !cell.is_no_chance(measured);
  });
}

int Locator::pairs_without_cpu() const {
  const std::vector<Normal> normal = normal_of(results_, [&](int a, int b) { return options_.layout.distance(a, b); });
  std::set<Pair> pairs;
  for (const PairResult& result : results_) {
    const Normal& of = normal[static_cast<std::size_t>(options_.layout.distance(result.a, result.b))];
    const double late = late_us(of, options_.thresholds);
    if (result.least_us > late && result.network_us() <= late) pairs.emplace(result.a, result.b);
  }
  return static_cast<int>(pairs.size());
}

std::set<int> Locator::gone() const {
  std::set<int> gone;
  for (const PairResult& result : results_)
    if (result.at_fault >= 0) gone.insert(result.at_fault);
  return gone;
}

std::optional<Round> Locator::next() {
  if (covered_ < cover_.size()) return cover_[covered_++];
  if (rounds_ >= static_cast<int>(cover_.size()) + kMostRounds) return std::nullopt;
  Doubts doubts = doubtful();
  if (!doubts.nodes.empty()) return take_round(doubts.nodes, n_);
  if (doubts.pairs.empty()) return std::nullopt;
  // In turn: a bad moment may last for several tests.
  return Round{*std::ranges::min_element(doubts.pairs, {}, [&](const Pair& p) { return tests(p.first, p.second); })};
}

void Locator::take(const std::vector<PairResult>& results) {
  ++rounds_;
  for (const PairResult& result : results) {
    results_.push_back(result);
    ++tests(result.a, result.b);
  }
}

// The numbers that speak of a fault's way, pair, node or switch.
void Locator::measure(Fault& fault) const {
  const Culprit& c = fault.culprit;
  const std::vector<Normal> normal = normal_of(results_, [&](int a, int b) { return options_.layout.distance(a, b); });
  std::vector<double> gbps, latency_us;
  std::int64_t sent = 0, lost = 0;
  for (const PairResult& result : results_) {
    if (c.kind == Kind::group && options_.layout.below(result.a, c.a) == options_.layout.below(result.b, c.a)) continue;
    const bool about = c.b >= 0 ? std::minmax(c.a, c.b) == std::minmax(result.a, result.b)
                                : touches(c, result.a, options_.layout) || touches(c, result.b, options_.layout) ||
                                      (is_node(c.kind) && result.at_fault == c.a);
    if (!about) continue;
    fault.normal = normal[static_cast<std::size_t>(options_.layout.distance(result.a, result.b))];
    if (result.least_us >= 0) latency_us.push_back(result.network_us());
    if (!result.error.empty() && fault.words.empty()) fault.words = result.error;
    for (const bool there : {true, false}) {
      const Way& way = there ? result.there : result.back;
      const int from = there ? result.a : result.b, to = there ? result.b : result.a;
      if ((c.kind == Kind::sending && from != c.a) || (c.kind == Kind::receiving && to != c.a) ||
          (c.kind == Kind::direction && from != c.a))
        continue;
      if (!way.unreached.empty() && fault.words.empty()) fault.words = way.unreached;
      if (way.gbps >= 0) gbps.push_back(way.gbps);
      sent += way.sent;
      lost += way.lost;
    }
  }
  const auto middle = [](std::vector<double>& values) {
    if (values.empty()) return -1.0;
    std::ranges::sort(values);
    return values[values.size() / 2];
  };
  fault.gbps = middle(gbps);
  fault.latency_us = middle(latency_us);
  fault.lost = sent > 0 ? static_cast<double>(lost) / static_cast<double>(sent) : 0;
}

std::vector<Fault> Locator::faults() const {
  std::vector<Fault> faults;
  const std::vector<Of> judged = judge();
  std::set<int> flapping;
  for (const PairResult& result : results_) {
    if (result.counts_a.carrier_losses > 0) flapping.insert(result.a);
    if (result.counts_b.carrier_losses > 0) flapping.insert(result.b);
  }
  for (const int node : flapping)  // seen by the node itself: nothing to vote on
    faults.push_back(
        {.culprit = {.a = node, .bad = 1, .of = 1}, .symptoms = {Symptom::flap}, .normal = {}, .confidence = 1});
  for (const int node : gone())
    faults.push_back(
        {.culprit = {.a = node, .bad = 1, .of = 1}, .symptoms = {Symptom::silent}, .normal = {}, .confidence = 1});
  for (std::size_t s = 0; s < judged.size(); ++s) {
    for (const Culprit& culprit : judged[s].culprits) {
      const double confidence = (culprit.bad + 1.0) / (culprit.of + 2.0);
      // Symptoms of the same node, pair or switch become one fault.
      const auto same = std::ranges::find_if(faults, [&](const Fault& fault) {
        const Culprit& c = fault.culprit;
        if (is_node(c.kind) && is_node(culprit.kind)) return c.a == culprit.a;
        const auto is_pair = [](Kind kind) { return kind == Kind::link || kind == Kind::direction; };
        if (is_pair(c.kind) && is_pair(culprit.kind)) return std::minmax(c.a, c.b) == std::minmax(culprit.a, culprit.b);
        return c.kind == culprit.kind && c.a == culprit.a;
      });
      if (same == faults.end()) {
        faults.push_back(
            {.culprit = culprit, .symptoms = {static_cast<Symptom>(s)}, .normal = {}, .confidence = confidence});
        continue;
      }
      if (std::ranges::find(same->symptoms, static_cast<Symptom>(s)) == same->symptoms.end())
        same->symptoms.push_back(static_cast<Symptom>(s));
      same->confidence = std::max(same->confidence, confidence);
      const bool wider = culprit.kind == Kind::node || culprit.kind == Kind::link;
      const bool other_way = culprit.kind != same->culprit.kind || culprit.a != same->culprit.a;
      if (wider || other_way)
        same->culprit.kind = culprit.kind == Kind::link || culprit.kind == Kind::direction ? Kind::link : Kind::node;
    }
  }
  // A pair with a node that is at fault says nothing of its own.
  std::erase_if(faults, [&](const Fault& fault) {
    const Culprit& c = fault.culprit;
    if (c.kind != Kind::link && c.kind != Kind::direction) return false;
    return std::ranges::any_of(faults, [&](const Fault& other) {
      const bool covers = std::ranges::all_of(fault.symptoms, [&](Symptom of_pair) {
        return std::ranges::any_of(other.symptoms, [&](Symptom of_node) { return causes(of_node, of_pair); });
      });
      return other.culprit.kind == Kind::node && covers && (other.culprit.a == c.a || other.culprit.a == c.b);
    });
  });
  for (Fault& fault : faults) measure(fault);
  return faults;
}

std::vector<Fault> Locator::decided_faults() {
  std::vector<Fault> decided = faults();
  const Doubts doubts = doubtful();
  const auto is_seen = [](Symptom symptom) { return symptom == Symptom::silent || symptom == Symptom::flap; };
  std::erase_if(decided, [&](const Fault& fault) {
    const auto is_about = [&](const Pair& pair) {
      return touches(fault.culprit, pair.first, options_.layout) ||
             touches(fault.culprit, pair.second, options_.layout);
    };
    return std::ranges::none_of(fault.symptoms, is_seen) &&
           (std::ranges::any_of(doubts.nodes, is_about) || std::ranges::any_of(doubts.pairs, is_about));
  });
  return decided;
}

std::vector<int> Locator::healthy() const {
  const std::vector<Fault> all = faults();
  std::vector<int> nodes;
  for (int node = 0; node < n_; ++node) {
    const bool accused =
        std::ranges::any_of(all, [&](const Fault& v) { return touches(v.culprit, node, options_.layout); });
    const bool measured = std::ranges::any_of(
        results_, [&](const PairResult& r) { return (r.a == node || r.b == node) && r.error.empty(); });
    if (!accused && measured) nodes.push_back(node);
  }
  return nodes;
}

std::int64_t Locator::pairs_untested() const {
  const std::int64_t tested = std::ranges::count_if(tests_, [](int tests) { return tests > 0; });
  return std::int64_t{n_} * (n_ - 1) / 2 - tested;
}

}  // namespace ms::net
