// Smaller runs for fewer nodes: another data-parallel size that the configuration of ms-train allows, with the same
// global batch.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ms::driver {

// The size of a run as its configuration has it.
struct RunSize {
  int dp = 0;
  int ranks = 0;
};

// Reads what "ms-train check --dump" prints; nullopt: it says no sizes. Pure.
std::optional<RunSize> run_size(std::string_view resolved);

struct SmallerRun {
  std::size_t nodes = 0;
  int dp = 0;
};
// The largest run on at most `nodes` nodes of so many tasks whose dp `is_allowed`; nullopt: there is none. Pure.
std::optional<SmallerRun> smaller_run(const RunSize& whole, std::size_t nodes, int tasks_per_node,
                                      const std::function<bool(int dp)>& is_allowed);

// The same, asked of ms-train: `command` is "ms-train run CONFIG ...". Takes a part of a second for each size.
std::optional<SmallerRun> smaller_run_of(const std::vector<std::string>& command, std::size_t nodes,
                                         int tasks_per_node);

}  // namespace ms::driver
