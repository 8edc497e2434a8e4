// Which layers live where. The model is split into pp x chunks virtual stages of consecutive layers; virtual stage s
// lives on pp rank s mod pp as its chunk s div pp, so the activations of consecutive stages go round the ring of pp
// ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "mesh/range.h"

namespace ms::mesh {

constexpr int pp_rank_of(int stage, int pp) { return stage % pp; }
constexpr int stage_of(int pp_rank, int chunk, int pp) { return chunk * pp + pp_rank; }

// How many layers the first and the last virtual stage have, which also hold the embedding and the head; 0: as many as
// the others.
struct EndLayers {
  std::int64_t first = 0, last = 0;
  bool operator==(const EndLayers&) const = default;
};

// Returns why so many layers cannot be split so; empty: they can.
inline std::string layers_problem(std::int64_t layers, std::int64_t pp, std::int64_t chunks, const EndLayers& ends) {
  const std::int64_t stages = pp * chunks, given = (ends.first > 0 ? 1 : 0) + (ends.last > 0 ? 1 : 0);
  const std::int64_t others = stages - given, left = layers - ends.first - ends.last;
  if (given > 0 && stages == 1) return "one stage has all layers";
  if (others > 0 ? left >= others : left == 0) return "";
  if (given == 0) {
    return fmt::format("{} layers for {} pipeline stages x {} chunks: each needs at least one layer", layers, pp,
                       chunks);
  }
  return fmt::format("mesh.first_layers and mesh.last_layers leave {} of {} layers for {} virtual stages",
                     std::max<std::int64_t>(left, 0), layers, others);
}

// The layers of virtual stage `stage` of pp * chunks. Where the layers do not divide, the first stages, among those
// whose numbers are not given, have one more. Throws Error("mesh.layers", user) where layers_problem() has one.
inline Range layers_of(std::int64_t layers, int pp, int chunks, int stage, const EndLayers& ends = {}) {
  const int stages = pp * chunks;
  MS_ASSERT(pp >= 1 && chunks >= 1 && stage >= 0 && stage < stages, "virtual stage {} of pp {} x chunks {}", stage, pp,
            chunks);
  if (std::string problem = layers_problem(layers, pp, chunks, ends); !problem.empty())
    throw user_error("mesh.layers", std::move(problem));
  if (ends.first > 0 && stage == 0) return {.begin = 0, .end = ends.first};
  if (ends.last > 0 && stage == stages - 1) return {.begin = layers - ends.last, .end = layers};
  const int before = ends.first > 0 ? 1 : 0, others = stages - before - (ends.last > 0 ? 1 : 0);
  const std::int64_t left = layers - ends.first - ends.last, share = left / others, longer = left % others;
  const std::int64_t place = stage - before;  // among the others, of which the first `longer` have share + 1
  const std::int64_t begin = ends.first + place * share + std::min(place, longer);
  return {.begin = begin, .end = begin + share + (place < longer ? 1 : 0)};
}

}  // namespace ms::mesh
