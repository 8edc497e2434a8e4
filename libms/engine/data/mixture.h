// Which source sample g of a run comes from where the weights of the sources change by step (a curriculum): one Blend
// after another, each from the first sample of its step on. A source goes on where it was, so a change of weights
// repeats no sample of it and leaves none out. Pure; a seek is a binary search.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/batch.h"
#include "data/blend.h"

namespace ms::data {

// The weights of all sources once `step` steps of a run are done.
struct WeightStage {
  std::int64_t step = 0;
  std::vector<double> weights;
  bool operator==(const WeightStage&) const = default;
};

class Mixture {
 public:
  // The first stage is of step 0, later ones of growing steps; all have a weight for each source, 0 for what is not
  // drawn. Stages that ended before the run's order begins are empty. Error("data.weight", user) as of Blend.
  Mixture(std::span<const WeightStage> stages, const BatchShape& shape);

  // The ordinal counts all draws of the source since sample 0.
  Blend::Draw draw(std::int64_t sample) const;

  // Stages share this many slots, 32 MiB, so that a long schedule cannot fill the memory of a host. Above 64 stages,
  // weights without a short common period are rounded more coarsely than Blend does by itself.
  static constexpr std::int64_t kMaxSlots = 1 << 22;
  static constexpr std::size_t kMaxStages = 1024;

 private:
  struct Piece {
    std::int64_t begin;               // its first sample
    std::vector<std::int64_t> drawn;  // by source, before it
    Blend blend;
  };
  std::vector<Piece> pieces_;
};

}  // namespace ms::data
