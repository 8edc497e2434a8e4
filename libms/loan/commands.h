// The commands of ms-loan.
#pragma once

#include "base/cli.h"

namespace ms::loan {

Command simulate_command();

}  // namespace ms::loan
