// Shared by the tests of the op list: tensors between guard zones, matrices in f64 for references, comparison, and
// everywhere(), which runs an op on every instruction set of this machine, or on a GPU.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tensor/cpu_kernels.h"

namespace ms::tensor::test {

// A matrix in f64: the values of a tensor, or of a reference.
struct Mat {
  std::int64_t rows = 0, cols = 0;
  std::vector<double> values;

  Mat() = default;
  Mat(std::int64_t r, std::int64_t c) : rows(r), cols(c), values(static_cast<std::size_t>(r * c)) {}
  double& operator()(std::int64_t i, std::int64_t j) { return values[static_cast<std::size_t>(i * cols + j)]; }
  double operator()(std::int64_t i, std::int64_t j) const { return values[static_cast<std::size_t>(i * cols + j)]; }
};

double round_to_bf16(double x);
double gelu(double x);  // the tanh form, and its derivative
double gelu_slope(double x);
double get(const Tensor& x, std::int64_t i, std::int64_t j);
void put(const Tensor& x, std::int64_t i, std::int64_t j, double value);  // rounded to the tensor's type
Mat read(const Tensor& x);
void write(const Tensor& x, const Mat& values);

// The tensors of a test. Each lies between guard zones, is aligned to its element and no better, and has canaries in
// the gaps between its rows. Read as numbers the canaries are NaN, so that reads outside of a tensor show in the
// result.
class Memory {
 public:
  // `gap` elements lie between rows. Filled with std * N(0,1) (i32: with 0), different for every tensor.
  Tensor tensor(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t gap = 0, double std = 1.0);
  Tensor of(DType dtype, const Mat& values, std::int64_t gap = 0);

  // A tensor with its guards, and where its elements begin.
  struct Span {
    std::byte* data;
    std::size_t size, begin;
  };
  std::vector<Span> spans();

  using Image = std::vector<std::vector<std::byte>>;
  Image save() const;
  void restore(const Image& image);
  // Succeeds if nothing but elements of tensors has been written.
  testing::AssertionResult guards_intact() const;
  // Succeeds if tensors that the op only reads are unchanged.
  testing::AssertionResult inputs_as_in(const Image& before, const Op& op) const;

 private:
  struct Block {
    std::vector<std::byte> bytes;
    std::size_t begin;
    std::int64_t rows, row_bytes, ld_bytes;
  };
  std::vector<Block> blocks_;
};

// Succeeds if |got - want| <= tolerance * (|want| + rms of want) everywhere and nothing is NaN.
testing::AssertionResult close(const Mat& got, const Mat& want, double tolerance);
testing::AssertionResult close(const Tensor& got, const Mat& want, double tolerance);

// Returns where an op leaves the amax of a result of this type: absent if that is not bf16.
Tensor amax_place(Memory& memory, DType dtype);
// Succeeds if `amax` is absent, or the largest magnitude of x exactly.
testing::AssertionResult is_amax(const Tensor& amax, const Tensor& x);

// A result in bf16 is the f32 result rounded once: half a unit in the last place (2^-9), doubled because the f32 result
// may lie on the other side of a tie than the reference.
inline constexpr double kBf16Tolerance = 1.0 / 256;
inline double tolerance_of(DType dtype, double f32) { return dtype == DType::bf16 ? kBf16Tolerance : f32; }

// Runs the op on the device under test, each time from the same memory: every instruction set with 1, 2 and 3 threads
// (everywhere_cpu.cpp), or a GPU (tests/gpu/everywhere_cuda.cpp). `check` inspects the result. The bits of a second
// run, or of other thread counts, must be the same, guards intact, and tensors that the op only reads unchanged.
void everywhere(Memory& memory, const Op& op, const std::function<void()>& check);
std::vector<const CpuKernels*> variants();

// Returns d loss / d x by central differences.
Mat numeric_gradient(const std::function<double(const Mat&)>& loss, Mat x);
// Returns the sum of weights * y, whose gradient with respect to y is `weights`.
double weighted_sum(const Mat& y, const Mat& weights);

inline const std::vector<DType>& activation_types() {
  static const std::vector<DType> kTypes{DType::f32, DType::bf16};
  return kTypes;
}
inline std::string label(DType dtype, std::int64_t rows, std::int64_t cols) {
  return std::string(to_string(dtype)) + " " + std::to_string(rows) + "x" + std::to_string(cols);
}

}  // namespace ms::tensor::test
