#include "tracepp/hang/minority.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"

namespace ms::tracepp {
namespace {

constexpr double kMinority = 0.4;  // of all members of a minority together; the others share as much

bool is_lack(const Blame& blame) {
  return blame.op >= 0 && blame.suspects.size() == 1 && blame.suspects.front().reason == Reason::not_issuing;
}

// Returns whether most members lack an operation and all of them have ended the one before it.
bool is_of_minority(const StuckOp& op, const HangScan& scan) {
  if (op.sequence == 0 || op.missing.size() * 2 <= op.members.size()) return false;
  return std::ranges::all_of(op.missing, [&](int rank) {
    const auto at = scan.find(rank);
    return at && scan.progress(*at, op.group, op.sequence - 1) == Progress::ended && scan.rank(*at).open.empty();
  });
}

Blame blame_minority(int index, const StuckOp& op, const HangScan& scan) {
  Blame blame;
  blame.op = index;
  blame.is_seen = false;
  std::vector<int> waiting;
  for (const MemberView& member : op.members)
    if (std::ranges::count(op.missing, member.rank) == 0) waiting.push_back(member.rank);
  for (const int rank : waiting) {
    blame.suspects.push_back(
        suspect_of(scan, rank, Reason::waits_alone, kMinority / static_cast<double>(waiting.size())));
    blame.suspects.back().op = index;
  }
  blame.sentence = fmt::format(
      "only {} of {} members issued {} and {} in it for {}; {} have ended all their calls before it: the few have made "
      "a call too many, or the others have left the loop, or do other work; nothing tells which ({})",
      waiting.size(), op.members.size(), op_label(scan.trace(), op), waiting.size() == 1 ? "is" : "are",
      seconds_label(op.since_s), plural(op.missing.size(), "other"), few_names(scan.trace(), waiting));
  return blame;
}

}  // namespace

void share_confidence(std::vector<Blame>& blames, const HangGraph& graph, const HangScan& scan) {
  std::map<int, std::size_t> blamed;  // by operation: the ranks that lack it
  for (const Blame& it : blames)
    if (is_lack(it)) ++blamed[it.op];
  for (const auto& [op, ranks] : blamed) {
    if (ranks < 2) continue;
    const int index = op;
    const StuckOp& stuck = graph.ops[static_cast<std::size_t>(index)];
    const bool has_minority = is_of_minority(stuck, scan);
    const double share = (has_minority ? kMinority : 1.0) / static_cast<double>(std::max(ranks, stuck.missing.size()));
    for (Blame& it : blames) {
      if (it.op != index || !is_lack(it)) continue;
      it.suspects.front().confidence = std::min(it.suspects.front().confidence, share);
      it.is_seen = it.is_seen && !has_minority;
    }
    if (has_minority) blames.push_back(blame_minority(index, stuck, scan));
  }
}

}  // namespace ms::tracepp
