// Operands that are rounded to fp8 once for several matmuls: the results have the bits of matmuls that round them
// themselves, whether an fp8 GEMM takes the numbers as they lie or transposed, or the GPU or the shape has none.
#include <gtest/gtest.h>

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
      GTEST_SKIP() << "there is no GPU here: " << error.message();
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
  std::vector<std::uint32_t> bits_of(const Matmul& op) {
    stream_->submit(op);
    const Tensor here = here_->take(DType::f32, op.c.rows, op.c.cols);
    stream_->submit(Copy{.dst = here, .src = op.c});
    stream_->synchronize();
    std::vector<std::uint32_t> bits(static_cast<std::size_t>(here.numel()));
    std::memcpy(bits.data(), here.data, static_cast<std::size_t>(here.size_bytes()));
    return bits;
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

}  // namespace
}  // namespace ms::tensor
