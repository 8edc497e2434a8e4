#include "data/fill_ring.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/error.h"

namespace ms::data {
namespace {

constexpr BatchRing::Patience kPatience{1000};

}  // namespace

void fill_ring(SourceLoaders& loaders, BatchRing& ring, const LoaderTask& task) {
  MS_ASSERT(std::ssize(task.dp_ranks) == ring.shape().parts, "{} parts of {}", task.dp_ranks.size(),
            ring.shape().parts);
  const BatchSource& source = loaders.source();
  const auto planned = [&](const std::optional<BatchId>& id) {
    std::optional<BatchPlan> plan;
    if (!id) return plan;
    plan = source.plan(task, *id);
    source.prefetch(plan->windows);  // the storage is read while ranks still use the slot
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
                  [&source, &ring, batch, rows = now->rows](const Window& window, std::size_t index) {
                    const auto at = static_cast<std::int64_t>(index);
                    const std::int64_t row = at % rows, seq = ring.shape().seq;
                    const BatchRing::Part part = ring.part(batch, static_cast<int>(at / rows));
                    const std::int64_t patches = seq * ring.shape().patch_size;
                    source.read(window, {part.rows.data() + row * (seq + 1),
                                         part.starts.empty() ? nullptr : part.starts.data() + row * seq,
                                         part.patches.empty() ? nullptr : part.patches.data() + row * patches});
                  });
    if (loaders.count() > 1) next = planned(after);  // while the others read
    loaders.finish();
    ring.label(batch) = {.id = now->id, .rows = now->rows, .num_targets = now->num_targets, .digest = now->digest};
    const bool is_late = ring.is_awaited();
    ring.publish(batch);
    loaders.review(waited_s, is_late);
    if (!next) next = planned(after);
  }
}

}  // namespace ms::data
