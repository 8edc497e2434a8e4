// How often `ms-tracepp stragglers` names the right culprit: faults of known place and size in synthetic runs, several
// seeds and placements each, and healthy runs. straggler_accuracy.sh runs it; ctest runs one seed.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/rng.h"
#include "tracepp/findings/suspects.h"
#include "tracepp/synthetic.h"

namespace ms::tracepp {
namespace {

struct Case {
  const char* name;
  Fault fault;
  FindingCode code;  // of the finding
  double noise = 0.01;
  bool has_detail = true;
};

using Is = Fault::Kind;
const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"slow rank, 5 %", {.kind = Is::slow_rank, .factor = 1.05}, FindingCode::slow_rank},
      {"slow rank, 10 %", {.kind = Is::slow_rank, .factor = 1.10}, FindingCode::slow_rank},
      {"slow rank, 20 %", {.kind = Is::slow_rank, .factor = 1.20}, FindingCode::slow_rank},
      {"slow rank, 10 % from step 5", {.kind = Is::slow_rank, .from_step = 5, .factor = 1.10}, FindingCode::slow_rank},
      {"slow rank, 5 %, noise 2 %", {.kind = Is::slow_rank, .factor = 1.05}, FindingCode::slow_rank, 0.02},
      {"slow rank, 5 %, noise 4 %", {.kind = Is::slow_rank, .factor = 1.05}, FindingCode::slow_rank, 0.04},
      {"slow rank, 3 %, noise 2 %", {.kind = Is::slow_rank, .factor = 1.03}, FindingCode::slow_rank, 0.02},
      {"slow rank, 5 %, no device time", {.kind = Is::slow_rank, .factor = 1.05}, FindingCode::slow_rank, 0.01, false},
      {"slow edge, 3 times", {.kind = Is::slow_link, .factor = 3}, FindingCode::slow_link},
      {"slow NIC, 3 times", {.kind = Is::slow_nic, .factor = 3}, FindingCode::slow_link},
      {"slow NIC, 1.5 times", {.kind = Is::slow_nic, .factor = 1.5}, FindingCode::slow_link},
      {"pause of 0.3 s", {.kind = Is::pause, .from_step = 5, .seconds = 0.3}, FindingCode::pause},
      {"stall of 0.3 s in an op", {.kind = Is::stall, .from_step = 6, .seconds = 0.3}, FindingCode::pause},
      {"data stall from step 3", {.kind = Is::data_stall, .from_step = 3, .seconds = 1.0}, FindingCode::data_stall},
      {"last stage, 10 % more work", {.kind = Is::last_stage, .factor = 1.10}, FindingCode::last_stage},
      {"uneven sequences, 10 %", {.kind = Is::uneven_samples, .factor = 0.10}, FindingCode::uneven_sequences},
      {"launch pauses, 2 % of steps",
       {.kind = Is::launch_pauses, .seconds = 0.05, .rate = 0.02},
       FindingCode::launch_delay},
  };
  return all;
}

SyntheticRun healthy(int ranks, std::uint64_t seed) {
  SyntheticRun run;
  run.mesh = ranks == 64 ? mesh::Mesh{.dp = 8, .pp = 4, .tp = 2} : mesh::Mesh{.dp = ranks / 64, .pp = 8, .tp = 8};
  run.microbatches = 12;
  run.seed = seed;
  return run;
}

bool is_right(const Case& of, const mesh::Mesh& mesh, const Fault& fault, const Finding& finding) {
  if (finding.code != of.code) return false;
  const auto names = [&](int rank) { return std::ranges::find(finding.ranks, rank) != finding.ranks.end(); };
  const mesh::Coord at = mesh.coord(fault.rank);
  switch (fault.kind) {
    case Is::slow_link:
      return finding.ranks.size() == 2 && names(fault.rank) &&
             names(mesh.rank({.dp = at.dp, .pp = at.pp + 1, .tp = at.tp}));
    case Is::data_stall:
      return std::ranges::all_of(finding.ranks, [&](int rank) { return mesh.coord(rank).dp == at.dp; });
    case Is::last_stage:
    case Is::uneven_samples:
    case Is::launch_pauses: return true;
    default: return finding.ranks == std::vector<int>{fault.rank};
  }
}

struct Analysed {
  Diagnosis diagnosis;
  double seconds;
};
Analysed analyse(const SyntheticRun& run) {
  const RunTrace trace = make_run(run);
  const auto begin = std::chrono::steady_clock::now();
  Diagnosis diagnosis = find_suspects(trace);
  return {std::move(diagnosis), std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
}

void bench(int ranks, int seeds, int healthy_seeds) {
  for (const Case& of : cases()) {
    int first = 0, second = 0, others = 0;
    double seconds = 0;
    for (int i = 0; i < seeds; ++i) {
      const auto seed = static_cast<std::uint64_t>(i + 1);
      SyntheticRun run = healthy(ranks, seed);
      run.noise = of.noise;
      run.has_detail = of.has_detail;
      Fault fault = of.fault;
      const int last = fault.kind == Is::slow_link ? ranks - ranks / run.mesh.pp : ranks;  // the last stage has no next
      fault.rank = static_cast<int>(uniform_below(seed, rng_key(of.name), 0, static_cast<std::uint64_t>(last)));
      run.faults = {fault};
      const auto [diagnosis, spent_s] = analyse(run);
      const auto right = [&](std::size_t k) {
        return k < diagnosis.findings.size() && is_right(of, run.mesh, fault, diagnosis.findings[k]);
      };
      first += right(0) ? 1 : 0;
      second += right(0) || right(1) ? 1 : 0;
      for (std::size_t k = 0; k < diagnosis.findings.size(); ++k) others += right(k) ? 0 : 1;
      seconds += spent_s;
    }
    fmt::print("{:<32} {:>6} {:>8} {:>8} {:>8} {:>10.3f}\n", of.name, ranks, fmt::format("{}/{}", first, seeds),
               fmt::format("{}/{}", second, seeds), others, seconds / seeds);
  }
  for (const double noise : {0.01, 0.02}) {
    int alarms = 0;
    double seconds = 0;
    for (int i = 0; i < healthy_seeds; ++i) {
      SyntheticRun run = healthy(ranks, static_cast<std::uint64_t>(1000 + i));
      run.noise = noise;
      const auto [diagnosis, spent_s] = analyse(run);
      alarms += static_cast<int>(diagnosis.findings.size());
      seconds += spent_s;
    }
    fmt::print("{:<32} {:>6} {:>8} {:>8} {:>8} {:>10.3f}\n",
               fmt::format("healthy, noise {:.0f} %, {} runs", 100 * noise, healthy_seeds), ranks, "", "", alarms,
               seconds / healthy_seeds);
  }
}

}  // namespace
}  // namespace ms::tracepp

int main(int argc, char** argv) {
  int seeds = 10, healthy_seeds = 100;
  std::vector<int> sizes;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--seeds") seeds = std::atoi(argv[i + 1]);
    if (option == "--healthy") healthy_seeds = std::atoi(argv[i + 1]);
    if (option == "--ranks") sizes.push_back(std::atoi(argv[i + 1]));
  }
  if (sizes.empty()) sizes = {64, 4096};
  fmt::print("{:<32} {:>6} {:>8} {:>8} {:>8} {:>10}\n", "fault", "ranks", "first", "in two", "others", "seconds");
  for (const int ranks : sizes) ms::tracepp::bench(ranks, seeds, healthy_seeds);
  return 0;
}
