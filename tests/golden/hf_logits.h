// Our logits of one sequence, in f32, from the parameters of a checkpoint: one rank, no run. What the comparisons with
// transformers stand on.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ckpt/offline.h"
#include "nn/config.h"

namespace ms {

// `tokens` is model.seq ids. The result is model.vocab numbers a token.
std::vector<float> logits_of(const ckpt::Parameters& from, nn::ModelConfig model, std::span<const std::int32_t> tokens,
                             std::span<const std::int32_t> starts = {});

}  // namespace ms
