// Row shares of norms of any width: they cover the row, within the threads of the kernels' launch bounds.
#include "kernels/norm_rows.h"

#include <gtest/gtest.h>

namespace ms::kernels {
namespace {

TEST(NormRows, CoverRowsWithinLaunchBounds) {
  for (const bool backward : {false, true}) {
    for (const int lanes : {1, 4, 8}) {  // element by element, f32, bf16
      for (std::int64_t cols = lanes; cols <= kMostNormColumns; cols += lanes) {
        const auto [packs, threads] = share_of_row(backward, cols, lanes);
        ASSERT_GE(std::int64_t{packs} * lanes * threads, cols) << lanes << (backward ? " backward" : " forward");
        ASSERT_LE(threads, most_norm_threads(backward, lanes, packs))
            << cols << " columns, " << lanes << (backward ? " backward" : " forward");
        ASSERT_EQ(threads % 32, 0);
        // What the forward has kernels for.
        if (!backward && lanes > 1) { ASSERT_TRUE(packs >= 4 || threads == 32) << cols << " columns, " << lanes; }
      }
    }
  }
}

}  // namespace
}  // namespace ms::kernels
