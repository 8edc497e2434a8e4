// The scaling of rotary frequencies, an option of models and of the op that makes the table.
#pragma once

#include <cstdint>

namespace ms::tensor {

// How rotary frequencies are lowered, so that a model reads longer sequences than it was first trained on: all by the
// same factor, or, as in Llama 3.1, those with fewer than low_freq turns in original_seq by the factor, those with more
// than high_freq not at all, and those between by a blend of the two.
struct RotaryScaling {
  enum class Kind : std::uint8_t { none, linear, llama3 };
  Kind kind = Kind::none;
  double factor = 1, low_freq = 1, high_freq = 4;
  std::int64_t original_seq = 8192;
};

}  // namespace ms::tensor
