// The sum of the parts of rows that ranks have computed of an expert, against f64.
#include "support.h"

namespace ms::tensor::test {
namespace {

// Of two ranks the second holds the last two of four experts: their rows are summed, and the others stay.
TEST(ExpertSum, AddsThePartsOfUsedRows) {
  constexpr std::int32_t kOffsets[2][5] = {{0, 4, 5, 7, 10}, {0, 1, 1, 1, 6}};  // two rows for one, eight for the other
  constexpr std::int64_t kRows = 12, kCols = 33;
  struct Case {
    ExpertRange range;
    std::int64_t begin, end;
  };
  for (const DType dtype : activation_types()) {
    for (const Case& c : {Case{{}, 0, 10}, Case{{0, 1}, 0, 2}, Case{{1, 1}, 2, 10}}) {
      Memory m;
      const Tensor offsets = m.tensor(DType::i32, 2, 5);
      for (std::int64_t i = 0; i < 10; ++i) put(offsets, i / 5, i % 5, kOffsets[i / 5][i % 5]);
      const Tensor x = m.tensor(dtype, 3 * kRows, kCols), y = m.of(dtype, Mat(kRows, kCols));
      const Mat parts = read(x);
      everywhere(m, ExpertSum{.y = y, .x = x, .offsets = offsets, .rank = 1, .range = c.range}, [&] {
        Mat sums(kRows, kCols);
        for (std::int64_t row = c.begin; row < c.end; ++row) {
          for (std::int64_t col = 0; col < kCols; ++col)
            sums(row, col) = parts(row, col) + parts(kRows + row, col) + parts(2 * kRows + row, col);
        }
        EXPECT_TRUE(close(y, sums, tolerance_of(dtype, 1e-6)));
      });
    }
  }
}

}  // namespace
}  // namespace ms::tensor::test
