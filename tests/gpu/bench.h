// Shared by gpu_bench's parts: tensors with data, and the measurement of one op.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tensor/op_cost.h"
#include "tensor/stream.h"

namespace ms::tensor::bench {

inline constexpr auto kF32 = DType::f32, kBf16 = DType::bf16;

// Random numbers, drawn once: larger tensors are copies of them.
struct Source {
  explicit Source(Device& device);
  const Tensor& of(DType dtype) const { return dtype == DType::bf16 ? bf16 : f32; }
  std::unique_ptr<Memory> memory;
  Tensor f32, bf16;
};

// The tensors of one case and their stream, freed together.
class Tensors {
 public:
  Tensors(Device& device, const Source& source)
      : device_(device), source_(source), stream_(device.make_stream("bench", StreamKind::compute)) {}

  Tensor zeros(DType dtype, std::int64_t rows, std::int64_t cols);
  Tensor normal(DType dtype, std::int64_t rows, std::int64_t cols);  // standard normal, f32 or bf16
  Tensor filled(DType dtype, std::int64_t rows, std::int64_t cols, float value);
  Tensor numbers(const std::vector<std::int32_t>& values);  // i32 [1,n]
  Stream& stream() { return *stream_; }

 private:
  Device& device_;
  const Source& source_;
  std::vector<std::unique_ptr<Memory>> memory_;
  std::unique_ptr<Stream> stream_;  // destroyed first, once drained
};

// An op to measure. `make` may submit ops that compute its inputs.
struct Case {
  std::string shape, remark = {};
  std::function<Op(Tensors&)> make;
  double bytes = 0;  // unavoidable bytes, if cost_of() does not count them
};

// A kernel that is not an op by itself.
struct KernelCase {
  std::string kernel, shape;
  // Creates tensors and returns a function that issues the kernel on their stream.
  std::function<std::function<void()>(Tensors&)> make;
  double bytes = 0;
};

struct Row {
  std::string section, op, shape, unit, mark;
  double us = 0, amount = 0, rate = 0, share = 0;  // amount: bytes or FLOPs; rate: GB/s or TFLOP/s
  double scratch_bytes = 0;                        // attention: GPU memory while it runs
};

class Bench {
 public:
  Bench(Device& device, bool is_small) : small(is_small), device_(&device), source_(device) {}

  const bool small;  // a smoke test: tiny sizes
  // Returns a size, scaled down if `small`.
  std::int64_t size(std::int64_t full) const { return small ? std::max<std::int64_t>(8, full / 64 / 8 * 8) : full; }

  // The ceilings for everything else: the best of their sections.
  double copy_gbs = 0, matmul_tflops = 0;

  void section(std::string name, std::string title);
  // Measures on this device of the same GPU from now on.
  void use(Device& device) { device_ = &device; }
  // Measures the rate: in GB/s relative to the copy, or in TFLOP/s relative to the best GEMM; relative to `peak` if
  // given.
  double moves(const Case& measured, double peak = 0) { return measure(measured, true, peak > 0 ? peak : copy_gbs); }
  double computes(const Case& measured, double peak = 0) {
    return measure(measured, false, peak > 0 ? peak : matmul_tflops);
  }

  double moves(const KernelCase& measured);

  const std::vector<Row>& rows() const { return rows_; }
  int failed() const { return failed_; }

 private:
  // A measurement that can be repeated.
  struct Ready {
    std::string op;
    std::function<void()> issue;
    double bytes = 0, flops = 0, scratch_bytes = 0;
  };
  using Make = std::function<Ready(Tensors&)>;
  static double seconds_of(Stream& stream, const std::vector<Ready>& sets, int repetitions);
  static double median_s(Stream& stream, const std::vector<Ready>& sets, bool small);
  double measure(const Case& measured, bool memory, double ceiling);
  double measure(Row row, const Make& make, double ceiling);

  Device* device_;
  Source source_;
  std::string section_;
  std::vector<Row> rows_;
  int failed_ = 0;
};

void measure_memory(Bench& bench);     // bench_memory.cpp: every op that is limited by memory
void measure_gemms(Bench& bench);      // bench_gemm.cpp: matmuls and attention
void measure_unordered(Bench& bench);  // likewise: attention's gradients summed by atomics
void measure_kernels(Bench& bench);    // bench_kernels.cpp: kernels inside ops and collectives

}  // namespace ms::tensor::bench
