// The commands of ms-loan.
#pragma once

#include "base/cli.h"

namespace ms::loan {

Command simulate_command();
Command observe_command();
Command act_command();
Command explain_command();

}  // namespace ms::loan
