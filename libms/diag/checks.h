// The active checks of level 2, which the rows of health/registry_active.cpp describe. Each loads the node for a few
// seconds, measures, and judges the number by the policy's section [active]; extension.cpp finds them by code. They run
// in a lane's process (health/runner.h), one after the other, and look after nothing that ends with it.
#pragma once

#include "health/check.h"

namespace ms::diag {

health::Result check_memory(health::Evidence& evidence);
health::Result check_gemm(health::Evidence& evidence);
health::Result check_bits(health::Evidence& evidence);
health::Result check_nic(health::Evidence& evidence);
health::Result check_a2a(health::Evidence& evidence);
health::Result check_reduce(health::Evidence& evidence);

}  // namespace ms::diag
