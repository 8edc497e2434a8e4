// Interleaved 1F1B (Narayanan et al., arXiv 2104.04473), a row of sched/registry.h: microbatches are taken in groups of
// pp, and each rank runs its chunks in turn. Chunks divide the bubble; the first rank keeps up to
// pp (1 + (pp - 1) / (pp chunks)) microbatches' worth of a full stage.
#include "sched/order.h"
#include "sched/registry.h"

namespace ms::sched {
namespace {

std::vector<Row> interleaved_order(const Shape& shape, int rank) {
  const std::vector<Entry> forwards = order_table(shape);
  std::vector<Entry> backwards = forwards;
  for (Entry& entry : backwards) entry.chunk = shape.chunks - 1 - entry.chunk;
  return alternate(forwards, backwards,
                   std::int64_t{shape.pp - rank - 1} * 2 + std::int64_t{shape.chunks - 1} * shape.pp);
}

}  // namespace

extern const ScheduleKind kInterleaved{.key = "1f1b",
                                       .name = "interleaved",
                                       .doc = "the same with mesh.chunks above 1, for a shorter bubble",
                                       .interleaves = true,
                                       .whole_groups = true,
                                       .order = interleaved_order,
                                       .bubble = fill_and_drain};

}  // namespace ms::sched
