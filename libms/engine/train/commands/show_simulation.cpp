#include "train/commands/show_simulation.h"

#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "train/commands/show_plan.h"

namespace ms::train {
namespace {

constexpr double kDay_s = 86'400;

double days(const Simulation& simulation, double tokens) { return tokens / simulation.tokens_per_s / kDay_s; }

// Where the step will be in four of five cases, by cluster.noise.error.
struct Interval {
  double low_s, high_s;
};
Interval interval_of(const Simulation& simulation, const cost::Cluster& cluster) {
  return {simulation.iteration_s / (1 + cluster.noise.error), simulation.iteration_s / (1 - cluster.noise.error)};
}

std::string expert_load_text(const Simulation& simulation) {
  const auto [least, most] = std::ranges::minmax(simulation.stages, {}, &SimulatedStage::expert_load);
  if (most.expert_load == 1) return "every rank of ep has an even share of the rows (--expert-load)";
  const std::string by_stage =
      least.expert_load == most.expert_load ? "" : fmt::format("{:.3g} to ", least.expert_load);
  return fmt::format("the busiest rank of ep has {}{:.3g} even shares of the rows", by_stage, most.expert_load);
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string network_text(const Simulation& simulation) {
  std::string axes;
  for (const clos::CollectiveForecast& forecast : simulation.network)
    axes += fmt::format("{}{} {}", axes.empty() ? "" : ", ", forecast.axis, percent(forecast.slowest_median));
  return fmt::format("collisions leave {} of the rate; they cost {:.4g} s of the step", axes, simulation.network_s);
}

struct Part {
  std::string_view name;
  std::string_view json;
  double seconds;
  std::string_view meaning;
};
std::vector<Part> parts_of(const StepParts& parts) {
  return {{"compute", "compute", parts.compute_s, "of the stage that computes longest"},
          {"bubble", "bubble", parts.bubble_s, "filling and draining the pipeline, unequal stages and ranks"},
          {"tp exposed", "tp", parts.tp_s, "collectives of tensor parallelism that compute waits for"},
          {"pp exposed", "pp", parts.pp_s, "transfers between stages that compute waits for"},
          {"dp exposed", "dp", parts.dp_s, "gradients and parameters that compute waits for"},
          {"cp exposed", "cp", parts.cp_s, "keys, values and heads of other tokens that compute waits for"},
          {"ep exposed", "ep", parts.ep_s, "tokens on their way to experts and back that compute waits for"},
          {"exposed", "messages", parts.messages_s, "communication that compute waits for"},
          {"world exposed", "world", parts.world_s, "the sum of loss and gradient norm"},
          {"host", "host", parts.host_s, "between two steps"}};
}

}  // namespace

std::string simulation_text(const Plan& plan, const cost::Cluster& cluster, const Simulation& simulation,
                            double tokens) {
  std::string out;
  const auto line = [&](std::string_view name, const std::string& value) {
    out += fmt::format("{:<12}{}\n", name, value);
  };
  const auto ranks = static_cast<std::size_t>(plan.mesh.size()), a_node = static_cast<std::size_t>(cluster.node.ranks);
  line("cluster", fmt::format("{} x {} on {}; a node has {}", ranks, cluster.device.name,
                              plural((ranks + a_node - 1) / a_node, "node"), a_node));
  line("mesh", fmt::format("tp {} x{} dp {} x pp {}, {} chunks a rank, {} microbatches of {}", plan.mesh.tp,
                           cp_text(plan), plan.mesh.batch_parts(), plan.mesh.pp, plan.chunks, plan.microbatches,
                           plan.settings.train.microbatch));
  if (plan.mesh.ep > 1) line("experts", expert_load_text(simulation));
  if (!simulation.network.empty()) line("network", network_text(simulation));
  const Interval interval = interval_of(simulation, cluster);
  line("iteration", fmt::format("{:.4g} s{}", simulation.iteration_s,
                                cluster.noise.error == 0 ? ""
                                                         : fmt::format(", {:.4g} to {:.4g} s in four of five cases",
                                                                       interval.low_s, interval.high_s)));
  line("tokens/s", fmt::format("{:.0f}", simulation.tokens_per_s));
  line("MFU", fmt::format("reported {}, causal {}, full {}, gemm {}, of {:.4g} TFLOP/s",
                          percent(simulation.mfu.reported), percent(simulation.mfu.causal),
                          percent(simulation.mfu.full), percent(simulation.mfu.gemm), simulation.peak_flops * 1e-12));
  if (tokens > 0)
    line("run", fmt::format("{} tokens take {:.1f} days without interruption", format_count(tokens),
                            days(simulation, tokens)));
  out += '\n';
  TextTable parts(columns("of a step|seconds>|share>|what"));
  for (const Part& part : parts_of(simulation.parts)) {
    if (part.seconds == 0) continue;
    parts.row({std::string(part.name), fmt::format("{:.4g}", part.seconds),
               percent(part.seconds / simulation.iteration_s), std::string(part.meaning)});
  }
  out += parts.str() + '\n';
  TextTable stages(columns("stage>|memory a rank>|of the device>|computes>|GEMMs>|attention>|the rest>"));
  for (std::size_t p = 0; p < simulation.stages.size(); ++p) {
    const SimulatedStage& stage = simulation.stages[p];
    const double gemms = stage.class_seconds[static_cast<std::size_t>(tensor::OpClass::matmul)];
    const double attention = stage.class_seconds[static_cast<std::size_t>(tensor::OpClass::attention)];
    const auto bytes = static_cast<double>(stage.memory_bytes);
    stages.row({std::to_string(p), format_size(bytes),
                percent(bytes / static_cast<double>(cluster.device.memory_bytes)),
                fmt::format("{:.4g} s", stage.busy_s), percent(gemms / stage.busy_s), percent(attention / stage.busy_s),
                percent((stage.busy_s - gemms - attention) / stage.busy_s)});
  }
  return out + stages.str();
}

std::string simulation_json(const Plan& plan, const cost::Cluster& cluster, const Simulation& simulation,
                            double tokens) {
  const cost::FlopsPerToken& mfu = simulation.mfu;
  Json json{{"schema", 1},
            {"world", plan.mesh.size()},
            {"device", cluster.device.name},
            {"iteration_s", simulation.iteration_s},
            {"tokens_per_s", simulation.tokens_per_s},
            {"mfu", {{"gemm", mfu.gemm}, {"causal", mfu.causal}, {"full", mfu.full}, {"reported", mfu.reported}}},
            {"peak_tflops", simulation.peak_flops * 1e-12}};
  if (cluster.noise.error > 0) {
    const Interval interval = interval_of(simulation, cluster);
    json["iteration_interval_s"] = {interval.low_s, interval.high_s};
  }
  if (!simulation.network.empty()) {
    Json& network = json["network"] = {{"cost_s", simulation.network_s}};
    for (const clos::CollectiveForecast& forecast : simulation.network)
      network["share"][forecast.axis] = forecast.slowest_median;
  }
  for (const Part& part : parts_of(simulation.parts)) json["parts_s"][std::string(part.json)] = part.seconds;
  json["bubble"] = simulation.parts.bubble_s / simulation.iteration_s;
  json["ranks_simulated"] = simulation.ranks;
  json["stages"] = Json::array();
  for (const SimulatedStage& stage : simulation.stages) {
    Json row{{"memory_bytes", stage.memory_bytes}, {"busy_s", stage.busy_s}};
    if (plan.mesh.ep > 1) row["expert_load"] = stage.expert_load;
    for (std::size_t c = 0; c < stage.class_seconds.size(); ++c) {
      const auto op_class = static_cast<tensor::OpClass>(c);
      if (stage.class_seconds[c] > 0) row["seconds"][std::string(to_string(op_class))] = stage.class_seconds[c];
    }
    json["stages"].push_back(std::move(row));
  }
  if (tokens > 0) json["days"] = days(simulation, tokens);
  return json.dump(2) + "\n";
}

}  // namespace ms::train
