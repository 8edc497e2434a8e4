// The subcommands of ms-ckpt that need the configuration of the run beside its checkpoint, or know all formats.
#pragma once

#include "base/cli.h"

namespace ms::train {

Command reshard_command();
Command import_command();
Command export_command();
Command hash_command();

}  // namespace ms::train
