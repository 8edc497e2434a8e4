#include "tracepp/hang/hang.h"

#include <fmt/chrono.h>

#include <algorithm>

#include "base/text.h"
#include "tracepp/hang/blame.h"
#include "tracepp/hang/dump_waits.h"
#include "tracepp/hang/failure.h"
#include "tracepp/hang/minority.h"
#include "tracepp/hang/undecided.h"
#include "tracepp/hang/witness_judge.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kEvidence = 5;
constexpr double kConfidentAtLeast = 0.4, kMadeUpAtMost = 0.5;  // the latter in a rank whose number is made up

class Finder {
 public:
  Finder(const RunTrace& trace, double now_s) : trace_(trace), now_s_(now_s), scan_(trace) {}

  Hang find() {
    hang_.missing_ranks = missing_ranks(trace_);
    const auto failed = std::ranges::count_if(trace_.ranks, has_error, &RankTrace::ending);
    const bool late = !trace_.source->is_dump && (scan_.deadline_s() > 0 || anything_late(scan_));
    find_alive();
    if (late || failed > 0 || trace_.source->is_dump) {
      graph_ = make_hang_graph(scan_);
      for (std::size_t i = 0; i < std::min(graph_.roots.size(), kHangRoots); ++i)
        blames_.push_back(blame(graph_.roots[i], graph_, scan_));
      add_lone_sections();
    }
    heed_inquiry(blames_, scan_);
    if (trace_.source->is_dump) share_confidence(blames_, graph_, scan_);
    if (trace_.source->is_dump) waits_.emplace(scan_, graph_).doubt_short(blames_);
    weigh();
    if (hides_failures()) doubt();
    const bool stuck = late || (waits_ && !blames_.empty() && !graph_.ops.empty() && !waits_->are_usual(blames_));
    if (const auto mixed = mixed_attempts(scan_)) {
      std::erase_if(hang_.missing_ranks, [&](int rank) { return trace_.rank(rank) != nullptr; });  // it names these
      return say_undecided(*mixed);
    }
    if (const auto open = failed > 0 ? std::nullopt : undecided(scan_, graph_, blames_, stuck))
      return say_undecided(*open);
    if (!stuck && failed == 0 && waits_ && !graph_.ops.empty() && !waits_->have_just_begun())
      return say_undecided({.sentence = "nothing tells a hang from a healthy wait: " + waits_->usual_text() +
                                        "; dump again in a minute: it is a hang if the same call still waits",
                            .since_s = waits_->longest_s()});
    if (stuck && !blames_.empty() && !only_saving()) {
      hang_.state = RunState::hang;
    } else if (failed > 0) {
      hang_.state = RunState::failed;
      blames_ = blame_failure(graph_, scan_);
      likeliest_first();
    } else {
      const bool ended = !trace_.ranks.empty() && std::ranges::all_of(trace_.ranks, [](const RankTrace& rank) {
        return rank.ending == Ending::done;
      });
      hang_.state = ended ? RunState::ended : cut_off_s_ > 0 ? RunState::killed : RunState::cut_off;
      if (const auto open = partial(scan_, hang_.missing_ranks)) return say_undecided(*open);
      say_well();
      add_left_out();
      if (hides_failures()) fill();
      return std::move(hang_);
    }
    if (waits_ && !blames_.empty()) doubt_ = waits_->doubt_text(blames_.front());
    fill();
    say();
    add_left_out();
    return std::move(hang_);
  }

 private:
  Hang say_undecided(const Undecided& open) {
    hang_.state = open.state;
    hang_.since_s = open.since_s;
    hang_.sentence = open.sentence;
    add_missing();
    add_left_out();
    return std::move(hang_);
  }

  // Adds the ranks that hang although no rank waits for them: a run of one rank, or ranks that communicate no more.
  // Their device or host hangs.
  void add_lone_sections() {
    if (!blames_.empty()) return;
    for (std::size_t at = 0; at < scan_.count() && blames_.size() < kHangRoots; ++at) {
      const RankScan& rank = scan_.rank(at);
      const auto late = [&](std::uint32_t event) { return event != kNoEvent && scan_.is_late(at, event); };
      if (rank.life != Life::alive || !(late(rank.section) || late(rank.host))) continue;
      blames_.push_back(blame(hang_root(at), graph_, scan_));
    }
  }

  std::size_t whole_ranks() const {
    return trace_.ranks.size() -
           static_cast<std::size_t>(std::ranges::count(trace_.ranks, true, &RankTrace::is_cut_off));
  }

  void add_missing() {
    if (!hang_.missing_ranks.empty())
      hang_.sentence += fmt::format("; {} left no whole trace", plural(hang_.missing_ranks.size(), "further rank"));
  }

  // Mentions the dumps that were left out, unless one of them is blamed: what is said of it holds for all.
  void add_left_out() {
    const RankTrace* const lead = hang_.suspects.empty() ? nullptr : trace_.rank(hang_.suspects.front().rank);
    if (lead == nullptr || lead->earlier_s <= 0) hang_.sentence += left_out_text(scan_);
  }

  bool has_made_up_number(const HangSuspect& suspect) const {
    const RankTrace* const file = trace_.rank(suspect.rank);
    return file != nullptr && file->numbered == Numbered::made_up;
  }

  // Finds out whether the run is alive: writers record a sign of life every second.
  void find_alive() {
    constexpr double kGone_s = 15;
    if (now_s_ <= 0 || !trace_.source->signs_life) return;
    double newest_s = 0;
    for (std::size_t at = 0; at < scan_.count(); ++at) {
      if (scan_.file(at).realtime_ns == 0) return;
      if (scan_.file(at).ending != Ending::running) continue;
      newest_s = std::max(newest_s, static_cast<double>(scan_.last_sign_ns(at)) * 1e-9);
    }
    if (newest_s <= 0) return;
    hang_.is_alive = now_s_ - newest_s <= kGone_s;
    if (!hang_.is_alive) cut_off_s_ = newest_s;
  }

  void likeliest_first() {
    std::erase_if(blames_, [](const Blame& it) { return it.suspects.empty(); });
    std::ranges::stable_sort(blames_, [](const Blame& a, const Blame& b) {
      const double ca = a.suspects.front().confidence, cb = b.suspects.front().confidence;
      return ca != cb ? ca > cb : a.behind > b.behind;
    });
  }

  // Returns whether all that is late is a checkpoint: its duration is not bounded by what ranks usually take.
  bool only_saving() const {
    return std::ranges::all_of(blames_, [](const Blame& it) {
      return !it.suspects.empty() && it.suspects.front().reason == Reason::save && !it.is_seen;
    });
  }

  bool hides_failures() const { return std::ranges::any_of(trace_.ranks, &RankTrace::hides_failures); }

  // Returns whether a group whose members are not known was used by one rank only: another one left no trace.
  bool has_lone_member() const {
    std::vector<int> members(trace_.groups.size(), 0);
    for (std::size_t at = 0; at < scan_.count(); ++at)
      for (const Seat& seat : scan_.rank(at).seats) ++members[static_cast<std::size_t>(seat.group)];
    for (std::size_t i = 0; i < members.size(); ++i)
      if (members[i] == 1 && trace_.groups[i].ranks.empty()) return true;
    return false;
  }

  // Doubts all blames if a rank has left no trace: it may have died, and what the others did last may have failed. What
  // they called differently is no matter of how it ended.
  void doubt() {
    constexpr double kDoubted = 0.4, kAbsent = 0.5, kBesideShown = 0.2;
    if (hang_.missing_ranks.empty() && !has_lone_member()) return;
    const auto shows_calls = [](const Blame& it) {
      return it.suspects.front().reason >= Reason::missing_call && it.suspects.front().reason <= Reason::wrong_order;
    };
    const bool is_shown = std::ranges::any_of(blames_, shows_calls);
    std::erase_if(blames_, [](const Blame& it) { return it.suspects.front().reason == Reason::no_trace; });
    for (Blame& it : blames_)
      for (HangSuspect& suspect : it.suspects)
        if (!shows_calls(it)) suspect.confidence = std::min(suspect.confidence, kDoubted);
    for (const int rank : hang_.missing_ranks) {
      if (blames_.size() == kHangRoots) break;
      Blame it;
      it.suspects.push_back(suspect_of(scan_, rank, Reason::no_trace, is_shown ? kBesideShown : kAbsent));
      it.sentence =
          lost_label(scan_, rank) + ": it may have died, and gloo's dumps show an operation that failed as ended";
      it.is_seen = false;
      blames_.push_back(std::move(it));
    }
    likeliest_first();
  }

  bool is_absent(const Blame& it) const {
    if (it.suspects.empty() || it.suspects.front().reason != Reason::no_trace) return false;
    const RankTrace* const file = trace_.rank(it.suspects.front().rank);
    return file == nullptr || file->earlier_s > 0;
  }

  // Caps the confidence of suspects that are only inferred if the fault of another was seen. Sorts the likeliest first.
  void weigh() {
    // Nothing tells which of several ranks without a trace of this time all others wait for.
    const auto absent = std::ranges::count_if(blames_, [&](const Blame& it) { return is_absent(it); });
    for (Blame& it : blames_)
      if (is_absent(it))
        for (HangSuspect& suspect : it.suspects)
          suspect.confidence = std::min(suspect.confidence, 1.0 / static_cast<double>(absent));
    for (Blame& it : blames_)
      for (HangSuspect& suspect : it.suspects)
        if (has_made_up_number(suspect)) suspect.confidence = std::min(suspect.confidence, kMadeUpAtMost);
    if (std::ranges::any_of(blames_, &Blame::is_seen)) {
      for (Blame& it : blames_) {
        if (it.is_seen) continue;
        for (HangSuspect& suspect : it.suspects) suspect.confidence = std::min(suspect.confidence, 0.2);
      }
    }
    likeliest_first();
  }

  void fill() {
    // The operations that suspects are named for first, then those that hold up most.
    std::vector<int> order;
    for (const Blame& it : blames_)
      if (it.op >= 0 && std::ranges::count(order, it.op) == 0) order.push_back(it.op);
    std::vector<int> others;
    for (std::size_t i = 0; i < graph_.ops.size(); ++i)
      if (std::ranges::count(order, static_cast<int>(i)) == 0) others.push_back(static_cast<int>(i));
    // Communication that overlaps compute delays no rank and comes last.
    std::ranges::stable_sort(others, std::ranges::greater{}, [&](int i) {
      return std::pair(graph_.held[static_cast<std::size_t>(i)], graph_.ops[static_cast<std::size_t>(i)].since_s);
    });
    order.insert(order.end(), others.begin(), others.end());
    std::vector<int> place(graph_.ops.size(), -1);
    for (std::size_t i = 0; i < order.size(); ++i) place[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
    for (const int i : order) {
      StuckOp& op = graph_.ops[static_cast<std::size_t>(i)];
      hang_.since_s = std::max(hang_.since_s, op.since_s);
      hang_.ops.push_back(std::move(op));
    }
    for (const Blame& it : blames_) {
      for (HangSuspect suspect : it.suspects) {
        if (suspect.op >= 0) suspect.op = place[static_cast<std::size_t>(suspect.op)];
        hang_.suspects.push_back(std::move(suspect));
      }
      hang_.since_s = std::max(hang_.since_s, it.own_s);
    }
    std::ranges::stable_sort(hang_.suspects, std::ranges::greater{}, &HangSuspect::confidence);
    for (std::size_t at = 0; at < graph_.holds.size(); ++at) {
      for (const int op : graph_.holds[at])
        hang_.waits.push_back({.rank = scan_.file(at).rank, .op = place[static_cast<std::size_t>(op)]});
    }
    fill_cells();
  }

  void fill_cells() {
    if (!trace_.has_mesh || trace_.mesh.size() <= 0) return;
    const auto known = static_cast<std::size_t>(trace_.mesh.size());
    if (!hang_.missing_ranks.empty() && static_cast<std::size_t>(hang_.missing_ranks.back()) >= known) return;
    hang_.cells.assign(known, Cell::fine);
    const auto mark = [&](int rank, Cell cell) {
      if (rank >= 0 && static_cast<std::size_t>(rank) < known) hang_.cells[static_cast<std::size_t>(rank)] = cell;
    };
    for (const Wait& wait : hang_.waits) mark(wait.rank, Cell::waiting);
    for (const int rank : hang_.missing_ranks) mark(rank, Cell::no_trace);
    for (const HangSuspect& suspect : hang_.suspects)
      if (suspect.confidence >= kConfidentAtLeast || suspect.reason == Reason::transfer)
        mark(suspect.rank, Cell::suspect);
  }

  // Says one sentence on the likeliest fault and mentions other faults in short.
  void say() {
    if (blames_.empty()) {
      hang_.sentence = hang_.state == RunState::failed ? "the run was stopped, and no trace is of the rank at fault"
                                                       : "the run is stalled, and its traces do not show why";
      add_errors();
      return;
    }
    const Blame& first = blames_.front();
    hang_.sentence = first.sentence;
    const int direct = first.op < 0 || hang_.suspects.empty() ? 0 : hang_.ops.front().waiting;
    if (static_cast<int>(first.behind) > direct && direct > 0)
      hang_.sentence += further(first.behind - static_cast<std::size_t>(direct));
    say_others();
    if (!doubt_.empty()) hang_.evidence.push_back(doubt_);
    if (has_made_up_number(first.suspects.front()))
      hang_.evidence.emplace_back(
          "nothing tells the ranks of these dumps: end the names of their files with the rank in the run, as in "
          "rank_12");
    add_errors();
    for (std::size_t i = 0; i < std::min(hang_.ops.size(), kEvidence); ++i)
      hang_.evidence.push_back(evidence_text(trace_, hang_.ops[i]));
    if (!hang_.ops.empty()) add_details(hang_.evidence, scan_, hang_.ops.front());
    for (std::size_t i = 0; i < std::min<std::size_t>(hang_.suspects.size(), 2); ++i) {
      if (!hang_.suspects[i].doing.empty())
        hang_.evidence.push_back(rank_name(trace_, hang_.suspects[i].rank) + ": " + hang_.suspects[i].doing);
    }
  }

  // Adds the errors of ranks that timed out or were stopped to the evidence. A text that ends like one already shown is
  // left out: all of them repeat the world's first cause.
  void add_errors() {
    constexpr std::size_t kErrors = 2;
    std::vector<std::string_view> shown;
    for (const Ending ending : {Ending::timed_out, Ending::stopped}) {
      for (const RankTrace& rank : trace_.ranks) {
        if (rank.ending != ending || shown.size() == kErrors) continue;
        if (std::ranges::any_of(shown, [&](std::string_view text) { return rank.ending_text.ends_with(text); }))
          continue;
        shown.push_back(rank.ending_text);
        hang_.evidence.push_back(fmt::format("rank {} {}: \"{}\"", rank.rank,
                                             ending == Ending::timed_out ? "gave up" : "was stopped",
                                             plain_text(rank.ending_text, 200)));
      }
    }
  }

  static std::string further(std::size_t ranks) {
    return fmt::format(", and {} {} behind them", plural(ranks, "further rank"), ranks == 1 ? "waits" : "wait");
  }

  void say_others() {
    std::size_t alike = 0, unseen = 0, absent = 0;
    std::string others;
    const HangSuspect& lead = blames_.front().suspects.front();
    for (std::size_t i = 1; i < blames_.size(); ++i) {
      const HangSuspect& other = blames_[i].suspects.front();
      const bool is_same = other.reason == Reason::not_issuing && blames_[i].op == blames_.front().op;
      if (is_same && lead.reason == Reason::waits_alone) continue;  // its sentence counts them
      if ((is_same && other.reason == lead.reason) || (is_absent(blames_[i]) && is_absent(blames_.front()))) {
        ++absent;
      } else if (other.reason == lead.reason && other.host == lead.host && !lead.host.empty()) {
        ++alike;
      } else if (other.confidence < kConfidentAtLeast) {
        ++unseen;
      } else if (others.size() < 200) {
        others += "; besides, " + blames_[i].sentence;
      }
    }
    if (alike > 0)
      hang_.sentence +=
          fmt::format("; the same holds for {} of node {}", plural(alike, "further rank"), plain_text(lead.host, 60));
    if (absent > 0)
      hang_.sentence +=
          fmt::format("; the same holds for {}: nothing tells them apart", plural(absent, "further rank"));
    hang_.sentence += others;
    if (unseen > 0)
      hang_.sentence += fmt::format("; {} left no trace or may only be slow", plural(unseen, "further rank"));
  }

  void say_well() {
    const std::string ranks = plural(whole_ranks(), "rank");
    if (hang_.state == RunState::ended) {
      hang_.sentence = fmt::format("the run ended well on {}", ranks);
    } else if (hang_.state == RunState::killed) {
      hang_.sentence = fmt::format(
          "the run did not end by itself: the traces of {} stop at {:%Y-%m-%d %H:%M:%S} UTC{} while no rank waits "
          "longer "
          "than usual; it was killed from outside, as by a time limit, scancel, lack of memory or the loss of its "
          "nodes: see sacct and the kernel's log",
          ranks, fmt::gmtime(static_cast<std::time_t>(cut_off_s_)), newest_step());
    } else if (hides_failures() && graph_.ops.empty()) {
      hang_.sentence = fmt::format(
          "no rank waits in a collective that the dumps of {} show; gloo records no sends and recvs", ranks);
      if (!blames_.empty()) hang_.sentence += "; " + blames_.front().sentence;
      return;
    } else if (waits_ && !blames_.empty() && !graph_.ops.empty()) {
      hang_.sentence = "no hang: " + waits_->usual_text();
    } else if (!blames_.empty()) {
      hang_.sentence = "no hang: " + blames_.front().sentence;
    } else if (trace_.source->is_dump && graph_.ops.empty()) {
      hang_.sentence = fmt::format("no hang: all operations in the dumps of {} have ended", ranks);
    } else {
      const std::string wait = longest_wait(scan_);
      hang_.sentence = fmt::format("no hang{}: the traces of {} end{}{}", wait.empty() ? "" : " yet", ranks,
                                   newest_step(), wait.empty() ? " while no rank waits longer than usual" : wait);
    }
    add_missing();
  }

  std::string newest_step() const {
    std::int64_t newest = -1;
    for (const RankTrace& rank : trace_.ranks)
      if (!rank.events.empty()) newest = std::max<std::int64_t>(newest, rank.events.back().step);
    return newest < 0 ? "" : fmt::format(" in step {}", newest);
  }

  const RunTrace& trace_;
  const double now_s_;
  double cut_off_s_ = 0;  // by the wall clock, where it was long ago
  HangScan scan_;
  HangGraph graph_;
  std::optional<DumpWaits> waits_;  // of dumps
  std::string doubt_;               // of the first blame; empty: none
  std::vector<Blame> blames_;
  Hang hang_;
};

}  // namespace

Hang hang_of_traces(const RunTrace& trace, double now_s) { return Finder(trace, now_s).find(); }

}  // namespace ms::tracepp
