#include "train/commands/place.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <numeric>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "slurm/hostlist.h"

namespace ms::train {
namespace {

int switch_of(const slurm::Topology& topology, std::string_view host) {
  auto found = topology.leaf_of.find(host);
  if (found == topology.leaf_of.end()) found = topology.leaf_of.find(host.substr(0, host.find('.')));
  return found == topology.leaf_of.end() ? mesh::kNoSwitch : found->second;
}

void note_tp(Placed& placed) {
  const mesh::Mesh& mesh = placed.mesh;
  const std::vector<std::int64_t>& by_level = placed.placement.score.tp.groups;
  const std::int64_t groups = std::accumulate(by_level.begin(), by_level.end(), std::int64_t{0});
  const std::int64_t spanning = groups - by_level.front();
  const bool divides = std::all_of(placed.cluster.hosts.begin(), placed.cluster.hosts.end(),
                                   [&](const mesh::Host& host) { return host.slots % mesh.tp == 0; });
  if (spanning > 0) {
    placed.notes.push_back(
        fmt::format("{} of {} tp groups span nodes, because hosts with room for whole groups of {} do not suffice: "
                    "every layer of every microbatch then waits for the network between nodes; a tp that "
                    "divides the slots of a host stays inside",
                    spanning, groups, mesh.tp));
  } else if (!divides) {
    placed.notes.push_back(
        fmt::format("tp {} does not divide the slots of every host: the remaining slots are not used", mesh.tp));
  }
}

}  // namespace

HostsRead read_hosts(const std::string& name, const slurm::Getenv& getenv) {
  if (name == "slurm") return {.hosts = slurm::job_hosts(getenv), .source = "the Slurm job"};
  const bool standard_input = name == "-";
  const std::string text =
      standard_input ? std::string(std::istreambuf_iterator<char>(std::cin), {}) : read_file(name, Blame::user);
  const std::string source = standard_input ? "standard input" : name;
  return {.hosts = slurm::parse_hostfile(text, source), .source = source};
}

SwitchesRead read_switches(const std::optional<std::string>& name, const slurm::Getenv& getenv) {
  const auto parsed = [](std::string_view text, const std::string& source) {
    SwitchesRead read{.topology = slurm::parse_topology(text, source), .source = source};
    if (read.topology.switches.empty()) read.source += " describes no switches";
    return read;
  };
  if (name) return parsed(read_file(*name, Blame::user), *name);
  const slurm::ToldTopology told = slurm::ask_topology(getenv);
  if (!told.why_not.empty()) return {.topology = {}, .source = told.why_not};
  return parsed(told.text, "scontrol show topology");
}

Placed place_ranks(const mesh::Mesh& mesh, int chunks, const HostsRead& hosts, const SwitchesRead& switches) {
  Placed placed{.mesh = mesh,
                .cluster = {},
                .placement = {},
                .hosts_source = hosts.source,
                .switches_source = switches.source,
                .notes = {}};
  const slurm::Topology& topology = switches.topology;
  for (const auto& each : topology.switches)
    placed.cluster.switches.push_back({.name = each.name, .under = each.above});
  std::vector<std::string> unknown;
  for (const slurm::HostSlots& host : hosts.hosts) {
    const int under = switch_of(topology, host.name);
    if (under == mesh::kNoSwitch) unknown.push_back(host.name);
    placed.cluster.hosts.push_back({.name = host.name, .slots = host.slots, .under = under});
  }
  placed.placement = mesh::place(placed.cluster, mesh, chunks);
  if (!topology.switches.empty() && !unknown.empty()) {
    placed.notes.push_back(fmt::format("{} under no switch of {}: treated as far from all others",
                                       slurm::fold_hostlist(unknown), switches.source));
  }
  note_tp(placed);
  return placed;
}

}  // namespace ms::train
