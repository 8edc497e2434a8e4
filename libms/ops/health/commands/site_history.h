// The parts of ms-diag history that look at what all nodes share: their drains and their samples.
#pragma once

#include "base/cli.h"

namespace ms::health {

int site_history(const Args& args);    // --site
int sample_history(const Args& args);  // --samples

}  // namespace ms::health
