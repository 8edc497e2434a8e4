// Matmuls to test, and their results in f64.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "support.h"
#include "tensor/fp8.h"

namespace ms::tensor::test {

// Sums of K terms in f32: the error relative to the rms of the result stays at a few units in the last place times the
// square root of K.
inline constexpr double kF32 = 5e-6;

struct Shape {
  std::int64_t m, n, k;
};
inline constexpr Shape kShapes[] = {{1, 1, 1},  {1, 64, 64}, {64, 1, 64},  {64, 64, 1},   {2, 3, 4},     {17, 5, 129},
                                    {1, 7, 33}, {65, 1, 7},  {64, 64, 64}, {100, 70, 50}, {33, 257, 100}};

// A form of matmul: types of the operands and of the result, transposes, options.
struct Form {
  DType type, c_type;
  bool transpose_a, transpose_b, accumulate, bias;
};
inline std::vector<Form> forms() {
  std::vector<Form> all;
  for (const auto& [type, c_type] :
       {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::f32}, {DType::bf16, DType::bf16}}) {
    for (int bits = 0; bits < 16; ++bits)
      all.push_back({type, c_type, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0});
  }
  return all;
}

// Shapes for fp8; GPUs run an fp8 GEMM for some of them only.
inline constexpr Shape kFp8Shapes[] = {{1, 1, 1}, {17, 5, 129}, {48, 32, 64}, {80, 96, 144}, {16, 128, 16}};

inline Matmul make(Memory& memory, const Shape& s, const Form& f, std::int64_t gap) {
  return {.c = memory.tensor(f.c_type, s.m, s.n, gap),
          .a = f.transpose_a ? memory.tensor(f.type, s.k, s.m, gap) : memory.tensor(f.type, s.m, s.k, gap),
          .b = f.transpose_b ? memory.tensor(f.type, s.n, s.k, 2 * gap) : memory.tensor(f.type, s.k, s.n, 2 * gap),
          .bias = f.bias ? memory.tensor(f.type, 1, s.n) : Tensor{},
          .transpose_a = f.transpose_a,
          .transpose_b = f.transpose_b,
          .accumulate = f.accumulate};
}

// Sets amaxes of larger tensors that contain the operands, so large that the operands keep few bits: scales are powers
// of two, and operands with all their bits would not show which one was used.
inline void set_known_amaxes(Memory& memory, Matmul& op) {
  op.a_amax = memory.tensor(DType::f32, 1, 1), op.b_amax = memory.tensor(DType::f32, 1, 1);
  put(op.a_amax, 0, 0, op.operands == Operands::fp8_gradient ? 1e9 : 3e4), put(op.b_amax, 0, 0, 2e4);
}

// Returns all magnitudes of a format, in order: each at an odd index lies between two at even indices, so ties are
// known.
inline std::vector<double> fp8_magnitudes(Fp8 format) {
  const int mantissa_bits = format == Fp8::e4m3 ? 3 : 2, bias = format == Fp8::e4m3 ? 7 : 15;
  const double greatest = format == Fp8::e4m3 ? 448 : 57344;
  std::vector<double> all;
  for (int bits = 0; bits < 128; ++bits) {
    const int exponent = bits >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
    const int whole = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
    all.push_back(std::ldexp(whole, std::max(exponent, 1) - bias - mantissa_bits));
    if (all.back() == greatest) break;
  }
  return all;
}
inline double nearest_fp8(double x, const std::vector<double>& magnitudes) {
  const auto above = std::ranges::lower_bound(magnitudes, std::abs(x));
  if (above == magnitudes.begin()) return x;
  const auto below = above - 1;
  const double up = *above - std::abs(x), down = std::abs(x) - *below;
  const bool is_even = (below - magnitudes.begin()) % 2 == 0;
  return std::copysign(down < up || (down == up && is_even) ? *below : *above, x);
}
// Returns an operand as a matmul rounds it, in f64. `amax` is that of a containing tensor, if given.
inline Mat rounded(Mat x, Fp8 format, double amax = 0) {
  const std::vector<double> magnitudes = fp8_magnitudes(format);
  for (const double value : x.values) amax = std::max(amax, std::abs(value));
  if (amax == 0) return x;
  double scale = std::ldexp(1, 110);
  while (amax * scale > magnitudes.back()) scale /= 2;
  for (double& value : x.values) value = nearest_fp8(value * scale, magnitudes) / scale;
  return x;
}

inline Mat matmul_reference(const Matmul& op, const Shape& s) {
  const bool rounds = op.operands != Operands::as_given;
  const auto known = [](const Tensor& amax) { return amax ? get(amax, 0, 0) : 0; };
  const Mat a = rounds ? rounded(read(op.a), fp8_of_a(op.operands), known(op.a_amax)) : read(op.a);
  const Mat b = rounds ? rounded(read(op.b), kFp8OfB, known(op.b_amax)) : read(op.b);
  Mat c = op.accumulate ? read(op.c) : Mat(s.m, s.n);
  for (std::int64_t i = 0; i < s.m; ++i) {
    for (std::int64_t j = 0; j < s.n; ++j) {
      double dot = op.bias ? get(op.bias, 0, j) : 0;
      for (std::int64_t k = 0; k < s.k; ++k)
        dot += (op.transpose_a ? a(k, i) : a(i, k)) * (op.transpose_b ? b(j, k) : b(k, j));
      c(i, j) += dot;
    }
  }
  return c;
}

// Calls f(memory, op, expected c, expected a_sums) for weights' gradients that sum their biases' too.
inline void for_each_sums(auto&& f) {
  for (const auto& [type, c_type] :
       {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::f32}, {DType::bf16, DType::bf16}}) {
    for (const Shape& s : {Shape{1, 1, 1}, {17, 5, 129}, {48, 32, 64}, {80, 96, 144}, {200, 40, 1025}}) {
      for (const std::int64_t gap : {0, 8}) {
        for (const bool accumulate : {false, true}) {
          SCOPED_TRACE(testing::Message() << to_string(type) << "->" << to_string(c_type) << " " << s.m << "x" << s.n
                                          << "x" << s.k << " gap " << gap << (accumulate ? " +=" : ""));
          Memory memory;
          Matmul op = make(memory, s, {type, c_type, true, false, accumulate, false}, gap);
          op.a_sums = memory.tensor(c_type, 1, s.m);
          Mat sums = accumulate ? read(op.a_sums) : Mat(1, s.m);
          for (std::int64_t i = 0; i < s.m; ++i) {
            for (std::int64_t k = 0; k < s.k; ++k) sums(0, i) += get(op.a, k, i);
          }
          f(memory, op, matmul_reference(op, s), sums);
        }
      }
    }
  }
}

// A matmul with a fused GELU, forward or backward, and its expected results.
struct GeluCase {
  Matmul op;
  Mat c, y;  // y: gelu_y, if present
};
inline GeluCase gelu_case(Memory& memory, const Shape& s, const Form& f, std::int64_t gap, bool forward) {
  GeluCase made{.op = make(memory, s, f, gap), .c = {}, .y = {}};
  (forward ? made.op.gelu_y : made.op.gelu_x) = memory.tensor(f.c_type, s.m, s.n, gap);
  made.c = matmul_reference(made.op, s);
  if (forward) made.y = made.c;
  for (double& value : made.y.values) value = gelu(value);
  for (std::int64_t i = 0; !forward && i < s.m; ++i) {
    for (std::int64_t j = 0; j < s.n; ++j) made.c(i, j) *= gelu_slope(get(made.op.gelu_x, i, j));
  }
  return made;
}
// Calls f(op, form, shape, gap) for each of them.
inline void for_each_gelu(auto&& f) {
  for (const Form& form : forms()) {
    if (form.accumulate || (form.transpose_a && form.transpose_b)) continue;
    for (const Shape& s : {Shape{1, 1, 1}, {17, 5, 129}, {48, 32, 64}, {80, 96, 144}}) {
      for (const std::int64_t gap : {0, 3, 8}) {
        for (const bool forward : {true, false}) {
          SCOPED_TRACE(testing::Message()
                       << to_string(form.type) << "->" << to_string(form.c_type) << " " << s.m << "x" << s.n << "x"
                       << s.k << (form.transpose_a ? " a'" : "") << (form.transpose_b ? " b'" : "")
                       << (form.bias ? " bias" : "") << " gap " << gap << (forward ? " gelu" : " gelu'"));
          Memory memory;
          const GeluCase made = gelu_case(memory, s, form, gap, forward);
          f(memory, made);
        }
      }
    }
  }
}
// c may be rounded an additional time.
inline double gelu_tolerance(DType dtype) { return dtype == DType::bf16 ? 2 * kBf16Tolerance : 2 * kF32; }

}  // namespace ms::tensor::test
