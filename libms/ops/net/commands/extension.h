// Checks whose ranks talk over MPI or NCCL, which ms-netcheck loads from libms.so when a command asks for them: without
// them it needs neither MPI nor oneDNN. Implemented by libms/ops/fabric.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mesh/config.h"
#include "net/measure/collectives.h"
#include "net/measure/ranks.h"
#include "net/report/report.h"

namespace ms::net {

struct Extension {
  std::string_view version;  // must be that of the program that loads it
  // Returns the rows on rank 0; nullopt on the other processes of a launch. Throws what fabric::run_ranks throws, and
  // Error("mesh.size", user).
  std::optional<std::vector<CollectiveRow>> (*collectives)(const CollectivesRequest& request);
  // Returns what `check` returned on rank 0; nullopt on the other processes of a launch. A lost rank is in the results.
  // Throws what fabric::run_ranks throws.
  std::optional<Checked> (*ranks)(const RanksRequest& request,
                                  const std::function<Checked(LaunchedWorkers& workers)>& check);
  // Returns [mesh] of a training configuration after `set`, lines KEY=VALUE. Throws Error("config.*", user).
  mesh::MeshConfig (*mesh)(const std::string& config, const std::vector<std::string>& set);
};

// Throws Error("extension.load", node).
const Extension& load_extension();

}  // namespace ms::net

// Exported by libms.so.
extern "C" const ms::net::Extension* ms_netcheck_extension();
