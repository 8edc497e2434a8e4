#include "tracepp/hang/order.h"

#include <algorithm>
#include <map>

#include "tracepp/read/trace_names.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kAsked = 64;     // ranks that are asked what they did
constexpr std::size_t kSiblings = 16;  // groups

// The arguments that an operation was called with. A point-to-point transfer has kind send on both sides if the first
// member of the group sends.
struct Call {
  Kind kind = Kind::other;
  Purpose purpose = Purpose::none;
  std::int16_t chunk = -1;
  std::uint16_t microbatch = kNoMicrobatch;
  std::int32_t step = kNoStep;
  std::uint32_t type = 0;        // 0: not known
  std::int64_t size_bytes = -1;  // -1: not known, or each member has its own

  // Calls agree where one of them is not known.
  bool operator==(const Call& other) const {
    return kind == other.kind && purpose == other.purpose && chunk == other.chunk && microbatch == other.microbatch &&
           step == other.step && (type == other.type || type == 0 || other.type == 0) &&
           (size_bytes == other.size_bytes || size_bytes < 0 || other.size_bytes < 0);
  }
};

Call call_of(const HangScan& scan, std::size_t at, std::uint32_t event) {
  const Event& it = scan.file(at).events[event];
  const EventInfo& info = scan.info(at, event);
  Kind kind = info.kind;
  if (trace::is_point_to_point(kind)) {
    const std::vector<int>& ranks = scan.trace().groups[static_cast<std::size_t>(info.group)].ranks;
    const bool first = !ranks.empty() && ranks.front() == scan.file(at).rank;
    kind = (kind == Kind::send) == first ? Kind::send : Kind::recv;
  }
  const std::int64_t size_bytes = kind == Kind::all_to_all ? -1 : info.size_bytes;
  return {kind, info.purpose, info.chunk, it.microbatch, it.step, info.type, size_bytes};
}

std::optional<Call> call_at(const HangScan& scan, int rank, std::int32_t group, std::uint32_t sequence) {
  const std::optional<std::size_t> at = scan.find(rank);
  const std::uint32_t event = at ? scan.find_event(*at, group, sequence) : kNoEvent;
  return event == kNoEvent ? std::nullopt : std::optional(call_of(scan, *at, event));
}

std::vector<std::pair<std::uint32_t, Call>> calls_of(const HangScan& scan, std::int32_t group, int rank) {
  std::vector<std::pair<std::uint32_t, Call>> calls;
  const std::optional<std::size_t> at = scan.find(rank);
  if (!at) return calls;
  const std::vector<Event>& events = scan.file(*at).events;
  for (std::uint32_t i = 0; i < events.size(); ++i) {
    const EventInfo& info = scan.info(*at, i);
    if (info.group == group && trace::is_comm(info.kind)) calls.emplace_back(events[i].detail, call_of(scan, *at, i));
  }
  return calls;
}

// Returns the groups of the same axis and the same stages elsewhere in the mesh.
std::vector<std::int32_t> siblings(const RunTrace& trace, std::int32_t group) {
  std::vector<std::int32_t> found;
  if (!trace.records_mesh()) return found;
  const auto stem = [](const ProcessGroup& it) {
    return std::string_view(it.name).substr(0, it.name.find_first_of("[ "));
  };
  const ProcessGroup& self = trace.groups[static_cast<std::size_t>(group)];
  const auto stage = [&](int rank) { return rank < 0 || rank >= trace.mesh.size() ? -1 : trace.mesh.coord(rank).pp; };
  for (std::size_t i = 0; i < trace.groups.size() && found.size() < kSiblings; ++i) {
    const ProcessGroup& other = trace.groups[i];
    if (static_cast<std::int32_t>(i) == group || other.axis != self.axis || stem(other) != stem(self)) continue;
    if (std::ranges::equal(other.ranks, self.ranks, {}, stage, stage)) found.push_back(static_cast<std::int32_t>(i));
  }
  return found;
}

// An operation to look up on another rank, in the matching group of that rank.
struct Sought {
  std::int32_t group = -1;
  GroupAxis axis = GroupAxis::other;
  Call call;  // kind as the rank has it: send or recv
  std::uint32_t sequence = 0;
};

class Orders {
 public:
  Orders(const HangScan& scan, const HangGraph& graph, const HangRoot& root)
      : scan_(scan), graph_(graph), root_(root) {}

  std::vector<OrderBreak> find() {
    collect();
    std::vector<OrderBreak> broken, all;
    bool is_sure = true;
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      const OrderBreak& pair = pairs_[i];
      if (all.empty() || all.back().rank != pair.rank) all.push_back(pair);
      if (i >= kAsked * 4 || (!broken.empty() && broken.back().rank == pair.rank)) continue;
      bool is_known = true;
      if (skipped_first(pair, is_known) > 0) {
        is_sure &= is_known;
        broken.push_back(pair);
        broken.back().reason = reason(pair);
      }
    }
    if (broken.empty()) {  // perhaps one host has stopped, with messages under way
      std::ranges::copy_if(all, std::back_inserter(broken), [&](const OrderBreak& it) { return !is_issued(it); });
      if (broken.size() == all.size()) broken.clear();
      for (OrderBreak& it : broken) it.reason = Reason::not_issuing;
    }
    for (OrderBreak& it : broken) it.decided = is_sure || broken.size() == 1;
    return broken.empty() ? all : broken;
  }

 private:
  const StuckOp& op(int i) const { return graph_.ops[static_cast<std::size_t>(i)]; }
  std::uint32_t event(std::size_t at, int i) const { return scan_.find_event(at, op(i).group, op(i).sequence); }
  bool is_issued(const OrderBreak& it) const { return event(it.rank, it.skipped) != kNoEvent; }

  // Collects, for each rank of the circle, the operation it is in and the one that misses it. Ranks whose own operation
  // few others wait in come first.
  void collect() {
    constexpr std::size_t kPairs = 4;  // of a rank
    std::map<int, std::vector<int>> missed;
    std::map<int, std::pair<int, int>> waiters;  // by operation: how many, and one of them
    for (const int i : root_.ops)
      for (const int rank : op(i).missing) missed[rank].push_back(i);
    for (const std::size_t at : root_.ranks)
      for (const int i : graph_.holds[at]) waiters[i] = {waiters[i].first + 1, scan_.file(at).rank};
    for (const std::size_t at : root_.ranks) {
      std::size_t pairs = 0;
      for (const int in : graph_.holds[at]) {
        for (const int skipped : missed[scan_.file(at).rank]) {
          if (!waiters.contains(skipped) || !std::ranges::count(root_.ops, in) || ++pairs > kPairs) continue;
          pairs_.push_back({.rank = at, .in = in, .skipped = skipped, .waiter = waiters[skipped].second});
        }
      }
    }
    std::ranges::stable_sort(pairs_, {}, [&](const OrderBreak& it) { return waiters[it.in].first; });
  }

  std::optional<Sought> sought(std::size_t at, int i, int rank) const {
    const std::uint32_t found = event(at, i);
    if (found == kNoEvent) return std::nullopt;
    const Event& it = scan_.file(at).events[found];
    const EventInfo& info = scan_.info(at, found);
    Sought sought{.group = info.group,
                  .axis = scan_.trace().groups[static_cast<std::size_t>(info.group)].axis,
                  .call = {},
                  .sequence = it.detail};
    sought.call = {info.kind, info.purpose, info.chunk, it.microbatch, it.step, 0, -1};
    if (trace::is_point_to_point(info.kind) && scan_.file(at).rank != rank)
      sought.call.kind = info.kind == Kind::send ? Kind::recv : Kind::send;
    return sought;
  }

  // Returns the index of the matching event on a rank; -1 if there is none. Matches by sequence number, or by the
  // step that lies `steps_before` earlier if that is not 0; where steps are not known, so many operations earlier.
  std::int64_t place(std::size_t at, const Sought& sought, std::int32_t steps_before) const {
    const RunTrace& trace = scan_.trace();
    const std::vector<Event>& events = scan_.file(at).events;
    // Without a mesh, groups of one axis need not do the same work.
    const bool same_group =
        !trace.records_mesh() && (!trace::is_point_to_point(sought.call.kind) || is_member(at, sought));
    for (std::size_t i = events.size(); i-- > 0;) {
      const Event& it = events[i];
      const EventInfo& info = trace.infos[it.info];
      if (same_group && info.group != sought.group) continue;
      if (info.kind != sought.call.kind || info.purpose != sought.call.purpose || info.chunk != sought.call.chunk ||
          it.microbatch != sought.call.microbatch || info.group < 0 ||
          trace.groups[static_cast<std::size_t>(info.group)].axis != sought.axis)
        continue;
      const bool by_step = steps_before != 0 && sought.call.step != kNoStep;
      if (by_step ? it.step == sought.call.step - steps_before
                  : std::int64_t{it.detail} == std::int64_t{sought.sequence} - steps_before)
        return static_cast<std::int64_t>(i);
    }
    return -1;
  }

  bool is_member(std::size_t at, const Sought& sought) const {
    const std::vector<int>& ranks = scan_.trace().groups[static_cast<std::size_t>(sought.group)].ranks;
    return ranks.empty() || std::ranges::count(ranks, scan_.file(at).rank);
  }

  // Without a mesh, a rank can tell the order of two operations only if it takes part in both, or in such transfers.
  bool can_vote(std::size_t at, const Sought& one, const Sought& other) const {
    const auto takes_part = [&](const Sought& sought) {
      return trace::is_point_to_point(sought.call.kind) ? place(at, sought, 0) >= 0 : is_member(at, sought);
    };
    return scan_.trace().records_mesh() || (takes_part(one) && takes_part(other));
  }

  // Returns > 0 if the operation that this rank skipped comes before the one it is in, < 0 if after, 0 if nothing
  // tells. Sets `is_sure` unless only ranks of the circle tell.
  int skipped_first(const OrderBreak& pair, bool& is_sure) const {
    const int rank = scan_.file(pair.rank).rank;
    const std::optional<std::size_t> waiter = scan_.find(pair.waiter);
    std::optional<Sought> skipped = sought(pair.rank, pair.skipped, rank);
    if (!skipped && waiter) skipped = sought(*waiter, pair.skipped, rank);
    const std::optional<Sought> in = sought(pair.rank, pair.in, rank);
    if (!skipped || !in) return 0;
    const auto vote = [&](std::size_t at, std::int32_t steps_before) {
      const std::int64_t x = place(at, *skipped, steps_before), y = place(at, *in, steps_before);
      if (x < 0 && y < 0) return 0;
      return y < 0 || (x >= 0 && x < y) ? 1 : -1;
    };
    int outside = 0, inside = 0;
    const RunTrace& trace = scan_.trace();
    std::size_t asked = 0;
    for (std::size_t at = 0; at < scan_.count() && asked < kAsked; ++at) {
      if (at == pair.rank || (trace.records_mesh() && scan_.file(at).at.pp != scan_.file(pair.rank).at.pp)) continue;
      ++asked;
      if (can_vote(at, *skipped, *in)) (std::ranges::count(root_.ranks, at) != 0 ? inside : outside) += vote(at, 0);
    }
    is_sure = true;
    if (outside != 0) return outside;
    // If the ranks of the circle do not tell either, the rank's own order in the step before counts. Where steps are
    // not known, its order before counts more than theirs, if it was the same twice.
    const auto knows = [&](std::int32_t before) {
      return place(pair.rank, *skipped, before) >= 0 && place(pair.rank, *in, before) >= 0;
    };
    const bool has_steps = skipped->call.step > 0 && in->call.step > 0;
    if (has_steps && inside == 0 && knows(1)) return vote(pair.rank, 1);
    const bool is_regular = !trace.records_mesh() && !has_steps && knows(1) && knows(2);
    if (is_regular && vote(pair.rank, 1) == vote(pair.rank, 2)) return vote(pair.rank, 1);
    is_sure = trace.records_mesh();
    return inside;
  }

  Reason reason(const OrderBreak& it) const {
    if (is_issued(it)) return Reason::wrong_order;
    const std::uint32_t in = event(it.rank, it.in);
    const std::vector<Event>& events = scan_.file(it.rank).events;
    for (std::size_t i = in + std::size_t{1}; i < events.size(); ++i)  // it has gone on without the call
      if (trace::is_comm(scan_.trace().info(events[i]).kind)) return Reason::missing_call;
    return Reason::wrong_order;
  }

  const HangScan& scan_;
  const HangGraph& graph_;
  const HangRoot& root_;
  std::vector<OrderBreak> pairs_;
};

}  // namespace

std::optional<Difference> first_difference(const HangScan& scan, std::int32_t group, int one, int other) {
  const auto a = calls_of(scan, group, one), b = calls_of(scan, group, other);
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i].first < b[j].first) {
      ++i;
    } else if (b[j].first < a[i].first) {
      ++j;
    } else {
      if (a[i].second != b[j].second) return Difference{a[i].first};
      ++i;
      ++j;
    }
  }
  return std::nullopt;
}

std::map<std::int32_t, std::uint32_t> next_differences(const HangScan& scan,
                                                       const std::map<std::int32_t, std::uint32_t>& behind) {
  std::map<std::int32_t, std::uint32_t> found;
  std::map<std::pair<std::int32_t, std::uint32_t>, Call> calls;
  for (std::size_t at = 0; at < scan.count() && !behind.empty(); ++at) {
    const std::vector<Event>& events = scan.file(at).events;
    for (std::uint32_t i = 0; i < events.size() && !scan.file(at).is_cut_off; ++i) {
      const EventInfo& info = scan.info(at, i);
      const auto after = behind.find(info.group);
      const std::uint32_t number = events[i].detail;
      if (after == behind.end() || number <= after->second || number == kNoDetail || !trace::is_comm(info.kind))
        continue;
      const Call call = call_of(scan, at, i);
      const auto [known, is_new] = calls.try_emplace({info.group, number}, call);
      if (is_new || known->second == call) continue;
      std::uint32_t& first = found.try_emplace(info.group, number).first->second;
      first = std::min(first, number);
    }
  }
  return found;
}

OddOnes odd_ones(const HangScan& scan, const StuckOp& op, std::uint32_t sequence, const std::vector<int>& asked) {
  std::vector<std::pair<Call, std::vector<int>>> calls;  // and who called so
  const auto of = [&](const Call& call) {
    return std::ranges::find(calls, call, &std::pair<Call, std::vector<int>>::first);
  };
  const auto add = [&](int rank) {
    const std::optional<Call> call = call_at(scan, rank, op.group, sequence);
    if (!call) return;
    if (of(*call) == calls.end()) calls.push_back({*call, {}});
    of(*call)->second.push_back(rank);
  };
  for (const int rank : asked) add(rank);
  for (std::size_t i = 0; i < op.members.size() && (asked.empty() || i < kAsked); ++i)
    if (std::ranges::count(asked, op.members[i].rank) == 0) add(op.members[i].rank);
  OddOnes odd;
  if (calls.size() < 2) return odd;
  std::ranges::stable_sort(calls, std::ranges::greater{}, [](const auto& it) { return it.second.size(); });
  std::size_t right = 0;
  const auto unknown = static_cast<std::size_t>(
      std::ranges::count_if(op.members, [&](const MemberView& it) { return !scan.find(it.rank); }));
  odd.decided = calls[0].second.size() > calls[1].second.size();
  odd.is_close = odd.decided && calls[0].second.size() <= calls[1].second.size() + unknown;
  if (!odd.decided) {
    std::vector<int> votes(calls.size(), 0);
    for (const std::int32_t group : siblings(scan.trace(), op.group)) {
      for (const int rank : scan.trace().groups[static_cast<std::size_t>(group)].ranks) {
        const std::optional<Call> call = call_at(scan, rank, group, sequence);
        const auto found = call ? of(*call) : calls.end();
        if (found != calls.end()) ++votes[static_cast<std::size_t>(found - calls.begin())];
      }
    }
    right = static_cast<std::size_t>(std::ranges::max_element(votes) - votes.begin());
    odd.decided = std::ranges::count(votes, votes[right]) == 1;
  }
  odd.reference = odd.decided ? calls[right].second.front() : calls[1].second.front();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (i == right && odd.decided) continue;
    const std::vector<int>& ranks = calls[i].second;
    odd.odd.insert(odd.odd.end(), ranks.begin(), ranks.end());
    const bool is_reference = ranks.front() == odd.reference;
    odd.against.resize(odd.odd.size(), is_reference ? calls[0].second.front() : odd.reference);
  }
  return odd;
}

Deviation deviation_of(const HangScan& scan, std::int32_t group, std::uint32_t sequence, int odd, int reference) {
  constexpr std::size_t kMostShift = 256;  // calls of a module that is left out
  auto mine = calls_of(scan, group, odd), right = calls_of(scan, group, reference);
  const auto is_before = [&](const auto& it) { return it.first < sequence; };
  const std::vector<std::pair<std::uint32_t, Call>> history(right.begin(), std::ranges::find_if_not(right, is_before));
  std::erase_if(mine, is_before);
  std::erase_if(right, is_before);
  if (mine.empty() || right.empty()) return {Reason::not_issuing};
  const Call &is = mine.front().second, &should_be = right.front().second;
  // Counts the later calls that agree with a cause, by where they begin; -1: one does not.
  const auto agree = [&](std::size_t from_mine, std::size_t from_right) -> int {
    int count = 0;
    for (; from_mine < mine.size() && from_right < right.size(); ++from_mine, ++from_right, ++count)
      if (mine[from_mine].second != right[from_right].second) return -1;
    return count;
  };
  Deviation found;
  const int same = agree(1, 1);
  // One call may agree by chance, unless it tells its step; and a few do where many are skipped.
  int most = std::max(same, is.step == kNoStep ? 1 : 0);
  const auto consider = [&](int agreeing, Reason reason, std::size_t calls) {
    if (agreeing <= most || agreeing < static_cast<int>(calls) / 2) return;
    most = agreeing;
    found = {reason, calls};
  };
  for (std::size_t calls = 1; calls <= kMostShift; ++calls) {
    consider(agree(0, calls), Reason::missing_call, calls);
    consider(agree(calls, 0), Reason::extra_call, calls);
  }
  if (mine.size() > 1 && right.size() > 1 && mine[1].second == should_be && is == right[1].second && agree(2, 2) >= 0)
    consider(agree(2, 2) + 2, Reason::wrong_order, 1);
  if (found.calls > 0) return found;
  const auto is_like = [](Call a, const Call& b) {
    a.step = b.step;
    return a == b;
  };
  for (std::size_t i = 0; i + 1 < history.size() && same <= 0; ++i)  // what usually comes next
    if (is_like(history[i].second, should_be) && is_like(history[i + 1].second, is)) return {Reason::missing_call};
  if (is.kind != should_be.kind) return {Reason::wrong_kind};
  const auto elements = [&](const Call& call) {
    const int bytes = type_bytes(scan.trace().strings.text(call.type));
    return bytes > 0 ? call.size_bytes / bytes : call.size_bytes;
  };
  const bool other_type = is.type != should_be.type && is.type != 0 && should_be.type != 0;
  const bool other_size = is.size_bytes != should_be.size_bytes && is.size_bytes >= 0 && should_be.size_bytes >= 0;
  if (other_type && elements(is) == elements(should_be)) return {Reason::wrong_dtype};
  if (other_size) return {Reason::wrong_size};
  if (other_type) return {Reason::wrong_dtype};
  if (is.step != should_be.step) return {is.step > should_be.step ? Reason::missing_call : Reason::extra_call};
  return {Reason::wrong_order};
}

std::vector<OrderBreak> order_breaks(const HangScan& scan, const HangGraph& graph, const HangRoot& root) {
  return Orders(scan, graph, root).find();
}

}  // namespace ms::tracepp
