// GPipe, a row of sched/registry.h: all forwards, then all backwards. Every rank keeps the activations of all
// microbatches, and the bubble is that of 1F1B.
#include "sched/order.h"
#include "sched/registry.h"

namespace ms::sched {
namespace {

std::vector<Row> gpipe_order(const Shape& shape, int) {
  const std::vector<Entry> entries = order_table(shape);
  return alternate(entries, entries, shape.microbatches);
}

}  // namespace

extern const ScheduleKind kGpipe{.key = "gpipe",
                                 .name = "gpipe",
                                 .doc = "all forwards, then all backwards",
                                 .tuned = false,  // 1f1b is as fast with less memory
                                 .order = gpipe_order,
                                 .bubble = fill_and_drain};

}  // namespace ms::sched
