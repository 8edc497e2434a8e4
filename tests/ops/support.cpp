#include "support.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#include "base/rng.h"

namespace ms::tensor::test {
namespace {

constexpr std::byte kCanary{0xFF};
constexpr std::size_t kGuardBytes = 192;  // more than a vector of any instruction set on both sides

}  // namespace

double round_to_bf16(double x) {
  if (std::isnan(x)) return x;
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(x));
  const std::uint32_t low = bits & 0xFFFFU, odd = (bits >> 16) & 1U;
  const bool up = low > 0x8000U || (low == 0x8000U && odd == 1);
  return static_cast<double>(std::bit_cast<float>((bits & 0xFFFF0000U) + (up ? 0x10000U : 0U)));
}

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
  const double a = std::sqrt(2 / std::numbers::pi), t = std::tanh(a * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * a * (1 + 3 * 0.044715 * x * x);
}

double get(const Tensor& x, std::int64_t i, std::int64_t j) {
  const std::int64_t at = i * x.ld + j;
  switch (x.dtype) {
    case DType::f32: return static_cast<double>(x.as<float>()[at]);
    case DType::bf16:
      return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(x.as<bfloat16>()[at].bits) << 16));
    case DType::f64: return x.as<double>()[at];
    case DType::i32: return x.as<std::int32_t>()[at];
  }
  return 0;
}

void put(const Tensor& x, std::int64_t i, std::int64_t j, double value) {
  const std::int64_t at = i * x.ld + j;
  switch (x.dtype) {
    case DType::f32: x.as<float>()[at] = static_cast<float>(value); break;
    case DType::bf16:
      x.as<bfloat16>()[at].bits =
          static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(round_to_bf16(value))) >> 16);
      break;
    case DType::f64: x.as<double>()[at] = value; break;
    case DType::i32: x.as<std::int32_t>()[at] = static_cast<std::int32_t>(value); break;
  }
}

Mat read(const Tensor& x) {
  Mat values(x.rows, x.cols);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t j = 0; j < x.cols; ++j) values(i, j) = get(x, i, j);
  }
  return values;
}
void write(const Tensor& x, const Mat& values) {
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t j = 0; j < x.cols; ++j) put(x, i, j, values(i, j));
  }
}

Tensor Memory::tensor(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t gap, double std) {
  const std::int64_t size = size_of(dtype), ld = cols + gap;
  const std::size_t begin = kGuardBytes + static_cast<std::size_t>(size);
  const auto extent = static_cast<std::size_t>(std::max<std::int64_t>(0, rows * ld - gap) * size);
  blocks_.push_back(
      {std::vector<std::byte>(begin + extent + kGuardBytes, kCanary), begin, rows, cols * size, ld * size});
  const Tensor x{blocks_.back().bytes.data() + begin, rows, cols, ld, dtype};
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < cols; ++j) {
      const auto index = static_cast<std::uint64_t>(i * cols + j);
      put(x, i, j, dtype == DType::i32 ? 0.0 : std * static_cast<double>(normal(7, blocks_.size(), index)));
    }
  }
  return x;
}

Tensor Memory::of(DType dtype, const Mat& values, std::int64_t gap) {
  const Tensor x = tensor(dtype, values.rows, values.cols, gap);
  write(x, values);
  return x;
}

std::vector<Memory::Span> Memory::spans() {
  std::vector<Span> spans;
  for (Block& block : blocks_) spans.push_back({block.bytes.data(), block.bytes.size(), block.begin});
  return spans;
}

Memory::Image Memory::save() const {
  Image image;
  for (const Block& block : blocks_) image.push_back(block.bytes);
  return image;
}
void Memory::restore(const Image& image) {
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    std::memcpy(blocks_[i].bytes.data(), image[i].data(), image[i].size());
}

testing::AssertionResult Memory::guards_intact() const {
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    const Block& block = blocks_[b];
    for (std::size_t at = 0; at < block.bytes.size(); ++at) {
      const auto inside = static_cast<std::int64_t>(at) - static_cast<std::int64_t>(block.begin);
      const bool element = inside >= 0 && block.row_bytes > 0 && inside / block.ld_bytes < block.rows &&
                           inside % block.ld_bytes < block.row_bytes;
      if (!element && block.bytes[at] != kCanary) {
        return testing::AssertionFailure()
               << "tensor " << b << ": byte " << inside << " outside of its elements was written";
      }
    }
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult Memory::inputs_as_in(const Image& before, const Op& op) const {
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    const std::vector<std::byte>& bytes = blocks_[b].bytes;
    bool written = false;
    each_access(op, [&](Access access, const Tensor& x) {
      written = written || (access == Access::write && x.data >= bytes.data() && x.data < bytes.data() + bytes.size());
    });
    if (!written && bytes != before[b])
      return testing::AssertionFailure() << "tensor " << b << " is only read, but changed";
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult close(const Mat& got, const Mat& want, double tolerance) {
  if (got.rows != want.rows || got.cols != want.cols) return testing::AssertionFailure() << "shapes differ";
  double squares = 0;
  for (const double x : want.values) squares += x * x;
  const double rms = want.values.empty() ? 0 : std::sqrt(squares / static_cast<double>(want.values.size()));
  double worst = 0;
  std::size_t where = 0;
  for (std::size_t i = 0; i < want.values.size(); ++i) {
    const double error = std::abs(got.values[i] - want.values[i]) / (std::abs(want.values[i]) + rms + 1e-30);
    if (!(error <= worst)) worst = error, where = i;
    if (std::isnan(error)) break;
  }
  if (worst <= tolerance) return testing::AssertionSuccess();
  const auto at = static_cast<std::int64_t>(where);
  return testing::AssertionFailure() << "error " << worst << " over " << tolerance << " at [" << at / want.cols << ","
                                     << at % want.cols << "]: " << got.values[where] << ", not " << want.values[where];
}
testing::AssertionResult close(const Tensor& got, const Mat& want, double tolerance) {
  return close(read(got), want, tolerance);
}

Tensor amax_place(Memory& memory, DType dtype) {
  return dtype == DType::bf16 ? memory.tensor(DType::f32, 1, 1) : Tensor{};
}
testing::AssertionResult is_amax(const Tensor& amax, const Tensor& x) {
  if (!amax) return testing::AssertionSuccess();
  double want = 0;
  for (const double value : read(x).values) want = std::max(want, std::abs(value));
  if (get(amax, 0, 0) == want) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "amax " << get(amax, 0, 0) << ", not " << want;
}

std::vector<const CpuKernels*> variants() {
  std::vector<const CpuKernels*> all(8);
  all.resize(static_cast<std::size_t>(cpu_kernel_variants(all.data(), static_cast<int>(all.size()))));
  return all;
}

Mat numeric_gradient(const std::function<double(const Mat&)>& loss, Mat x) {
  constexpr double kStep = 1e-5;
  Mat gradient(x.rows, x.cols);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const double at = x.values[i];
    x.values[i] = at + kStep;
    const double above = loss(x);
    x.values[i] = at - kStep;
    gradient.values[i] = (above - loss(x)) / (2 * kStep);
    x.values[i] = at;
  }
  return gradient;
}

double weighted_sum(const Mat& y, const Mat& weights) {
  double total = 0;
  for (std::size_t i = 0; i < y.values.size(); ++i) total += y.values[i] * weights.values[i];
  return total;
}

}  // namespace ms::tensor::test
