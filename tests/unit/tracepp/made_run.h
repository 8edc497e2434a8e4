// Runs for the tests of analyses: events added by hand, and whole steps of a pipeline simulated in virtual time, so
// that the correct result is known.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tracepp/run_trace.h"

namespace ms::tracepp {

inline constexpr std::int64_t kUs = 1000;

// Adds events to a RunTrace one by one.
class MadeRun {
 public:
  // Ranks of the mesh, each on a host of its own unless said otherwise.
  explicit MadeRun(mesh::Mesh mesh, int ranks_on_host = 1);

  std::int32_t group(const std::string& name, const std::vector<int>& ranks);
  std::uint32_t info(Kind kind, Purpose purpose = Purpose::none, std::int32_t group = -1, std::int64_t size_bytes = -1,
                     int chunk = -1);

  struct At {
    std::int64_t begin_ns = 0, end_ns = 0;
    std::uint32_t detail = kNoDetail;
    std::uint16_t microbatch = kNoMicrobatch;
    State state = State::ended;
  };
  // In `step`, which further events are of too.
  void add(int rank, std::uint32_t info, const At& at);
  // A section that computed for `busy_us`; kNoDetail: not known.
  void section(int rank, Kind kind, std::int64_t begin_ns, std::int64_t end_ns, std::uint32_t busy_us = kNoDetail,
               std::uint16_t microbatch = 0);
  void step_event(int rank, std::int64_t begin_ns, std::int64_t end_ns);

  RunTrace run;
  std::int32_t step = 0;

 private:
  Tables tables_{run};
};

// Steps of 1F1B over dp, pp and tp, every rank with a compute stream and streams for messages. All times in ns.
struct PipelineSpec {
  mesh::Mesh mesh;
  int microbatches = 4, steps = 3;
  int tp_collectives = 0;  // inside a section, after equal parts of it
  std::int64_t forward_ns = 1'000'000, backward_ns = 2'000'000, optimizer_ns = 500'000;
  std::int64_t tp_ns = 50'000, pp_ns = 100'000, dp_ns = 300'000, world_ns = 20'000;  // transfers
  // What a section of a rank takes longer, by rank and step; nothing where there is none.
  std::function<double(int rank, int step)> slowness;
  std::function<double(int rank, int peer)> link_slowness;  // of pp transfers
  std::function<std::int64_t(int rank, int step)> data_wait_ns;
  int ranks_on_host = 8;
};
RunTrace play_pipeline(const PipelineSpec& spec);

}  // namespace ms::tracepp
