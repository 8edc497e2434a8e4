// A process of a run: what its ranks share, and one rank from its devices to its outcome. A process has all ranks, as
// threads, or one rank.
#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "comm/world.h"
#include "tensor/cpu_device.h"
#include "tensor/cuda_plugin.h"
#include "trace/flusher.h"
#include "train/plan.h"
#include "train/run/inference.h"
#include "train/run/start_up.h"
#include "train/run/trainer.h"
#include "watch/fault.h"

namespace ms::train {

// The faults and the plan that the settings of a run imply, checked before anything starts.
struct Checked {
  std::vector<watch::Fault> faults;  // that MS_FAULT arms
  int cpu_threads = 0;               // 0: as many as cores
  Plan plan;
};
// Throws where the settings, MS_FAULT or OMP_NUM_THREADS cannot be used.
Checked check_run(const Settings& settings, int ranks, int starts = 0);
Checked check_inference(const Settings& settings, int ranks, const Inference& inference);

class Process {
 public:
  // Has `ranks` of the run, of all `ranks_on_node` on its node. `options`: resolved, fresh, stop and deadline.
  // `inference`, if not null, is done instead of training, and outlives the process.
  Process(Checked checked, TrainerOptions options, const Inference* inference, int ranks, int ranks_on_node);

  struct Devices {
    tensor::CpuDevice host;
    std::unique_ptr<tensor::Device> gpu;  // absent where the host computes
  };
  // Returns the devices of one rank; the process outlives them.
  Devices make_devices(const comm::World& world);

  // Runs one rank of the world to its end. Before what it throws stops all others, calls `report`, if any. Collective
  // over the world; ranks that are threads call it at the same time. `step` follows the training loop.
  using Report = std::function<void(const comm::World::Cause&)>;
  Outcome run_rank(comm::World& world, Devices& devices, StartUp& start_up, std::atomic<std::int64_t>& step,
                   const Report& report);

  const tensor::CpuPool::Size& pool_size() const { return size_; }
  void log_faults() const;

 private:
  std::unique_ptr<tensor::Device> make_gpu(const comm::World& world);

  const Checked checked_;
  const TrainerOptions options_;
  const Inference* const inference_;
  const int ranks_;
  const tensor::CpuPool::Size size_;
  trace::Flusher flusher_;
  tensor::MatmulCache matmuls_;
  tensor::SharedPlans plans_;
  tensor::CpuPool pool_;
};

}  // namespace ms::train
