// Interprets graphs of cuDNN operations: matmuls, reductions, views and pointwise operations.
#include "cudnn_program.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

namespace ms::emulated {
namespace {

constexpr std::byte kNothing{0xFF};  // NaN, whether bf16 or f32

// Rows: the last dimension of a tensor, read and written as f32.

void load(const Tensor& tensor, const std::byte* data, std::int64_t at, std::int64_t stride, std::span<float> row) {
  const auto each = [&](auto typed, auto&& value) {
    for (float& out : row) out = value(typed[at]), at += stride;
  };
  switch (tensor.type) {
    case CUDNN_DATA_BFLOAT16:
      return each(reinterpret_cast<const std::uint16_t*>(data),
                  [](std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); });
    case CUDNN_DATA_INT32:
      return each(reinterpret_cast<const std::int32_t*>(data), [](std::int32_t i) { return static_cast<float>(i); });
    case CUDNN_DATA_BOOLEAN: return each(data, [](std::byte b) { return b == std::byte{0} ? 0.0F : 1.0F; });
    default: return each(reinterpret_cast<const float*>(data), [](float f) { return f; });
  }
}

std::uint16_t to_bf16(float value) {  // rounds to nearest, ties to even
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

void store(const Tensor& tensor, std::byte* data, std::int64_t at, std::int64_t stride, std::span<const float> row) {
  const auto each = [&](auto typed, auto&& value) {
    for (const float in : row) typed[at] = value(in), at += stride;
  };
  switch (tensor.type) {
    case CUDNN_DATA_BFLOAT16: return each(reinterpret_cast<std::uint16_t*>(data), to_bf16);
    case CUDNN_DATA_INT32:
      return each(reinterpret_cast<std::int32_t*>(data), [](float f) { return static_cast<std::int32_t>(f); });
    case CUDNN_DATA_BOOLEAN: return each(data, [](float f) { return std::byte{f != 0.0F}; });
    default: return each(reinterpret_cast<float*>(data), [](float f) { return f; });
  }
}

// Calls the body for every index of all dimensions but the last `inner` ones, which stay 0.
template <class Body>
void each_index(const Dims& dims, std::size_t inner, Body&& body) {
  Dims index(dims.size(), 0);
  for (;;) {
    body(std::as_const(index));
    std::size_t i = dims.size() - inner;
    while (i > 0 && ++index[i - 1] == dims[i - 1]) index[--i] = 0;
    if (i == 0) return;
  }
}

float of_pair(cudnnPointwiseMode_t mode, float x, float b) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD: return x + b;
    case CUDNN_POINTWISE_SUB: return x - b;
    case CUDNN_POINTWISE_MUL: return x * b;
    case CUDNN_POINTWISE_DIV: return x / b;
    case CUDNN_POINTWISE_CMP_EQ: return x == b;
    case CUDNN_POINTWISE_CMP_NEQ: return x != b;
    case CUDNN_POINTWISE_CMP_GT: return x > b;
    case CUDNN_POINTWISE_CMP_GE: return x >= b;
    case CUDNN_POINTWISE_CMP_LT: return x < b;
    case CUDNN_POINTWISE_CMP_LE: return x <= b;
    case CUDNN_POINTWISE_EXP: return std::exp(x);
    case CUDNN_POINTWISE_LOG: return std::log(x);
    default: return x;  // IDENTITY, BINARY_SELECT
  }
}

void pointwise(const Operation& op, const Places& places) {
  const Dims& dims = op.y->dims;
  const auto columns = static_cast<std::size_t>(dims.back());
  std::vector<float> x(columns), b(columns), t(columns, 1.0F), y(columns);
  each_index(dims, 1, [&](const Dims& index) {
    const auto read = [&](const TensorPtr& tensor, std::vector<float>& row) {
      if (tensor == nullptr) return;
      const std::int64_t stride = tensor->dims.back() == 1 ? 0 : tensor->strides.back();
      load(*tensor, places.at(tensor->id), tensor->at(index, dims), stride, row);
    };
    if (op.mode == CUDNN_POINTWISE_GEN_INDEX) {
      const bool along = op.axis + 1 == dims.size();
      for (std::size_t i = 0; i < columns; ++i)
        y[i] = along ? static_cast<float>(i) : static_cast<float>(index[op.axis]);
    } else {
      read(op.x, x), read(op.b, b), read(op.t, t);
      for (std::size_t i = 0; i < columns; ++i) y[i] = t[i] != 0.0F ? of_pair(op.mode, x[i], b[i]) : b[i];
    }
    store(*op.y, places.at(op.y->id), op.y->at(index, dims), op.y->strides.back(), y);
  });
}

void matmul(const Operation& op, const Places& places) {
  const Dims& dims = op.y->dims;
  const std::size_t rank = dims.size();
  const auto m = static_cast<std::size_t>(dims[rank - 2]), n = static_cast<std::size_t>(dims[rank - 1]),
             k = static_cast<std::size_t>(op.x->dims[rank - 1]);
  std::vector<float> a(m * k), b(k * n), c(m * n);
  each_index(dims, 2, [&](const Dims& index) {
    const auto row = [rank](const Tensor& tensor, std::int64_t start, std::size_t i) {
      return start + static_cast<std::int64_t>(i) * tensor.strides[rank - 2];
    };
    const auto read = [&](const Tensor& tensor, std::vector<float>& values, std::size_t rows, std::size_t columns) {
      const std::int64_t start = tensor.at(index, dims);
      for (std::size_t i = 0; i < rows; ++i)
        load(tensor, places.at(tensor.id), row(tensor, start, i), tensor.strides.back(),
             std::span(values).subspan(i * columns, columns));
    };
    read(*op.x, a, m, k), read(*op.b, b, k, n);
    std::ranges::fill(c, 0.0F);
    for (std::size_t i = 0; i < m; ++i) {
      for (std::size_t l = 0; l < k; ++l) {
        const float factor = a[i * k + l];
        for (std::size_t j = 0; j < n; ++j) c[i * n + j] += factor * b[l * n + j];
      }
    }
    const std::int64_t start = op.y->at(index, dims);
    for (std::size_t i = 0; i < m; ++i)
      store(*op.y, places.at(op.y->id), row(*op.y, start, i), op.y->strides.back(), std::span(c).subspan(i * n, n));
  });
}

void reduce(const Operation& op, const Places& places) {
  const Dims &from = op.x->dims, &to = op.y->dims;
  const bool sums = op.reduction == CUDNN_REDUCE_TENSOR_ADD;
  Tensor sum{.type = CUDNN_DATA_FLOAT, .dims = to, .strides = Dims(to.size(), 1)};
  for (std::size_t i = to.size() - 1; i > 0; --i) sum.strides[i - 1] = sum.strides[i] * to[i];
  std::vector<float> results(sum.extent() / sizeof(float), sums ? 0.0F : -std::numeric_limits<float>::infinity());
  std::vector<float> row(static_cast<std::size_t>(from.back()));
  each_index(from, 1, [&](const Dims& index) {
    load(*op.x, places.at(op.x->id), op.x->at(index, from), op.x->strides.back(), row);
    float* into = results.data() + sum.at(index, from);
    for (std::int64_t i = 0; i < from.back(); ++i) {
      float& result = into[i * to.back() / from.back()];
      const float value = row[static_cast<std::size_t>(i)];
      result = sums ? result + value : value > result || std::isnan(value) ? value : result;
    }
  });
  each_index(to, 1, [&](const Dims& index) {
    store(*op.y, places.at(op.y->id), op.y->at(index, to), op.y->strides.back(),
          std::span(results).subspan(static_cast<std::size_t>(sum.at(index, to)), static_cast<std::size_t>(to.back())));
  });
}

// The same memory with other dimensions.
void reshape(const Operation& op, const Places& places) {
  std::vector<float> row(static_cast<std::size_t>(op.y->dims.back()));
  each_index(op.y->dims, 1, [&](const Dims& index) {
    const std::int64_t at = op.y->at(index, op.y->dims);
    load(*op.x, places.at(op.x->id), at, op.y->strides.back(), row);
    store(*op.y, places.at(op.y->id), at, op.y->strides.back(), row);
  });
}

}  // namespace

void run(const Program& program, Places places, std::map<std::int64_t, float> by_value, std::byte* workspace) {
  std::map<std::int64_t, std::vector<std::byte>> between;
  for (auto& [id, value] : by_value) places[id] = reinterpret_cast<std::byte*>(&value);
  std::fill_n(workspace, kWorkspaceBytes, kNothing);
  for (const Operation& op : program.operations) {
    if (op.y->is_virtual) places[op.y->id] = (between[op.y->id] = std::vector(op.y->extent(), kNothing)).data();
    switch (op.type) {
      case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: matmul(op, places); break;
      case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: reduce(op, places); break;
      case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: reshape(op, places); break;
      default: pointwise(op, places);
    }
    for (const std::int64_t id : op.last_of) between.erase(id);
  }
  std::fill_n(workspace, kWorkspaceBytes, kNothing);  // also over what was written there
}

}  // namespace ms::emulated
