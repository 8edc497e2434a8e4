#include "tracepp/steps/idle_causes.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "tracepp/parallel.h"
#include "tracepp/steps/host_threads.h"
#include "tracepp/steps/steps.h"

namespace ms::tracepp {
namespace {

bool computes(const EventInfo& info) {
  return trace::is_section(info.kind) || trace::is_op(info.kind) || trace::is_comm(info.kind);
}

class Inquiry {
 public:
  Inquiry(const RunTrace& trace, const std::vector<HostRole>& roles, const RankTrace& rank)
      : trace_(trace), rank_(rank), host_(trace, roles, rank), spans_(step_spans(rank, trace.infos)) {}

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
        explain(idle_from, event.begin_ns, at, is_linked ? rank_.launches[launch].call : kAbsentEvent);
        busy_from_ns_ = event.begin_ns;
      }
      idle_from = std::max(idle_from, event.end_ns());
    }
    if (spans_.back().end_ns > idle_from) explain(idle_from, spans_.back().end_ns, kAbsentEvent, kAbsentEvent);
    for (const auto& [place, time] : places_) found_.places.push_back({place, time.first, time.second});
    std::ranges::stable_sort(found_.places, std::greater<>{}, &IdleTime::ns);
    count_streams();
    doubt();
    return std::move(found_);
  }

 private:
  const EventInfo& info(std::uint32_t event) const { return trace_.info(rank_.events[event]); }

  void lay_out() {
    found_.has_device = host_.has_device();
    for (std::uint32_t i = 0; i < rank_.events.size(); ++i) {
      const Event& event = rank_.events[i];
      if (event.state != State::ended) continue;
      const EventInfo& of = trace_.info(event);
      if (found_.has_device ? is_device_work(of) : computes(of)) work_.push_back(i);
      if (of.origin == Origin::stream_wait && trace_.strings.text(of.name) == "Stream Wait Event")
        waits_.push_back(event.end_ns());
    }
    std::ranges::sort(waits_);
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
    if (!found_.has_device) return follow(begin_ns, end_ns, host_.main(), IdleCause::outside, 0, kAbsentEvent);
    if (call == kAbsentEvent || !host_.clocks_agree())
      return follow(begin_ns, end_ns, host_.main(), IdleCause::unknown, 0, next);
    const Event& launch = rank_.events[call];
    const std::int64_t launched_ns = std::clamp(launch.begin_ns, begin_ns, end_ns);
    if (launch.begin_ns > begin_ns) {
      credit_ = credit_of(launch.lane, begin_ns);
      if (credit_.ns == 0) credit_ = credit_of(host_.main(), begin_ns);
      follow(begin_ns, launched_ns, launch.lane, IdleCause::late, credit_.ns, next);
    }
    IdlePlace place = host_.place(host_.innermost(launch.lane, launched_ns), IdleCause::launch);
    place.cause = IdleCause::launch;
    if (launch.begin_ns > begin_ns || launch.end_ns() > begin_ns) return add(launched_ns, end_ns, place);
    const auto wait = std::ranges::upper_bound(waits_, begin_ns);
    const bool waited = wait != waits_.end() && *wait <= end_ns + 1000;
    add(begin_ns, end_ns,
        {.cause = waited                                   ? IdleCause::event
                  : end_ns - begin_ns < kBetweenKernels_ns ? IdleCause::between
                                                           : IdleCause::queued});
  }

  struct Credit {
    std::int64_t ns = 0;
    IdlePlace place;
  };
  // Returns how long the host was held up by a wait for the device that ended when the device ran dry.
  Credit credit_of(std::size_t lane, std::int64_t dry_ns) const {
    const std::uint32_t waited = host_.newest_wait(lane, dry_ns);
    if (waited == kAbsentEvent) return {};
    const Event& wait = rank_.events[waited];
    const IdlePlace place = host_.place(waited, IdleCause::synchronises);
    if (HostThreads::is_cause(place) || wait.end_ns() + kHostClockError_ns < dry_ns) return {};
    const std::int64_t ns = std::min(wait.end_ns(), dry_ns) - std::max(wait.begin_ns, busy_from_ns_);
    return {std::max<std::int64_t>(ns, 0), place};
  }

  // Follows a thread, or the main one while it does nothing, through a gap.
  void follow(std::int64_t begin_ns, std::int64_t end_ns, std::size_t lane, IdleCause otherwise, std::int64_t credit_ns,
              std::uint32_t next) {
    for (std::int64_t at = begin_ns; at < end_ns;) {
      const std::int64_t until = std::min({end_ns, host_.next_change(lane, at), host_.next_change(host_.main(), at)});
      const std::uint32_t own = host_.innermost(lane, at);
      IdlePlace place = host_.place(own == kAbsentEvent ? host_.innermost(host_.main(), at) : own, otherwise);
      if (place.cause == IdleCause::late && own != kAbsentEvent && host_.role(own) == HostRole::synchronises)
        place.cause = IdleCause::synchronises;
      if (place.cause == IdleCause::unknown) place = {};
      if (place.cause == IdleCause::outside && HostThreads::is_empty(place)) place.cause = IdleCause::unknown;
      if (place.cause == IdleCause::late && HostThreads::is_empty(place) && next != kAbsentEvent)
        place.before = info(next).name;
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
    std::vector<Stream> streams(host_.lanes());
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
        (by_host                             ? stream.idle.host_wait_us
         : gap_us < kBetweenKernels_ns / kUs ? stream.idle.kernel_wait_us
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
    } else if (!host_.clocks_agree()) {
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
  const RankTrace& rank_;
  HostThreads host_;
  std::vector<StepSpan> spans_;
  std::size_t span_ = 0;
  std::vector<std::uint32_t> work_;  // events, by begin
  std::vector<std::int64_t> waits_;  // ends of waits of streams
  std::int64_t busy_from_ns_ = 0;    // the device was busy from then until the gap in hand
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

double confidence_of(const IdlePlace& place) {
  constexpr double kUnseen = 0.5;
  constexpr std::array<double, kIdleCauses> kSure{0.85, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.6, 0.9, 0.7, 0};
  return place.before != 0 ? kUnseen : kSure[static_cast<std::size_t>(place.cause)];
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
  const std::vector<HostRole> roles = host_roles(trace);
  std::vector<RankIdle> found(trace.ranks.size());
  in_blocks(trace.ranks.size(), [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; ++r) found[r] = Inquiry(trace, roles, trace.ranks[r]).run();
  });
  return found;
}

}  // namespace ms::tracepp
