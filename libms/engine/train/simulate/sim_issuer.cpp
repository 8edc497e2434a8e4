#include "train/simulate/sim_issuer.h"

#include <cmath>

namespace ms::train {

SimIssuer::SimIssuer(const Plan& plan, int ranks_on_node, int rank, trace::Recorder* recorder, double expert_load)
    : plan_(plan), world_(rank, plan.mesh.size(), ranks_on_node), expert_load_(expert_load) {
  device_.set_recorder(recorder);
  device_.set_expert_load(expert_load);
  engine_ = std::make_unique<Engine>(plan, world_, device_);
  if (engine_->needs_input()) {
    tokens_.resize(
        static_cast<std::size_t>(plan.microbatches * plan.settings.train.microbatch * plan.settings.model.seq));
  }
}

comm::SimRecording SimIssuer::step(std::int64_t step) {
  const std::int64_t number = plan_.batch.ramp_steps() + step;  // of the whole batch
  engine_->prefetch();
  engine_->issue_step(number, plan_.settings.optim.lr, tokens_, tokens_);
  engine_->finish_step(number);
  comm::SimRecording recording{world_.rank(), device_.take_program(), world_.groups(), world_.comm_ops()};
  for (comm::SimCommOp& op : recording.comm_ops) {
    const bool is_of_experts =  // not of Muon's matrices
        op.gathers_experts || recording.groups[op.group].name.starts_with("ep[");
    if (op.kind == comm::OpKind::all_to_all && is_of_experts)
      op.size_bytes = std::llround(static_cast<double>(op.size_bytes) * expert_load_);
  }
  return recording;
}

}  // namespace ms::train
