// ZB-H1 (Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 2), a row of sched/registry.h: 1F1B
// with split backwards. The previous rank waits for the input half only. Rank r runs r weight halves late; it does them
// at the end, where 1F1B would be idle. No rank keeps more microbatches than the first does in 1F1B.
#include <algorithm>

#include "sched/order.h"
#include "sched/registry.h"

namespace ms::sched {
namespace {

std::vector<Row> zero_bubble_order(const Shape& shape, int rank) {
  const int microbatches = shape.microbatches;
  std::vector<Row> order;
  const auto add = [&](Action action, int microbatch) { order.push_back(computation(action, {0, microbatch})); };
  const int ahead = std::min(shape.pp - rank - 1, microbatches), behind = std::min(rank, microbatches);
  for (int m = 0; m < ahead; ++m) add(Action::forward, m);
  for (int m = 0; m < microbatches; ++m) {
    if (ahead + m < microbatches) add(Action::forward, ahead + m);
    add(Action::backward_input, m);
    if (m >= behind) add(Action::backward_weight, m - behind);
  }
  for (int m = microbatches - behind; m < microbatches; ++m) add(Action::backward_weight, m);
  return order;
}

// Exact where t_w <= min(t_f, t_i), as in the paper where t_f = t_i = t_w: the last rank does all forwards and input
// halves but only those weight halves that memory forces on it, then the last gradient goes back through pp - 1 ranks.
// With longer t_w it is a lower bound, 1F1B's bubble the upper one.
double bubble(const Shape& shape, const Times& times) {
  const double weight = times.backward * times.weight_share, input = times.backward - weight;
  return (shape.pp - 1) * (times.forward + input) - (std::min(shape.pp, shape.microbatches) - 1) * weight;
}

}  // namespace

extern const ScheduleKind kZeroBubbleH1{.key = "zb-h1",
                                        .name = "zb-h1",
                                        .doc = "1f1b with a split backward, whose weight gradients fill the bubble",
                                        .splits_backward = true,
                                        .order = zero_bubble_order,
                                        .bubble = bubble};

}  // namespace ms::sched
