// Collectives of groups of ranks, each iteration timed and every element of every result checked: what nccl-tests and
// the OSU benchmarks measure, over this project's communicators, in the groups that a training run would have.
#pragma once

#include "comm/world.h"
#include "fabric/ranks.h"
#include "net/measure/collectives.h"

namespace ms::fabric {

// Collective over the world: all ranks call it with the same arguments. Rows are complete on every rank. On rank 0
// `before` receives the name of the next measurement.
std::vector<net::CollectiveRow> run_collectives(comm::World& world, const RankDevices& devices,
                                                const std::vector<net::Split>& splits,
                                                const net::CollectiveOptions& options,
                                                const std::function<void(const std::string& what)>& before);

}  // namespace ms::fabric
