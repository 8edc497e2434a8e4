// An all-to-all of the GPUs of this process over NCCL: what perf.nccl and perf.ncclnet have in common.
#pragma once

#include "health/checks/check.h"

namespace ms::diag {

// Pairs of GPUs exchange blocks both ways at once, all pairs of a round of a tournament at the same time. Every word of
// what arrives last in a pair is verified. A rate for each GPU is judged by `expected_gbps`, where that is not
// negative, and by the other GPUs; if one seems slow by them, everything is measured again, and the better counts. The
// worst is a warning. NCCL reads its variables once, so a process calls it once.
health::Result exchange_by_nccl(health::Evidence& evidence, double expected_gbps);

}  // namespace ms::diag
