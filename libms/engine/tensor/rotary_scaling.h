// The scaling of rotary frequencies, an option of models and of the op that makes the table.
#pragma once

#include <cstdint>

namespace ms::tensor {

// How rotary frequencies are lowered, so that a model reads longer sequences than it was first trained on. linear: all
// by the same factor. llama3 (Llama 3.1) and yarn (arXiv 2309.00071): those with fewer than low_freq turns in
// original_seq by the factor, those with more than high_freq not at all, and those between by a blend of the two, which
// is linear in the number of turns (llama3) or in the frequency's index (yarn, whose limits are whole indices).
struct RotaryScaling {
  enum class Kind : std::uint8_t { none, linear, llama3, yarn };
  Kind kind = Kind::none;
  double factor = 1, low_freq = 1, high_freq = 4;
  std::int64_t original_seq = 8192;
  double magnitude = 1;  // of the rotated vectors: cosines and sines are multiplied by it
};

}  // namespace ms::tensor
