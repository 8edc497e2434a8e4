// Implements find_slow_links of suspect_search.h: links that move data slower than others like them, which are one edge
// of the pipeline, one group of dp ranks, or all communication of one rank.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "tracepp/findings/suspect_search.h"

namespace ms::tracepp {
namespace {

constexpr double kLeastSlowEdge = 0.3;
// Groups of different stages move different amounts: what a byte takes depends on that too.
constexpr double kLeastSlowGroup = 0.3, kLeastSlowGroupOfStages = 1.0;
constexpr std::size_t kMostSlowLinks = 16;

struct Edge {
  int from = 0, to = 0;  // places in the mesh
  bool forward = true;
  Outlier outlier;
};
struct SlowGroup {
  int pp = 0, tp = 0;
  Outlier outlier;
};

std::vector<Edge> slow_edges(const Evidence& evidence) {
  const mesh::Mesh& mesh = evidence.mesh();
  std::vector<int> peers;
  // With one pipeline only, other edges of it are the same hop elsewhere.
  for (int place = 0; place < mesh.size(); ++place) peers.push_back(mesh.dp * mesh.tp > 1 ? mesh.coord(place).pp : 0);
  std::vector<Edge> edges;
  for (const bool forward : {true, false}) {
    for (const Outlier& outlier :
         find_outliers(evidence.table.receive[forward ? 0 : 1], evidence.table.steps, peers, kLeastSlowEdge)) {
      mesh::Coord from = mesh.coord(outlier.unit);
      from.pp = (from.pp + (forward ? mesh.pp - 1 : 1)) % mesh.pp;
      edges.push_back({mesh.rank(from), outlier.unit, forward, outlier});
    }
  }
  return edges;
}

std::vector<SlowGroup> slow_groups(const Evidence& evidence) {
  const mesh::Mesh& mesh = evidence.mesh();
  std::vector<int> peers;
  for (int unit = 0; unit < mesh.pp * mesh.tp; ++unit) peers.push_back(mesh.tp > 1 ? unit / mesh.tp : 0);
  std::map<int, Outlier> worst;  // by group
  for (const std::vector<float>* values : {&evidence.table.gather, &evidence.table.reduce}) {
    for (const Outlier& outlier :
         find_outliers(*values, evidence.table.steps, peers, mesh.tp > 1 ? kLeastSlowGroup : kLeastSlowGroupOfStages)) {
      const auto [at, is_new] = worst.try_emplace(outlier.unit, outlier);
      if (!is_new && outlier.excess > at->second.excess) at->second = outlier;
    }
  }
  std::vector<SlowGroup> groups;
  for (const auto& [unit, outlier] : worst) groups.push_back({unit / mesh.tp, unit % mesh.tp, outlier});
  return groups;
}

// Slow edges and groups with a common cause.
struct Cause {
  std::vector<int> places;  // the first is the most likely one
  std::vector<Edge> edges;
  std::vector<SlowGroup> groups;
  std::string subject;
  double certainty = 1;
};

class LinkSearch {
 public:
  explicit LinkSearch(const Evidence& evidence)
      : evidence_(evidence), edges_(slow_edges(evidence)), groups_(slow_groups(evidence)) {}

  std::vector<Finding> find() {
    std::vector<Finding> findings;
    while ((!edges_.empty() || !groups_.empty()) && findings.size() < kMostSlowLinks)
      findings.push_back(finding_of(next_cause()));
    return findings;
  }

 private:
  // Peers that a rank's slow edges lead to.
  std::set<int> neighbours(int place) const {
    std::set<int> found;
    for (const Edge& edge : edges_) {
      if (edge.from == place) found.insert(edge.to);
      if (edge.to == place) found.insert(edge.from);
    }
    return found;
  }
  bool is_member(const SlowGroup& group, int place) const {
    const mesh::Coord at = evidence_.mesh().coord(place);
    return at.pp == group.pp && at.tp == group.tp;
  }

  // The rank with slow edges to several neighbours, or with a slow edge and in a slow group, explains most.
  Cause next_cause() {
    std::map<int, std::size_t> marks;  // by place
    for (const Edge& edge : edges_) {
      for (const int place : {edge.from, edge.to}) {
        if (marks.contains(place)) continue;
        marks[place] = neighbours(place).size();
        if (std::ranges::any_of(groups_, [&](const SlowGroup& group) { return is_member(group, place); }))
          ++marks[place];
      }
    }
    Cause cause;
    std::optional<int> best;
    for (const auto& [place, count] : marks)
      if (!best || count > marks[*best]) best = place;
    if (best && marks[*best] > 1) {
      cause.places = {*best};
      cause.subject = fmt::format("all that rank {} sends and receives", evidence_.rank(*best));
      take(
          cause, [&](const Edge& edge) { return edge.from == *best || edge.to == *best; },
          [&](const SlowGroup& group) { return is_member(group, *best); });
    } else if (!edges_.empty()) {
      const int a = edges_.front().from, b = edges_.front().to;
      cause.places = {a, b};
      cause.subject = fmt::format("what goes between ranks {} and {}", evidence_.rank(a), evidence_.rank(b));
      take(
          cause, [&](const Edge& edge) { return std::minmax(edge.from, edge.to) == std::minmax(a, b); },
          [](const SlowGroup&) { return false; });
    } else {
      const SlowGroup group = groups_.front();
      cause.subject = fmt::format("what goes between the dp ranks of pp {} tp {}", group.pp, group.tp);
      for (int dp = 0; dp < evidence_.mesh().dp; ++dp) {
        const int place = evidence_.mesh().rank({.dp = dp, .pp = group.pp, .tp = group.tp});
        if (evidence_.rank(place) >= 0) cause.places.push_back(place);
      }
      // Its members wait for each other in every collective: the cause among them does not show.
      cause.certainty = 1 / static_cast<double>(std::max<std::size_t>(cause.places.size(), 1));
      take(
          cause, [](const Edge&) { return false; },
          [&](const SlowGroup& other) { return other.pp == group.pp && other.tp == group.tp; });
    }
    return cause;
  }

  template <class IsEdge, class IsGroup>
  void take(Cause& cause, const IsEdge& is_edge, const IsGroup& is_group) {
    std::ranges::copy_if(edges_, std::back_inserter(cause.edges), is_edge);
    std::ranges::copy_if(groups_, std::back_inserter(cause.groups), is_group);
    std::erase_if(edges_, is_edge);
    std::erase_if(groups_, is_group);
  }

  Finding finding_of(const Cause& cause) const {
    const Outlier* worst = nullptr;
    const auto look = [&](const Outlier& outlier) {
      if (worst == nullptr || outlier.excess > worst->excess) worst = &outlier;
    };
    for (const Edge& edge : cause.edges) look(edge.outlier);
    for (const SlowGroup& group : cause.groups) look(group.outlier);
    const mesh::Mesh& mesh = evidence_.mesh();
    const auto slowness = [&](const StepOp& op, int lane) {
      double excess = 0;
      const bool sends_forward = op.type == OpType::forward_send, receives_forward = op.type == OpType::forward_recv;
      const bool sends_backward = op.type == OpType::backward_send,
                 receives_backward = op.type == OpType::backward_recv;
      for (const Edge& edge : cause.edges) {
        const int end = sends_forward || sends_backward ? edge.from : edge.to;
        const bool is_it = edge.forward ? sends_forward || receives_forward : sends_backward || receives_backward;
        const mesh::Coord at = mesh.coord(end);
        if (is_it && at.pp == op.stage && evidence_.lane(at.dp) == lane) excess = std::max(excess, edge.outlier.excess);
      }
      const bool over_dp = op.type == OpType::params_all_gather || op.type == OpType::params_all_gather_beside ||
                           op.type == OpType::grads_reduce_scatter || op.type == OpType::grads_reduce_scatter_beside;
      for (const SlowGroup& group : cause.groups)
        if (over_dp && group.pp == op.stage) excess = std::max(excess, group.outlier.excess);
      return excess;
    };
    const StepTrace& steps = evidence_.steps();
    const double without = evidence_.what_if.with_scaled(
        [](const StepOp& op) { return is_communication(op.type); },
        [&](std::size_t op, std::size_t step, int lane) {
          return step < worst->first || step > worst->last ? 1.0 : 1 / (1 + slowness(steps.ops[op], lane));
        });
    Finding found =
        evidence_.finding(FindingCode::slow_link, worst->first, worst->last, evidence_.what_if.measured_s() - without,
                          confidence_of(*worst) * cause.certainty);
    for (const int place : cause.places) found.ranks.push_back(evidence_.rank(place));
    found.evidence = fmt::format("{} takes up to {:.1f} times as long as elsewhere{}", cause.subject, 1 + worst->excess,
                                 evidence_.since(found));
    return found;
  }

  const Evidence& evidence_;
  std::vector<Edge> edges_;
  std::vector<SlowGroup> groups_;
};

}  // namespace

std::vector<Finding> find_slow_links(const Evidence& evidence) { return LinkSearch(evidence).find(); }

}  // namespace ms::tracepp
