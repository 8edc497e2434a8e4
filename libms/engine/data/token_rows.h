// Rows of tokens that lie somewhere in memory, to be copied one after another. Inputs and targets of a sample are one
// row of seq + 1 tokens, without the last and without the first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace ms::data {

class TokenRows {
 public:
  TokenRows() = default;
  // All that lie one after another; implicit, as both are what callers have.
  TokenRows(std::span<const std::int32_t> all) : first_(all.data()), rows_(1), row_(std::ssize(all)) {}
  TokenRows(const std::vector<std::int32_t>& all) : TokenRows(std::span(all)) {}
  // `row` tokens of each of `rows` rows that begin `stride` tokens after one another.
  TokenRows(const std::int32_t* first, std::int64_t rows, std::int64_t row, std::int64_t stride)
      : first_(first), rows_(rows), row_(row), stride_(stride) {}

  std::int64_t size() const { return rows_ * row_; }
  // `out` has room for size() tokens.
  void copy_to(std::int32_t* out) const {
    for (std::int64_t i = 0; i < rows_; ++i) out = std::copy_n(first_ + i * stride_, row_, out);
  }

 private:
  const std::int32_t* first_ = nullptr;
  std::int64_t rows_ = 0, row_ = 0, stride_ = 0;
};

}  // namespace ms::data
