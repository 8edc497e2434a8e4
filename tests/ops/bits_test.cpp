// Results that are exact to the last bit: sums with a defined order, matmuls with any number of threads and on any
// instruction set, values that only pass through.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "base/rng.h"
#include "support.h"
#include "tensor/cpu_matmul.h"
#include "tensor/team.h"

namespace ms::tensor::test {
namespace {

float as_float(double x) { return static_cast<float>(x); }

// Tokens are added in the order of t, in f32, to the existing values.
TEST(Bits, TableGradientsAddInOrder) {
  for (const DType dtype : activation_types()) {
    for (const std::int64_t cols : {1, 7, 16, 33, 257}) {
      SCOPED_TRACE(label(dtype, 300, cols));
      const std::int64_t rows = 300, held = 9, first = 7, offset = 4;
      Memory m;
      const Tensor dy = m.tensor(dtype, rows, cols, 5), tokens = m.tensor(DType::i32, 1, rows);
      const Tensor embedding = m.tensor(DType::f32, held, cols, 3), position = m.tensor(DType::f32, held, cols, 3);
      Mat by_token = read(embedding), by_place = read(position);
      for (std::int64_t t = 0; t < rows; ++t) {
        const auto id = static_cast<std::int64_t>(uniform_below(2, 1, static_cast<std::uint64_t>(t), 23));
        put(tokens, 0, t, static_cast<double>(id));
        for (std::int64_t j = 0; j < cols; ++j) {
          double& place = by_place((offset + t) % held, j);
          place = as_float(place) + as_float(get(dy, t, j));
          if (id < first || id >= first + held) continue;
          double& token = by_token(id - first, j);
          token = as_float(token) + as_float(get(dy, t, j));
        }
      }
      everywhere(m, EmbeddingBwd{.dtable = embedding, .dy = dy, .tokens = tokens, .first = first},
                 [&] { EXPECT_EQ(read(embedding).values, by_token.values); });
      everywhere(m, PositionBwd{.dtable = position, .dy = dy, .offset = offset},
                 [&] { EXPECT_EQ(read(position).values, by_place.values); });
    }
  }
}

// The inputs differ in magnitude, so that another order of summation gives other bits. The result may replace any of
// them.
TEST(Bits, ReduceAddsInOrderWhereverItWrites) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    for (int count = 1; count <= 8; ++count) {
      for (int into = -1; into < count; ++into) {
        for (const std::int64_t n : {1, 33, 1000}) {
          SCOPED_TRACE(testing::Message() << to_string(dtype) << " " << count << " of " << n << " into " << into);
          Memory m;
          std::vector<Tensor> inputs;
          std::vector<const void*> pointers;
          for (int k = 0; k < count; ++k) {
            inputs.push_back(m.tensor(dtype, 1, n, 0, std::pow(10.0, k % 3)));
            pointers.push_back(inputs.back().data);
          }
          const Tensor other = m.tensor(dtype, 1, n);
          const Tensor out = into < 0 ? other : inputs[static_cast<std::size_t>(into)];
          Mat want = read(inputs[0]);
          for (std::size_t k = 1; k < inputs.size(); ++k) {
            for (std::int64_t i = 0; i < n; ++i) {
              const double sum = want(0, i) + get(inputs[k], 0, i);
              want(0, i) = dtype == DType::f64 ? sum : as_float(sum);
            }
          }
          if (dtype == DType::bf16) std::ranges::transform(want.values, want.values.begin(), round_to_bf16);
          const Memory::Image before = m.save();
          for (const CpuKernels* kernels : variants()) {
            m.restore(before);
            kernels->reduce(ReduceKind::sum, dtype, out.data, pointers.data(), count, n);
            EXPECT_EQ(read(out).values, want.values) << to_string(kernels->isa);
            EXPECT_TRUE(m.guards_intact());
          }
        }
      }
    }
  }
}

// oneDNN splits long sums among threads for small matmuls; here no sum may be split. Odd sizes and strides take other
// code paths than round ones.
TEST(Bits, MatmulsOnAnyNumberOfThreads) {
  struct Shape {
    std::int64_t m, n, k;
  };
  constexpr Shape kShapes[] = {{1, 300, 64},    {3, 1, 257},    {33, 17, 129},   {64, 1, 4096},
                               {64, 7, 4096},   {64, 64, 4096}, {64, 300, 1000}, {100, 768, 257},
                               {192, 128, 768}, {300, 1, 64},   {5000, 96, 300}};  // more rows than a packed block of a
                                                                                   // transposed a
  struct Types {
    DType in, out;
  };
  MatmulCache cache;
  for (const Types types :
       {Types{DType::f32, DType::f32}, Types{DType::bf16, DType::f32}, Types{DType::bf16, DType::bf16}}) {
    for (const Shape& s : kShapes) {
      for (const std::int64_t gap : {0, 5}) {
        for (unsigned flags = 0; flags < 8; ++flags) {
          const bool transpose_a = (flags & 1U) != 0, transpose_b = (flags & 2U) != 0, accumulate = (flags & 4U) != 0;
          SCOPED_TRACE(testing::Message() << to_string(types.in) << " to " << to_string(types.out) << " " << s.m << "x"
                                          << s.n << "x" << s.k << " gap " << gap << (transpose_a ? " a'" : "")
                                          << (transpose_b ? " b'" : "") << (accumulate ? " +=" : ""));
          Memory m;
          const Matmul op{.c = m.tensor(types.out, s.m, s.n, gap),
                          .a = transpose_a ? m.tensor(types.in, s.k, s.m, gap) : m.tensor(types.in, s.m, s.k, gap),
                          .b = transpose_b ? m.tensor(types.in, s.n, s.k, gap) : m.tensor(types.in, s.k, s.n, gap),
                          .bias = {},
                          .transpose_a = transpose_a,
                          .transpose_b = transpose_b,
                          .accumulate = accumulate};
          const Memory::Image before = m.save();
          const int outside = team_threads();
          set_team_threads(1);
          cache.run(op);
          const Memory::Image alone = m.save();
          for (const int threads : {2, 3, 4}) {
            m.restore(before);
            set_team_threads(threads);
            cache.run(op);
            EXPECT_TRUE(m.save() == alone) << threads << " threads";
          }
          set_team_threads(outside);
        }
      }
    }
  }
}

// A shard's maximum and target logit are copied, not computed.
TEST(Bits, LossStatisticsOfOneShard) {
  for (const DType dtype : activation_types()) {
    for (const std::int64_t valid : {1, 7, 16, 33, 257, 5000}) {
      SCOPED_TRACE(label(dtype, 17, valid));
      const std::int64_t rows = 17, first = 100, padded = valid + 3;
      Memory m;
      const LossStats op{.stats = m.tensor(DType::f32, 3, rows, 2),
                         .logits = m.tensor(dtype, rows, padded, 1, 5.0),
                         .targets = m.tensor(DType::i32, 1, rows),
                         .first = first,
                         .valid = valid};
      Mat top(1, rows), total(1, rows), target(1, rows);
      for (std::int64_t t = 0; t < rows; ++t) {
        // Ids below the shard, at its first and last columns, in its padding, and above.
        const std::int64_t ids[] = {first - 1, first, first + valid - 1, first + valid, first + padded};
        put(op.targets, 0, t, static_cast<double>(ids[t % 5]));
        for (std::int64_t j = valid; j < padded; ++j) put(op.logits, t, j, NAN);  // must not be read
        top(0, t) = -INFINITY;
        for (std::int64_t j = 0; j < valid; ++j) top(0, t) = std::max(top(0, t), get(op.logits, t, j));
        for (std::int64_t j = 0; j < valid; ++j) total(0, t) += std::exp(get(op.logits, t, j) - top(0, t));
        target(0, t) = t % 5 == 1 ? get(op.logits, t, 0) : t % 5 == 2 ? get(op.logits, t, valid - 1) : 0;
      }
      everywhere(m, op, [&] {
        EXPECT_EQ(read(op.stats.slice_rows(0, 1)).values, top.values);
        EXPECT_TRUE(close(op.stats.slice_rows(1, 1), total, 5e-6));
        EXPECT_EQ(read(op.stats.slice_rows(2, 1)).values, target.values);
      });
    }
  }
}

TEST(Bits, CopyKeepsSpecialNumbers) {
  const std::uint32_t nans[] = {0x7F800001U, 0xFF800001U,
                                0x7FFFFFFFU};  // the first two are NaN only by bits that bf16 drops
  const double numbers[] = {-0.0, 0x1p-133, 0x1.fep127, -INFINITY};
  for (const std::int64_t n : {7, 40}) {
    Memory m;
    const Copy op{.dst = m.tensor(DType::bf16, 1, n), .src = m.tensor(DType::f32, 1, n)};
    for (std::int64_t i = 0; i < 3; ++i) std::memcpy(op.src.as<float>() + i, &nans[i], sizeof nans[i]);
    for (std::int64_t i = 0; i < 4; ++i) put(op.src, 0, n - 1 - i, numbers[i]);
    everywhere(m, op, [&] {
      for (std::int64_t i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(get(op.dst, 0, i))) << i;
      for (std::int64_t i = 0; i < 4; ++i) {
        EXPECT_EQ(get(op.dst, 0, n - 1 - i), numbers[i]);
        EXPECT_EQ(std::signbit(get(op.dst, 0, n - 1 - i)), std::signbit(numbers[i]));
      }
    });
  }
}

// At large positions an angle in f32 would have a larger error than its cosine may have.
TEST(Bits, RotaryTableIsExactAtLargePositions) {
  const std::int64_t seq = 5000;
  for (const std::int64_t head_dim : {2, 12, 64}) {
    Memory m;
    const RotaryTable op{.table = m.tensor(DType::f32, seq, head_dim), .base = 10000.0F};
    everywhere(m, op, [&] {
      for (std::int64_t t = seq - 100; t < seq; ++t) {
        for (std::int64_t i = 0; i < head_dim / 2; ++i) {
          const double exponent = -2 * static_cast<double>(i) / static_cast<double>(head_dim);
          const double angle = static_cast<double>(t) * std::pow(10000.0, exponent);
          ASSERT_NEAR(get(op.table, t, i), std::cos(angle), 1e-7) << t;
          ASSERT_NEAR(get(op.table, t, head_dim / 2 + i), std::sin(angle), 1e-7) << t;
        }
      }
    });
    const RotaryTable later{.table = m.tensor(DType::f32, 3, head_dim), .base = 10000.0F, .first = 70};
    everywhere(m, later, [&] { EXPECT_TRUE(close(later.table, read(op.table.slice_rows(70, 3)), 0)); });
  }
}

// By wavelengths, as transformers has it, where the op counts turns.
TEST(Bits, RotaryTableScalesFrequencies) {
  const std::int64_t seq = 40, head_dim = 64, half = head_dim / 2;
  const auto llama3 = [](double plain) {
    const double wavelength = 2 * std::numbers::pi / plain;
    if (wavelength > 8192 / 1.0) return plain / 32;
    if (wavelength < 8192 / 4.0) return plain;
    const double smooth = (8192 / wavelength - 1.0) / (4.0 - 1.0);
    return (1 - smooth) * plain / 32 + smooth * plain;
  };
  // By pairs of elements, where the op counts indices: between those with 32 turns and with one in 8,192 positions.
  const auto yarn = [&](double plain, std::int64_t i) {
    const auto pair = [&](double turns) {
      return static_cast<double>(head_dim) * std::log(8192 / (turns * 2 * std::numbers::pi)) / (2 * std::log(500000.0));
    };
    const double low = std::floor(pair(32)), high = std::ceil(pair(1));
    const double lowered = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    return lowered * plain / 32 + (1 - lowered) * plain;
  };
  using Kind = RotaryScaling::Kind;
  for (const Kind kind : {Kind::none, Kind::linear, Kind::llama3, Kind::yarn}) {
    Memory m;
    const double magnitude = kind == Kind::yarn ? 1.25 : 1;
    const RotaryTable op{.table = m.tensor(DType::f32, seq, head_dim),
                         .base = 500000.0F,
                         .scaling = {kind, 32, 1, kind == Kind::yarn ? 32.0 : 4.0, 8192, magnitude}};
    int changed = 0;
    everywhere(m, op, [&] {
      changed = 0;
      for (std::int64_t i = 0; i < half; ++i) {
        const double plain = std::pow(500000.0, -static_cast<double>(i) / static_cast<double>(half));
        const double want = kind == Kind::none     ? plain
                            : kind == Kind::linear ? plain / 32
                            : kind == Kind::llama3 ? llama3(plain)
                                                   : yarn(plain, i);
        changed += want != plain ? 1 : 0;
        for (std::int64_t t = 0; t < seq; ++t) {
          ASSERT_NEAR(get(op.table, t, half + i), magnitude * std::sin(static_cast<double>(t) * want), 1e-7) << i;
        }
      }
    });
    EXPECT_EQ(changed, kind == Kind::none ? 0 : kind == Kind::linear ? 32 : kind == Kind::llama3 ? 17 : 22);
  }
}

}  // namespace
}  // namespace ms::tensor::test
