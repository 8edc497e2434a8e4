// A placement as text, as JSON and as a host file for srun. Pure.
#pragma once

#include <string>

#include "train/commands/place.h"

namespace ms::train {

// Says how to use the order: `config` is the run's, `order` the file's name, or empty where none was written.
std::string placed_text(const Placed& placed, const std::string& config, const std::string& order);
std::string placed_json(const Placed& placed);
// A host a line, by rank, as SLURM_HOSTFILE names such a file.
std::string order_text(const Placed& placed);

}  // namespace ms::train
