// Every kernel, with every access checked: no race, nothing read that nobody wrote, nothing outside of its memory, and
// no more sectors than the bytes fill where memory is aligned. Mistakes are found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>

#include "checker.h"
#include "kernels/launch.h"
#include "mistakes.h"

namespace ms::kernels {
namespace {

using emulated::Checked;
using emulated::Watched;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::int64_t kRows = 21;
constexpr Stream kStream = nullptr;
// Of the sectors that bytes fill. If a thread has eight numbers of two bytes and of four, those of four are two
// requests, of half of each sector.
constexpr double kMostSectors = 1.3;

std::int64_t size_of(Type type) { return type == Type::bf16 ? 2 : type == Type::f64 ? 8 : 4; }

// Results are not written before the kernel does; operands are.
class Kernels : public testing::TestWithParam<std::tuple<Type, bool>> {
 protected:
  static bool aligned() { return std::get<1>(GetParam()); }
  static Type type() { return std::get<0>(GetParam()); }
  static std::int64_t cols() { return aligned() ? 256 : 75; }

  Matrix result(std::int64_t rows, std::int64_t width, Type of = type()) {
    memory_.emplace_back(static_cast<std::size_t>(rows * width * size_of(of)));
    return {memory_.back().data(), rows, width, width, of};
  }
  // bf16 or f32 between 1/2 and 1, f64 accordingly, i32 0.
  Matrix operand(std::int64_t rows, std::int64_t width, Type of = type()) {
    const Matrix m = result(rows, width, of);
    for (std::int64_t i = 0; i < rows * width; ++i) {
      const double value = 0.5 + static_cast<double>(i % 64) / 128;
      std::byte* at = m.data + i * size_of(of);
      if (of == Type::f64) std::memcpy(at, &value, sizeof value);
      const auto single = static_cast<float>(value);
      if (of == Type::f32) std::memcpy(at, &single, sizeof single);
      if (of == Type::bf16) std::memcpy(at, reinterpret_cast<const std::byte*>(&single) + 2, 2);
      if (of == Type::i32) std::memset(at, 0, 4);
    }
    memory_.back().set_written();
    return m;
  }
  Matrix operand() { return operand(kRows, cols()); }
  Matrix result() { return result(kRows, cols()); }
  Matrix row() { return operand(1, cols()); }
  float* floats(std::int64_t n) { return reinterpret_cast<float*>(operand(1, n, Type::f32).data); }
  double* doubles(std::int64_t n) { return reinterpret_cast<double*>(operand(1, n, Type::f64).data); }
  std::int32_t* zeros(std::int64_t n) { return reinterpret_cast<std::int32_t*>(operand(1, n, Type::i32).data); }
  float* unwritten(std::int64_t n) { return reinterpret_cast<float*>(result(1, n, Type::f32).data); }
  void* scratch(std::size_t bytes) { return result(1, static_cast<std::int64_t>((bytes + 3) / 4), Type::f32).data; }

  // Expects an amax, unless it is null, to be that of what a kernel has written.
  static void expect_amax(const float* amax, const Matrix& of) {
    if (amax == nullptr) return;
    cudaDeviceSynchronize();
    float want = 0;
    for (std::int64_t i = 0; i < of.rows * of.cols; ++i) {
      float value = 0;
      const std::int64_t size = of.type == Type::bf16 ? 2 : 4;
      std::memcpy(reinterpret_cast<std::byte*>(&value) + 4 - size, of.data + i * size, static_cast<std::size_t>(size));
      want = std::max(want, std::abs(value));
    }
    EXPECT_EQ(*amax, want);
  }
  // `most`: the sectors that requests may move for each that their bytes fill.
  static void expect_clean(double most = kMostSectors) {
    cudaDeviceSynchronize();
    const Checked found = emulated::checked();
    EXPECT_THAT(found.problems, IsEmpty());
    EXPECT_GT(found.accesses, 0U);
    if (!aligned()) return;
    EXPECT_LE(static_cast<double>(found.sectors), most * static_cast<double>(found.least_sectors));
  }

 private:
  std::deque<Watched> memory_;
};

TEST_P(Kernels, LayerNorm) {
  const Residual residual{operand(), operand(), row()};
  for (float* amax : {static_cast<float*>(nullptr), unwritten(1)}) {
    const Matrix y = result();
    layernorm_fwd(kStream, y, unwritten(kRows), unwritten(kRows), operand(), row(), row(), 1e-5F, {}, amax);
    layernorm_fwd(kStream, y, unwritten(kRows), unwritten(kRows), result(), row(), row(), 1e-5F, residual, amax);
    expect_amax(amax, y);
    for (const bool accumulate : {false, true}) {
      const Matrix dx = accumulate ? operand() : result();
      layernorm_bwd(kStream, dx, row(), row(), operand(), operand(), floats(kRows), floats(kRows), row(), accumulate,
                    scratch(column_sums_bytes(cols(), 2)), amax);
      expect_amax(amax, dx);
    }
  }
  expect_clean();
}
TEST_P(Kernels, RmsNorm) {
  for (float* amax : {static_cast<float*>(nullptr), unwritten(1)}) {
    const Matrix y = result(), dx = result();
    rmsnorm_fwd(kStream, y, unwritten(kRows), operand(), row(), 1e-5F, {}, 1, amax);
    expect_amax(amax, y);
    rmsnorm_bwd(kStream, dx, row(), operand(), operand(), floats(kRows), row(), false,
                scratch(column_sums_bytes(cols(), 1)), 1, amax);
    expect_amax(amax, dx);
    const Matrix gain = operand(1, cols() / (aligned() ? 4 : 3));
    const std::int64_t heads = cols() / gain.cols;
    rmsnorm_fwd(kStream, result(), unwritten(kRows * heads), operand(), gain, 1e-5F, {}, static_cast<int>(heads), amax);
    rmsnorm_bwd(kStream, result(), gain, operand(), operand(), floats(kRows * heads), gain, false,
                scratch(column_sums_bytes(gain.cols, 1)), static_cast<int>(heads), amax);
  }
  expect_clean();
}
// Rows of several warps: their threads wait for each other.
TEST_P(Kernels, NormsOfWideRows) {
  const std::int64_t rows = 2, width = 2304 - (aligned() ? 0 : 3);
  const Matrix gain = operand(1, width), bias = operand(1, width);
  const Residual residual{operand(rows, width), operand(rows, width), bias};
  for (float* amax : {static_cast<float*>(nullptr), unwritten(1)}) {
    const Matrix y = result(rows, width);
    layernorm_fwd(kStream, y, unwritten(rows), unwritten(rows), operand(rows, width), gain, bias, 1e-5F, {}, amax);
    layernorm_fwd(kStream, y, unwritten(rows), unwritten(rows), result(rows, width), gain, bias, 1e-5F, residual, amax);
    rmsnorm_fwd(kStream, y, unwritten(rows), operand(rows, width), gain, 1e-5F, {}, 1, amax);
    expect_amax(amax, y);
  }
  expect_clean();
}
TEST_P(Kernels, Pointwise) {
  const std::int64_t half = aligned() ? cols() / 2 : 37;
  for (float* amax : {static_cast<float*>(nullptr), unwritten(1)}) {
    const Matrix y = result(), narrow = result(kRows, half), wide = result(kRows, 2 * half);
    for (const bool exact : {false, true}) {
      gelu_fwd(kStream, y, operand(), amax, exact);
      expect_amax(amax, y);
      gelu_bwd(kStream, y, operand(), operand(), amax, exact);
      expect_amax(amax, y);
    }
    swiglu_fwd(kStream, narrow, operand(kRows, 2 * half), amax);
    expect_amax(amax, narrow);
    swiglu_bwd(kStream, wide, operand(kRows, half), operand(kRows, 2 * half), amax);
    expect_amax(amax, wide);
  }
  add(kStream, result(), operand(), operand(), row());
  fill(kStream, result(), 1);
  for (const Type to : {Type::f32, Type::bf16, Type::f64}) convert(kStream, result(kRows, cols(), to), operand());
  const std::int64_t head = aligned() ? 64 : 6, width = 2 * head;
  rotary(kStream, operand(kRows, width), operand(7, head, Type::f32), 7, head, false);
  rotary(kStream, operand(kRows, width), operand(7, aligned() ? 48 : 4, Type::f32), 7, head, true);
  expect_clean();
}
TEST_P(Kernels, Embedding) {
  embedding_fwd(kStream, result(), operand(5, cols()), zeros(kRows), 0);
  position_fwd(kStream, operand(), operand(7, cols()), 3);
  for (const Type of : {Type::f32, Type::bf16}) {
    position_bwd(kStream, operand(7, cols(), of), operand(), 3);
    // The emulated sort is no kernel: what it writes is not seen.
    void* sorted = operand(1, static_cast<std::int64_t>((embedding_bwd_bytes(kRows) + 3) / 4), Type::f32).data;
    embedding_bwd(kStream, operand(5, cols(), of), operand(), zeros(kRows), 0, sorted);
  }
  expect_clean();
}
TEST_P(Kernels, Experts) {
  constexpr int kExperts = 40, kChosen = 3;
  constexpr std::int64_t kPairs = kRows * kChosen;
  const Matrix logits = operand(kRows, kExperts, Type::f32);
  for (const bool sigmoid : {false, true}) {
    const RouteRule rule{sigmoid, !sigmoid, 1.0F};
    const auto numbers = [&](std::int64_t n) { return reinterpret_cast<std::int32_t*>(unwritten(n)); };
    const Routed to{numbers(kPairs), numbers(kPairs), numbers(kPairs), unwritten(kPairs), numbers(kExperts + 1)};
    // The emulated sort is no kernel: what it writes is not seen.
    void* sorted = operand(1, static_cast<std::int64_t>((route_bytes(kPairs) + 3) / 4), Type::f32).data;
    const int first = sigmoid ? 7 : 0, count = sigmoid ? 20 : kExperts;
    const RouteGroups groups = sigmoid ? RouteGroups{floats(kExperts), 8, 3} : RouteGroups{};
    route(kStream, to, logits, kChosen, rule, groups, first, count, sorted);
    const Matrix counts = result(1, kExperts, Type::f32);
    expert_count(kStream, counts, to.experts, kPairs);
    expert_bias(kStream, operand(2, kExperts, Type::f32), doubles(2 * kExperts), floats(1), 1.0F);
    route_bwd(kStream, result(kRows, kExperts), floats(kPairs), logits, to.experts, to.slots,
              sigmoid ? Matrix{} : counts, kChosen, rule, sigmoid ? 0.0F : 1.0F, 1.0F);
    expert_combine(kStream, result(), operand(kPairs, cols()), to.slots, kChosen);
  }
  const std::int64_t half = aligned() ? cols() / 2 : 37;
  const float* factors = floats(kRows);
  swiglu_fwd(kStream, result(kRows, half), operand(kRows, 2 * half), nullptr, factors);
  swiglu_bwd(kStream, result(kRows, 2 * half), operand(kRows, half), operand(kRows, 2 * half), nullptr, factors);
  swiglu_factors_bwd(kStream, unwritten(kRows), operand(kRows, half), operand(kRows, 2 * half));
  expect_clean();
}
TEST_P(Kernels, Loss) {
  const Matrix logits = operand(), stats = result(3, kRows, Type::f32);
  float *loss = unwritten(kRows), *lse = unwritten(kRows);
  loss_stats(kStream, stats, logits, zeros(kRows), 0, cols() - 1);
  loss_combine(kStream, loss, lse, stats, zeros(kRows));
  loss_backward(kStream, logits, lse, zeros(kRows), 0, cols() - 1, 1, 0);
  expect_clean();
}
TEST_P(Kernels, Sums) {
  for (const bool accumulate : {true, false}) {
    const Matrix sums = accumulate ? row() : result(1, cols());
    column_sum(kStream, sums, operand(), accumulate, scratch(column_sums_bytes(cols(), 1)));
  }
  sum_into(kStream, doubles(1), operand(), 1, scratch(total_bytes()));
  double* sum = doubles(1);
  sum_squares(kStream, sum, operand(), scratch(total_bytes()));
  clip_factor(kStream, unwritten(1), unwritten(1), sum, 1, 10);
  const void* inputs[] = {operand().data, operand().data, operand().data};
  for (const bool maximum : {false, true}) reduce(kStream, maximum, type(), result().data, inputs, 3, kRows * cols());
  expect_clean();
}
TEST_P(Kernels, Optimizers) {
  const AdamWScalars scalars{
      .lr = 0.1F, .beta1 = 0.9F, .beta2 = 0.9F, .eps = 1e-8F, .weight_decay = 0.1F, .correction1 = 1, .correction2 = 1};
  const std::int64_t n = aligned() ? 4096 : 999;
  for (const Type grad : {Type::f32, Type::bf16}) {
    float* master = type() == Type::bf16 ? floats(n) : nullptr;
    const Matrix param = operand(1, n);
    for (const Type moments : {Type::f32, Type::bf16}) {
      adamw(kStream, param, master, operand(1, n, moments), operand(1, n, moments), operand(1, n, grad), floats(1),
            scalars, 3);
    }
    double* norms = doubles(2);
    float *m = floats(n), *v = floats(n);
    lamb_moments(kStream, norms, m, v, master == nullptr ? param : operand(1, n, Type::f32), operand(1, n, grad),
                 floats(1), scalars, scratch(total_bytes()));
    lamb_apply(kStream, param, master, m, v, norms, floats(1), scalars);
    const Matrix u = result(1, n, Type::bf16);
    muon_momentum(kStream, u, m, operand(1, n, grad), floats(1), 0.9F);
    normalize(kStream, u, u, norms, 1e-7F);
    blend(kStream, u, u, operand(1, n, Type::f32), 2, 1);
    muon_apply(kStream, param, master, u, floats(1), 0.1F, 0.1F, 1);
  }
  expect_clean();
}
TEST_P(Kernels, Initialization) {
  init_normal(kStream, result(), kRows - 2, 1, 2, 3, cols() + 9, 0.02F);
  expect_clean(20);  // a thread writes its four numbers one by one; once a run
}
using Fp8Kernels = Kernels;  // fp8 is made of bf16
TEST_P(Fp8Kernels, Fp8) {
  float* amax = unwritten(1);
  compute_amax(kStream, amax, operand());
  for (const bool is_e5m2 : {false, true}) {
    fp8_round(kStream, result().data, operand(), amax, is_e5m2);
    if (!aligned()) continue;
    const Matrix tall = operand(48, cols());
    for (const bool transposed : {false, true}) {
      fp8_quantize(kStream, result(48, cols() / 2).data, unwritten(1), tall, amax, is_e5m2, transposed);
    }
    fp8_quantize_both(kStream, result(48, cols() / 2).data, result(48, cols() / 2).data, unwritten(1), tall, amax,
                      is_e5m2);
    const Matrix ragged = operand(80, 208);  // more than one tile each way, and less than two
    for (const Matrix& sums : {operand(1, 208), result(1, 208, Type::f32)}) {
      fp8_quantize_both(kStream, result(80, 104).data, result(80, 104).data, unwritten(1), ragged, amax, is_e5m2,
                        {sums, sums.type == Type::bf16, scratch(fp8_sums_bytes(80, 208))});
    }
  }
  expect_clean();
}
std::string kernels_name(const testing::TestParamInfo<std::tuple<Type, bool>>& test) {
  return std::string(std::get<0>(test.param) == Type::f32 ? "f32" : "bf16") +
         (std::get<1>(test.param) ? "_aligned" : "_odd");
}
INSTANTIATE_TEST_SUITE_P(All, Kernels, testing::Combine(testing::Values(Type::f32, Type::bf16), testing::Bool()),
                         kernels_name);
INSTANTIATE_TEST_SUITE_P(All, Fp8Kernels, testing::Combine(testing::Values(Type::bf16), testing::Bool()), kernels_name);

// Memory for kernels with a mistake: 64 floats to write, and many that are written.
class Mistakes : public testing::Test {
 protected:
  Mistakes() { std::memset(from_.data(), 0, 64 * 64 * sizeof(float)), from_.set_written(); }
  float* to() const { return reinterpret_cast<float*>(to_.data()); }
  const float* from() const { return reinterpret_cast<const float*>(from_.data()); }
  static Checked found() {
    cudaDeviceSynchronize();
    return emulated::checked();
  }

  Watched to_{64 * sizeof(float)}, from_{64 * 64 * sizeof(float)};
};

TEST_F(Mistakes, RemovedBarrier) {
  shift_row(kStream, to(), from(), true);
  EXPECT_THAT(found().problems, IsEmpty());
  shift_row(kStream, to(), from(), false);
  EXPECT_THAT(found().problems, Contains(HasSubstr("in shared memory")));
}
TEST_F(Mistakes, ReadOfWhatNobodyWrote) {
  copy_row(kStream, to(), from(), 64);
  EXPECT_THAT(found().problems, IsEmpty());
  copy_row(kStream, to(), from(), 63);
  EXPECT_THAT(found().problems, Contains(HasSubstr("a read of shared memory that nobody wrote")));
  const Watched unwritten(64 * sizeof(float));
  gather(kStream, to(), reinterpret_cast<const float*>(unwritten.data()), 1);
  EXPECT_THAT(found().problems, Contains(HasSubstr("a read of global memory that nobody wrote")));
}
TEST_F(Mistakes, StridedAccess) {
  gather(kStream, to(), from(), 1);
  const Checked adjacent = found();
  EXPECT_EQ(adjacent.sectors, adjacent.least_sectors);
  EXPECT_EQ(adjacent.sectors, 16U);
  gather(kStream, to(), from(), 32);
  EXPECT_EQ(found().sectors, 8U + 64U);
}
TEST_F(Mistakes, OutsideOfMemory) {
  gather(kStream, to(), from(), 66);
  EXPECT_THAT(found().problems, Contains(HasSubstr("outside of all memory")));
}
TEST_F(Mistakes, BlocksAgainstBlocks) {
  std::memset(to(), 0, sizeof(float));
  to_.set_written();
  add_blocks(kStream, to(), from(), 1);
  EXPECT_THAT(found().problems, IsEmpty());
  add_blocks(kStream, to(), from(), 2);
  EXPECT_THAT(found().problems, Contains(HasSubstr("in global memory")));
}

}  // namespace
}  // namespace ms::kernels
