// The effect of ECMP on the collectives of a training step: how many flows collide, and how much the slowest channel
// loses, over many starts of the job. Each start gives the connections other queue pairs, hence other paths. Pure.
//
// Each axis is judged by itself, with all of its groups at work and every channel with data to send. Flows share links
// max-min fair, which congestion control approximates for long transfers. Not modelled: queues, incast within a
// round trip, PFC, lost packets, a third level of switches, trees of NCCL, and axes that send at the same time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "clos/fabric.h"
#include "mesh/config.h"

namespace ms::clos {

// Where nodes, which ranks fill in order, are in the fabric. listed: node n is host n, so that neighbours on dp are
// under one leaf switch. pipelines: neighbours on pp are. random: in any order, another one at each start.
enum class Placement : std::uint8_t { listed, pipelines, random };
std::string_view to_string(Placement placement);

struct CollectiveForecast {
  std::string axis;
  std::size_t channels = 0;  // rings, transfers or all-to-alls
  std::size_t flows = 0;     // queue pairs
  std::size_t crossing = 0;  // flows that pass spine switches; with random placement, at the first start
  // Mean over the starts of the share of the crossing flows that pass a link which is offered more than it can carry.
  double colliding = 0;
  // Rate relative to that on a fabric whose switches never limit it. slowest: of the slowest channel; mean: of all.
  double slowest_median = 1;
  double slowest_90 = 1;  // reached or exceeded at 90 % of the starts
  double mean = 1;

  double slowdown() const { return 1 / slowest_median; }
};

// Returns the forecasts of the collectives that pass the network, in the order of step_flows(). `starts` is at least 1.
// Throws Error("mesh.size", user), also if the hosts of a job with placement pipelines do not divide over the stages,
// and Error("fabric.size", user).
std::vector<CollectiveForecast> forecast(const Fabric& fabric, const mesh::MeshConfig& mesh, Placement placement,
                                         int starts);

// A change of fabric, settings or placement, and how to make it.
struct Change {
  std::string name, set;
  Fabric fabric;
  Placement placement = Placement::listed;
};
// Returns the changes that apply.
std::vector<Change> changes_of(const Fabric& fabric, const mesh::MeshConfig& mesh, Placement placement);

}  // namespace ms::clos
