// Checks of ops share this rule (op_checks.h); those of a mixture of experts are in expert_checks.cpp. Internal to
// these.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "tensor/ops.h"

namespace ms::tensor {

struct Rule {
  std::string_view op;

  void shape(const char* name, const Tensor& x, std::int64_t rows, std::int64_t cols) const {
    MS_ASSERT(x && x.rows == rows && x.cols == cols && (x.ld >= cols || rows <= 1),
              "{}: {} is {}x{} (ld {}), not {}x{}", op, name, x.rows, x.cols, x.ld, rows, cols);
  }
  void type(const char* name, const Tensor& x, std::initializer_list<DType> allowed) const {
    MS_ASSERT(std::find(allowed.begin(), allowed.end(), x.dtype) != allowed.end(), "{}: {} is {}", op, name,
              to_string(x.dtype));
  }
  void activation(const char* name, const Tensor& x) const { type(name, x, {DType::f32, DType::bf16}); }
  // Checks a tensor of a known shape and type.
  void tensor(const char* name, const Tensor& x, std::int64_t rows, std::int64_t cols, DType dtype) const {
    shape(name, x, rows, cols);
    type(name, x, {dtype});
  }
  void accumulator(const char* name, const Tensor& x, std::int64_t rows, std::int64_t cols) const {
    shape(name, x, rows, cols);
    activation(name, x);
  }
  void like(const char* name, const Tensor& x, const Tensor& model) const {
    tensor(name, x, model.rows, model.cols, model.dtype);
  }
  // Checks the amax of a result, if it is present.
  void amax(const Tensor& x, const Tensor& result) const {
    if (!x) return;
    tensor("amax", x, 1, x.cols, DType::f32);
    type("a result with an amax", result, {DType::bf16});
  }
};

void check(const Rule& rule, const Route& op);
void check(const Rule& rule, const ExpertBias& op);
void check(const Rule& rule, const RouteBwd& op);
void check(const Rule& rule, const ExpertCount& op);
void check(const Rule& rule, const ExpertDispatch& op);
void check(const Rule& rule, const ExpertCombine& op);
void check(const Rule& rule, const ExpertSum& op);
void check(const Rule& rule, const GroupedMatmul& op);

}  // namespace ms::tensor
