// The subcommands of ms-ckpt that read checkpoints, ours and those of other programs.
#pragma once

#include "base/cli.h"

namespace ms::foreign {

Command ls_command();
Command show_command();
Command verify_command();
Command diff_command();

}  // namespace ms::foreign
