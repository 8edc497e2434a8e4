#include "train/run/process.h"

#include <cstdlib>
#include <optional>

#include "base/log.h"
#include "base/unexpected.h"
#include "comm/rank_gpu.h"
#include "cost/mfu.h"
#include "train/engine/rank_groups.h"
#include "train/run/tracing.h"

namespace ms::train {
namespace {

tensor::CudaOptions cuda_options(const Settings& settings) {
  return {.deterministic = settings.run.deterministic, .time_ops = settings.run.time_ops};
}

// Returns the peak of a rank's device: that of the configuration, or the data sheet's of a GPU that the rank does not
// share; 0 if unknown.
double peak_flops(const RunConfig& run, tensor::Device& device, int ranks_of_process) {
  if (run.peak_tflops > 0) return run.peak_tflops * 1e12;
  return ranks_of_process == 1 ? cost::known_peak_flops(device.name()).value_or(0) : 0;
}

int threads_of(const Settings& settings) {
  return tensor::CpuPool::threads_asked(settings.run.cpu_threads, std::getenv("OMP_NUM_THREADS"));
}

}  // namespace

Checked check_run(const Settings& settings, int ranks, int starts) {
  return {watch::armed_faults([](const char* name) { return std::getenv(name); }, ranks, settings.train.steps, starts),
          threads_of(settings), make_plan(settings, ranks)};
}

Checked check_inference(const Settings& settings, int ranks, const Inference& inference) {
  return {.faults = {},
          .cpu_threads = threads_of(settings),
          .plan = make_inference_plan(settings, ranks, inference.generates)};
}

Process::Process(Checked checked, TrainerOptions options, const Inference* inference, int ranks, int ranks_on_node)
    : checked_(std::move(checked)),
      options_(std::move(options)),
      inference_(inference),
      ranks_(ranks),
      size_(tensor::CpuPool::size_for(tensor::CpuPool::usable_cores(), ranks, ranks_on_node, checked_.cpu_threads)),
      flusher_(checked_.plan.settings.trace.flush_s),
      pool_(size_) {}

void Process::log_faults() const {
  for (const watch::Fault& fault : checked_.faults) log::warn("train", "a fault is armed, MS_FAULT '{}'", fault.text);
}

// Ranks that are threads share the first GPU: good for checking whether a layout computes the right results.
std::unique_ptr<tensor::Device> Process::make_gpu(const comm::World& world) {
  tensor::CudaOptions options = cuda_options(checked_.plan.settings);
  if (ranks_ == 1) {
    options.receives = receives_ahead(checked_.plan, world.rank());
    return tensor::make_cuda_device(comm::gpu_of(world), options);
  }
  if (world.rank() == 0) {
    log::info("train", "{} ranks as threads share one GPU", ranks_);
    if (const int gpus = tensor::cuda_device_count(); gpus > 1)
      log::warn("train", "{} GPUs are idle: start one process for each with mpirun or srun --mpi=pmix", gpus - 1);
  }
  return tensor::make_shared_cuda_device(0, pool_, plans_, options);
}

Process::Devices Process::make_devices(const comm::World& world) {
  return {tensor::CpuDevice(pool_, matmuls_), checked_.plan.settings.run.device == "cuda" ? make_gpu(world) : nullptr};
}

Outcome Process::run_rank(comm::World& world, Devices& devices, StartUp& start_up, std::atomic<std::int64_t>& step,
                          const Report& report) {
  const Plan& plan = checked_.plan;
  tensor::Device& device = devices.gpu ? *devices.gpu : devices.host;
  std::optional<Tracing> tracing;
  TrainerOptions options = options_;
  options.failed = [&](const Error& error) {
    // In this order: once the others know and exit, the launcher may kill this process or stop reading its output.
    if (tracing) tracing->failed(error);
    if (report) report(world.cause().value_or(comm::World::Cause{world.rank(), error.with_step(step)}));
    world.abort(error.with_step(step));
  };
  try {
    const int rank = world.rank();
    const auto released = [&world] { return world.kind() == "threads" && world.cause().has_value(); };
    options.faults = watch::Faults(checked_.faults, rank, world.node(rank), released);
    options.faults.at(watch::FaultPoint::start);
    start_up.create_groups({plan.mesh, plan.chunks, plan.settings.model.tied_embeddings});
    if (device.kind() == "cpu") start_up.compare_instruction_sets();
    options.peak_flops = peak_flops(plan.settings.run, device, ranks_);
    tracing.emplace(plan, options.resolved, world, device, options.peak_flops, flusher_);
    Outcome outcome;
    if (inference_ != nullptr) {
      run_inference(plan, world, device, *inference_, options.loader, options.failed);
    } else {
      outcome = train(plan, world, device, devices.host, options, step);
    }
    world.close();
    tracing->done();
    return outcome;
  } catch (const std::exception& thrown) {
    const Error error = error_of(thrown, "train.bug");
    options.failed(error);  // again where the trainer has called it: only the first counts
    throw error;
  }
}

}  // namespace ms::train
