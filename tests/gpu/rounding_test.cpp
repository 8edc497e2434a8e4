// Operands that are rounded to fp8 once for several matmuls: the results have the bits of matmuls that round them
// themselves, whether an fp8 GEMM takes the numbers as they lie or transposed, or the GPU or the shape has none.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "tensor/cuda_plugin.h"

namespace ms::tensor {
namespace {

class Rounding : public testing::Test {
 protected:
  void SetUp() override {
    try {
      device_ = make_cuda_device(0);
    } catch (const Error& error) {
      if (error.kind() != "cuda.none") throw;
      GTEST_SKIP() << "needs a GPU: " << error.message();
    }
    stream_ = device_->make_stream("test", StreamKind::compute);
    memory_ = device_->allocate(kBytes, "test"), host_ = device_->allocate_host(kBytes, "test");
    arena_.emplace(*memory_), here_.emplace(*host_);
  }

  // Numbers of either sign and of four magnitudes, so that their amax matters.
  Tensor numbers(std::int64_t rows, std::int64_t cols) {
    const Tensor there = arena_->take(DType::bf16, rows, cols), here = here_->take(DType::bf16, rows, cols);
    for (std::int64_t i = 0; i < here.numel(); ++i) {
      state_ = state_ * 1664525 + 1013904223;
      here.as<std::uint16_t>()[i] = static_cast<std::uint16_t>(0x3e80 | ((state_ >> 16) & 0x81ff));
    }
    stream_->submit(Copy{.dst = there, .src = here});
    return there;
  }
  // `has_amax`: the amax is found before, by another op.
  Tensor rounded(const Tensor& x, const Tensor& amax, bool is_gradient, bool has_amax) {
    const Tensor out = arena_->take(x.dtype, x.rows, x.cols);
    if (has_amax) stream_->submit(Amax{.out = amax.slice_cols(0, 1), .x = x});
    stream_->submit(RoundToFp8{.out = out, .amax = amax, .x = x, .is_gradient = is_gradient, .has_amax = has_amax});
    return out;
  }
  template <class Number>
  std::vector<Number> values_of(const Tensor& there) {
    const Tensor here = here_->take(DType::f32, there.rows, there.cols);
    stream_->submit(Copy{.dst = here, .src = there});
    stream_->synchronize();
    std::vector<Number> values(static_cast<std::size_t>(here.numel()));
    std::memcpy(values.data(), here.data, static_cast<std::size_t>(here.size_bytes()));
    return values;
  }
  std::vector<std::uint32_t> bits_of(const Matmul& op) {
    stream_->submit(op);
    return values_of<std::uint32_t>(op.c);
  }

  static constexpr std::size_t kBytes = std::size_t{4} << 20;
  std::uint32_t state_ = 3;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Memory> memory_, host_;
  std::unique_ptr<Stream> stream_;
  std::optional<Arena> arena_, here_;
};

TEST_F(Rounding, OnceGivesTheBitsOfEachTime) {
  struct Case {
    const char* name;
    std::int64_t m, n, k;
    bool reads_rounded;  // of a; a GPU with fp8 GEMMs keeps fp8 numbers, which a bf16 one cannot read
  };
  for (const Case& c :
       {Case{"fp8", 48, 64, 80, true}, {"no fp8 GEMM", 48, 60, 80, false}, {"no vectors", 7, 9, 11, true}}) {
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        SCOPED_TRACE(std::string(c.name) + (transpose_a ? " a'" : "") + (transpose_b ? " b'" : ""));
        arena_->reset(), here_->reset();
        Matmul op{.c = arena_->take(DType::f32, c.m, c.n),
                  .a = transpose_a ? numbers(c.k, c.m) : numbers(c.m, c.k),
                  .b = transpose_b ? numbers(c.n, c.k) : numbers(c.k, c.n),
                  .transpose_a = transpose_a,
                  .transpose_b = transpose_b,
                  .operands = Operands::fp8_gradient};
        const std::vector<std::uint32_t> want = bits_of(op);
        op.a_amax = arena_->take(DType::f32, 1, kAmaxCols), op.b_amax = arena_->take(DType::f32, 1, kAmaxCols);
        op.a_rounded = rounded(op.a, op.a_amax, true, true), op.b_rounded = rounded(op.b, op.b_amax, false, false);
        EXPECT_EQ(bits_of(op), want);
        if (!c.reads_rounded) continue;
        stream_->submit(Fill{.x = op.a, .value = 1});
        EXPECT_EQ(bits_of(op), want) << "a was rounded again";
      }
    }
  }
}

// Sums while x is rounded are those of ColumnSum, but for the order of the rows, and do not change what is rounded.
TEST_F(Rounding, SumsTheRows) {
  struct Case {
    const char* name;
    std::int64_t rows, cols;
  };
  for (const Case& c : {Case{"less than a tile", 48, 32}, {"tiles", 320, 208}, {"no vectors", 75, 33}}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(std::string(c.name) + " " + std::string(to_string(dtype)));
      arena_->reset(), here_->reset();
      const auto take = [&](DType type, std::int64_t rows, std::int64_t cols) {
        const Tensor t = arena_->take(type, rows, cols);
        stream_->submit(Fill{.x = t, .value = 1});
        return t;
      };
      const Tensor x = numbers(c.rows, c.cols), amax = take(DType::f32, 1, kAmaxCols);
      const std::vector<std::uint32_t> plain = values_of<std::uint32_t>(rounded(x, amax, true, false));
      for (const bool accumulate : {false, true}) {
        const Tensor want = take(dtype, 1, c.cols), sums = take(dtype, 1, c.cols);
        stream_->submit(ColumnSum{.out = want, .x = x, .accumulate = accumulate});
        const RoundToFp8 op{.out = arena_->take(x.dtype, x.rows, x.cols),
                            .amax = amax,
                            .x = x,
                            .sums = sums,
                            .is_gradient = true,
                            .accumulate = accumulate};
        stream_->submit(op);
        EXPECT_EQ(values_of<std::uint32_t>(op.out), plain);
        const std::vector<float> got = values_of<float>(sums), expected = values_of<float>(want);
        // Magnitudes are below 1. A sum in bf16 may be rounded the other way.
        const double error = 1e-6 * static_cast<double>(c.rows);
        const double rounding = dtype == DType::bf16 ? 0x1p-7 : 0;
        for (std::size_t i = 0; i < got.size(); ++i) {
          EXPECT_NEAR(got[i], expected[i], error + rounding * std::abs(expected[i])) << "column " << i;
        }
        const Tensor again = take(dtype, 1, c.cols);
        RoundToFp8 second = op;
        second.sums = again;
        stream_->submit(second);
        EXPECT_EQ(values_of<float>(again), got) << "another run has other bits";
      }
    }
  }
}

}  // namespace
}  // namespace ms::tensor
