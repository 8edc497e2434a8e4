#include "data/fill_ring.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"

namespace ms::data {
namespace {

constexpr BatchRing::Patience kPatience{1000};

void fill_training(const Loader& loader, std::int64_t step, std::span<const std::int64_t> samples,
                   const BatchRing::Part& part) {
  const std::int64_t seq = loader.shape().seq;
  std::int32_t* row = part.rows.data();
  std::int32_t* starts = part.starts.empty() ? nullptr : part.starts.data();
  for (const std::int64_t sample : samples) {
    loader.fill(step, sample, 1, row, starts);
    row += seq + 1;
    if (starts != nullptr) starts += seq;
  }
}

void fill_validation(const Loader& loader, const LoaderTask& task, std::int64_t round, std::int64_t rows, int dp_rank,
                     const BatchRing::Part& part) {
  const std::int64_t batch = loader.shape().global_batch;
  loader.fill_validation(round * batch + rows * dp_rank, rows, task.order.rounds * batch, part.rows.data(),
                         part.starts.empty() ? nullptr : part.starts.data());
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
    const std::int64_t all = id->round ? loader.shape().global_batch : loader.shape().batch(id->step);
    const std::int64_t rows = all / task.division.dp;
    const std::vector<std::int64_t> samples =
        id->round ? std::vector<std::int64_t>() : loader.rows(id->step, task.division);
    for (int i = 0; i < ring.shape().parts; ++i) {
      const int dp_rank = task.dp_ranks[static_cast<std::size_t>(i)];
      const BatchRing::Part part = ring.part(batch, i);
      if (id->round) {
        fill_validation(loader, task, *id->round, rows, dp_rank, part);
      } else {
        fill_training(
            loader, id->step,
            std::span(samples).subspan(static_cast<std::size_t>(rows * dp_rank), static_cast<std::size_t>(rows)), part);
      }
    }
    const bool has_digest = task.has_digests && !id->round;
    ring.label(batch) = {.id = *id, .rows = rows, .digest = has_digest ? loader.digest(id->step) : 0};
    ring.publish(batch);
  }
}

}  // namespace ms::data
