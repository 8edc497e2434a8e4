#include "driver/drains.h"

#include <fmt/format.h>

#include <utility>

namespace ms::driver {

Drained drained_nodes(const std::vector<slurm::Node>& nodes, const std::set<std::string>& ours) {
  Drained drained;
  for (const slurm::Node& node : nodes) {
    if (!ours.contains(node.name) || !node.is_drained_or_draining() || node.has_state("DOWN")) continue;
    drained[node.name] =
        fmt::format("drained{}{}: {}", node.reason_user.empty() ? "" : " by ", node.reason_user, node.reason);
  }
  return drained;
}

Drains::Drains(slurm::CommandOptions slurm, const std::vector<std::string>& nodes)
    : slurm_(std::move(slurm)), nodes_(nodes.begin(), nodes.end()), thread_("ms-drains") {}

void Drains::ask() {
  if (thread_.busy()) return;
  thread_.post([this](const std::stop_token&) {  // an exception ends only the job
    Drained drained = drained_nodes(slurm_.nodes(), nodes_);
    const std::lock_guard lock(mutex_);
    answer_ = std::move(drained);
  });
}

std::optional<Drained> Drains::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(answer_, std::nullopt);
}

}  // namespace ms::driver
