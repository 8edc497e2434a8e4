// One rank of a simulation: an engine on a simulated device, which issues steps to be solved.
#pragma once

#include <memory>

#include "comm/sim_solve.h"
#include "train/engine/engine.h"

namespace ms::train {

class SimIssuer {
 public:
  // The plan and the recorder, where there is one, outlive it. `expert_load`: the rows of the rank's experts, and so
  // of its all-to-alls, as a multiple of an even share.
  SimIssuer(const Plan& plan, int ranks_on_node, int rank, trace::Recorder* recorder = nullptr, double expert_load = 1);

  // Sets the observer of every op that is issued; it outlives this.
  void set_observer(tensor::OpObserver* observer) { device_.set_observer(observer); }
  // Returns the work that the rank issues in step `step`; call with 0, 1, 2 and so on. From the second step on, a step
  // gathers the parameters that the previous one updated, so all later steps are alike.
  comm::SimRecording step(std::int64_t step);

 private:
  const Plan& plan_;
  tensor::SimDevice device_;
  comm::SimWorld world_;
  std::unique_ptr<Engine> engine_;
  double expert_load_;
  std::vector<std::int32_t> tokens_;  // zeros: nobody looks at them
};

}  // namespace ms::train
