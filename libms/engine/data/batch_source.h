// The batches that a node's loader fills its ring with: those of a run (loader.h), or those of data sets that a model
// is evaluated on (eval_batches.h). The plan of a batch is a pure function of metadata; its windows are read by any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/balance.h"
#include "data/batch.h"
#include "data/batch_order.h"
#include "data/sampler.h"

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

// A batch: where its rows come from.
struct BatchPlan {
  BatchId id;
  std::int64_t rows = 0;        // of each part
  std::vector<Window> windows;  // row after row of one part after the other
  std::uint64_t digest = 0;     // Loader::digest(), where wanted
  // Targets that the loss does not ignore, over all dp ranks: of the step, or of all rounds of the validation.
  std::int64_t num_targets = 0;
};

// Where a window is copied to; what is nullptr is not wanted.
struct RowMemory {
  std::int32_t* tokens;            // seq + 1, marked as target_mask.h says
  std::int32_t* starts = nullptr;  // seq positions at which the inputs' documents begin
  std::int8_t* patches = nullptr;  // of the inputs, as ImageFile::read() writes them
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // The facts that ranks know of the data without opening it, as text: equal where the data are.
  virtual std::string facts() const = 0;
  // Before anything is planned.
  virtual void begin(const LoaderTask& task) = 0;
  virtual BatchPlan plan(const LoaderTask& task, const BatchId& id) const = 0;
  // Asks the storage for all of these windows at once, and does not wait: read() of them takes about as long as the
  // slowest, rather than as all of them one after another.
  virtual void prefetch(std::span<const Window> windows) const = 0;
  // Copies a window to `to`.
  virtual void read(const Window& window, const RowMemory& to) const = 0;
  // Windows count files from 0.
  virtual std::size_t num_files() const = 0;

 protected:
  BatchSource() = default;
  BatchSource(BatchSource&&) = default;
  BatchSource& operator=(BatchSource&&) = default;
};
// Opens the files.
using OpenBatches = std::function<std::unique_ptr<BatchSource>()>;

}  // namespace ms::data
