// The command of ms-tracepp that follows a run: with its options, its manual text and its function.
#pragma once

#include "base/cli.h"

namespace ms::tracepp {

Command watch_command();

}  // namespace ms::tracepp
