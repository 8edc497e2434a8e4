#include "train/run/tracing.h"

#include <cstdlib>

#include "base/hash.h"
#include "base/user_path.h"

namespace ms::train {
namespace {

// The same on all ranks of a run, and another one after a restart, as far as that can be known without asking.
std::string run_name(const std::string& resolved) {
  std::string name = hash_hex(xxh64(resolved));
  for (const char* variable : {"SLURM_JOB_ID", "SLURM_RESTART_COUNT"}) {
    if (const char* value = std::getenv(variable)) name += fmt::format("-{}", value);
  }
  return name;
}

}  // namespace

std::string trace_directory(const Settings& settings) {
  if (!settings.trace.enabled) return "";
  return settings.trace.dir.empty() ? settings.run.dir + "/trace" : settings.trace.dir;
}

Tracing::Tracing(const Plan& plan, const std::string& resolved, const comm::World& world, tensor::Device& device,
                 double peak_flops, trace::Flusher& flusher)
    : device_(device), flusher_(flusher) {
  const trace::TraceConfig& config = plan.settings.trace;
  const std::string dir = trace_directory(plan.settings);
  if (dir.empty()) return;
  make_user_directories(dir);
  const trace::Identity identity{
      .rank = world.rank(),
      .world = world.size(),
      .dp = plan.mesh.dp,
      .pp = plan.mesh.pp,
      .tp = plan.mesh.tp,
      .ranks_on_node = world.ranks_on_node(),
      .host = world.node(world.rank()),
      .run = run_name(resolved),
      .device = device.kind() == "cpu" ? "cpu " + device.name() : std::string(device.kind()),
      .microbatches = plan.microbatches,
      .chunks = plan.chunks,
      .flops_per_step = cost::flops_per_token(plan.model_shape()).causal * static_cast<double>(plan.tokens_per_step()),
      .peak_flops = peak_flops};
  recorder_ = std::make_unique<trace::Recorder>(dir, identity, config.max_bytes, trace::level_of(config.level));
  device_.set_recorder(recorder_.get());
  flusher_.add(*recorder_);
}

Tracing::~Tracing() {
  if (!recorder_) return;
  flusher_.remove(*recorder_);
  recorder_->flush();
  device_.set_recorder(nullptr);
}

void Tracing::done() {
  if (recorder_) recorder_->close(trace::format::Ending::done);
}

void Tracing::failed(const Error& error) {
  if (!recorder_) return;
  const trace::format::Ending ending = error.kind() == "comm.deadline"    ? trace::format::Ending::timed_out
                                       : error.kind() == "comm.peer_lost" ? trace::format::Ending::stopped
                                                                          : trace::format::Ending::failed;
  recorder_->close(ending, error.what(), error.rank().value_or(-1));
}

}  // namespace ms::train
