#include "net/report/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "base/json.h"
#include "base/text.h"

namespace ms::net {
namespace {

using clos::CollectiveForecast;

constexpr std::array<std::string_view, 9> kNotModelled{"further channels of NCCL's rings",
                                                       "the backward direction of pp",
                                                       "groups of optim.shard_group",
                                                       "queues and incast",
                                                       "lost packets",
                                                       "a third level of switches",
                                                       "NCCL's trees",
                                                       "several axes at a time",
                                                       "failed links"};

const CollectiveForecast& slowest_of(const std::vector<CollectiveForecast>& forecasts) {
  return *std::ranges::min_element(forecasts, {}, [](const CollectiveForecast& f) {
    return std::tuple(f.slowest_median, f.slowest_90, -f.colliding);
  });
}

std::string percent_of(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::vector<std::string> results_of(const CollectiveForecast& forecast) {
  return {forecast.crossing == 0 ? "-" : percent_of(forecast.colliding), percent_of(forecast.slowest_median),
          percent_of(forecast.slowest_90), percent_of(forecast.mean)};
}

std::int64_t hosts_in(const FabricPlan& plan) {
  return (plan.mesh.ranks() + plan.fabric.host.ranks - 1) / plan.fabric.host.ranks;
}

std::string heading(const FabricPlan& plan) {
  const clos::Fabric& fabric = plan.fabric;
  const mesh::MeshConfig& mesh = plan.mesh;
  std::string text =
      fmt::format("fabric     {} hosts of {} ranks, with {} NICs of {} x {:g} Gbit/s; {} hosts under a {}\n",
                  hosts_in(plan), fabric.host.ranks, fabric.host.nics, fabric.host.ports, fabric.host.port_gbps,
                  fabric.leaf.hosts, fabric.leaf.rails ? "set of leaf switches, one per NIC" : "leaf switch");
  text += fmt::format("uplinks    {} x {:g} Gbit/s per leaf switch, to {} spine switches; oversubscription {:.2f}\n",
                      fabric.leaf.uplinks, fabric.leaf.uplink_gbps, fabric.spine.switches, fabric.oversubscription());
  text += fmt::format("ECMP       {}; {} per connection and port\n", fabric.ecmp.hash,
                      plural(static_cast<std::size_t>(fabric.roce.queue_pairs), "queue pair"));
  text += fmt::format("mesh       tp {} x cp {} x dp {} x pp {}, ep {}; placement {}\n", mesh.tp, mesh.cp, mesh.dp,
                      mesh.pp, mesh.ep, to_string(plan.placement));
  return text;
}

std::string changes_text(const FabricPlan& plan) {
  TextTable table(columns("change|slowest axis|colliding>|slowest, median>|slowest, 90 %>|mean>|how"));
  const auto add = [&](const std::string& name, const std::vector<CollectiveForecast>& forecasts,
                       const std::string& how) {
    const CollectiveForecast& slowest = slowest_of(forecasts);
    std::vector<std::string> row{name, slowest.axis};
    std::ranges::move(results_of(slowest), std::back_inserter(row));
    row.push_back(how);
    table.row(std::move(row));
  };
  add("none", plan.forecasts, "");
  for (const FabricPlan::Changed& changed : plan.changes)
    add(changed.change.name, changed.forecasts, changed.change.set);
  return table.str();
}

Json forecasts_json(const std::vector<CollectiveForecast>& forecasts) {
  Json json = Json::array();
  for (const CollectiveForecast& f : forecasts) {
    json.push_back({{"axis", f.axis},
                    {"channels", f.channels},
                    {"flows", f.flows},
                    {"crossing", f.crossing},
                    {"colliding", f.colliding},
                    {"slowest_median", f.slowest_median},
                    {"slowest_90", f.slowest_90},
                    {"mean", f.mean}});
  }
  return json;
}

}  // namespace

FabricPlan plan_fabric(const clos::Fabric& fabric, const mesh::MeshConfig& mesh, clos::Placement placement,
                       int starts) {
  FabricPlan plan{.fabric = fabric,
                  .mesh = mesh,
                  .placement = placement,
                  .starts = starts,
                  .forecasts = clos::forecast(fabric, mesh, placement, starts),
                  .changes = {}};
  if (plan.forecasts.empty()) return plan;
  for (const clos::Change& change : clos::changes_of(fabric, mesh, placement))
    plan.changes.push_back({change, clos::forecast(change.fabric, mesh, change.placement, starts)});
  return plan;
}

std::string plan_text(const FabricPlan& plan) {
  std::string text = heading(plan);
  if (plan.forecasts.empty()) return text + "\nno collective passes the network: all groups are within a host\n";
  TextTable collectives(
      columns("collective|channels>|flows>|via spines>|colliding>|slowest, median>|slowest, 90 %>|mean>"));
  for (const CollectiveForecast& forecast : plan.forecasts) {
    std::vector<std::string> row{forecast.axis, std::to_string(forecast.channels), std::to_string(forecast.flows),
                                 std::to_string(forecast.crossing)};
    std::ranges::move(results_of(forecast), std::back_inserter(row));
    collectives.row(std::move(row));
  }
  text += '\n' + collectives.str() + '\n';
  const CollectiveForecast& slowest = slowest_of(plan.forecasts);
  if (slowest.slowest_90 == 1 && slowest.colliding == 0) return text + "no flow loses anything: nothing to change\n";
  return text + changes_text(plan) +
         fmt::format(
             "\nOver {} of the job, each with other queue pairs. colliding: share of the flows via spines that cross "
             "an "
             "overloaded\nlink. slowest, mean: rate of channels relative to a fabric that never limits them; 'slowest, "
             "90 "
             "%' is reached at 90 %\nof the starts.\nNot modelled: {},\n{}.\n",
             plural(static_cast<std::size_t>(plan.starts), "start"),
             fmt::join(kNotModelled.begin(), kNotModelled.begin() + 5, ", "),
             fmt::join(kNotModelled.begin() + 5, kNotModelled.end(), ", "));
}

std::string plan_json(const FabricPlan& plan) {
  const mesh::MeshConfig& mesh = plan.mesh;
  Json json{{"schema", 1},
            {"command", "plan"},
            {"hosts", hosts_in(plan)},
            {"mesh", {{"dp", mesh.dp}, {"pp", mesh.pp}, {"tp", mesh.tp}, {"cp", mesh.cp}, {"ep", mesh.ep}}},
            {"placement", to_string(plan.placement)},
            {"starts", plan.starts},
            {"oversubscription", plan.fabric.oversubscription()},
            {"collectives", forecasts_json(plan.forecasts)},
            {"changes", Json::array()},
            {"not_modelled", kNotModelled}};
  if (!plan.forecasts.empty()) json["slowest_axis"] = slowest_of(plan.forecasts).axis;
  for (const FabricPlan::Changed& changed : plan.changes) {
    json["changes"].push_back({{"name", changed.change.name},
                               {"set", changed.change.set},
                               {"slowest_axis", slowest_of(changed.forecasts).axis},
                               {"collectives", forecasts_json(changed.forecasts)}});
  }
  return json.dump(2) + "\n";
}

}  // namespace ms::net
