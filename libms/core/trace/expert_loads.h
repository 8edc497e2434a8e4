// The loads of experts in a run's metrics.jsonl, as ms-train writes them (metrics.expert_load_every). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ms::trace {

struct ExpertLoads {
  std::int64_t step = 0;  // from 1
  double dropped = 0;     // share of the rows
  // 1 is an even share. All layers have the same number of experts, or none: some have, and dense ones do not.
  std::vector<std::vector<double>> by_layer;
  std::size_t layers() const { return by_layer.size(); }
  std::size_t experts() const;  // of a layer
};

// Returns those of the last line that has any. A line that is cut off, or of another program, has none.
std::optional<ExpertLoads> last_expert_loads(std::string_view metrics);

// Returns a warning of experts that tokens hardly choose; empty if there are none.
std::string starving_experts(const std::vector<std::vector<double>>& by_layer);

}  // namespace ms::trace
