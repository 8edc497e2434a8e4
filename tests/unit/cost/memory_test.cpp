// ZeRO formulas against the published tables.
#include <gtest/gtest.h>

#include "cost/zero.h"

namespace ms::cost {
namespace {

TEST(Zero, BytesPerParameter) {
  struct Case {
    const char* name;
    StateBytes state;
    int zero;
    double whole, shared;  // whole + shared / d
  };
  const Case cases[] = {
      {"bf16, Adam, 0", state_bytes(true, false, 2), 0, 18, 0},
      {"bf16, Adam, 1", state_bytes(true, false, 2), 1, 6, 12},
      {"bf16, Adam, 2", state_bytes(true, false, 2), 2, 2, 16},
      {"bf16, Adam, 3", state_bytes(true, false, 2), 3, 0, 18},
      {"fp32, Adam, 0", state_bytes(false, false, 2), 0, 16, 0},
      {"fp32, Adam, 1", state_bytes(false, false, 2), 1, 8, 8},
      {"fp32, Adam, 2", state_bytes(false, false, 2), 2, 4, 12},
      {"fp32, Adam, 3", state_bytes(false, false, 2), 3, 0, 16},
      {"bf16, a state and a quarter, 1", state_bytes(true, false, 1.25), 1, 6, 9},
      {"bf16, one state, 1", state_bytes(true, false, 1), 1, 6, 8},
      {"bf16, bf16 gradients, 1", state_bytes(true, true, 2), 1, 4, 12},
      {"bf16, bf16 gradients, 2", state_bytes(true, true, 2), 2, 2, 14},
  };
  for (const Case& c : cases) {
    for (const int d : {1, 2, 8, 64, 1536}) {
      EXPECT_DOUBLE_EQ(zero_bytes_per_parameter(c.state, c.zero, d), c.whole + c.shared / d) << c.name << ", d " << d;
    }
  }
}

}  // namespace
}  // namespace ms::cost
