// The subcommands of ms-ckpt that only read checkpoints.
#pragma once

#include "base/cli.h"

namespace ms::ckpt {

Command ls_command();
Command show_command();
Command verify_command();
Command diff_command();

}  // namespace ms::ckpt
