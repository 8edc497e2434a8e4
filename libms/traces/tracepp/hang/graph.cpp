#include "tracepp/hang/graph.h"

#include <algorithm>
#include <map>

#include "tracepp/hang/order.h"

namespace ms::tracepp {
namespace {

bool is_dead(const RankScan& rank) { return rank.life != Life::alive; }

class WaitGraphBuilder {
 public:
  explicit WaitGraphBuilder(const HangScan& scan) : scan_(scan), trace_(scan.trace()), ops_of_(trace_.groups.size()) {}

  HangGraph build() {
    find_ops();
    for (StuckOp& op : graph_.ops) view(op);
    find_differences();
    find_delays();
    find_holds();
    find_roots();
    return std::move(graph_);
  }

 private:
  int op_at(std::int32_t group, std::uint32_t sequence) const {
    for (const int op : ops_of_[static_cast<std::size_t>(group)])
      if (graph_.ops[static_cast<std::size_t>(op)].sequence == sequence) return op;
    return -1;
  }

  int op_of(std::size_t at, std::uint32_t event) const {
    return op_at(scan_.info(at, event).group, scan_.file(at).events[event].detail);
  }

  const std::vector<int>& members_of(std::int32_t group) {
    const std::vector<int>& ranks = trace_.groups[static_cast<std::size_t>(group)].ranks;
    return ranks.empty() ? seated_[group] : ranks;
  }

  // Finds every operation that a live rank is ready for.
  void find_ops() {
    for (std::size_t at = 0; at < scan_.count(); ++at)
      for (const Seat& seat : scan_.rank(at).seats)
        if (trace_.groups[static_cast<std::size_t>(seat.group)].ranks.empty())
          seated_[seat.group].push_back(scan_.file(at).rank);
    std::size_t views = 0;
    for (std::size_t at = 0; at < scan_.count(); ++at) {
      const RankScan& rank = scan_.rank(at);
      for (const Seat& seat : rank.seats) {
        const std::size_t group = static_cast<std::size_t>(seat.group);
        if (is_dead(rank) || seat.open == kNoEvent || !scan_.is_ready(at, seat.open)) continue;
        const std::uint32_t sequence = scan_.file(at).events[seat.open].detail;
        if (op_at(seat.group, sequence) >= 0) continue;
        if ((views += members_of(seat.group).size()) > kMostViews) return;
        ops_of_[group].push_back(static_cast<int>(graph_.ops.size()));
        StuckOp& op = graph_.ops.emplace_back();
        op.group = seat.group;
        op.sequence = sequence;
      }
    }
  }

  // Finds the first operation behind a stuck one that members called differently: ranks issue calls ahead, and the one
  // that is open first may wait for no rank. All members that issued such a call wait in it, also where their recorder
  // shows it as ended, as gloo's does when it gives up.
  void find_differences() {
    if (!trace_.source->is_dump) return;
    std::map<std::int32_t, std::uint32_t> behind;
    const auto is_whole = [&](const StuckOp& op) {
      return std::ranges::none_of(op.missing, [&](int rank) { return scan_.find(rank).has_value(); });
    };
    std::map<std::int32_t, double> since_s;
    for (const StuckOp& op : graph_.ops) {
      const ProcessGroup& group = trace_.groups[static_cast<std::size_t>(op.group)];
      if (group.ranks.empty() || group.is_guessed || is_mismatch(op.match) || !is_whole(op)) continue;
      const auto [known, is_new] = behind.try_emplace(op.group, op.sequence);
      known->second = std::min(known->second, op.sequence);
      double& longest_s = since_s.try_emplace(op.group, -1).first->second;
      longest_s = std::max(longest_s, op.since_s);
    }
    for (const auto& [group, sequence] : next_differences(scan_, behind)) {
      int at = op_at(group, sequence);
      if (at < 0) {
        at = static_cast<int>(graph_.ops.size());
        ops_of_[static_cast<std::size_t>(group)].push_back(at);
        graph_.ops.emplace_back();
      }
      differing_[group] = at;
      StuckOp& op = graph_.ops[static_cast<std::size_t>(at)];
      op = {};
      op.group = group;
      op.sequence = sequence;
      op.since_s = since_s[group];
      view(op, true);
    }
  }

  // Returns whether a rank issued an operation that may not have ended.
  bool may_wait(std::size_t at, const StuckOp& op) const {
    const bool is_issued = scan_.find_event(at, op.group, op.sequence) != kNoEvent;
    return is_issued && (scan_.file(at).hides_failures || scan_.progress(at, op.group, op.sequence) != Progress::ended);
  }

  // `all_wait`: whoever may wait in it does.
  void view(StuckOp& op, bool all_wait = false) {
    const std::vector<int>& ranks = members_of(op.group);
    op.members.reserve(ranks.size());
    for (const int rank : ranks) {
      MemberView member{.rank = rank, .progress = Progress::no_trace};
      const std::optional<std::size_t> at = scan_.find(rank);
      bool lacks = true;
      if (at) {
        member.progress = scan_.progress(*at, op.group, op.sequence);
        const std::uint32_t event =
            member.progress == Progress::not_issued ? kNoEvent : scan_.find_event(*at, op.group, op.sequence);
        if (event != kNoEvent) {
          member.has_info = true;
          member.info = scan_.file(*at).events[event].info;
          if (member.progress == Progress::begun) member.since_s = scan_.since_s(*at, event);
        }
        const bool waits = all_wait ? may_wait(*at, op) : member.progress == Progress::begun;
        lacks = is_dead(scan_.rank(*at)) || (!waits && member.progress < Progress::begun);
        if (waits && !lacks) {
          ++op.waiting;
          op.since_s = std::max(op.since_s, member.since_s);
        }
      }
      if (lacks) op.missing.push_back(rank);
      op.members.push_back(member);
    }
    op.match = match_of(op, trace_);
  }

  // Finds the transfers that do not end although both ranks are ready, because one of the two waits in another
  // transfer: those of a batch end together. Such a transfer waits for that rank, and that rank not in it.
  void find_delays() {
    delayed_by_.resize(graph_.ops.size());
    std::vector<std::vector<int>> transfers(scan_.count());  // by rank: those that it is ready for
    std::vector<int> blocked;
    for (std::size_t at = 0; at < scan_.count(); ++at) {
      for (const Seat& seat : scan_.rank(at).seats) {
        if (seat.open == kNoEvent || !scan_.is_ready(at, seat.open)) continue;
        const int op = op_of(at, seat.open);
        if (op >= 0 && trace::is_point_to_point(scan_.info(at, seat.open).kind)) transfers[at].push_back(op);
      }
    }
    for (std::size_t i = 0; i < graph_.ops.size(); ++i)
      if (!graph_.ops[i].missing.empty() || is_mismatch(graph_.ops[i].match)) blocked.push_back(static_cast<int>(i));
    std::vector<char> is_blocked(graph_.ops.size(), 0);
    for (const int op : blocked) is_blocked[static_cast<std::size_t>(op)] = 1;
    for (std::size_t next = 0; next < blocked.size(); ++next) {
      for (const MemberView& member : graph_.ops[static_cast<std::size_t>(blocked[next])].members) {
        const std::optional<std::size_t> at = scan_.find(member.rank);
        if (!at || !std::ranges::count(transfers[*at], blocked[next]) || delays(*at, blocked[next])) continue;
        for (const int other : transfers[*at]) {
          if (is_blocked[static_cast<std::size_t>(other)] != 0) continue;
          delayed_by_[static_cast<std::size_t>(other)].push_back(*at);
          is_blocked[static_cast<std::size_t>(other)] = 1;
          blocked.push_back(other);
        }
      }
    }
  }

  bool delays(std::size_t at, int op) const {
    return std::ranges::count(delayed_by_[static_cast<std::size_t>(op)], at) != 0;
  }

  // Returns whether the section waits for transfers like this one. A section waits inside for tensor-parallel ones and
  // for the gathers of its chunk, and before it begins for the rest. That of the norm waits inside for the gradients.
  bool serves(std::size_t at, std::uint32_t comm, std::uint32_t section) const {
    const Event &of = scan_.file(at).events[section], &event = scan_.file(at).events[comm];
    const EventInfo &info = scan_.info(at, comm), &work = scan_.info(at, section);
    if (work.kind == Kind::optimizer || (work.kind == Kind::other_compute && work.purpose == Purpose::clip))
      return info.purpose == Purpose::grads || info.purpose == Purpose::clip || info.purpose == Purpose::embedding ||
             info.purpose == Purpose::layernorm || info.purpose == Purpose::optimizer;
    if (event.step != of.step) return false;
    if (trace_.groups[static_cast<std::size_t>(info.group)].axis == GroupAxis::tp) return true;
    if (info.purpose == Purpose::params) return info.chunk == work.chunk;
    const Purpose purpose = work.kind == Kind::forward ? Purpose::forward : Purpose::backward;
    return info.kind == Kind::recv && info.purpose == purpose && info.chunk == work.chunk &&
           event.microbatch == of.microbatch;
  }

  // Returns the transfers that block a rank, among those it is ready for. The others overlap its computation.
  std::vector<std::uint32_t> blockers(std::size_t at) const {
    const RankScan& rank = scan_.rank(at);
    std::vector<std::uint32_t> ready;
    for (const Seat& seat : rank.seats)
      if (seat.open != kNoEvent && scan_.is_ready(at, seat.open) && op_of(at, seat.open) >= 0 &&
          !delays(at, op_of(at, seat.open)))
        ready.push_back(seat.open);
    for (const auto& [group, op] : differing_) {
      const StuckOp& it = graph_.ops[static_cast<std::size_t>(op)];
      if (may_wait(at, it)) ready.push_back(scan_.find_event(at, group, it.sequence));
    }
    const auto only = [&](const auto& keep) {
      std::vector<std::uint32_t> kept;
      std::ranges::copy_if(ready, std::back_inserter(kept), keep);
      return kept;
    };
    std::vector<std::uint32_t> some = only([&](std::uint32_t event) {
      const int op = op_of(at, event);
      return is_mismatch(graph_.ops[static_cast<std::size_t>(op)].match);
    });
    if (!some.empty()) return some;
    if (rank.section != kNoEvent) {
      some = only([&](std::uint32_t event) { return serves(at, event, rank.section); });
      const bool sure = trace_.source->signs_life;  // what foreign sections hold is not known
      return some.empty() && !sure ? ready : some;
    }
    if (rank.next_section == kNoEvent) return ready;
    some = only([&](std::uint32_t event) { return serves(at, event, rank.next_section); });
    if (some.empty()) some = only([&](std::uint32_t event) { return event < rank.next_section; });
    return some.empty() ? ready : some;
  }

  void find_holds() {
    graph_.holds.resize(scan_.count());
    graph_.held.assign(graph_.ops.size(), 0);
    for (std::size_t at = 0; at < scan_.count(); ++at) {
      if (is_dead(scan_.rank(at))) continue;
      for (const std::uint32_t event : blockers(at)) {
        const int op = op_of(at, event);
        graph_.holds[at].push_back(op);
        ++graph_.held[static_cast<std::size_t>(op)];
      }
    }
  }

  // Finds the roots of the wait graph. Its nodes are the ranks by their place, then the ranks without a trace, then the
  // operations. Nothing is known of ranks without a trace: each is a root, and the graph is also searched as if they
  // were not at fault.
  void find_roots() {
    const std::size_t ranks = scan_.count();
    std::vector<int> absent;
    for (const StuckOp& op : graph_.ops)
      for (const int rank : op.missing)
        if (!scan_.find(rank)) absent.push_back(rank);
    std::ranges::sort(absent);
    absent.erase(std::ranges::unique(absent).begin(), absent.end());
    const std::size_t first_op = ranks + absent.size();
    edges_.resize(first_op + graph_.ops.size());
    for (std::size_t at = 0; at < ranks; ++at)
      for (const int op : graph_.holds[at]) edges_[at].push_back(first_op + static_cast<std::size_t>(op));
    std::vector<std::vector<std::size_t>> from(edges_.size());
    std::vector<char> lacks_absent(edges_.size(), 0);
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      if (is_mismatch(graph_.ops[i].match)) continue;
      for (const std::size_t at : delayed_by_[i]) edges_[first_op + i].push_back(at);
      for (const int rank : graph_.ops[i].missing) {
        const std::optional<std::size_t> at = scan_.find(rank);
        if (at) {
          edges_[first_op + i].push_back(*at);
        } else {
          const auto place = static_cast<std::size_t>(std::ranges::lower_bound(absent, rank) - absent.begin());
          from[ranks + place].push_back(first_op + i);
          lacks_absent[first_op + i] = 1;
        }
      }
    }
    for (std::size_t node = 0; node < edges_.size(); ++node)
      for (const std::size_t to : edges_[node]) from[to].push_back(node);
    prune(lacks_absent, from);
    find_components();
    std::vector<char> is_left(components_, 0), is_waited_for(components_, 0);
    std::vector<std::vector<std::size_t>> nodes(components_);
    for (std::size_t node = 0; node < edges_.size(); ++node) {
      nodes[component_[node]].push_back(node);
      for (const std::size_t to : edges_[node]) {
        is_waited_for[component_[to]] = 1;
        if (component_[to] != component_[node]) is_left[component_[node]] = 1;
      }
    }
    for (std::size_t c = 0; c < components_; ++c) {
      const std::size_t first = nodes[c].front();
      const bool is_absent = first >= ranks && first < first_op && !from[first].empty();
      if (is_left[c] != 0 || (is_waited_for[c] == 0 && !is_absent)) continue;
      HangRoot root;
      for (const std::size_t node : nodes[c]) {
        if (node >= first_op) {
          root.ops.push_back(static_cast<int>(node - first_op));
        } else if (node >= ranks) {
          root.absent.push_back(absent[node - ranks]);
        } else {
          root.ranks.push_back(node);
        }
      }
      graph_.roots.push_back(std::move(root));
      if (graph_.roots.size() <= kRootsCounted) graph_.roots.back().behind = behind(nodes[c], from, ranks);
    }
    std::ranges::stable_sort(graph_.roots, std::ranges::greater{}, &HangRoot::behind);
  }

  // Removes the nodes that wait only for ranks without a trace. They say nothing if those ranks are assumed not at
  // fault.
  void prune(const std::vector<char>& lacks_absent, const std::vector<std::vector<std::size_t>>& from) {
    std::vector<std::size_t> left(edges_.size()), pruned;
    for (std::size_t node = 0; node < edges_.size(); ++node) {
      left[node] = edges_[node].size();
      if (left[node] == 0 && lacks_absent[node] != 0) pruned.push_back(node);
    }
    std::vector<char> is_pruned(edges_.size(), 0);
    for (std::size_t i = 0; i < pruned.size(); ++i) {
      is_pruned[pruned[i]] = 1;
      for (const std::size_t node : from[pruned[i]])
        if (--left[node] == 0) pruned.push_back(node);
    }
    for (std::size_t node = 0; node < edges_.size(); ++node) {
      if (is_pruned[node] != 0) edges_[node].clear();
      std::erase_if(edges_[node], [&](std::size_t to) { return is_pruned[to] != 0; });
    }
  }

  static std::size_t behind(std::vector<std::size_t> reached, const std::vector<std::vector<std::size_t>>& from,
                            std::size_t ranks) {
    std::vector<char> is_reached(from.size(), 0);
    const std::size_t own = reached.size();
    std::size_t count = 0;
    for (const std::size_t node : reached) is_reached[node] = 1;
    for (std::size_t i = 0; i < reached.size(); ++i) {
      if (i >= own && reached[i] < ranks) ++count;
      for (const std::size_t node : from[reached[i]]) {
        if (is_reached[node] != 0) continue;
        is_reached[node] = 1;
        reached.push_back(node);
      }
    }
    return count;
  }

  // Tarjan's, without recursion: chains are as long as the run is wide.
  void find_components() {
    constexpr std::size_t kNone = static_cast<std::size_t>(-1);
    const std::size_t count = edges_.size();
    std::vector<std::size_t> index(count, kNone), low(count, 0), next(count, 0), stack, path;
    std::vector<char> is_on_stack(count, 0);
    component_.assign(count, 0);
    std::size_t counter = 0;
    for (std::size_t start = 0; start < count; ++start) {
      if (index[start] != kNone) continue;
      path.push_back(start);
      while (!path.empty()) {
        const std::size_t node = path.back();
        if (index[node] == kNone) {
          index[node] = low[node] = counter++;
          stack.push_back(node);
          is_on_stack[node] = 1;
        }
        if (next[node] < edges_[node].size()) {
          const std::size_t to = edges_[node][next[node]++];
          if (index[to] == kNone) {
            path.push_back(to);
          } else if (is_on_stack[to] != 0) {
            low[node] = std::min(low[node], index[to]);
          }
          continue;
        }
        path.pop_back();
        if (!path.empty()) low[path.back()] = std::min(low[path.back()], low[node]);
        if (low[node] != index[node]) continue;
        std::size_t member = kNone;
        do {
          member = stack.back();
          stack.pop_back();
          is_on_stack[member] = 0;
          component_[member] = components_;
        } while (member != node);
        ++components_;
      }
    }
  }

  // The limit on member views of all operations together. A run of 100,000 ranks has a million; operations beyond the
  // limit are left out.
  static constexpr std::size_t kMostViews = 1 << 24;
  static constexpr std::size_t kRootsCounted = 64;  // of more roots, no reader wants to know how many wait behind each

  const HangScan& scan_;
  const RunTrace& trace_;
  HangGraph graph_;
  std::vector<std::vector<int>> ops_of_;              // by group
  std::map<std::int32_t, int> differing_;             // by group: the operation behind a stuck one
  std::map<std::int32_t, std::vector<int>> seated_;   // of groups whose members are not known: who called something
  std::vector<std::vector<std::size_t>> delayed_by_;  // by operation: the ranks
  std::vector<std::vector<std::size_t>> edges_;
  std::vector<std::size_t> component_;  // by node
  std::size_t components_ = 0;
};

}  // namespace

HangGraph make_hang_graph(const HangScan& scan) { return WaitGraphBuilder(scan).build(); }

}  // namespace ms::tracepp
