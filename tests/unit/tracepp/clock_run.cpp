#include "clock_run.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <random>

namespace ms::tracepp::synthetic {
namespace {

// True times are seconds since the run began. The first host's clock is as imperfect as the others'.
struct HostTime {
  double offset_s = 0, drift = 0, wander = 0, phase = 0, set_at_s = HUGE_VAL;
  std::int64_t operator()(double t) const {
    constexpr double kSwing = 2 * 3.14159265358979 / 2400;
    const double swing = wander / kSwing * (std::sin(kSwing * t + phase) - std::sin(phase));
    const double own = 5000 + offset_s + t + drift * t + swing + (t >= set_at_s ? 0.3 : 0);
    return std::llround(own * 1e9);
  }
};

class Maker {
 public:
  Maker(const ClockRunOptions& options, ClockRun& run)
      : o_(options), run_(run), tables_(run.trace), random_(options.seed) {}

  void make() {
    for (int h = 0; h < o_.hosts; ++h) {
      HostTime clock{.offset_s = spread(o_.offset_s),
                     .drift = spread(o_.drift_ppm * 1e-6),
                     .wander = o_.wander_ppm * 1e-6,
                     .phase = spread(3)};
      if (h == o_.set_host) clock.set_at_s = o_.span_s / 2 + 7;
      clocks_.push_back(clock);
    }
    const int ranks = o_.hosts * o_.ranks_per_host;
    for (int r = 0; r < ranks; ++r) {
      RankTrace rank;
      rank.rank = r;
      rank.host = "host" + std::to_string(host(r));
      if (o_.wall_error_s >= 0) {
        rank.clock_ns = clocks_[static_cast<std::size_t>(host(r))](0);
        rank.realtime_ns = 1'800'000'000'000'000'000 + std::llround(wall_error(host(r)) * 1e9);
      }
      run_.trace.ranks.push_back(std::move(rank));
    }
    run_.truth.resize(run_.trace.ranks.size());
    free_.resize(run_.trace.ranks.size());
    if (o_.probe_every_s > 0) probe();
    for (int s = 0; s < o_.steps; ++s) step(s);
    for (RankTrace& rank : run_.trace.ranks) rank.last_flush_ns = rank.events.empty() ? 0 : rank.events.back().end_ns();
  }

 private:
  int host(int rank) const { return rank / o_.ranks_per_host; }
  double spread(double most) { return std::uniform_real_distribution(-most, most)(random_); }
  double late(double mean_us) {
    return -std::log(1 - std::uniform_real_distribution(0.0, 1.0)(random_)) * mean_us * 1e-6;
  }
  double chance() { return std::uniform_real_distribution(0.0, 1.0)(random_); }
  double way() {  // of a message of a probe
    return 10e-6 + late(o_.jitter_us) + (chance() < o_.outliers ? chance() * 2e-3 : 0);
  }
  double wall_error(int h) {
    const auto [place, is_new] = wall_errors_.try_emplace(h, 0);
    if (is_new) place->second = spread(o_.wall_error_s);
    return place->second;
  }

  // As comm/clock_probe.h does: a tree of fan-out 32, children ask.
  void probe() {
    const int rounds = static_cast<int>(o_.span_s / o_.probe_every_s) + 1;
    for (int round = 0; round < rounds; ++round) {
      for (int h = 1; h < o_.hosts; ++h) {
        const int parent = (h - 1) / 32;
        if (h == o_.unprobed_host || parent == o_.unprobed_host) continue;
        const HostTime &own = clocks_[static_cast<std::size_t>(h)], &other = clocks_[static_cast<std::size_t>(parent)];
        double t = round * o_.probe_every_s + chance() * 10e-3;
        for (int k = 0; k < o_.samples; ++k) {
          Probe probe{.peer = parent * o_.ranks_per_host, .round = round};
          probe.asked_ns = own(t);
          probe.peer_heard_ns = other(t += way());
          probe.peer_replied_ns = other(t += 2e-6);
          probe.answered_ns = own(t += way());
          run_.trace.ranks[static_cast<std::size_t>(h * o_.ranks_per_host)].probes.push_back(probe);
          t += 1e-6;
        }
      }
    }
  }

  void record(int rank, const EventInfo& info, double begin, double end, std::uint32_t detail, int step) {
    const auto r = static_cast<std::size_t>(rank);
    const HostTime& clock = clocks_[static_cast<std::size_t>(host(rank))];
    Event event{.begin_ns = clock(begin), .detail = detail, .info = tables_.info(info), .step = step};
    event.duration_ns = clock(end) - event.begin_ns;
    run_.trace.ranks[r].events.push_back(event);
    run_.truth[r].push_back({clocks_[0](begin), clocks_[0](end)});
  }

  // All meet; who is there is done a transfer after the last.
  void meet(Kind kind, GroupAxis axis, const std::string& name, const std::vector<int>& ranks, int step) {
    const std::int32_t group = tables_.group({name, ranks, axis});
    const std::uint32_t sequence = sequences_[group]++;
    double last = 0;
    for (const int r : ranks) last = std::max(last, free_[static_cast<std::size_t>(r)]);
    const bool pair = kind == Kind::send;
    for (const int r : ranks) {
      double& free = free_[static_cast<std::size_t>(r)];
      const double end = last + (o_.transfer_us * 1e-6) + late(o_.end_jitter_us);
      const Kind own = pair && r == ranks[1] ? Kind::recv : kind;
      record(r, {.kind = own, .group = group, .size_bytes = 4096}, free, end, sequence, step);
      free = end;
    }
  }

  void compute(int rank, Kind kind, double seconds, int step) {
    double& free = free_[static_cast<std::size_t>(rank)];
    record(rank, {.kind = kind}, free, free + seconds, kNoDetail, step);
    free += seconds;
  }

  void step(int s) {
    const int ranks = o_.hosts * o_.ranks_per_host, per = o_.ranks_per_host;
    const double begin = (s + 0.5) * o_.span_s / o_.steps;
    for (int r = 0; r < ranks; ++r) {
      free_[static_cast<std::size_t>(r)] = std::max(free_[static_cast<std::size_t>(r)], begin + 1e-3 * chance());
      compute(r, Kind::forward, 2e-3 + 1e-3 * chance(), s);
    }
    // Pipelines along the hosts, in two halves; then the way back.
    for (const bool forward : {true, false}) {
      for (const int odd : {0, 1}) {
        for (int h = odd; h + 1 < o_.hosts; h += 2) {
          const int a = h * per, b = (h + 1) * per;
          const std::vector<int> pair = forward ? std::vector{a, b} : std::vector{b, a};
          meet(Kind::send, GroupAxis::pp, (forward ? "pp.fwd " : "pp.bwd ") + std::to_string(h), pair, s);
        }
      }
      for (int r = 0; r < ranks; ++r) compute(r, Kind::backward, 1e-3 + 1e-3 * chance(), s);
    }
    std::vector<int> group;
    for (int h = 0; h < o_.hosts; h += 16) {
      for (int l = 0; l < per; ++l) {
        group.clear();
        for (int k = h; k < std::min(h + 16, o_.hosts); ++k) group.push_back(k * per + l);
        if (group.size() > 1) meet(Kind::reduce_scatter, GroupAxis::dp, "dp " + std::to_string(h * per + l), group, s);
      }
    }
    if (!o_.world_group) return;
    group.clear();
    for (int r = 0; r < ranks; ++r) group.push_back(r);
    if (ranks > 1) meet(Kind::all_reduce, GroupAxis::world, "world", group, s);
  }

  ClockRunOptions o_;
  ClockRun& run_;
  Tables tables_;
  std::mt19937_64 random_;
  std::vector<HostTime> clocks_;
  std::map<int, double> wall_errors_;
  std::vector<double> free_;  // of each rank: since when it is
  std::map<std::int32_t, std::uint32_t> sequences_;
};

}  // namespace

ClockRun::ClockRun(const ClockRunOptions& options) { Maker(options, *this).make(); }

ClockRun::Error ClockRun::error_where(const std::string* host) const {
  std::vector<std::int64_t> off;
  for (std::size_t r = 0; r < trace.ranks.size(); ++r) {
    if (host != nullptr && trace.ranks[r].host != *host) continue;
    for (std::size_t e = 0; e < truth[r].size(); ++e) {
      const Event& event = trace.ranks[r].events[e];
      off.push_back(std::abs(event.begin_ns - truth[r][e].begin_ns));
      off.push_back(std::abs(event.end_ns() - truth[r][e].end_ns));
    }
  }
  if (off.empty()) return {};
  std::ranges::sort(off);
  return {off[off.size() / 2], off[(off.size() - 1) * 99 / 100], off.back()};
}
ClockRun::Error ClockRun::error() const { return error_where(nullptr); }
ClockRun::Error ClockRun::error_of_host(const std::string& host) const { return error_where(&host); }

std::uint64_t ClockRun::violated() const {
  std::map<std::pair<std::int32_t, std::uint32_t>, std::vector<std::pair<Kind, const Event*>>> operations;
  for (const RankTrace& rank : trace.ranks) {
    for (const Event& event : rank.events) {
      const EventInfo& info = trace.info(event);
      if (info.group >= 0) operations[{info.group, event.detail}].push_back({info.kind, &event});
    }
  }
  std::uint64_t count = 0;
  for (const auto& [key, members] : operations) {
    std::int64_t last = INT64_MIN;
    for (const auto& [kind, event] : members)
      if (kind != Kind::recv) last = std::max(last, event->begin_ns);
    for (const auto& [kind, event] : members) count += kind != Kind::send && event->end_ns() < last;
  }
  return count;
}

}  // namespace ms::tracepp::synthetic
