#include "tracepp/hang/blame.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/text.h"
#include "tracepp/hang/order.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kNamed = 8;        // suspects of one root
constexpr std::size_t kLookedInto = 64;  // operations of a circle
constexpr double kSure = 0.95, kLikely = 0.85, kMajority = 0.7, kUntimed = 0.6, kPossible = 0.5, kWeak = 0.3;

std::string ranks_text(const std::vector<HangSuspect>& suspects, const HangScan& scan) {
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(suspects.size(), 2); ++i)
    text += (i > 0 ? " and " : "") + rank_label(scan, suspects[i].rank);
  return text;
}

class Judge {
 public:
  Judge(const HangRoot& root, const HangGraph& graph, const HangScan& scan)
      : root_(root), graph_(graph), scan_(scan), trace_(scan.trace()) {}

  Blame judge() {
    blame_.behind = root_.behind;
    if (root_.ranks.size() + root_.absent.size() + root_.ops.size() > 1) {
      judge_cycle();
    } else if (!root_.ops.empty()) {
      blame_.op = root_.ops.front();
      is_mismatch(op().match) ? judge_mismatch() : judge_transfer();
    } else if (!root_.absent.empty()) {
      judge_absent(root_.absent.front());
    } else {
      judge_rank(root_.ranks.front());
    }
    return std::move(blame_);
  }

 private:
  const StuckOp& op() const { return graph_.ops[static_cast<std::size_t>(blame_.op)]; }

  void suspect(int rank, Reason reason, double confidence) {
    HangSuspect it = suspect_of(scan_, rank, reason, std::min(confidence, most(rank, reason)));
    it.op = blame_.op;
    blame_.suspects.push_back(std::move(it));
  }

  // Returns the most confidence that dumps allow. Those of a healthy run, whose files do not tell when they were
  // written, show ranks that wait, too.
  double most(int rank, Reason reason) const {
    if (blame_.op < 0 || !trace_.source->is_dump) return 1;
    const std::optional<std::size_t> at = scan_.find(rank);
    const bool is_known = !at || reason != Reason::not_issuing || scan_.knows(*at, op().group);
    if (trace_.groups[static_cast<std::size_t>(op().group)].is_guessed || !is_known) return kPossible;
    const bool is_wait = reason == Reason::not_issuing || reason == Reason::compute || reason == Reason::transfer;
    return is_wait && op().since_s < kJustNow_s ? kUntimed : 1;
  }

  // Chooses the operation to blame among those that lack this rank: first one that holds others up, then the one that
  // lacks the fewest ranks, then the one that most ranks wait in.
  void choose_op(int rank) {
    const auto weight = [&](int i) {
      const StuckOp& it = graph_.ops[static_cast<std::size_t>(i)];
      const auto missing = static_cast<std::int64_t>(it.missing.size());
      return std::tuple(graph_.held[static_cast<std::size_t>(i)] > 0, -missing, it.waiting, it.since_s);
    };
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      if (!std::ranges::count(graph_.ops[i].missing, rank)) continue;
      if (blame_.op < 0 || weight(static_cast<int>(i)) > weight(blame_.op)) blame_.op = static_cast<int>(i);
    }
  }

  std::string waiting_text() const {
    if (blame_.op < 0) return "";
    return fmt::format("; {} {} for it in {} for {}", plural(static_cast<std::size_t>(op().waiting), "member"),
                       op().waiting == 1 ? "waits" : "wait", op_label(trace_, op()), seconds_label(op().since_s));
  }

  void judge_absent(int rank) {
    choose_op(rank);
    suspect(rank, Reason::no_trace, kPossible);
    blame_.is_seen = false;
    blame_.sentence = fmt::format("{}, and all that waits, waits for it{}", lost_label(scan_, rank), waiting_text());
  }

  void judge_rank(std::size_t at) {
    const RankTrace& file = scan_.file(at);
    const RankScan& rank = scan_.rank(at);
    const std::string label = rank_label(scan_, file.rank);
    choose_op(file.rank);
    const auto say = [&](Reason reason, double confidence, const std::string& doing) {
      suspect(file.rank, reason, confidence);
      blame_.sentence = label + " " + doing + waiting_text();
    };
    const auto busy = [&](std::uint32_t event, Reason reason, std::string_view how) {
      blame_.own_s = scan_.since_s(at, event);
      blame_.is_seen = scan_.is_late(at, event);
      say(reason, blame_.is_seen ? kLikely : kWeak,
          fmt::format("{} {} for {}", how, event_label(trace_, file.events[event]), seconds_label(blame_.own_s)));
    };
    if (rank.life == Life::failed)
      return say(Reason::failed, kSure, fmt::format("failed: \"{}\"", plain_text(file.ending_text, 160)));
    if (rank.life == Life::silent)
      return say(Reason::silent, kSure,
                 fmt::format("has shown no sign of life for {}: it died or was stopped", seconds_label(rank.silent_s)));
    if (rank.life == Life::left) return say(Reason::left, kLikely, "has ended its run");
    if (rank.section != kNoEvent) return busy(rank.section, Reason::compute, "is in");
    if (rank.host != kNoEvent) {
      const bool data = trace_.info(file.events[rank.host]).kind == Kind::data_wait;
      return busy(rank.host, data ? Reason::data_wait : Reason::save,
                  data ? "waits for data, in" : "is held up by a checkpoint, in");
    }
    if (!rank.open.empty() || rank.next_section != kNoEvent) {
      const std::uint32_t first = std::min(rank.next_section, rank.open.empty() ? kNoEvent : rank.open.front());
      return say(Reason::compute, kLikely,
                 fmt::format("has issued {}, which does not start though nothing holds it up",
                             event_label(trace_, file.events[first])));
    }
    judge_idle(file.rank);
  }

  // Judges a rank whose device is idle while others wait for its call. Its count of calls may be off since an earlier
  // one.
  void judge_idle(int rank) {
    if (blame_.op >= 0) {
      for (const MemberView& member : op().members) {
        if (member.progress != Progress::begun) continue;
        if (judge_history(rank, member.rank)) return;
        break;
      }
    }
    suspect(rank, Reason::not_issuing, kLikely);
    const std::string wait = blame_.op < 0
                                 ? ""
                                 : fmt::format(" never issued {}; {} {} for it for {}", op_label(trace_, op()),
                                               plural(static_cast<std::size_t>(op().waiting), "member"),
                                               op().waiting == 1 ? "waits" : "wait", seconds_label(op().since_s));
    blame_.sentence = rank_label(scan_, rank) + wait;
  }

  // Looks for the first operation of the group in which two members differ; true if that explains it.
  bool judge_history(int one, int other) {
    const std::optional<Difference> found = first_difference(scan_, op().group, one, other);
    if (!found) return false;
    const OddOnes odd = odd_ones(scan_, op(), found->sequence, {one, other});
    if (odd.odd.empty()) return false;
    blame_members(odd, found->sequence);
    return true;
  }

  void judge_mismatch() {
    const OddOnes odd = odd_ones(scan_, op(), op().sequence, {});
    if (odd.odd.empty()) return judge_transfer();  // they called the same, as two that both send
    if (odd.reference >= 0 && judge_history(odd.odd.front(), odd.reference)) return;
    blame_members(odd, op().sequence);
  }

  // The members that differ in an operation, and how.
  void blame_members(const OddOnes& odd, std::uint32_t sequence) {
    const std::size_t count = odd.odd.size();
    const bool undecided = !odd.decided;
    const double confidence = undecided      ? 1.0 / static_cast<double>(std::max<std::size_t>(count, 2))
                              : odd.is_close ? kMajority
                                             : kSure;
    Deviation how;  // of the first one
    for (std::size_t i = std::min(count, kNamed); i-- > 0;) {
      how = deviation_of(scan_, op().group, sequence, odd.odd[i], odd.against[i]);
      suspect(odd.odd[i], how.reason, confidence);
    }
    std::ranges::reverse(blame_.suspects);
    const auto called = [&](int rank) {
      const std::optional<std::size_t> at = scan_.find(rank);
      const std::uint32_t event = at ? scan_.find_event(*at, op().group, sequence) : kNoEvent;
      if (event == kNoEvent) return std::string("nothing");
      const EventInfo& info = scan_.info(*at, event);
      std::string text = event_label(trace_, scan_.file(*at).events[event]);
      if (info.size_bytes >= 0) text += fmt::format(" with {} bytes", info.size_bytes);
      if (info.type != 0) text += " of " + plain_text(trace_.strings.text(info.type), 40);
      return text;
    };
    const int one = odd.odd.front();
    std::string text = fmt::format("{} called {} where {} called {}", rank_label(scan_, one), called(one),
                                   rank_label(scan_, odd.reference), called(odd.reference));
    const std::string calls = how.calls > 1 ? fmt::format("{} calls", how.calls) : "a call";
    if (how.reason == Reason::missing_call) text += ": it has left out " + calls;
    if (how.reason == Reason::extra_call) text += fmt::format(": it has made {} too many", calls);
    if (how.reason == Reason::wrong_order && how.calls > 0) text += ": it has swapped this call and the next";
    if (count > 1 && !undecided) text += fmt::format("; so did {} further", count - 1);
    if (undecided) text += "; nothing tells which of them is right";
    if (sequence != op().sequence)
      text += fmt::format("; all that followed is shifted, and {} is stalled", op_label(trace_, op()));
    blame_.sentence = text + fmt::format("; {} in it for {}", plural(static_cast<std::size_t>(op().waiting), "member"),
                                         seconds_label(op().since_s));
  }

  void judge_transfer() {
    std::vector<int> inside;
    for (const MemberView& member : op().members)
      if (member.progress == Progress::begun) inside.push_back(member.rank);
    const std::size_t all = op().members.size();
    for (std::size_t i = 0; i < std::min(inside.size(), kNamed); ++i)
      suspect(inside[i], Reason::transfer, all == 1 ? kWeak : std::max(0.05, 0.6 / static_cast<double>(inside.size())));
    if (all == 1) {
      blame_.sentence = fmt::format(
          "{} is in {} for {}, and no dump tells which other ranks take part, or what they do: give the dumps of all "
          "ranks",
          rank_label(scan_, op().members.front().rank), op_label(trace_, op()), seconds_label(op().since_s));
      return;
    }
    const std::string label = op_label(trace_, op());
    if (trace_.groups[static_cast<std::size_t>(op().group)].ranks.empty()) {
      for (HangSuspect& it : blame_.suspects) it.confidence = std::min(it.confidence, kWeak / static_cast<double>(all));
      blame_.sentence = fmt::format(
          "{} are in {} for {}, and nothing tells whether it has further members, or what they do: give the "
          "logs or dumps of all ranks",
          plural(all, "rank"), label, seconds_label(op().since_s));
      return;
    }
    const std::string who = inside.size() == all ? fmt::format("all {} members are", all)
                                                 : fmt::format("{} of {} members {} still", inside.size(), all,
                                                               inside.size() == 1 ? "is" : "are");
    blame_.sentence = fmt::format(
        "{} in {} for {}, agree on what it is, and it does not end: the network, a device or the library below; "
        "nothing "
        "tells the members apart ({}{})",
        who, label, seconds_label(op().since_s), ranks_text(blame_.suspects, scan_), inside.size() > 2 ? ", ..." : "");
  }

  void judge_cycle() {
    if (judge_shift()) return;
    const std::vector<OrderBreak> breaks = order_breaks(scan_, graph_, root_);
    const auto label = [&](int i) { return op_label(trace_, graph_.ops[static_cast<std::size_t>(i)]); };
    const bool decided = !breaks.empty() && breaks.front().decided;
    for (std::size_t i = 0; i < std::min(breaks.size(), kNamed); ++i) {
      const OrderBreak& one = breaks[i];
      blame_.op = one.skipped;
      suspect(scan_.file(one.rank).rank, one.reason,
              decided ? kLikely : 1.0 / static_cast<double>(std::max<std::size_t>(breaks.size(), 2)));
    }
    if (breaks.empty()) return;  // cannot be: whoever is in a cycle waits, and is waited for
    const OrderBreak& first = breaks.front();
    blame_.op = first.skipped;
    const std::string name = rank_name(trace_, scan_.file(first.rank).rank);
    const std::string who = rank_label(scan_, scan_.file(first.rank).rank), other = rank_label(scan_, first.waiter);
    blame_.sentence = fmt::format("{} is in {} first, {} in {} first, and they wait for each other", who,
                                  label(first.in), other, label(first.skipped));
    if (!decided) {
      blame_.sentence += "; nothing tells which order is right";
      blame_.is_seen = false;
    } else if (first.reason == Reason::wrong_order) {
      blame_.sentence += fmt::format("; by what other ranks do, or it did before, {} has the wrong order", name);
    } else if (first.reason == Reason::missing_call) {
      blame_.sentence += fmt::format("; {} has left out its call", name);
    } else {
      blame_.sentence += fmt::format("; the host of {} does not issue its call", name);
    }
    blame_.sentence +=
        fmt::format("; {} in the latter for {}", plural(static_cast<std::size_t>(op().waiting), "member"),
                    seconds_label(op().since_s));
  }

  // Looks for a missing or extra call before the circle. Such a call shifts all later ones of its group, so that
  // members mean different calls by the same operation; the circle may close only much later.
  bool judge_shift() {
    for (std::size_t i = 0; i < std::min(root_.ops.size(), kLookedInto); ++i) {
      blame_.op = root_.ops[i];
      const OddOnes odd = odd_ones(scan_, op(), op().sequence, {});
      if (odd.decided && !odd.odd.empty() && judge_history(odd.odd.front(), odd.reference)) return true;
    }
    blame_.op = -1;
    return false;
  }

  const HangRoot& root_;
  const HangGraph& graph_;
  const HangScan& scan_;
  const RunTrace& trace_;
  Blame blame_;
};

}  // namespace

HangSuspect suspect_of(const HangScan& scan, int rank, Reason reason, double confidence) {
  HangSuspect it;
  it.rank = rank;
  it.reason = reason;
  it.confidence = confidence;
  const mesh::Mesh& mesh = scan.trace().mesh;
  if (scan.trace().has_mesh && rank >= 0 && rank < mesh.size()) it.at = mesh.coord(rank);
  if (const std::optional<std::size_t> at = scan.find(rank)) {
    it.host = scan.file(*at).host;
    it.pid = scan.file(*at).pid;
    it.doing = doing(scan, *at);
  }
  return it;
}

Blame blame(const HangRoot& root, const HangGraph& graph, const HangScan& scan) {
  return Judge(root, graph, scan).judge();
}

}  // namespace ms::tracepp
