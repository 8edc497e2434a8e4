#include "clos/forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"
#include "clos/network.h"

namespace ms::clos {
namespace {

constexpr double kRounding = 1e-9;

int nodes_of(const Fabric& fabric, const mesh::MeshConfig& mesh) {
  return static_cast<int>((mesh.ranks() + fabric.host.ranks - 1) / fabric.host.ranks);
}

std::vector<int> positions(Placement placement, int nodes, std::int64_t pp, std::uint64_t start) {
  std::vector<int> position(static_cast<std::size_t>(nodes));
  std::iota(position.begin(), position.end(), 0);
  if (placement == Placement::pipelines) {
    const int of_stage = nodes / static_cast<int>(pp);
    for (int n = 0; n < nodes; ++n)
      position[static_cast<std::size_t>(n)] = n % of_stage * static_cast<int>(pp) + n / of_stage;
  } else if (placement == Placement::random) {
    static constexpr std::uint64_t kKey = rng_key("order of hosts");
    for (std::size_t n = position.size(); n > 1; --n)
      std::swap(position[n - 1], position[uniform_below(start, kKey, n, n)]);
  }
  return position;
}

struct OneStart {
  double colliding = 0, slowest = 1, mean = 1;
};

OneStart judge(const Network& network, const Routed& routed, const std::vector<double>& alone) {
  OneStart start;
  if (routed.crossing.empty()) return start;
  std::vector<double> offered(network.capacity().size());
  const auto links = [&](const CrossingFlow& flow) { return std::span(routed.loads.loads).subspan(flow.first, 2); };
  for (const CrossingFlow& flow : routed.crossing)
    for (const Load& load : links(flow)) offered[load.link] += alone[flow.channel] * load.share;
  const auto collides = [&](const CrossingFlow& flow) {
    return std::ranges::any_of(links(flow), [&](const Load& load) {
      return offered[load.link] > network.capacity()[load.link] * (1 + kRounding);
    });
  };
  start.colliding = static_cast<double>(std::ranges::count_if(routed.crossing, collides)) /
                    static_cast<double>(routed.crossing.size());
  const std::vector<double> rates = fair_rates(network.capacity(), routed.loads);
  start.mean = 0;
  for (std::size_t c = 0; c < rates.size(); ++c) {
    const double share = rates[c] / alone[c], of_alone = share > 1 - kRounding ? 1 : share;
    start.slowest = std::min(start.slowest, of_alone);
    start.mean += of_alone / static_cast<double>(rates.size());
  }
  return start;
}

// The rates of channels if only the ports of NICs limit them.
std::vector<double> rates_alone(const Network& network, const Routed& routed) {
  std::vector<double> capacity(network.capacity().begin(), network.capacity().end());
  for (std::uint32_t link = 0; link < capacity.size(); ++link)
    if (network.between_switches(link)) capacity[link] = std::numeric_limits<double>::infinity();
  return fair_rates(capacity, routed.loads);
}

}  // namespace

std::string_view to_string(Placement placement) {
  switch (placement) {
    case Placement::listed: return "listed";
    case Placement::pipelines: return "pipelines";
    case Placement::random: return "random";
  }
  return "?";
}

std::vector<CollectiveForecast> forecast(const Fabric& fabric, const mesh::MeshConfig& mesh, Placement placement,
                                         int starts) {
  const std::vector<StepCollective> collectives = step_flows(mesh, fabric);
  const int nodes = nodes_of(fabric, mesh);
  if (placement == Placement::pipelines && nodes % mesh.pp != 0) {
    throw user_error("mesh.size",
                     fmt::format("placement pipelines: {} hosts do not divide over {} stages", nodes, mesh.pp));
  }
  const Network network(fabric, nodes);
  std::vector<CollectiveForecast> forecasts;
  for (const StepCollective& collective : collectives) {
    CollectiveForecast& made = forecasts.emplace_back();
    made.axis = collective.axis;
    made.channels = collective.channels.size();
    made.mean = 0;
    std::vector<double> alone, slowest;
    for (int s = 0; s < starts; ++s) {
      const auto start = static_cast<std::uint64_t>(s);
      const Routed routed = network.route(collective, positions(placement, nodes, mesh.pp, start), start);
      if (s == 0) {
        made.flows = routed.flows;
        made.crossing = routed.crossing.size();
        alone = rates_alone(network, routed);
      }
      const OneStart judged = judge(network, routed, alone);
      made.colliding += judged.colliding / starts;
      made.mean += judged.mean / starts;
      slowest.push_back(judged.slowest);
    }
    std::ranges::sort(slowest);
    made.slowest_median = slowest[slowest.size() / 2];
    made.slowest_90 = slowest[slowest.size() / 10];
  }
  return forecasts;
}

std::vector<Change> changes_of(const Fabric& fabric, const mesh::MeshConfig& mesh, Placement placement) {
  std::vector<Change> changes;
  const auto add = [&](std::string name, std::string set) -> Change& {
    return changes.emplace_back(Change{std::move(name), std::move(set), fabric, placement});
  };
  const EcmpConfig& ecmp = fabric.ecmp;
  if (fabric.host.ports == 1) {
    const double rate = fabric.host.port_gbps / 2;
    HostConfig& host = add(fmt::format("NICs of 2 x {:g} Gbit/s", rate),
                           "switch and NIC: split every port in two; NCCL_IB_MERGE_NICS=1")
                           .fabric.host;
    host.ports = 2;
    host.port_gbps = rate;
  }
  for (const std::int64_t pairs : {4, 16}) {
    if (fabric.roce.queue_pairs >= pairs || ecmp.hash == "adaptive") continue;
    add(fmt::format("{} queue pairs", pairs),
        fmt::format("NCCL_IB_QPS_PER_CONNECTION={} NCCL_IB_SPLIT_DATA_ON_QPS=1", pairs))
        .fabric.roce.queue_pairs = pairs;
  }
  if (placement != Placement::listed)
    add("dp under leaf switches", "order of the nodes: ms-train plan --hostfile").placement = Placement::listed;
  if (placement != Placement::pipelines && mesh.pp > 1 && nodes_of(fabric, mesh) % mesh.pp == 0)
    add("pp under leaf switches", "order of the nodes: srun --distribution=arbitrary").placement = Placement::pipelines;
  if (placement != Placement::random)
    add("hosts in random order", "for comparison: Slurm without a topology plugin").placement = Placement::random;
  if (ecmp.fields != EcmpConfig{}.fields)
    add("hash of the five-tuple", "switch: all fields, with the UDP source port").fabric.ecmp.fields =
        EcmpConfig{}.fields;
  const char* other_hash = ecmp.hash == "crc32" ? "crc16" : "crc32";
  if (ecmp.hash != "adaptive")
    add(fmt::format("hash {}", other_hash), "switch: the function of the ECMP hash").fabric.ecmp.hash = other_hash;
  if (ecmp.hash != "uniform") add("ideal hash", "for comparison: no switch has it").fabric.ecmp.hash = "uniform";
  if (ecmp.hash != "adaptive")
    add("adaptive routing", "switch and NIC; NCCL_IB_ADAPTIVE_ROUTING=1").fabric.ecmp.hash = "adaptive";
  return changes;
}

}  // namespace ms::clos
