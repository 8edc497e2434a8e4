// How exact aligned times are, on runs whose true times are known (tests/unit/tracepp/clock_run.h), and how long it
// takes to match and align many events. clock_accuracy.sh calls it. usage: clock_accuracy [--speed]
#include <fmt/format.h>

#include <chrono>
#include <string_view>

#include "clock_run.h"

namespace ms::tracepp {
namespace {

using synthetic::ClockRun;
using synthetic::ClockRunOptions;
using Time = std::chrono::steady_clock;

double seconds_since(Time::time_point begin) { return std::chrono::duration<double>(Time::now() - begin).count(); }
double us(std::int64_t ns) { return static_cast<double>(ns) * 1e-3; }

void show(const char* name, const ClockRunOptions& options) {
  ClockRun run(options);
  const std::uint64_t recorded = run.violated();
  const Alignment alignment = align(run.trace, match_operations(run.trace));
  const ClockRun::Error error = run.error();
  fmt::print("{:<44} {:>5} {:>8} {:>8.1f} {:>8.1f} {:>8.1f} {:>9} {:>7} {:>7} {:>8.1f}\n", name, options.hosts,
             run.trace.event_count(), us(error.p50_ns), us(error.p99_ns), us(error.max_ns), recorded,
             alignment.repair.violated_before, run.violated(), us(alignment.repair.largest_ns));
}

void accuracy() {
  fmt::print("clocks differ by up to 1 s and 100 ppm; an hour; 8 probes a minute unless said otherwise; times in us\n");
  fmt::print("{:<44} {:>5} {:>8} {:>26} {:>25} {:>8}\n", "", "", "", "error after alignment", "violated orders",
             "moved");
  fmt::print("{:<44} {:>5} {:>8} {:>8} {:>8} {:>8} {:>9} {:>7} {:>7} {:>8}\n", "", "hosts", "events", "p50", "p99",
             "max", "recorded", "fitted", "after", "by most");
  show("jitter 5 us", {.hosts = 200, .jitter_us = 5});
  show("jitter 20 us", {.hosts = 200, .jitter_us = 20});
  show("jitter 50 us", {.hosts = 200, .jitter_us = 50});
  show("jitter 50 us, 30 % late one way by <= 2 ms", {.hosts = 200, .jitter_us = 50, .outliers = 0.3});
  show("jitter 50 us", {.hosts = 2000, .jitter_us = 50});
  show("jitter 50 us, messages of 3 us", {.hosts = 200, .jitter_us = 50, .transfer_us = 3, .end_jitter_us = 2});
  show("one probe a minute, jitter 50 us", {.hosts = 200, .jitter_us = 50, .samples = 1});
  show("drift swings by 0.1 ppm in 40 min", {.hosts = 200, .wander_ppm = 0.1});
  show("drift swings by 1 ppm in 40 min", {.hosts = 200, .wander_ppm = 1});
  show("4 min, probed at the start only", {.hosts = 200, .span_s = 240, .probe_every_s = 1e6});
  show("one host without probes", {.hosts = 200, .unprobed_host = 7});
  show("one clock set ahead by 0.3 s", {.hosts = 200, .set_host = 7});
  show("no probes", {.hosts = 200, .probe_every_s = 0});
  show("no probes, no operation of all ranks", {.hosts = 200, .probe_every_s = 0, .world_group = false});
}

void speed() {
  ClockRun run({.hosts = 1250, .ranks_per_host = 8, .steps = 302});
  run.truth.clear();
  fmt::print("{:.1f} M events of {} ranks on 1250 hosts\n", static_cast<double>(run.trace.event_count()) * 1e-6,
             run.trace.ranks.size());
  Time::time_point begin = Time::now();
  const Matches matches = match_operations(run.trace);
  fmt::print("match {:.2f} s: {:.1f} M messages in {:.1f} M operations\n", seconds_since(begin),
             static_cast<double>(matches.members.size()) * 1e-6, static_cast<double>(matches.operations.size()) * 1e-6);
  begin = Time::now();
  const Alignment alignment = align(run.trace, matches);
  fmt::print("align {:.2f} s: {} orders, {} violated after\n", seconds_since(begin), alignment.repair.orders,
             alignment.repair.violated_after);
}

}  // namespace
}  // namespace ms::tracepp

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "--speed") {
    ms::tracepp::speed();
  } else {
    ms::tracepp::accuracy();
  }
}
