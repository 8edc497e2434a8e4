#include "sched/order.h"

#include <algorithm>

namespace ms::sched {

std::vector<Entry> order_table(const Shape& shape) {
  std::vector<Entry> table;
  for (int first = 0; first < shape.microbatches; first += shape.pp) {
    const int end = first + std::min(shape.pp, shape.microbatches - first);
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      for (int microbatch = first; microbatch < end; ++microbatch) table.push_back({chunk, microbatch});
    }
  }
  return table;
}

Row computation(Action action, const Entry& entry) {
  return {.action = action, .chunk = entry.chunk, .microbatch = entry.microbatch};
}

std::vector<Row> alternate(const std::vector<Entry>& forwards, const std::vector<Entry>& backwards,
                           std::int64_t ahead) {
  std::vector<Row> order;
  const auto warm_up = static_cast<std::size_t>(std::min<std::int64_t>(ahead, std::ssize(forwards)));
  for (std::size_t k = 0; k < warm_up; ++k) order.push_back(computation(Action::forward, forwards[k]));
  for (std::size_t k = 0; k < backwards.size(); ++k) {
    if (warm_up + k < forwards.size()) order.push_back(computation(Action::forward, forwards[warm_up + k]));
    order.push_back(computation(Action::backward, backwards[k]));
  }
  return order;
}

double fill_and_drain(const Shape& shape, const Times& times) {
  return (shape.pp - 1) * (times.forward + times.backward) / shape.chunks;
}

}  // namespace ms::sched
