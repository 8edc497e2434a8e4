#include "sched/generate.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "sched/dress.h"

namespace ms::sched {
namespace {

Row compute(What what, const Entry& entry) {
  return {.what = what, .chunk = entry.chunk, .microbatch = entry.microbatch};
}

void check_shape(int pp, int chunks, int microbatches) {
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
  // The order table counts chunk forwards in an int.
  if (std::int64_t{chunks} * microbatches > std::numeric_limits<int>::max() / 2) {
    throw user_error("sched.shape", fmt::format("{} chunks x {} microbatches are too many", chunks, microbatches));
  }
}

// `ahead` forwards by `forwards`, then forward and backward in turn, then the backwards that are left.
std::vector<Row> alternate(const std::vector<Entry>& forwards, const std::vector<Entry>& backwards, int ahead) {
  std::vector<Row> order;
  const std::size_t warm_up = std::min(static_cast<std::size_t>(ahead), forwards.size());
  for (std::size_t k = 0; k < warm_up; ++k) order.push_back(compute(What::forward, forwards[k]));
  for (std::size_t k = 0; k < backwards.size(); ++k) {
    if (warm_up + k < forwards.size()) order.push_back(compute(What::forward, forwards[warm_up + k]));
    order.push_back(compute(What::backward, backwards[k]));
  }
  return order;
}

template <class OrderOfRank>
Schedule build(const Shape& shape, const Options& options, OrderOfRank&& order_of_rank) {
  std::vector<std::vector<Row>> orders;
  for (int rank = 0; rank < shape.pp; ++rank) orders.push_back(order_of_rank(rank));
  return dress(orders, shape, options);
}

}  // namespace

std::vector<Entry> order_table(int chunks, int microbatches, int group) {
  MS_ASSERT(chunks >= 1 && microbatches >= 1 && group >= 1, "an order of {} chunks, {} microbatches, groups of {}",
            chunks, microbatches, group);
  std::vector<Entry> table;
  for (int first = 0; first < microbatches; first += group) {
    const int end = group < microbatches - first ? first + group : microbatches;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int microbatch = first; microbatch < end; ++microbatch) table.push_back({chunk, microbatch});
    }
    if (end == microbatches) break;
  }
  return table;
}

Schedule gpipe(int pp, int microbatches, Options options) {
  check_shape(pp, 1, microbatches);
  const std::vector<Entry> entries = order_table(1, microbatches, pp);
  return build({.pp = pp, .chunks = 1, .microbatches = microbatches}, options,
               [&](int) { return alternate(entries, entries, microbatches); });
}

Schedule one_f_one_b(int pp, int microbatches, Options options) {
  check_shape(pp, 1, microbatches);
  const std::vector<Entry> entries = order_table(1, microbatches, pp);
  return build({.pp = pp, .chunks = 1, .microbatches = microbatches}, options,
               [&](int rank) { return alternate(entries, entries, pp - rank - 1); });
}

Schedule zero_bubble_h1(int pp, int microbatches, Options options) {
  check_shape(pp, 1, microbatches);
  return build({.pp = pp, .chunks = 1, .microbatches = microbatches}, options, [&](int rank) {
    std::vector<Row> order;
    const auto add = [&](What what, int microbatch) { order.push_back(compute(what, {0, microbatch})); };
    const int ahead = std::min(pp - rank - 1, microbatches), behind = std::min(rank, microbatches);
    for (int m = 0; m < ahead; ++m) add(What::forward, m);
    for (int m = 0; m < microbatches; ++m) {
      if (ahead + m < microbatches) add(What::forward, ahead + m);
      add(What::backward_input, m);
      if (m >= behind) add(What::backward_weight, m - behind);
    }
    for (int m = microbatches - behind; m < microbatches; ++m) add(What::backward_weight, m);
    return order;
  });
}

Schedule interleaved(int pp, int chunks, int microbatches, std::optional<int> group, Options options) {
  check_shape(pp, chunks, microbatches);
  const int size = group.value_or(pp);
  if (chunks == 1) { throw user_error("sched.shape", "an interleaved schedule needs chunks of at least 2"); }
  if (size < pp) {
    throw user_error("sched.shape", fmt::format("a group of {} microbatches is smaller than pp {}", size, pp));
  }
  if (const int rest = microbatches % size; size == pp && rest != 0) {
    throw user_error("sched.shape",
                     fmt::format("{} microbatches with {} chunks are no multiple of pp {}", microbatches, chunks, pp),
                     fmt::format("use {} or {} microbatches, or chunks = 1", std::max(pp, microbatches - rest),
                                 microbatches - rest + pp));
  } else if (rest != 0 && rest < pp) {
    throw user_error("sched.shape",
                     fmt::format("{} microbatches in groups of {} leave a last group of {}, smaller than pp {}",
                                 microbatches, size, rest, pp));
  }
  const std::vector<Entry> forwards = order_table(chunks, microbatches, size);
  std::vector<Entry> backwards = forwards;
  for (Entry& entry : backwards) entry.chunk = chunks - 1 - entry.chunk;
  return build({.pp = pp, .chunks = chunks, .microbatches = microbatches}, options, [&](int rank) {
    const std::int64_t ahead = std::int64_t{pp - rank - 1} * 2 + std::int64_t{chunks - 1} * size;
    return alternate(forwards, backwards, static_cast<int>(std::min<std::int64_t>(ahead, std::ssize(forwards))));
  });
}

Schedule forward_only(int pp, int chunks, int microbatches, Options options) {
  check_shape(pp, chunks, microbatches);
  const std::vector<Entry> forwards = order_table(chunks, microbatches, pp);
  return build({.pp = pp, .chunks = chunks, .microbatches = microbatches, .training = false}, options,
               [&](int) { return alternate(forwards, {}, static_cast<int>(forwards.size())); });
}

Schedule make_schedule(std::string_view name, int pp, int chunks, int microbatches, Options options) {
  if (name == "1f1b") {
    return chunks == 1 ? one_f_one_b(pp, microbatches, options) : interleaved(pp, chunks, microbatches, {}, options);
  }
  if (name != "gpipe" && name != "zb-h1") {
    throw user_error("sched.name", fmt::format("no pipeline schedule is called '{}'", name),
                     "schedules are 1f1b, zb-h1 and gpipe, or a CSV file whose name ends in .csv");
  }
  if (chunks != 1) {
    throw user_error("sched.shape", fmt::format("chunks is {}, but the schedule {} has no chunks", chunks, name),
                     "set chunks = 1, or schedule = \"1f1b\"");
  }
  return name == "gpipe" ? gpipe(pp, microbatches, options) : zero_bubble_h1(pp, microbatches, options);
}

}  // namespace ms::sched
