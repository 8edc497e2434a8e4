#include "tracepp/steps/idle_causes.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "tracepp/parallel.h"
#include "tracepp/steps/host_roles.h"
#include "tracepp/steps/steps.h"

namespace ms::tracepp {
namespace {

constexpr std::int64_t kBetween_ns = 30'000;  // as HTA's consecutive_kernel_delay
constexpr std::int64_t kClockError_ns =
    20'000;  // between host and device: a host that waited is back a little after it
constexpr std::uint32_t kNoEvent = 0xffffffff;

bool computes(const EventInfo& info) {
  return trace::is_section(info.kind) || trace::is_op(info.kind) || trace::is_comm(info.kind);
}
bool is_work(const EventInfo& info) { return info.origin == Origin::kernel || info.origin == Origin::copy; }

class Inquiry {
 public:
  Inquiry(const RunTrace& trace, const std::vector<HostRole>& roles, const RankTrace& rank)
      : trace_(trace), roles_(roles), rank_(rank), spans_(step_spans(rank, trace.infos)) {}

  RankIdle run() {
    for (const StepSpan& span : spans_) found_.steps.push_back({.step = span.step, .length_ns = span.length_ns()});
    if (spans_.empty()) return std::move(found_);
    lay_out();
    std::size_t launch = 0;
    std::int64_t idle_from = spans_.front().begin_ns;
    busy_from_ns_ = idle_from;
    for (const std::uint32_t at : work_) {
      const Event& event = rank_.events[at];
      while (launch < rank_.launches.size() && rank_.launches[launch].event < at) ++launch;
      const bool is_linked = launch < rank_.launches.size() && rank_.launches[launch].event == at;
      if (event.begin_ns > idle_from) {
        explain(idle_from, event.begin_ns, at, is_linked ? rank_.launches[launch].call : kNoEvent);
        busy_from_ns_ = event.begin_ns;
      }
      idle_from = std::max(idle_from, event.end_ns());
    }
    if (spans_.back().end_ns > idle_from) explain(idle_from, spans_.back().end_ns, kNoEvent, kNoEvent);
    for (const auto& [place, time] : places_) found_.places.push_back({place, time.first, time.second});
    std::ranges::stable_sort(found_.places, std::greater<>{}, &IdleTime::ns);
    count_streams();
    doubt();
    return std::move(found_);
  }

 private:
  // A timeline of the host: what is under way at a time that only rises.
  struct Thread {
    std::vector<std::uint32_t> events;
    std::size_t next = 0;
    std::vector<std::uint32_t> open;  // outer ones first
    std::uint32_t waited = kNoEvent;  // the newest call that waited for the device,
    IdlePlace waited_at;              // and where
  };

  const EventInfo& info(std::uint32_t event) const { return trace_.info(rank_.events[event]); }
  HostRole role(std::uint32_t event) const {
    return blocks_[event] ? HostRole::synchronises : roles_[rank_.events[event].info];
  }

  void lay_out() {
    threads_.resize(std::max<std::size_t>(rank_.lanes.size(), 256));
    found_.has_device = std::ranges::any_of(trace_.infos, is_work) &&
                        std::ranges::any_of(rank_.events, [&](const Event& e) { return is_work(trace_.info(e)); });
    std::vector<std::size_t> weight(threads_.size());
    for (std::uint32_t i = 0; i < rank_.events.size(); ++i) {
      const Event& event = rank_.events[i];
      if (event.state != State::ended) continue;
      const EventInfo& of = trace_.info(event);
      if (found_.has_device ? is_work(of) : computes(of)) work_.push_back(i);
      if (of.origin == Origin::stream_wait && name(i) == "Stream Wait Event") waits_.push_back(event.end_ns());
      if (of.kind == Kind::step) weight[event.lane] += rank_.events.size();
      if (of.kind == Kind::step || of.origin < Origin::op || trace::is_comm(of.kind)) continue;
      ++weight[event.lane];
      threads_[event.lane].events.push_back(i);
    }
    std::ranges::sort(waits_);
    main_ = static_cast<std::size_t>(std::ranges::max_element(weight) - weight.begin());
    for (Thread& thread : threads_) {
      // Events are in order of begin; of those that begin together, the longest is the outer one.
      std::ranges::stable_sort(thread.events, [&](std::uint32_t a, std::uint32_t b) {
        const Event &x = rank_.events[a], &y = rank_.events[b];
        return x.begin_ns != y.begin_ns ? x.begin_ns < y.begin_ns : x.duration_ns > y.duration_ns;
      });
    }
    blocks_.resize(rank_.events.size());
    std::size_t backwards = 0;
    for (const Launch& launch : rank_.launches) {
      if (rank_.events[launch.event].begin_ns + kClockError_ns < rank_.events[launch.call].begin_ns) ++backwards;
      if (info(launch.event).origin == Origin::copy && name(launch.event).find("Pageable") != std::string_view::npos) {
        blocks_[launch.call] = true;
      }
    }
    clocks_agree_ = static_cast<double>(backwards) <= kMostBackwards * static_cast<double>(rank_.launches.size());
  }

  static constexpr double kMostBackwards = 0.01;

  std::string_view name(std::uint32_t event) const { return trace_.strings.text(info(event).name); }

  void advance(Thread& thread, std::int64_t time_ns) {
    const auto close = [&](std::int64_t until) {
      while (!thread.open.empty() && rank_.events[thread.open.back()].end_ns() <= until) thread.open.pop_back();
    };
    for (; thread.next < thread.events.size(); ++thread.next) {
      const std::uint32_t at = thread.events[thread.next];
      const Event& event = rank_.events[at];
      if (event.begin_ns > time_ns) break;
      close(event.begin_ns);
      thread.open.push_back(at);
      if (role(at) != HostRole::synchronises) continue;
      thread.waited = at;
      thread.waited_at = place_in(thread, IdleCause::synchronises);
    }
    close(time_ns);
  }

  std::int64_t next_change(const Thread& thread) const {
    std::int64_t next = std::numeric_limits<std::int64_t>::max();
    if (!thread.open.empty()) next = rank_.events[thread.open.back()].end_ns();
    if (thread.next < thread.events.size()) next = std::min(next, rank_.events[thread.events[thread.next]].begin_ns);
    return next;
  }

  // Returns where the thread is. A data loader, a save and the like are the cause whatever runs inside them.
  IdlePlace place_in(const Thread& thread, IdleCause otherwise) const {
    IdlePlace place{.cause = otherwise};
    constexpr std::size_t kDeepest = 512;  // a damaged trace may have a million, one inside the other
    const std::span<const std::uint32_t> open(thread.open);
    for (const std::uint32_t at : open.last(std::min(open.size(), kDeepest))) {
      const EventInfo& of = info(at);
      const HostRole role_here = role(at);
      if (const auto cause = cause_of(role_here)) {
        place.below = of.name;
        place.cause = *cause;
      } else if (role_here == HostRole::op) {
        if (place.op == 0) place.op = of.name;
      } else if (role_here == HostRole::call || role_here == HostRole::synchronises) {
        place.call = of.name;
      } else if (role_here == HostRole::around) {
        if (!cause_of_place(place)) place.below = of.name;
      } else if (role_here == HostRole::line) {
        place.line = of.name;
      }
    }
    return place;
  }
  static bool cause_of_place(const IdlePlace& place) {
    return place.cause >= IdleCause::data && place.cause <= IdleCause::compilation;
  }
  static bool is_empty(const IdlePlace& place) {
    return place.op == 0 && place.call == 0 && place.below == 0 && place.line == 0;
  }

  void add(std::int64_t begin_ns, std::int64_t end_ns, const IdlePlace& place) {
    bool counts = false;
    while (span_ < spans_.size() && spans_[span_].end_ns <= begin_ns) ++span_;
    for (std::size_t s = span_; s < spans_.size() && spans_[s].begin_ns < end_ns; ++s) {
      const std::int64_t ns = std::min(end_ns, spans_[s].end_ns) - std::max(begin_ns, spans_[s].begin_ns);
      if (ns <= 0) continue;
      found_.steps[s].ns[static_cast<std::size_t>(place.cause)] += ns;
      auto& [time_ns, times] = places_[place];
      time_ns += ns;
      if (!std::exchange(counts, true)) ++times;
    }
  }

  // Explains the gap before event `next`, which `call` launched.
  void explain(std::int64_t begin_ns, std::int64_t end_ns, std::uint32_t next, std::uint32_t call) {
    if (end_ns <= spans_.front().begin_ns || begin_ns >= spans_.back().end_ns) return;
    if (!found_.has_device) return follow(begin_ns, end_ns, threads_[main_], IdleCause::outside, 0, kNoEvent);
    if (call == kNoEvent || !clocks_agree_)
      return follow(begin_ns, end_ns, threads_[main_], IdleCause::unknown, 0, next);
    const Event& launch = rank_.events[call];
    Thread& thread = threads_[launch.lane];
    const std::int64_t launched_ns = std::clamp(launch.begin_ns, begin_ns, end_ns);
    if (launch.begin_ns > begin_ns) {
      advance(thread, begin_ns);
      advance(threads_[main_], begin_ns);
      credit_ = credit_of(thread, begin_ns);
      if (credit_.ns == 0) credit_ = credit_of(threads_[main_], begin_ns);
      follow(begin_ns, launched_ns, thread, IdleCause::late, credit_.ns, next);
    }
    advance(thread, launched_ns);
    IdlePlace place = place_in(thread, IdleCause::launch);
    place.cause = IdleCause::launch;
    if (launch.begin_ns > begin_ns || launch.end_ns() > begin_ns) return add(launched_ns, end_ns, place);
    const auto wait = std::ranges::upper_bound(waits_, begin_ns);
    const bool waited = wait != waits_.end() && *wait <= end_ns + 1000;
    add(begin_ns, end_ns,
        {.cause = waited                            ? IdleCause::event
                  : end_ns - begin_ns < kBetween_ns ? IdleCause::between
                                                    : IdleCause::queued});
  }

  struct Credit {
    std::int64_t ns = 0;
    IdlePlace place;
  };
  // Returns how long the host was held up by a wait for the device that ended when the device ran dry.
  Credit credit_of(const Thread& thread, std::int64_t dry_ns) const {
    if (thread.waited == kNoEvent || cause_of_place(thread.waited_at)) return {};
    const Event& wait = rank_.events[thread.waited];
    if (wait.end_ns() + kClockError_ns < dry_ns) return {};
    const std::int64_t ns = std::min(wait.end_ns(), dry_ns) - std::max(wait.begin_ns, busy_from_ns_);
    return {std::max<std::int64_t>(ns, 0), thread.waited_at};
  }

  // Follows a thread, or the main one while it does nothing, through a gap.
  void follow(std::int64_t begin_ns, std::int64_t end_ns, Thread& thread, IdleCause otherwise, std::int64_t credit_ns,
              std::uint32_t next) {
    Thread& main = threads_[main_];
    for (std::int64_t at = begin_ns; at < end_ns;) {
      advance(thread, at);
      advance(main, at);
      const std::int64_t until = std::min({end_ns, next_change(thread), next_change(main)});
      IdlePlace place = place_in(thread.open.empty() ? main : thread, otherwise);
      if (place.cause == IdleCause::late && !thread.open.empty() &&
          role(thread.open.back()) == HostRole::synchronises) {
        place.cause = IdleCause::synchronises;
      }
      if (place.cause == IdleCause::unknown) place = {};
      if (place.cause == IdleCause::outside && is_empty(place)) place.cause = IdleCause::unknown;
      if (place.cause == IdleCause::late && is_empty(place) && next != kNoEvent) place.before = info(next).name;
      const std::int64_t by_wait = place.cause == IdleCause::late ? std::min(credit_ns, until - at) : 0;
      if (by_wait > 0) add(at, at + by_wait, credit_.place);
      credit_ns -= by_wait;
      add(at + by_wait, until, place);
      at = until;
    }
  }

  void count_streams() {
    constexpr std::int64_t kUs = 1000;
    const auto up = [](std::int64_t ns) { return (ns + kUs - 1) / kUs; };
    std::int64_t last_begins = std::numeric_limits<std::int64_t>::max();
    std::size_t steps = 0;
    for (const Event& event : rank_.events) {
      if (trace_.info(event).kind != Kind::step) continue;
      last_begins = event.begin_ns;
      ++steps;
    }
    struct Stream {
      bool has = false;
      std::int64_t end_us = 0;
      StreamIdle idle;
    };
    std::vector<Stream> streams(threads_.size());
    std::size_t launch = 0;
    if (!found_.has_device) return;
    for (const std::uint32_t at : work_) {
      const Event& event = rank_.events[at];
      while (launch < rank_.launches.size() && rank_.launches[launch].event < at) ++launch;
      const bool is_linked = launch < rank_.launches.size() && rank_.launches[launch].event == at;
      const std::int64_t launched_ns =
          is_linked ? rank_.events[rank_.launches[launch].call].begin_ns : std::numeric_limits<std::int64_t>::min();
      if (steps > 1 && (!is_linked || launched_ns >= last_begins)) continue;
      Stream& stream = streams[event.lane];
      if (stream.has) {
        const std::int64_t gap_us = up(event.begin_ns) - stream.end_us;
        const bool by_host = is_linked && up(launched_ns) > stream.end_us;
        (by_host                      ? stream.idle.host_wait_us
         : gap_us < kBetween_ns / kUs ? stream.idle.kernel_wait_us
                                      : stream.idle.other_us) += gap_us;
      }
      stream.has = true;
      stream.idle.lane = event.lane;
      stream.end_us = event.end_ns() / kUs;
    }
    for (const Stream& stream : streams) {
      if (stream.has) found_.streams.push_back(stream.idle);
    }
  }

  void doubt() {
    constexpr double kMuch = 0.1;  // of a step
    const auto length = static_cast<double>(found_.length_ns());
    if (static_cast<double>(found_.of(IdleCause::unknown)) < kMuch * length) return;
    if (!found_.has_device) {
      found_.doubt = "the trace shows nothing of the host outside of operators: record with_stack=True";
    } else if (!clocks_agree_) {
      found_.doubt = "kernels begin before their launch: the clocks of host and device do not agree";
    } else if (rank_.launches.empty()) {
      found_.doubt =
          "the trace does not tell which call launched which kernel: record ProfilerActivity.CPU too (nsys: "
          "--trace=cuda)";
    } else {
      found_.doubt = "the launches of these kernels are not in the trace";
    }
  }

  const RunTrace& trace_;
  const std::vector<HostRole>& roles_;
  const RankTrace& rank_;
  std::vector<StepSpan> spans_;
  std::vector<Thread> threads_;  // by lane
  std::size_t main_ = 0, span_ = 0;
  std::vector<std::uint32_t> work_;  // events, by begin
  std::vector<std::int64_t> waits_;  // ends of waits of streams
  std::vector<bool> blocks_;         // by event: calls that copy from or to pageable memory
  std::int64_t busy_from_ns_ = 0;    // the device was busy from then until the gap in hand
  bool clocks_agree_ = true;
  Credit credit_;
  std::map<IdlePlace, std::pair<std::int64_t, std::uint64_t>> places_;
  RankIdle found_;
};

}  // namespace

std::string_view to_string(IdleCause cause) {
  constexpr std::array<std::string_view, kIdleCauses> kNames{"synchronises", "data",   "save",    "collection",
                                                             "compilation",  "late",   "launch",  "between",
                                                             "event",        "queued", "outside", "unknown"};
  return kNames[static_cast<std::size_t>(cause)];
}

double confidence_of(IdleCause cause) {
  constexpr std::array<double, kIdleCauses> kSure{0.85, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.6, 0.9, 0.7, 0};
  return kSure[static_cast<std::size_t>(cause)];
}

std::int64_t RankIdle::of(IdleCause cause) const {
  std::int64_t sum = 0;
  for (const IdleStep& step : steps) sum += step.ns[static_cast<std::size_t>(cause)];
  return sum;
}

std::int64_t RankIdle::length_ns() const {
  std::int64_t sum = 0;
  for (const IdleStep& step : steps) sum += step.length_ns;
  return sum;
}

std::vector<RankIdle> idle_causes(const RunTrace& trace) {
  if (std::ranges::none_of(trace.infos, [](const EventInfo& info) { return info.origin != Origin::unknown; }))
    return {};
  std::vector<HostRole> roles;
  for (const EventInfo& info : trace.infos) roles.push_back(host_role(info, trace.strings.text(info.name)));
  std::vector<RankIdle> found(trace.ranks.size());
  in_blocks(trace.ranks.size(), [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; ++r) found[r] = Inquiry(trace, roles, trace.ranks[r]).run();
  });
  return found;
}

}  // namespace ms::tracepp
