// Products to be tested, and what they are in f64.
#pragma once

#include <utility>
#include <vector>

#include "support.h"

namespace ms::tensor::test {

// Products of K terms in f32: the error relative to the rms of the result stays at a few units in the last place times
// the root of K.
inline constexpr double kF32 = 5e-6;

struct Shape {
  std::int64_t m, n, k;
};
inline constexpr Shape kShapes[] = {{1, 1, 1},  {1, 64, 64}, {64, 1, 64},  {64, 64, 1},   {2, 3, 4},     {17, 5, 129},
                                    {1, 7, 33}, {65, 1, 7},  {64, 64, 64}, {100, 70, 50}, {33, 257, 100}};

// Of the factors' type and the result's.
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

inline Matmul make(Memory& memory, const Shape& s, const Form& f, std::int64_t gap) {
  return {.c = memory.tensor(f.c_type, s.m, s.n, gap),
          .a = f.transpose_a ? memory.tensor(f.type, s.k, s.m, gap) : memory.tensor(f.type, s.m, s.k, gap),
          .b = f.transpose_b ? memory.tensor(f.type, s.n, s.k, 2 * gap) : memory.tensor(f.type, s.k, s.n, 2 * gap),
          .bias = f.bias ? memory.tensor(f.type, 1, s.n) : Tensor{},
          .transpose_a = f.transpose_a,
          .transpose_b = f.transpose_b,
          .accumulate = f.accumulate};
}

inline Mat product(const Matmul& op, const Shape& s) {
  const Mat a = read(op.a), b = read(op.b);
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

}  // namespace ms::tensor::test
