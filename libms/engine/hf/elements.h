// Elements on their way between two files: conversions between the types of tensors, and transposition. Pure. Callers
// (convert) hold one tensor at a time; its bytes may lie at any address, because safetensors aligns nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/tensor.h"

namespace ms::hf {

// The element types that parameters come in; a file may hold others, in tensors that we only look past.
enum class Dtype : std::uint8_t { f32, bf16, f16, other };

// Returns the type that such a tensor has here: bf16 for bf16, f32 for f32 and f16. `other` is a bug.
tensor::DType stored_as(Dtype dtype);

// Element by element. Widening is exact; f32 to bf16 rounds to nearest even and keeps NaN a NaN. Equal types: a copy.
void convert(Dtype from, std::span<const std::byte> source, tensor::DType to, std::span<std::byte> out);

// out[c, r] = source[r, c]: `rows` rows of `cols` elements, `source_ld` elements from row to row, out without gaps.
void transpose(const std::byte* source, std::int64_t source_ld, std::int64_t rows, std::int64_t cols,
               std::int64_t element_bytes, std::byte* out);

}  // namespace ms::hf
