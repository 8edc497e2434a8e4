// Implements Engine::upload_patches() of train/engine/engine.h: patches of images as the model computes with them.
#include <algorithm>
#include <bit>

#include "train/engine/engine.h"

namespace ms::train {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

namespace {

float number_of(std::int8_t colour) { return static_cast<float>(colour) / 128; }

// Converts colours -128 to 127 to -1 to 1. Each type has all of these numbers exactly.
void convert_colours(std::span<const std::int8_t> colours, const Tensor& to) {
  if (to.dtype == DType::f32) {
    std::ranges::transform(colours, to.as<float>(), number_of);
  } else {
    std::ranges::transform(colours, to.as<bfloat16>(), [](std::int8_t colour) {
      return bfloat16{static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(number_of(colour)) >> 16)};
    });
  }
}

}  // namespace

void Engine::upload_patches(const Pending& pending, std::int64_t count, std::span<const std::int8_t> patches) {
  if (!pending.patches) return;
  const std::int64_t size = pending.patches.cols;
  MS_ASSERT(patches.empty() || std::ssize(patches) == count * size, "{} numbers for the patches of {} tokens",
            patches.size(), count);
  std::int64_t own = 0;
  each_own_run(count, [&](std::int64_t first, std::int64_t tokens) {
    const Tensor to = pending.patches.slice_rows(own, tokens);
    own += tokens;
    if (patches.empty()) {
      std::fill_n(to.data, to.size_bytes(), std::byte{});
      return;
    }
    convert_colours(patches.subspan(static_cast<std::size_t>(first * size), static_cast<std::size_t>(tokens * size)),
                    to);
  });
  std::int64_t offset = 0;
  for (const nn::Microbatch& input : tensors_.input) {
    if (offset == own) break;  // a step of the ramp-up has fewer
    compute().submit(Copy{input.patches, pending.patches.slice_rows(offset, input.patches.rows)});
    offset += input.patches.rows;
  }
}

}  // namespace ms::train
