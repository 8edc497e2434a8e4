// Continues a sequence of tokens with a model, token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "train/engine/engine.h"

namespace ms::train {

struct GenerateOptions {
  std::int64_t max_tokens = 0;
  std::int64_t vocab = 0;  // only ids below are drawn
  Sampling sampling;
  std::uint64_t seed = 0;
  std::vector<std::int32_t> stops = {};  // any of them ends the text, and is not part of it
};

// Calls `each` with every token that follows `prompt`, which is not empty. The context is the last `seq` tokens at
// most: of a full one the older half is dropped. A pure function of the model and the arguments, whatever the layout,
// as far as logits of layouts agree. Collective over the world.
void generate(Engine& engine, std::int64_t seq, const std::vector<std::int32_t>& prompt, const GenerateOptions& options,
              const std::function<void(std::int32_t token)>& each);

}  // namespace ms::train
