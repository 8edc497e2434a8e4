// A run of ten thousand ranks: from their files to the verdict, each part timed, with the memory that it takes. The
// files are those of a synthetic run with one slow rank, which must be named. Run by trace_scale.sh.
// usage: trace_scale write DIR [--ranks N] [--steps N]; trace_scale read DIR
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <filesystem>

#include "base/text.h"
#include "tracepp/read/read.h"
#include "tracepp/report/report.h"
#include "tracepp/synthetic.h"
#include "tracepp/write_run.h"

namespace ms::bench {
namespace {

using namespace tracepp;  // NOLINT

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

constexpr int kPp = 8, kTp = 4, kSlow = 4321;

int write(const std::string& dir, int ranks, int steps) {
  SyntheticRun run;
  run.mesh = {.dp = std::max(1, ranks / (kPp * kTp)), .pp = kPp, .tp = kTp};
  run.microbatches = 8;
  run.steps = steps;
  run.tp_collectives = 6;
  run.clock_offset_s = 0.05;
  run.faults = {{.kind = Fault::Kind::slow_rank, .rank = kSlow % run.mesh.size(), .from_step = 0, .factor = 1.2}};
  const RunTrace trace = make_run(run);
  std::filesystem::create_directories(dir);
  write_run(trace, dir, 2 << 20);
  std::printf("%d ranks, %zu events, rank %d is slow\n", run.mesh.size(), trace.event_count(), kSlow % run.mesh.size());
  return 0;
}

int read(const std::string& dir) {
  TextTable table({{"part"}, {"seconds", Align::right}});
  const double start = now_s();
  double last = start;
  const auto took = [&](const char* part) {
    const double now = now_s();
    table.row({part, fmt::format("{:.2f}", now - last)});
    last = now;
  };
  RunTrace trace = read_run({dir});
  const double read_s = now_s() - start, read_bytes = peak_bytes();
  took("read");
  const Matches matches = match_operations(trace);
  took("match communication");
  const Diagnosis diagnosis = find_suspects(trace);
  took("stragglers");
  const Hang hang = find_hang(trace);
  took("hang");
  const Alignment clocks = align(trace, matches);
  took("align clocks");
  const Breakdown breakdown = break_down(trace);
  took("breakdown");
  const CommReport comms = measure_communication(trace, matches);
  took("communication");
  const CriticalPaths paths = critical_paths(trace, matches, breakdown);
  took("critical path");
  const ChangePoints changes = find_change_points(trace, breakdown);
  took("change points");
  table.row({"all", fmt::format("{:.2f}", last - start)});
  const auto events = static_cast<double>(trace.event_count());
  std::fputs(table.str().c_str(), stdout);
  std::printf(
      "\n%zu ranks on %zu hosts, %.1f M events; read %.1f M events/s, %.0f bytes of memory an event after reading\n",
      trace.ranks.size(), clocks.hosts.size(), events * 1e-6, events * 1e-6 / read_s, read_bytes / events);
  std::printf("peak memory %s; first suspect rank %d, score %.3f\n", format_size(peak_bytes()).c_str(),
              diagnosis.suspects.empty() ? -1 : diagnosis.suspects[0].rank,
              diagnosis.suspects.empty() ? 1 : diagnosis.suspects[0].score);
  return hang.state == RunState::hang || paths.steps.empty() || changes.steps.empty() || comms.rows.empty() ? 1 : 0;
}

int run(int argc, char** argv) {
  int ranks = 10'000, steps = 10;
  for (int i = 3; i + 1 < argc; i += 2) {
    (std::string_view(argv[i]) == "--ranks" ? ranks : steps) = std::max(1, std::atoi(argv[i + 1]));
  }
  const std::string_view command = argc > 2 ? argv[1] : "";
  if (command == "write") return write(argv[2], ranks, steps);
  if (command == "read") return read(argv[2]);
  std::fprintf(stderr, "usage: trace_scale write DIR [--ranks N] [--steps N]; trace_scale read DIR\n");
  return 2;
}

}  // namespace
}  // namespace ms::bench

int main(int argc, char** argv) { return ms::bench::run(argc, argv); }
