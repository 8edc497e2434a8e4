// ms-diag predict: ACTION FILE, see tools/ms-diag.cpp.
#pragma once

#include "base/cli.h"

namespace ms::predict {

// Returns the exit status. Throws Error with what cannot be known of these data, or is wrong with them.
int run_command(const Args& args);

}  // namespace ms::predict
