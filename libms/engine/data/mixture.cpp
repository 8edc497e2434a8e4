#include "data/mixture.h"

#include <algorithm>

#include "base/error.h"

namespace ms::data {

Mixture::Mixture(std::span<const WeightStage> stages, const BatchShape& shape) {
  MS_ASSERT(!stages.empty() && stages.front().step == 0 && stages.size() <= kMaxStages, "{} stages", stages.size());
  const std::int64_t max_period = std::min(Blend::kMaxPeriod, kMaxSlots / std::ssize(stages));
  std::vector<std::int64_t> drawn(stages.front().weights.size(), 0);
  for (const WeightStage& stage : stages) {
    // A run whose data began anew at a later step has no sample of the steps before.
    const std::int64_t begin = stage.step == 0 ? 0 : std::max<std::int64_t>(0, shape.first_sample(stage.step));
    if (!pieces_.empty()) {
      const std::vector<std::int64_t> more = pieces_.back().blend.draws(begin - pieces_.back().begin);
      for (std::size_t i = 0; i < drawn.size(); ++i) drawn[i] += more[i];
    }
    pieces_.push_back({begin, drawn, Blend(stage.weights, max_period)});
  }
}

Blend::Draw Mixture::draw(std::int64_t sample) const {
  MS_ASSERT(sample >= 0, "sample {} of a mixture", sample);
  const Piece& piece = *std::prev(std::ranges::upper_bound(pieces_, sample, {}, &Piece::begin));
  Blend::Draw draw = piece.blend.draw(sample - piece.begin);
  draw.ordinal += piece.drawn[static_cast<std::size_t>(draw.source)];
  return draw;
}

}  // namespace ms::data
