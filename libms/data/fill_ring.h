// The work of a node's loader: batch after batch of the run, from the token files into the ring. The plan of a batch is
// a pure function of seed and step, so each loader computes it, before the slot is free, and the storage is asked for
// all of its windows at once: a slow source delays its own rows alone. The source loaders read them into the slot.
#pragma once

#include <cstdint>
#include <vector>

#include "data/batch_order.h"
#include "data/batch_ring.h"
#include "data/loader.h"
#include "data/source_loaders.h"

namespace ms::data {

// The batches that a loader fills its ring with.
struct LoaderTask {
  BatchOrder order;
  std::int64_t first_sample = 0;  // of the run's order, with which order.begin begins
  std::vector<int> dp_ranks;      // whose rows are the parts
  Division division = {};         // of a batch among all dp ranks
  bool has_digests = false;       // training batches have their step's
  std::vector<Skip> skips = {};   // of the run's order
  int most_loaders = 0;           // as of [data] loaders
};

// Fills the ring with the batches of the task that it does not have yet, until there are no more. The loader starts at
// the task's first sample; it and the ring outlive `loaders`. Waits for readers for ever.
void fill_ring(SourceLoaders& loaders, BatchRing& ring, const LoaderTask& task);

}  // namespace ms::data
