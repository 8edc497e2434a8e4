// The batches of data sets that a model is evaluated on: each set's windows in their order, in batches of its own, of
// which the last may have rows without a token.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/batch_source.h"
#include "data/eval_set.h"

namespace ms::data {

// The facts that ranks know of the sets, in their order.
struct EvalFacts {
  struct Set {
    std::int64_t windows = 0, predictions = 0;
    std::int64_t batches(std::int64_t global_batch) const { return (windows + global_batch - 1) / global_batch; }
  };
  std::vector<Set> sets;

  std::string text() const;
  static EvalFacts parse(std::string_view text);  // what text() returned
};

class EvalBatches final : public BatchSource {
 public:
  EvalBatches(std::vector<EvalSet> sets, std::int64_t global_batch);

  std::string facts() const override { return facts_.text(); }
  void begin(const LoaderTask&) override {}
  // `id`: a step for each batch, those of one set after those of another.
  BatchPlan plan(const LoaderTask& task, const BatchId& id) const override;
  void prefetch(std::span<const Window> windows) const override;
  // As of EvalSet::read(). A window that begins before token 0 has none.
  void read(const Window& window, const RowMemory& to) const override;
  std::size_t num_files() const override { return sets_.size(); }

 private:
  std::vector<EvalSet> sets_;
  std::int64_t global_batch_;
  EvalFacts facts_;
};

}  // namespace ms::data
