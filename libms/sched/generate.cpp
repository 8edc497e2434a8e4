#include "sched/generate.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "mesh/layers.h"

namespace ms::sched {
namespace {

using Compute = Row;  // a row of forward or backward; slot and channel come later

Compute forward(const Entry& entry) {
  return {.what = What::forward, .chunk = entry.chunk, .microbatch = entry.microbatch};
}
Compute backward(const Entry& entry) {
  return {.what = What::backward, .chunk = entry.chunk, .microbatch = entry.microbatch};
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

// The receive that a computation needs before it, if any.
std::optional<Row> receive_for(const Row& compute, int stage, int stages) {
  if (compute.what == What::forward && stage > 0) {
    return Row{.what = What::recv_forward, .chunk = compute.chunk, .microbatch = compute.microbatch};
  }
  if (compute.what == What::backward && stage < stages - 1) {
    return Row{.what = What::recv_backward, .chunk = compute.chunk, .microbatch = compute.microbatch};
  }
  return std::nullopt;
}

// The send that a computation allows after it, if any.
std::optional<Row> send_of(const Row& compute, int stage, int stages) {
  if (compute.what == What::forward && stage < stages - 1) {
    return Row{.what = What::send_forward, .chunk = compute.chunk, .microbatch = compute.microbatch};
  }
  if (compute.what == What::backward && stage > 0) {
    return Row{.what = What::send_backward, .chunk = compute.chunk, .microbatch = compute.microbatch};
  }
  return std::nullopt;
}

// The order of a rank's computations made whole: gathers first, in order of need; receives before and sends after the
// computations; a chunk's gradients reduced right after its last backward.
std::vector<Row> dress(const std::vector<Compute>& order, int rank, const Shape& shape, const Options& options) {
  std::vector<Row> rows;
  std::vector<bool> gathered(static_cast<std::size_t>(shape.chunks), false);
  std::vector<int> backwards_left(static_cast<std::size_t>(shape.chunks), shape.microbatches);
  for (const Compute& compute : order) {
    auto&& seen = gathered[static_cast<std::size_t>(compute.chunk)];
    if (!seen) rows.push_back({.what = What::gather_params, .chunk = compute.chunk});
    seen = true;
  }
  const auto receive = [&](std::size_t i) {
    return receive_for(order[i], mesh::stage_of(rank, order[i].chunk, shape.pp), shape.stages());
  };
  bool received = false;  // of the current computation, one turn ago
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Compute& compute = order[i];
    if (const auto row = receive(i); row && !received) rows.push_back(*row);
    received = false;
    if (options.early_receives && i + 1 < order.size()) {
      // Never ahead of the forward of the same microbatch: that is what takes the slot.
      const bool own_backward = order[i + 1].chunk == compute.chunk && order[i + 1].microbatch == compute.microbatch;
      if (const auto row = receive(i + 1); row && !own_backward) {
        rows.push_back(*row);
        received = true;
      }
    }
    rows.push_back(compute);
    if (const auto row = send_of(compute, mesh::stage_of(rank, compute.chunk, shape.pp), shape.stages())) {
      rows.push_back(*row);
    }
    if (compute.what == What::backward && --backwards_left[static_cast<std::size_t>(compute.chunk)] == 0) {
      rows.push_back({.what = What::reduce_grads, .chunk = compute.chunk});
    }
  }
  return rows;
}

// `ahead` forwards by `forwards`, then forward and backward in turn, then the backwards that are left.
std::vector<Compute> alternate(const std::vector<Entry>& forwards, const std::vector<Entry>& backwards, int ahead) {
  std::vector<Compute> order;
  const std::size_t warm_up = std::min(static_cast<std::size_t>(ahead), forwards.size());
  for (std::size_t k = 0; k < warm_up; ++k) order.push_back(forward(forwards[k]));
  for (std::size_t k = 0; k < backwards.size(); ++k) {
    if (warm_up + k < forwards.size()) order.push_back(forward(forwards[warm_up + k]));
    order.push_back(backward(backwards[k]));
  }
  return order;
}

template <class OrderOfRank>
Schedule build(const Shape& shape, const Options& options, OrderOfRank&& order_of_rank) {
  Schedule schedule{.shape = shape, .rows = {}, .slots = {}};
  for (int rank = 0; rank < shape.pp; ++rank) {
    schedule.rows.push_back(dress(order_of_rank(rank), rank, shape, options));
  }
  assign_slots(schedule);
  return schedule;
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
  if (name == "gpipe") {
    if (chunks != 1) {
      throw user_error("sched.shape", fmt::format("chunks is {}, but the schedule gpipe has no chunks", chunks),
                       "set chunks = 1, or schedule = \"1f1b\"");
    }
    return gpipe(pp, microbatches, options);
  }
  if (name == "1f1b") {
    return chunks == 1 ? one_f_one_b(pp, microbatches, options) : interleaved(pp, chunks, microbatches, {}, options);
  }
  throw user_error("sched.name", fmt::format("no pipeline schedule is called '{}'", name),
                   "schedules are gpipe and 1f1b, or a CSV file whose name ends in .csv");
}

}  // namespace ms::sched
