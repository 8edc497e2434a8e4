// A rank's part in the loading of data: on each node one rank has a loader, and all of the node that need tokens read
// the ring that it fills (data/loader_process.h); the others open nothing. Batches come in the order of the run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/world.h"
#include "data/batch_reader.h"
#include "data/loader.h"
#include "data/loader_process.h"
#include "train/plan.h"

namespace ms::train {

// The token files of a configuration. Errors as of data::Loader.
data::Loader open_data(const Settings& settings);
// Global batches of an evaluation.
std::int64_t evaluation_rounds(const Settings& settings);

// The ranks of a node that need tokens, and whose rows these are. Pure.
struct NodeReaders {
  std::vector<int> ranks;     // in order; the first has the loader; empty: the node needs no tokens
  std::vector<int> dp_ranks;  // of these ranks, in order, each once
};
NodeReaders readers_of(const Plan& plan, const std::vector<int>& node_ranks);

class DataFeed {
 public:
  // Collective over the world. `loader` is of this process, is used by one of its ranks at most, and outlives the feed.
  // Opens the files; errors as of data::LoaderProcess, and Error("data.differs", node) where this node has other files
  // than rank 0.
  DataFeed(const Plan& plan, comm::World& world, data::LoaderProcess& loader);

  // The facts of the loaders, as text: of data::DataFacts in a run.
  const std::string& facts() const { return facts_; }

  // Collective over the ranks of a node that need tokens, once: reading of the first batch begins. `batch`: with
  // its origin and skips. `has_digests`: on the node of rank 0, the same on all its ranks.
  void begin(const data::BatchOrder& order, const data::BatchShape& batch, bool has_digests);

  // The next batch of the order, of ranks that need tokens; as of data::BatchReader.
  data::Batch next(const data::BatchId& id) { return reader_->next(id); }
  void release() { reader_->release(); }

 private:
  bool has_loader() const { return !readers_.ranks.empty() && readers_.ranks.front() == world_.rank(); }
  void check();

  const Plan& plan_;
  comm::World& world_;
  data::LoaderProcess& loader_;
  const NodeReaders readers_;
  std::string facts_;
  std::optional<data::BatchRing> ring_;
  std::optional<data::BatchReader> reader_;
};

}  // namespace ms::train
