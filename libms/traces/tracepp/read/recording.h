// The section RECORDING of ms-tracepp(1): how to make other programs write the files that the readers here take.
#pragma once

#include "base/cli.h"

namespace ms::tracepp {

ManSection recording_manual();

}  // namespace ms::tracepp
