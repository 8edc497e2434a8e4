#include "data/fill_ring.h"

#include <cstdint>
#include <optional>

#include "base/error.h"

namespace ms::data {
namespace {

constexpr BatchRing::Patience kPatience{1000};

void fill_part(const Loader& loader, const BatchId& id, const LoaderTask& task, std::int64_t rows, int dp_rank,
               const BatchRing::Part& part) {
  std::int32_t* starts = part.starts.empty() ? nullptr : part.starts.data();
  if (id.round) {
    const std::int64_t batch = loader.shape().global_batch;
    loader.fill_validation(*id.round * batch + rows * dp_rank, rows, task.order.rounds * batch, part.rows.data(),
                           starts);
  } else {
    loader.fill(id.step, rows * dp_rank, rows, part.rows.data(), starts);
  }
}

}  // namespace

void fill_ring(const Loader& loader, BatchRing& ring, const LoaderTask& task) {
  MS_ASSERT(std::ssize(task.dp_ranks) == ring.shape().parts, "{} parts of {}", task.dp_ranks.size(),
            ring.shape().parts);
  const std::uint64_t published = ring.published();
  std::uint64_t batch = 0;
  for (std::optional<BatchId> id = task.order.first(); id; id = task.order.after(*id), ++batch) {
    if (batch < published) continue;
    while (!ring.wait_free(batch, kPatience)) {}
    const std::int64_t rows = (id->round ? loader.shape().global_batch : loader.shape().batch(id->step)) / task.dp;
    for (int part = 0; part < ring.shape().parts; ++part) {
      fill_part(loader, *id, task, rows, task.dp_ranks[static_cast<std::size_t>(part)], ring.part(batch, part));
    }
    const bool has_digest = task.has_digests && !id->round;
    ring.label(batch) = {.id = *id, .rows = rows, .digest = has_digest ? loader.digest(id->step) : 0};
    ring.publish(batch);
  }
}

}  // namespace ms::data
