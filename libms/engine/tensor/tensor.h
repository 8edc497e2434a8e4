// Tensors. Every tensor of the engine is a matrix view: rows x cols of one type with a leading dimension, in memory
// that an arena owns. The op that reads it defines what rows and columns mean (tokens, heads, vocabulary).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"

namespace ms::tensor {

enum class DType : std::uint8_t { f32, bf16, f64, i32 };

constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16: return 2;
    case DType::f64: return 8;
  }
  return 0;
}
std::string_view to_string(DType dtype);

// The top half of an IEEE float. Arithmetic is in float; conversion rounds to nearest even.
struct bfloat16 {
  std::uint16_t bits;
};

struct Tensor {
  std::byte* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t ld = 0;  // elements from one row to the next, >= cols
  DType dtype = DType::f32;

  explicit operator bool() const { return data != nullptr; }
  std::int64_t numel() const { return rows * cols; }
  bool contiguous() const { return ld == cols || rows == 1; }
  std::int64_t size_bytes() const { return numel() * size_of(dtype); }
  // Bytes from the first element to the end of the last one, including gaps between rows.
  std::int64_t extent_bytes() const { return rows == 0 ? 0 : ((rows - 1) * ld + cols) * size_of(dtype); }

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }

  Tensor slice_rows(std::int64_t begin, std::int64_t count) const {
    MS_ASSERT(begin >= 0 && count >= 0 && begin + count <= rows, "rows {}+{} of {}", begin, count, rows);
    Tensor view = *this;
    view.data += begin * ld * size_of(dtype);
    view.rows = count;
    return view;
  }
  Tensor slice_cols(std::int64_t begin, std::int64_t count) const {
    MS_ASSERT(begin >= 0 && count >= 0 && begin + count <= cols, "cols {}+{} of {}", begin, count, cols);
    Tensor view = *this;
    view.data += begin * size_of(dtype);
    view.cols = count;
    return view;
  }
  // Returns the same contiguous memory as another shape with the same number of elements.
  Tensor reshape(std::int64_t new_rows, std::int64_t new_cols) const {
    MS_ASSERT(contiguous() && new_rows * new_cols == numel(), "reshape {}x{} to {}x{}", rows, cols, new_rows, new_cols);
    return {data, new_rows, new_cols, new_cols, dtype};
  }
  Tensor flat() const { return reshape(1, numel()); }
};

}  // namespace ms::tensor
