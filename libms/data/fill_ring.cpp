#include "data/fill_ring.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "data/chain.h"

namespace ms::data {
namespace {

constexpr BatchRing::Patience kPatience{1000};

// A batch: where its rows come from.
struct BatchPlan {
  BatchId id;
  std::int64_t rows = 0;        // of each part
  std::vector<Window> windows;  // row after row of one part after the other
  std::uint64_t digest = 0;
};

// Decides on a batch from metadata alone.
BatchPlan plan_of(const Loader& loader, const LoaderTask& task, const BatchId& id) {
  const std::int64_t batch = id.round ? loader.shape().global_batch : loader.shape().batch(id.step);
  BatchPlan plan{.id = id, .rows = batch / task.division.dp, .windows = {}};
  std::vector<Window> all;  // in the run's order
  if (task.has_digests && !id.round) {
    for (std::int64_t sample = 0; sample < batch; ++sample) all.push_back(loader.window(id.step, sample));
    plan.digest = digest_of(all);
  }
  const std::vector<std::int64_t> samples =
      id.round ? std::vector<std::int64_t>() : loader.rows(id.step, task.division);
  const auto window_of = [&](std::int64_t row) {
    if (id.round) return loader.validation_window(*id.round * batch + row, task.order.rounds * batch);
    const std::int64_t sample = samples[static_cast<std::size_t>(row)];
    return all.empty() ? loader.window(id.step, sample) : all[static_cast<std::size_t>(sample)];
  };
  for (const int dp_rank : task.dp_ranks) {
    for (std::int64_t row = plan.rows * dp_rank; row < plan.rows * (dp_rank + 1); ++row) {
      plan.windows.push_back(window_of(row));
    }
  }
  return plan;
}

}  // namespace

void fill_ring(SourceLoaders& loaders, BatchRing& ring, const LoaderTask& task) {
  MS_ASSERT(std::ssize(task.dp_ranks) == ring.shape().parts, "{} parts of {}", task.dp_ranks.size(),
            ring.shape().parts);
  const Loader& loader = loaders.loader();
  const auto planned = [&](const std::optional<BatchId>& id) {
    std::optional<BatchPlan> plan;
    if (!id) return plan;
    plan = plan_of(loader, task, *id);
    loader.prefetch(plan->windows);  // the storage is read while ranks still use the slot
    return plan;
  };
  std::uint64_t batch = 0;
  std::optional<BatchId> first = task.order.first();
  for (const std::uint64_t published = ring.published(); first && batch < published; ++batch) {
    first = task.order.after(*first);
  }
  std::optional<BatchPlan> next;
  for (std::optional<BatchPlan> now = planned(first); now; now = std::exchange(next, std::nullopt), ++batch) {
    const double begin = monotonic_s();
    while (!ring.wait_free(batch, kPatience)) {}
    const double waited_s = monotonic_s() - begin;
    const std::optional<BatchId> after = task.order.after(now->id);
    loaders.begin(std::move(now->windows),
                  [&loader, &ring, batch, rows = now->rows](const Window& window, std::size_t index) {
                    const auto at = static_cast<std::int64_t>(index);
                    const std::int64_t row = at % rows, seq = ring.shape().seq;
                    const BatchRing::Part part = ring.part(batch, static_cast<int>(at / rows));
                    loader.read(window, part.rows.data() + row * (seq + 1),
                                part.starts.empty() ? nullptr : part.starts.data() + row * seq);
                  });
    if (loaders.count() > 1) next = planned(after);  // while the others read
    loaders.finish(waited_s);
    ring.label(batch) = {.id = now->id, .rows = now->rows, .digest = now->digest};
    ring.publish(batch);
    if (!next) next = planned(after);
  }
}

}  // namespace ms::data
