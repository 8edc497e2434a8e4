// The subcommands of ms-ckpt that work on a directory of checkpoints.
#pragma once

#include "base/cli.h"

namespace ms::ckpt {

Command prune_command();
Command pin_command();
Command unpin_command();
Command repair_command();
Command bench_command();

// These only read checkpoints.
Command ls_command();
Command show_command();
Command verify_command();
Command diff_command();

}  // namespace ms::ckpt
