// The sizes that a run of ms-train may have, all with the same global batch, and the largest that fits so many nodes.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ms::driver {

// As the configuration of a run has it.
struct RunSizes {
  bool is_auto = false;  // mesh.dp = "auto": the run takes the ranks that it is given
  int dp = 0;            // where it is not
  int replica = 0;       // ranks of one
  std::vector<int> allowed = {};
  std::map<int, double> speeds = {};  // tokens/s by data-parallel size, where they were asked for and are known
};

// Reads what "ms-train check --json" prints; nullopt: it says no sizes. Pure.
std::optional<RunSizes> read_run_sizes(std::string_view json);
// Asks ms-train: `command` is "ms-train run CONFIG ...". Takes a part of a second. nullopt: it refuses.
std::optional<RunSizes> ask_run_sizes(const std::vector<std::string>& command);

// Asks for the speeds, by simulation of run.cluster's machines; empty: the configuration names none, or ms-train
// refuses. Takes seconds for large runs.
std::map<int, double> ask_run_speeds(const std::vector<std::string>& command);

struct RunFit {
  std::size_t nodes = 0;
  int dp = 0;
};
// The largest allowed run on at most `nodes` nodes of so many tasks each, all of them with work; nullopt: there is
// none. Pure.
std::optional<RunFit> largest_fit(const RunSizes& sizes, std::size_t nodes, int tasks_per_node);
// The fewest nodes of which all have work.
std::optional<RunFit> smallest_fit(const RunSizes& sizes, std::size_t nodes, int tasks_per_node);

// ", speeds 2:1400,4:2700": the run's speed by the nodes of its job, `spares` among them, from the smallest to `most`,
// for the job's comment (slurm/elastic.h); empty: none is known. Pure.
std::string speeds_text(const RunSizes& sizes, const std::map<int, double>& speeds, std::size_t spares,
                        std::size_t most, int tasks_per_node);

}  // namespace ms::driver
