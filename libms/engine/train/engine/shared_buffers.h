// The buffers that spans of a rank share (optim::SharedBuffers). Under zero 2 one of gradients: as large as the largest
// chunk, in which the spans of a chunk lie one after the other. Under zero 3 some of gradients and some of gathered
// parameters. Spans of a kind take turns at those of their kind, so that neighbours have different ones: layers, their
// experts, and vocabularies, which are larger, rarely used and have one. Pure.
#pragma once

#include <vector>

#include "train/plan.h"

namespace ms::train {

// Returns them by chunk and span, of chunks with these spans; empty ones where nothing is shared.
std::vector<std::vector<optim::SharedBuffers>> carve_shared(tensor::Arena& arena, const Plan& plan,
                                                            const mesh::Coord& at,
                                                            const std::vector<std::vector<nn::SpanSpec>>& chunks);

}  // namespace ms::train
