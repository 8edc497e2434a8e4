// The commands of ms-tracepp for people who look before they read: each with its options, its manual text and its
// function.
#pragma once

#include "base/cli.h"

namespace ms::tracepp {

Command report_command();

}  // namespace ms::tracepp
