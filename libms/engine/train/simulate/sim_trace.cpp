#include "train/simulate/sim_trace.h"

#include <bit>
#include <cmath>

#include "base/user_path.h"
#include "trace/recorder.h"
#include "train/simulate/sim_issuer.h"

namespace ms::train {
namespace {

// Start times of a simulated trace, chosen to be easy to subtract.
constexpr std::int64_t kBeginNs = 1'000'000'000;
constexpr std::int64_t kRealtimeNs = 1'700'000'000'000'000'000;

// Events of a step; those of two fit a recorder's ring.
std::size_t slots_for(const comm::SimRecording& recording, trace::Level level) {
  std::size_t events = 1;
  for (const tensor::SimProgram::Stream& stream : recording.program.streams) {
    for (const tensor::SimItem& item : stream.items) {
      const bool is_event = item.kind == tensor::SimItem::Kind::comm_op ||
                            item.kind == tensor::SimItem::Kind::end_section ||
                            (level == trace::Level::ops && item.kind == tensor::SimItem::Kind::op);
      events += is_event ? 1 : 0;
    }
  }
  constexpr std::size_t kLeast = 1 << 12;
  return std::bit_ceil(std::max(kLeast, 2 * events));
}

}  // namespace

void write_traces(const Plan& plan, const comm::SimSetup& setup, double peak_flops, const SimulateOptions& options) {
  const trace::TraceConfig& config = plan.settings.trace;
  const trace::Level level = trace::level_of(config.level);
  const auto per_node = static_cast<int>(setup.cluster->node.ranks);
  make_user_directories(options.trace_dir);
  std::vector<std::unique_ptr<trace::Recorder>> recorders;
  std::vector<std::unique_ptr<SimIssuer>> issuers;
  for (const comm::SimRank& rank : setup.ranks) {
    const trace::Identity identity{.rank = rank.rank,
                                   .world = plan.mesh.size(),
                                   .dp = plan.mesh.dp,
                                   .pp = plan.mesh.pp,
                                   .tp = plan.mesh.tp,
                                   .ranks_on_node = per_node,
                                   .host = comm::sim_node_name(rank.rank / per_node),
                                   .run = "simulated",
                                   .device = "sim",
                                   .clock_ns = kBeginNs,
                                   .realtime_ns = kRealtimeNs,
                                   .microbatches = plan.microbatches,
                                   .chunks = plan.chunks,
                                   .flops_per_step = cost::flops_per_token(plan.model_shape()).causal *
                                                     static_cast<double>(plan.tokens_per_step()),
                                   .peak_flops = peak_flops};
    recorders.push_back(std::make_unique<trace::Recorder>(options.trace_dir, identity, config.max_bytes, level,
                                                          slots_for(*rank.recording, level)));
    issuers.push_back(std::make_unique<SimIssuer>(plan, per_node, rank.rank, recorders.back().get(),
                                                  expert_load_of(plan, options, plan.mesh.coord(rank.rank).pp)));
  }
  comm::SimSetup traced = setup;
  traced.moved = nullptr;
  // The host's time of a step comes before its work, so that each step is as long as an iteration, the first one, too.
  const std::int64_t host_ns = std::llround(setup.cluster->node.step_s * 1e9);
  std::int64_t begin_ns = kBeginNs;
  std::vector<std::vector<double>> op_seconds(recorders.size());
  for (int step = 0; step < options.trace_steps; ++step) {
    traced.begin_ns = begin_ns + host_ns;
    std::vector<comm::SimRecording> recordings(issuers.size());
    for (std::size_t r = 0; r < issuers.size(); ++r) {
      recorders[r]->begin_step(step, begin_ns);
      recordings[r] = issuers[r]->step(step);
      traced.ranks[r].recording = &recordings[r];
      traced.ranks[r].recorder = recorders[r].get();
    }
    const comm::SimResult result = comm::solve(traced);
    const std::int64_t end_ns = traced.begin_ns + std::llround(result.seconds * 1e9);
    for (std::size_t r = 0; r < recorders.size(); ++r) {
      op_seconds[r].resize(tensor::kOpClasses);
      for (std::size_t c = 0; c < op_seconds[r].size(); ++c) op_seconds[r][c] += result.ranks[r].class_seconds[c];
      recorders[r]->end_step(step, end_ns, op_seconds[r]);
      recorders[r]->flush();
    }
    begin_ns = end_ns;
  }
  for (const auto& recorder : recorders) recorder->close(trace::format::Ending::done);
}

}  // namespace ms::train
