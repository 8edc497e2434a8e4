#include "sched/generate.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "sched/lower.h"
#include "sched/order.h"
#include "sched/registry.h"

namespace ms::sched {
namespace {

void check_shape(const Shape& shape) {
  const auto& [pp, chunks, microbatches, training] = shape;
  if (pp < 1 || chunks < 1 || microbatches < 1) {
    throw user_error("sched.shape",
                     fmt::format("a schedule needs at least one pp rank, chunk and microbatch, not pp {}, "
                                 "chunks {}, microbatches {}",
                                 pp, chunks, microbatches));
  }
  if (pp == 1 && chunks > 1) {
    throw user_error("sched.shape", fmt::format("chunks is {}, but with pp 1 it must be 1", chunks),
                     "chunks shorten the pipeline bubble, and one pp rank has none");
  }
  // Rows are numbered by an int.
  if (std::int64_t{chunks} * microbatches > std::numeric_limits<int>::max() / 2) {
    throw user_error("sched.shape", fmt::format("{} chunks x {} microbatches are too many", chunks, microbatches));
  }
}

template <class OrderOfRank>
Schedule build(const Shape& shape, const Options& options, OrderOfRank&& order_of_rank) {
  std::vector<std::vector<Row>> orders;
  for (int rank = 0; rank < shape.pp; ++rank) orders.push_back(order_of_rank(rank));
  return lower(orders, shape, options);
}

}  // namespace

Schedule make_schedule(std::string_view key, int pp, int chunks, int microbatches, const Options& options) {
  const Shape shape{.pp = pp, .chunks = chunks, .microbatches = microbatches};
  check_shape(shape);
  const ScheduleKind* kind = find_kind(key, chunks);
  if (kind == nullptr && !is_schedule(key)) {
    throw user_error("sched.name", fmt::format("no pipeline schedule is called '{}'", key),
                     fmt::format("schedules are {}, or a CSV file whose name ends in .csv", schedule_keys()));
  }
  if (kind == nullptr) {
    throw user_error("sched.shape", fmt::format("the schedule {} does not take chunks = {}", key, chunks),
                     "set another number of chunks, or another schedule");
  }
  if (const int rest = microbatches % pp; kind->whole_groups && rest != 0) {
    throw user_error(
        "sched.shape",
        fmt::format("{} microbatches with {} chunks are not a multiple of pp {}", microbatches, chunks, pp),
        fmt::format("use {} or {} microbatches, or chunks = 1", std::max(pp, microbatches - rest),
                    microbatches - rest + pp));
  }
  return build(shape, options, [&](int rank) { return kind->order(shape, rank); });
}

Schedule forward_only(int pp, int chunks, int microbatches, const Options& options) {
  const Shape shape{.pp = pp, .chunks = chunks, .microbatches = microbatches, .training = false};
  check_shape(shape);
  const std::vector<Entry> forwards = order_table(shape);
  return build(shape, options, [&](int) { return alternate(forwards, {}, std::ssize(forwards)); });
}

Schedule there_and_back(int pp, int chunks, const Options& options) {
  const Shape shape{.pp = pp, .chunks = chunks, .microbatches = 1};
  check_shape(shape);
  const std::vector<Entry> forwards = order_table(shape), backwards(forwards.rbegin(), forwards.rend());
  return build(shape, options, [&](int) { return alternate(forwards, backwards, std::ssize(forwards)); });
}

}  // namespace ms::sched
