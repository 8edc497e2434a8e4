// Which layers live where. The model is split into pp x chunks virtual stages of consecutive layers; virtual stage s
// lives on pp rank s mod pp as its chunk s div pp, so the activations of consecutive stages go round the ring of pp
// ranks.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "mesh/range.h"

namespace ms::mesh {

constexpr int pp_rank_of(int stage, int pp) { return stage % pp; }
constexpr int stage_of(int pp_rank, int chunk, int pp) { return chunk * pp + pp_rank; }

// The layers of virtual stage `stage` of pp * chunks. Where the layers do not divide, the first stages have one more.
// Throws Error("mesh.layers", user) where a stage would be left without a layer.
inline Range layers_of(std::int64_t layers, int pp, int chunks, int stage) {
  const std::int64_t stages = std::int64_t{pp} * chunks;
  MS_ASSERT(pp >= 1 && chunks >= 1 && stage >= 0 && stage < stages, "virtual stage {} of pp {} x chunks {}", stage, pp,
            chunks);
  if (layers < stages) {
    throw user_error("mesh.layers",
                     fmt::format("{} layers cannot fill pp {} x chunks {}: each virtual stage needs at least one layer",
                                 layers, pp, chunks));
  }
  const std::int64_t share = layers / stages;
  const std::int64_t longer = layers % stages;  // this many stages have share + 1
  const std::int64_t begin = stage * share + (stage < longer ? stage : longer);
  return {.begin = begin, .end = begin + share + (stage < longer ? 1 : 0)};
}

}  // namespace ms::mesh
