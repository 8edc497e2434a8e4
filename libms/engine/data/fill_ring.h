// The work of a node's loader: batch after batch of the run, from the token files into the ring. The plan of a batch is
// a pure function of seed and step, so each loader computes it, before the slot is free, and the storage is asked for
// all of its windows at once: a slow source delays its own rows alone. The source loaders read them into the slot.
#pragma once

#include "data/batch_ring.h"
#include "data/batch_source.h"
#include "data/source_loaders.h"

namespace ms::data {

// Fills the ring with the batches of the task that it does not have yet, until there are no more. Their source has
// begun the task; it and the ring outlive `loaders`. Waits for readers for ever.
void fill_ring(SourceLoaders& loaders, BatchRing& ring, const LoaderTask& task);

}  // namespace ms::data
