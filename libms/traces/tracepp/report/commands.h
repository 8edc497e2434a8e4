// The commands of ms-tracepp that print: each with its options, its manual text and its function.
#pragma once

#include "base/cli.h"

namespace ms::tracepp {

Command stragglers_command();
Command hang_command();
Command diff_command();
Command info_command();

}  // namespace ms::tracepp
