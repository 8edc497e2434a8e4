// 1F1B, a row of sched/registry.h: rank r runs min(pp - r - 1, microbatches) forwards ahead, then alternates between
// forwards and backwards. It keeps the activations of at most min(pp - r, microbatches) microbatches.
#include "sched/order.h"
#include "sched/registry.h"

namespace ms::sched {
namespace {

std::vector<Row> one_f_one_b_order(const Shape& shape, int rank) {
  const std::vector<Entry> entries = order_table(shape);
  return alternate(entries, entries, shape.pp - rank - 1);
}

}  // namespace

extern const ScheduleKind kOneForwardOneBackward{.key = "1f1b",
                                                 .name = "1f1b",
                                                 .doc = "one forward, one backward",
                                                 .order = one_f_one_b_order,
                                                 .bubble = fill_and_drain};

}  // namespace ms::sched
