#include "tracepp/steps/critical_path.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <unordered_map>

namespace ms::tracepp {
namespace {

// On one rank the end of what was waited for may be stamped a little after the begin of what waited.
constexpr std::int64_t kStampNs = 10'000;
// So many messages are looked at for the one that was waited for, and so many events may follow each other within no
// time at all: bounds for traces that make no sense.
constexpr std::size_t kMostLookedAt = 64, kMostAtOnce = 256;

constexpr std::uint32_t kNone = PathPiece::kNone;

// Returns whether the purpose belongs to the end of a step, after all backwards.
bool is_of_tail(Purpose purpose) {
  return purpose == Purpose::grads || purpose == Purpose::embedding || purpose == Purpose::layernorm ||
         purpose == Purpose::clip || purpose == Purpose::optimizer;
}

// The events of a rank that a path can lead through, each list by end.
struct RankIndex {
  std::vector<std::uint32_t> computing;  // sections and ops
  std::vector<std::uint32_t> inside;     // tp messages that sections wait for
  std::vector<std::uint32_t> comms;      // all others
  std::vector<std::uint32_t> host;       // waits for data and saves
};

class Walk {
 public:
  Walk(const RunTrace& trace, const Matches& matches) : trace_(trace), matches_(matches) {}

  // From the end of `rank` back to begin_ns.
  std::vector<PathPiece> operator()(std::uint32_t rank, std::int64_t begin_ns, std::int64_t end_ns) {
    pieces_.clear();
    begin_ns_ = begin_ns;
    now_ns_ = end_ns;
    rank_ = rank;
    section_ = waiting_ = kNone;
    for (std::size_t at_once = 0; now_ns_ > begin_ns_ && at_once < kMostAtOnce;) {
      const std::int64_t before = now_ns_;
      if (section_ != kNone) {
        through_section();
      } else {
        const Release release = what_released();
        if (release.event == kNone) break;
        nothing_until(event(release.event).end_ns());
        if (release.is_comm) {
          through_comm(release.event);
        } else {
          enter(release.event);
        }
      }
      at_once = now_ns_ == before ? at_once + 1 : 0;
    }
    nothing_until(begin_ns_);
    std::ranges::reverse(pieces_);
    return std::move(pieces_);
  }

 private:
  struct Release {
    std::uint32_t event = kNone;
    bool is_comm = false;
  };

  const Event& event(std::uint32_t index) const { return trace_.ranks[rank_].events[index]; }
  const EventInfo& info(std::uint32_t index) const { return trace_.info(event(index)); }

  const RankIndex& index() {
    const auto [place, is_new] = indices_.try_emplace(rank_);
    if (!is_new) return place->second;
    RankIndex& lists = place->second;
    const std::vector<Event>& events = trace_.ranks[rank_].events;
    for (std::uint32_t i = 0; i < events.size(); ++i) {
      if (events[i].state != State::ended) continue;
      const EventInfo& w = trace_.info(events[i]);
      if (trace::is_section(w.kind) || trace::is_op(w.kind)) {
        lists.computing.push_back(i);
      } else if (trace::is_comm(w.kind)) {
        const bool is_inside = w.group >= 0 && trace_.groups[static_cast<std::size_t>(w.group)].axis == GroupAxis::tp &&
                               (w.purpose == Purpose::forward || w.purpose == Purpose::backward);
        (is_inside ? lists.inside : lists.comms).push_back(i);
      } else if (w.kind == Kind::data_wait || w.kind == Kind::save) {
        lists.host.push_back(i);
      }
    }
    for (std::vector<std::uint32_t>* list : {&lists.computing, &lists.inside, &lists.comms, &lists.host})
      std::ranges::stable_sort(*list, {}, [&](std::uint32_t i) { return events[i].end_ns(); });
    return lists;
  }

  // How many of a list ended by `time`.
  std::size_t ended_by(const std::vector<std::uint32_t>& list, std::int64_t time) const {
    const auto later = std::ranges::upper_bound(list, time, {}, [&](std::uint32_t i) { return event(i).end_ns(); });
    return static_cast<std::size_t>(later - list.begin());
  }

  // The newest of a list that began before now, had ended by now, and that may have been waited for.
  std::uint32_t newest(const std::vector<std::uint32_t>& list) const {
    std::size_t left = kMostLookedAt;
    for (std::size_t i = ended_by(list, now_ns_ + kStampNs); i > 0 && left > 0; --i, --left) {
      const std::uint32_t candidate = list[i - 1];
      if (candidate != waiting_ && event(candidate).begin_ns < now_ns_ && may_wait_for(candidate)) return candidate;
    }
    return kNone;
  }

  // Returns whether the kinds allow the wait: everything waits for the compute lane, a transfer for those before it in
  // its group, a section for the transfer that brought its input, the end of a step for all of its kind.
  bool may_wait_for(std::uint32_t candidate) const {
    const EventInfo& c = info(candidate);
    if (waiting_ == kNone || !trace::is_comm(c.kind) || c.purpose == Purpose::none) return true;
    const EventInfo& w = info(waiting_);
    if (trace::is_comm(w.kind))
      return w.group == c.group || w.purpose == Purpose::none || (is_of_tail(w.purpose) && is_of_tail(c.purpose));
    const bool has_input = event(waiting_).microbatch == event(candidate).microbatch;
    const bool is_gather = c.purpose == Purpose::params && (c.chunk == w.chunk || c.chunk < 0 || w.chunk < 0);
    switch (w.kind) {
      case Kind::forward: return is_gather || (c.purpose == Purpose::forward && has_input);
      case Kind::backward:
      case Kind::backward_input:
      case Kind::backward_weight: return is_gather || (c.purpose == Purpose::backward && has_input);
      case Kind::optimizer: return is_of_tail(c.purpose);
      default: return true;
    }
  }

  Release what_released() {
    const RankIndex& lists = index();
    const std::uint32_t section = newest(lists.computing), comm = newest(lists.comms);
    if (comm == kNone || (section != kNone && event(section).end_ns() > event(comm).end_ns())) return {section, false};
    return {comm, true};
  }

  void add(PieceOf of, std::uint32_t piece_event, std::int64_t from) {
    from = std::clamp(from, begin_ns_, now_ns_);
    if (from < now_ns_) pieces_.push_back({of, rank_, piece_event, from, now_ns_});
    now_ns_ = from;
  }

  // Explains the time from `from` to now, in which nothing of this rank ran, by the waits of its host.
  void nothing_until(std::int64_t from) {
    from = std::max(from, begin_ns_);
    if (from >= now_ns_) return;
    const RankIndex& lists = index();
    // Takes the host's waits from the newest on: they do not overlap.
    for (std::size_t i = std::min(ended_by(lists.host, now_ns_) + 1, lists.host.size()); i > 0; --i) {
      const std::uint32_t wait = lists.host[i - 1];
      if (event(wait).begin_ns >= now_ns_) continue;
      if (event(wait).end_ns() <= from) break;
      add(PieceOf::delay, kNone, std::max(event(wait).end_ns(), from));
      add(info(wait).kind == Kind::save ? PieceOf::save : PieceOf::data_wait, wait,
          std::max(event(wait).begin_ns, from));
    }
    add(PieceOf::delay, kNone, from);
  }

  void enter(std::uint32_t section) {
    const Event& e = event(section);
    section_ = section;
    stalled_ns_ = 0;
    if (e.detail != kNoDetail && trace::is_section(info(section).kind))
      stalled_ns_ = e.duration_ns - std::min<std::int64_t>(std::int64_t{e.detail} * 1000, e.duration_ns);
  }

  // From now back to the newest message that the section waited for, or to its begin. It waited for a tp message inside
  // it that is no longer than it was stalled: others were hidden under computing.
  void through_section() {
    const Event& e = event(section_);
    const std::vector<std::uint32_t>& inside = index().inside;
    for (std::size_t i = ended_by(inside, now_ns_); i > 0 && stalled_ns_ > 0; --i) {
      const Event& m = event(inside[i - 1]);
      if (m.end_ns() <= std::max(e.begin_ns, begin_ns_)) break;
      if (m.begin_ns < e.begin_ns || m.begin_ns >= now_ns_ || m.duration_ns > stalled_ns_) continue;
      add(PieceOf::computing, section_, m.end_ns());
      const std::uint32_t rank = rank_;
      stalled_ns_ -= m.duration_ns;
      through_comm(inside[i - 1]);
      if (rank_ == rank) return;
      section_ = kNone;
      // The other one came to the message in a section of its own.
      if (const std::uint32_t other = section_at(now_ns_); other != kNone) enter(other);
      return;
    }
    add(PieceOf::computing, section_, e.begin_ns);
    waiting_ = section_;
    section_ = kNone;
  }

  // From now back to when the last member had come, and on to that member.
  void through_comm(std::uint32_t comm) {
    const Event& e = event(comm);
    Member last{rank_, comm};
    std::int64_t last_ns = e.begin_ns;
    const EventInfo& w = info(comm);
    const std::uint32_t operation = w.group >= 0 ? matches_.find(w.group, e.detail) : Matches::kNone;
    if (operation != Matches::kNone) {
      for (const Member& member : matches_.members_of(operation)) {
        const Event& other = event_of(trace_, member);
        if (other.state == State::issued || other.begin_ns <= last_ns) continue;
        last = member;
        last_ns = other.begin_ns;
      }
    }
    add(PieceOf::transfer, comm, last_ns);
    rank_ = last.rank;
    waiting_ = last.event;
  }

  // Returns the section that runs just before `time` on the rank that the path has reached; kNone if none does.
  std::uint32_t section_at(std::int64_t time) {
    const RankIndex& lists = index();
    const std::size_t i = ended_by(lists.computing, time - 1);
    if (i == lists.computing.size() || event(lists.computing[i]).begin_ns >= time) return kNone;
    return lists.computing[i];
  }

  const RunTrace& trace_;
  const Matches& matches_;
  std::unordered_map<std::uint32_t, RankIndex> indices_;  // [rank's index], of ranks that some path has led over
  std::vector<PathPiece> pieces_;                         // newest first
  std::int64_t begin_ns_ = 0, now_ns_ = 0;
  // Where the path has come to: a rank, and there inside a section, or at the begin of something that waited.
  std::uint32_t rank_ = 0, section_ = kNone, waiting_ = kNone;
  std::int64_t stalled_ns_ = 0;  // of the section, and not yet explained
};

// Every step of the run: the last rank's end, and that rank.
struct RunStep {
  std::int64_t begin_ns = std::numeric_limits<std::int64_t>::max(), end_ns = std::numeric_limits<std::int64_t>::min();
  std::uint32_t last_rank = 0;
};

std::map<std::int32_t, RunStep> steps_of_run(const Breakdown& breakdown, std::size_t ranks) {
  std::map<std::int32_t, RunStep> steps;
  for (std::size_t r = 0; r < ranks; ++r) {
    auto hint = steps.begin();
    for (const StepTime& time : breakdown.of_rank(r)) {
      hint = steps.try_emplace(hint, time.step);
      RunStep& step = hint->second;
      step.begin_ns = std::min(step.begin_ns, time.begin_ns);
      if (time.begin_ns + time.length_ns <= step.end_ns) continue;
      step.end_ns = time.begin_ns + time.length_ns;
      step.last_rank = static_cast<std::uint32_t>(r);
    }
  }
  const RunStep* before = nullptr;
  std::int32_t before_number = kNoStep;
  for (auto& [number, step] : steps) {
    if (before != nullptr)
      step.begin_ns = number == before_number + 1 ? before->end_ns : std::max(step.begin_ns, before->end_ns);
    step.begin_ns = std::min(step.begin_ns, step.end_ns);
    before = &step;
    before_number = number;
  }
  return steps;
}

void share(const RunTrace& trace, CriticalPaths& paths) {
  std::map<std::tuple<PieceOf, Kind, Purpose, GroupAxis>, std::int64_t> kinds;
  std::map<std::uint32_t, RankShare> ranks;
  for (const StepPath& step : paths.steps) {
    paths.time_ns += step.end_ns - step.begin_ns;
    for (const PathPiece& piece : step.pieces) {
      const std::int64_t time_ns = piece.end_ns - piece.begin_ns;
      RankShare& rank = ranks.try_emplace(piece.rank, RankShare{.rank = piece.rank}).first->second;
      rank.time_ns += time_ns;
      if (piece.of == PieceOf::computing) rank.computing_ns += time_ns;
      if (piece.event == kNone) {
        kinds[{piece.of, Kind::other, Purpose::none, GroupAxis::other}] += time_ns;
        continue;
      }
      const EventInfo& info = trace.info(trace.ranks[piece.rank].events[piece.event]);
      const bool has_axis = piece.of == PieceOf::transfer && info.group >= 0;
      kinds[{piece.of, info.kind, info.purpose,
             has_axis ? trace.groups[static_cast<std::size_t>(info.group)].axis : GroupAxis::other}] += time_ns;
    }
  }
  for (const auto& [key, time_ns] : kinds) {
    const auto& [of, kind, purpose, axis] = key;
    paths.by_kind.push_back({of, {kind, purpose}, axis, time_ns});
  }
  for (const auto& [rank, of_rank] : ranks) paths.by_rank.push_back(of_rank);
  std::ranges::stable_sort(paths.by_kind, std::greater<>{}, &PathShare::time_ns);
  std::ranges::stable_sort(paths.by_rank, std::greater<>{}, &RankShare::time_ns);
}

}  // namespace

std::string_view to_string(PieceOf of) {
  constexpr std::array<std::string_view, kPiecesOf> kNames{"computing", "transfer", "data_wait", "save", "delay"};
  return kNames[static_cast<std::size_t>(of)];
}

CriticalPaths critical_paths(const RunTrace& trace, const Matches& matches, const Breakdown& breakdown) {
  CriticalPaths paths;
  if (trace.ranks.size() > 1 && !matches.tie_ranks()) {
    paths.unknown = "no communication of two ranks could be matched, so nothing tells which rank waited for which";
    return paths;
  }
  Walk walk(trace, matches);
  for (const auto& [number, step] : steps_of_run(breakdown, trace.ranks.size()))
    paths.steps.push_back({number, step.begin_ns, step.end_ns, walk(step.last_rank, step.begin_ns, step.end_ns)});
  share(trace, paths);
  return paths;
}

}  // namespace ms::tracepp
