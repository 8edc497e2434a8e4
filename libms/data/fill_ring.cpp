#include "data/fill_ring.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"

namespace ms::data {
namespace {

constexpr BatchRing::Patience kPatience{1000};
// A file system may drop what it is asked for while it is busy (FUSE does beyond nine requests), so a window is asked
// for again when so many others are still to be read before it.
constexpr std::size_t kAskedAgain = 8;

// Decides which windows are the rows of a batch, part after part, from metadata alone.
std::vector<Window> plan_of(const Loader& loader, const LoaderTask& task, const BatchId& id, std::int64_t rows) {
  const std::int64_t batch = loader.shape().global_batch;
  const std::vector<std::int64_t> samples =
      id.round ? std::vector<std::int64_t>() : loader.rows(id.step, task.division);
  std::vector<Window> plan;
  for (const int dp_rank : task.dp_ranks) {
    for (std::int64_t row = rows * dp_rank; row < rows * (dp_rank + 1); ++row) {
      plan.push_back(id.round ? loader.validation_window(*id.round * batch + row, task.order.rounds * batch)
                              : loader.window(id.step, samples[static_cast<std::size_t>(row)]));
    }
  }
  return plan;
}

}  // namespace

void fill_ring(const Loader& loader, BatchRing& ring, const LoaderTask& task) {
  MS_ASSERT(std::ssize(task.dp_ranks) == ring.shape().parts, "{} parts of {}", task.dp_ranks.size(),
            ring.shape().parts);
  const std::uint64_t published = ring.published();
  std::uint64_t batch = 0;
  for (std::optional<BatchId> id = task.order.first(); id; id = task.order.after(*id), ++batch) {
    if (batch < published) continue;
    const std::int64_t all = id->round ? loader.shape().global_batch : loader.shape().batch(id->step);
    const std::int64_t rows = all / task.division.dp, seq = loader.shape().seq;
    const std::vector<Window> plan = plan_of(loader, task, *id, rows);
    loader.prefetch(plan);  // the storage is read while ranks still use the slot
    while (!ring.wait_free(batch, kPatience)) {}
    for (std::int64_t i = 0; i < std::ssize(plan); ++i) {
      const std::int64_t row = i % rows;
      const BatchRing::Part part = ring.part(batch, static_cast<int>(i / rows));
      const std::span<const Window> rest = std::span(plan).subspan(static_cast<std::size_t>(i));
      if (rest.size() > kAskedAgain) loader.prefetch(rest.subspan(kAskedAgain, 1));
      loader.read(rest.front(), part.rows.data() + row * (seq + 1),
                  part.starts.empty() ? nullptr : part.starts.data() + row * seq);
    }
    const bool has_digest = task.has_digests && !id->round;
    ring.label(batch) = {.id = *id, .rows = rows, .digest = has_digest ? loader.digest(id->step) : 0};
    ring.publish(batch);
  }
}

}  // namespace ms::data
