// The commands of ms-tracepp that write a run's trace to a file: each with its options, its manual text and its
// function.
#pragma once

#include "base/cli.h"

namespace ms::tracepp {

Command merge_command();
Command export_command();

}  // namespace ms::tracepp
