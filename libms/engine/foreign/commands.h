// The subcommands of ms-ckpt that read checkpoints, ours and those of other programs.
#pragma once

#include <string>
#include <vector>

#include "base/cli.h"
#include "foreign/checkpoint.h"

namespace ms::foreign {

// Returns find_checkpoints(path), or none if the path holds checkpoints of ms-train.
std::vector<Place> others_in(const std::string& path);

Command ls_command();
Command show_command();
Command verify_command();
Command diff_command();

}  // namespace ms::foreign
