// A step of the engine itself on a cluster that is not there: the engine issues the step on simulated devices
// (tensor/sim_device.h), and the step is solved in virtual time (comm/sim_solve.h) with what a cluster file says.
//
// For planning, the first rank of each stage stands for all of its stage: peers along dp and tp do the same work, so
// they come to their messages together, as late as the slowest of them is expected to. Where ranks differ on purpose,
// every rank is there. Pure, but for the traces that are written.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "clos/forecast.h"
#include "comm/sim_solve.h"
#include "cost/cluster.h"
#include "train/plan.h"

namespace ms::train {

// A slowdown to simulate: the operations of some ranks, or the transfers on their links, take `factor` times as long.
struct Slow {
  enum class Target : std::uint8_t { rank, link };
  Target target = Target::rank;
  int first = 0, last = 0;  // ranks
  double factor = 1;
};
// "rank=17:1.2", "node=3:1.1" (all ranks of that node), "link=17:2". Throws Error("cli.value", user).
std::vector<Slow> parse_slow(const std::vector<std::string>& texts, const mesh::Mesh& mesh,
                             const cost::Cluster& cluster);

// Throws Error("train.fp8", user) for settings whose time on this cluster cannot be predicted.
void refuse_unknown(const Settings& settings, const cost::Cluster& cluster);

struct SimulateOptions {
  std::vector<Slow> slow = {};
  bool parts = true;           // also says where the time goes, which takes four times as long again
  bool every_rank = false;     // even where none is slow on purpose
  std::string trace_dir = {};  // each rank writes its trace there; empty: none
  int trace_steps = 3;         // that are in it
  // The rows of the ep rank with the most, by layer, as a multiple of an even share (expert_load.h); empty: 1.
  std::vector<double> busiest_ranks = {};
  std::vector<clos::CollectiveForecast> network = {};  // collisions by axis (fabric_forecast.h); empty: none
  // Seconds of an operation, for tests; absent: what the cluster file says.
  std::function<double(const tensor::OpCost&)> seconds = {};
};

// Where the time of a step goes; the parts add up to it. What an axis exposes is by how much shorter the step is
// without the axis' messages (of those before it in this order, too).
struct StepParts {
  double compute_s = 0;  // of the stage that computes longest; of shared processors, where they compute longer
  double bubble_s = 0;   // what pipeline and differences of stages add, were messages to take no time
  double tp_s = 0, pp_s = 0, dp_s = 0, cp_s = 0, ep_s = 0, world_s = 0;
  double messages_s = 0;  // of all axes together, where so many ranks are there that each by itself would take minutes
  double host_s = 0;      // between two steps
};

struct SimulatedStage {
  std::int64_t memory_bytes = 0;  // of a rank
  double busy_s = 0;
  std::vector<double> class_seconds;  // by tensor::OpClass
  double expert_load = 1;             // mean of SimulateOptions::busiest_ranks of its layers
};
// That of a pp rank.
double expert_load_of(const Plan& plan, const SimulateOptions& options, int pp_rank);

struct Simulation {
  double iteration_s = 0;
  double tokens_per_s = 0;
  double peak_flops = 0;    // of a device, for what it computes in
  cost::FlopsPerToken mfu;  // shares of that, by convention
  StepParts parts;
  std::vector<SimulatedStage> stages;
  std::vector<clos::CollectiveForecast> network;  // of the options
  double network_s = 0;                           // by how much collisions lengthen the step, with options.parts
  std::size_t ranks = 0;                          // that were there
  std::uint64_t messages = 0;                     // operations of groups
};

// Throws Error("simulate.memory", user), which names the stage and what would fit, where the model does not fit, and
// Error("cluster.link", user) where the cluster lacks a link.
Simulation simulate(const Plan& plan, const cost::Cluster& cluster, const SimulateOptions& options);

}  // namespace ms::train
