// The command of ms-tracepp that draws heat maps: with its options, its manual text and its function.
#pragma once

#include "base/cli.h"

namespace ms::tracepp {

Command heatmap_command();

}  // namespace ms::tracepp
