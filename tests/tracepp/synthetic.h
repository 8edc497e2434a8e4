// Makes traces of synthetic runs with a known fault, as ms-train would write them: for tests and benches of the
// analyses. A step is simulated in virtual time: sections of the compute stream, the four channels, the dp stream, tp
// collectives inside sections, the host one step ahead. Communication is a rendezvous: it moves data once all members
// are ready. All random values are a pure function of the seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tracepp/run_trace.h"

namespace ms::tracepp {

struct Fault {
  enum class Kind {
    slow_rank,       // its computations take `factor` as long
    slow_link,       // the pipeline edge from `rank` to the next stage, in both directions: `factor`
    slow_nic,        // everything that `rank` sends or receives over dp and pp: `factor`
    pause,           // in one step `rank` begins nothing for `seconds`
    stall,           // in one step `rank` stalls for `seconds` within an operation
    data_stall,      // a batch of the dp rank of `rank` takes `seconds` to load, the next begins when it is there
    last_stage,      // computations of the last stage take `factor` as long
    slow_stage,      // those of the stage of `rank`
    uneven_samples,  // computations of a microbatch take 1 + factor * a random number of its own, in all stages
    launch_pauses,   // each rank begins nothing for about `seconds`, in a share of `rate` of its steps
  };
  Kind kind = Kind::slow_rank;
  int rank = 0;
  int from_step = 0;
  double factor = 1, seconds = 0, rate = 0;
};

struct SyntheticRun {
  mesh::Mesh mesh{2, 2, 2};
  std::string schedule = "1f1b";  // as sched::make_schedule
  int chunks = 1, microbatches = 8, steps = 10;
  std::uint64_t seed = 1;

  // Of a whole stage and a microbatch.
  double forward_s = 0.010, backward_s = 0.020, weight_share = 0.5;
  double optimizer_s = 0.004;
  int spans = 2;           // gathers and reductions of a chunk
  int tp_collectives = 4;  // of a section, where tp > 1
  double transfer_s = 0.001, gather_s = 0.002, reduce_s = 0.003, tp_transfer_s = 0.0001, clip_s = 0.0002;

  double noise = 0.01;          // standard deviation of a section
  double message_noise = 0.05;  // of a transfer
  double rank_spread = 0.003;   // lasting differences between devices
  double host_spread = 0;       // and between hosts
  double outlier_rate = 0.001;  // of sections; they take 1.2 to 2 times as long
  double clock_offset_s = 0;    // hosts' clocks differ by up to this
  int ranks_on_host = 8;
  bool has_detail = true;  // sections say for how long the device computed
  std::vector<Fault> faults = {};
};

RunTrace make_run(const SyntheticRun& run);

// The run, as if this rank had left no trace.
inline RunTrace without_rank(RunTrace trace, int rank) {
  std::erase_if(trace.ranks, [&](const RankTrace& it) { return it.rank == rank; });
  return trace;
}

}  // namespace ms::tracepp
