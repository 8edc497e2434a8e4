// Grouped matmuls against f64; the same bits for any number of threads and for rows in other company.
#include <algorithm>

#include "matmul_case.h"
#include "tensor/cpu_matmul.h"
#include "tensor/team.h"

namespace ms::tensor::test {
namespace {

// Of four experts the second has no slots.
GroupedMatmul grouped(Memory& m, DType type, DType result, bool transpose_a, bool transpose_b, bool accumulate,
                      std::int64_t n, std::int64_t k) {
  constexpr std::int64_t kOffsets[] = {0, 5, 5, 300, 333};
  const Tensor offsets = m.tensor(DType::i32, 1, 5);
  for (std::int64_t e = 0; e < 5; ++e) put(offsets, 0, e, static_cast<double>(kOffsets[e]));
  const std::int64_t slots = kOffsets[4];
  const auto by_slot = [&](DType of, std::int64_t cols) { return m.tensor(of, slots, cols, 3); };
  const auto weights = [&](DType of) { return m.tensor(of, 4 * n, k); };
  if (transpose_a) {
    return {.c = weights(result),
            .a = by_slot(type, n),
            .b = by_slot(type, k),
            .offsets = offsets,
            .transpose_a = true,
            .accumulate = accumulate};
  }
  return {.c = by_slot(type, transpose_b ? n : k),
          .a = by_slot(type, transpose_b ? k : n),
          .b = weights(type),
          .offsets = offsets,
          .transpose_b = transpose_b};
}

Mat grouped_reference(const GroupedMatmul& op) {
  Mat c = read(op.c);
  const Mat a = read(op.a), b = read(op.b), offsets = read(op.offsets);
  if (!op.accumulate) std::ranges::fill(c.values, 0);
  const std::int64_t rows = (op.transpose_a ? op.c.rows : op.b.rows) / op.experts();
  for (std::int64_t e = 0; e < op.experts(); ++e) {
    for (auto s = static_cast<std::int64_t>(offsets(0, e)); s < static_cast<std::int64_t>(offsets(0, e + 1)); ++s) {
      for (std::int64_t n = 0; n < rows; ++n) {
        for (std::int64_t k = 0; k < (op.transpose_a ? op.c.cols : op.b.cols); ++k) {
          if (op.transpose_a) {
            c(e * rows + n, k) += a(s, n) * b(s, k);
          } else if (op.transpose_b) {
            c(s, n) += a(s, k) * b(e * rows + n, k);
          } else {
            c(s, k) += a(s, n) * b(e * rows + n, k);
          }
        }
      }
    }
  }
  return c;
}

TEST(GroupedMatmul, EveryForm) {
  for (const DType type : activation_types()) {
    MatmulCache cache;
    for (const DType result : {type, DType::f32}) {
      for (const auto& [transpose_a, transpose_b, accumulate] :
           {std::tuple{false, true, false}, {false, false, false}, {true, false, false}, {true, false, true}}) {
        if (!transpose_a && result != type) continue;
        for (const auto& [n, k] : {std::pair{std::int64_t{24}, std::int64_t{40}}, {7, 130}, {96, 33}}) {
          SCOPED_TRACE(fmt::format("{} -> {}{}{}{} {} x {}", to_string(type), to_string(result),
                                   transpose_a ? " a'" : "", transpose_b ? " b'" : "", accumulate ? " +=" : "", n, k));
          Memory m;
          const GroupedMatmul op = grouped(m, type, result, transpose_a, transpose_b, accumulate, n, k);
          const Mat want = grouped_reference(op);
          const Memory::Image before = m.save();
          set_team_threads(1);
          cache.run(op);
          EXPECT_TRUE(close(op.c, want, tolerance_of(result, kF32)));
          EXPECT_TRUE(m.guards_intact());
          EXPECT_TRUE(m.inputs_as_in(before, op));
          const Memory::Image one = m.save();
          set_team_threads(3);
          m.restore(before);
          cache.run(op);
          EXPECT_TRUE(m.save() == one) << "three threads";
        }
      }
    }
  }
}

// A row of the forward has the same bits whichever slots are with it.
TEST(GroupedMatmul, ARowStandsAlone) {
  MatmulCache cache;
  set_team_threads(1);
  for (const DType type : activation_types()) {
    Memory m;
    GroupedMatmul op = grouped(m, type, type, false, true, false, 40, 64);
    cache.run(op);
    const Mat all = read(op.c);
    for (const std::int64_t rows : {1, 3, 100, 294}) {  // of the third expert's 295 slots, from the first
      for (std::int64_t e = 0; e < 3; ++e) put(op.offsets, 0, e, 5);
      put(op.offsets, 0, 3, static_cast<double>(5 + rows)), put(op.offsets, 0, 4, static_cast<double>(5 + rows));
      for (std::int64_t s = 5; s < 5 + rows; ++s) put(op.c, s, 0, 1e9);
      cache.run(op);
      EXPECT_EQ(read(op.c.slice_rows(5, rows)).values, [&] {
        Mat part(rows, all.cols);
        for (std::int64_t s = 0; s < rows; ++s) {
          for (std::int64_t j = 0; j < all.cols; ++j) part(s, j) = all(5 + s, j);
        }
        return part.values;
      }()) << rows;
    }
  }
}

// The second of two ranks holds the last four of eight experts: where its rows lie follows from both ranks' own slots.
TEST(GroupedMatmul, TakesTheOffsetsOfAllRanks) {
  constexpr std::int64_t kCounts[2][8] = {{4, 0, 9, 1, 2, 0, 100, 33}, {0, 7, 7, 7, 3, 0, 195, 0}};
  MatmulCache cache;
  set_team_threads(1);
  for (const bool transpose_a : {false, true}) {
    Memory m;
    GroupedMatmul op = grouped(m, DType::f32, DType::f32, transpose_a, !transpose_a, false, 24, 40);
    cache.run(op);
    const Mat want = read(op.c);
    op.offsets = m.tensor(DType::i32, 2, 9);
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      std::int64_t sum = 0;
      for (std::int64_t e = 0; e <= 8; ++e) {
        put(op.offsets, rank, e, static_cast<double>(sum));
        if (e < 8) sum += kCounts[rank][e];
      }
    }
    op.rank = 1;
    for (std::int64_t i = 0; i < op.c.rows; ++i) put(op.c, i, 0, 1e9);
    cache.run(op);
    EXPECT_EQ(read(op.c).values, want.values) << transpose_a;
  }
}

// Likewise where three members gathered what each had received. Each had room for a third of the rows: the last row of
// the last member was dropped.
TEST(GroupedMatmul, TakesTheOffsetsOfAllThatGatheredRows) {
  constexpr std::int64_t kReceived[3][4] = {{1, 0, 100, 10}, {2, 0, 100, 9}, {2, 0, 95, 15}};
  MatmulCache cache;
  set_team_threads(1);
  for (const bool transpose_a : {false, true}) {
    Memory m;
    GroupedMatmul op = grouped(m, DType::f32, DType::f32, transpose_a, !transpose_a, false, 24, 40);
    cache.run(op);
    const Mat want = read(op.c);
    op.offsets = m.tensor(DType::i32, 6, 9);
    for (std::int64_t i = 0; i < 6; ++i) {
      std::int64_t sum = 0;
      put(op.offsets, i, 0, 0);
      for (std::int64_t e = 0; e < 8; ++e) {
        const std::int64_t all = e < 4 ? 3 : kReceived[i / 2][e - 4];
        sum += i % 2 == 0 ? all / 2 : all - all / 2;
        put(op.offsets, i, e + 1, static_cast<double>(sum));
      }
    }
    op.rank = 1, op.members = 3;
    for (std::int64_t i = 0; i < op.c.rows; ++i) put(op.c, i, 0, 1e9);
    cache.run(op);
    EXPECT_EQ(read(op.c).values, want.values) << transpose_a;
  }
}

}  // namespace
}  // namespace ms::tensor::test
