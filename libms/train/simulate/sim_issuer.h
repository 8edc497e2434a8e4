// One rank of a simulation: an engine on a simulated device, which issues steps to be solved.
#pragma once

#include <memory>

#include "comm/sim_solve.h"
#include "train/engine/engine.h"

namespace ms::train {

class SimIssuer {
 public:
  // The plan and the recorder, where there is one, outlive it.
  SimIssuer(const Plan& plan, int ranks_on_node, int rank, trace::Recorder* recorder = nullptr);

  // Who is told of what it issues; outlives it.
  void set_observer(tensor::OpObserver* observer) { device_.set_observer(observer); }
  // What the rank issues in step `step`; call with 0, 1, 2 and so on. From the second step on it gathers what the step
  // before has updated: a step as all later ones are.
  comm::SimRecording step(std::int64_t step);

 private:
  const Plan& plan_;
  tensor::SimDevice device_;
  comm::SimWorld world_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::int32_t> tokens_;  // zeros: nobody looks at them
};

}  // namespace ms::train
