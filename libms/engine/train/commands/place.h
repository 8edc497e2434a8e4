// Rank placement as ms-train plan --hostfile shows it: hosts and switches from where the user says, joined and handed
// to mesh::place, and the answer for people, for programs and for srun.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mesh/placement.h"
#include "slurm/hostfile.h"
#include "slurm/topology.h"

namespace ms::train {

struct HostsRead {
  std::vector<slurm::HostSlots> hosts;
  std::string source;  // "hosts.txt", "the Slurm job"
};
struct SwitchesRead {
  slurm::Topology topology;  // empty: one flat network
  std::string source;        // where the switches are from, or why there are none
};

// `name` is a file, "-" for standard input, or "slurm" for the job this runs in. Throws as the parsers do.
HostsRead read_hosts(const std::string& name, const slurm::Getenv& getenv);
// `name` is a file; nullopt: what scontrol says, if anything.
SwitchesRead read_switches(const std::optional<std::string>& name, const slurm::Getenv& getenv);

struct Placed {
  mesh::Mesh mesh;
  mesh::Cluster cluster;
  mesh::Placement placement;
  std::string hosts_source, switches_source;
  std::vector<std::string> notes;  // what the user should know besides: sentences
};

// Pure. Throws Error("mesh.slots", user) where there are too few slots.
Placed place_ranks(const mesh::Mesh& mesh, int chunks, const HostsRead& hosts, const SwitchesRead& switches);

}  // namespace ms::train
