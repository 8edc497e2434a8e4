#include "sched/lower.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "mesh/layers.h"

namespace ms::sched {
namespace {

using Orders = std::vector<std::vector<Row>>;
using Starts = std::vector<std::vector<int>>;  // [rank][computation]

constexpr int kUnknown = std::numeric_limits<int>::min();

// Hands a result over to another stage, in the direction of the backward.
bool is_gradient(Action action) { return action == Action::backward || action == Action::backward_input; }

// Who makes what a computation receives, and who receives what it makes.
class Neighbours {
 public:
  Neighbours(const Orders& orders, const Shape& shape) : shape_(shape) {
    const auto cells = static_cast<std::size_t>(shape.stages()) * static_cast<std::size_t>(shape.microbatches);
    forward_.assign(cells, kNone);
    gradient_ = forward_;
    for (int rank = 0; rank < shape.pp; ++rank) {
      const std::vector<Row>& order = orders[static_cast<std::size_t>(rank)];
      for (int i = 0; i < std::ssize(order); ++i) {
        const Row& row = order[static_cast<std::size_t>(i)];
        const std::size_t at = cell_of(mesh::stage_of(rank, row.chunk, shape.pp), row.microbatch);
        if (row.action == Action::forward) forward_[at] = i;
        if (is_gradient(row.action)) gradient_[at] = i;
      }
    }
  }

  struct Place {
    int rank = kNone, index = kNone;  // kNone: there is nobody
    explicit operator bool() const { return index != kNone; }
  };
  Place producer(int rank, const Row& row) const { return along(rank, row, -1); }
  Place consumer(int rank, const Row& row) const { return along(rank, row, 1); }

 private:
  std::size_t cell_of(int stage, int microbatch) const {
    return static_cast<std::size_t>(stage) * static_cast<std::size_t>(shape_.microbatches) +
           static_cast<std::size_t>(microbatch);
  }
  // One stage on or back in the direction of what `row` computes.
  Place along(int rank, const Row& row, int steps) const {
    const bool forward = row.action == Action::forward;
    if (!forward && !is_gradient(row.action)) return {};
    const int stage = mesh::stage_of(rank, row.chunk, shape_.pp) + (forward ? steps : -steps);
    if (stage < 0 || stage >= shape_.stages()) return {};
    return {mesh::pp_rank_of(stage, shape_.pp), (forward ? forward_ : gradient_)[cell_of(stage, row.microbatch)]};
  }

  const Shape& shape_;
  std::vector<int> forward_, gradient_;  // [stage][microbatch]: place in its rank's order
};

// By computation, the number of the exchange of a coupled rank that it stands before: 0, 0, 1 means that two
// computations follow each other without one. Where chunks are interleaved, the forward and the backward that alternate
// are such a pair: a forward that had to be exchanged at once would meet a rank in the middle of its longer backward.
std::vector<int> exchanges_of(const std::vector<Row>& order, const Shape& shape) {
  const auto is = [](Action action) { return [action](const Row& row) { return row.action == action; }; };
  const auto first_backward = std::ranges::find_if(order, is(Action::backward));
  const bool alternates =
      shape.chunks > 1 && std::find_if(first_backward, order.end(), is(Action::forward)) != order.end();
  std::vector<int> numbers;
  bool in_pair = false;
  for (std::size_t i = 0; i < order.size(); ++i) {
    in_pair = alternates && i > 0 && !in_pair && order[i].action == Action::backward &&
              order[i - 1].action == Action::forward;
    numbers.push_back(i == 0 ? 0 : numbers.back() + (in_pair ? 0 : 1));
  }
  return numbers;
}

// When the computations start if each takes one unit (and so do pairs), transfers none, and everything happens as late
// as it can: the last ones at 0, those before at negative times.
Starts latest_starts(const Orders& orders, const Shape& shape, const Neighbours& neighbours) {
  Starts starts;
  std::vector<std::vector<int>> exchanges;
  std::vector<std::size_t> left;
  for (const std::vector<Row>& order : orders) {
    starts.emplace_back(order.size(), kUnknown);
    exchanges.push_back(exchanges_of(order, shape));
    left.push_back(order.size());
  }
  // When what starts before one exchange does, if that is known: those computations are [first, end).
  const auto start_of = [&](std::size_t rank, std::size_t first, std::size_t end) {
    int start = end == orders[rank].size() ? 0 : starts[rank][end] - 1;
    for (std::size_t i = first; i < end; ++i) {
      const auto consumer = neighbours.consumer(static_cast<int>(rank), orders[rank][i]);
      if (!consumer) continue;
      const int used = starts[static_cast<std::size_t>(consumer.rank)][static_cast<std::size_t>(consumer.index)];
      if (used == kUnknown) return kUnknown;
      start = std::min(start, used - 1);
    }
    return start;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < orders.size(); ++rank) {
      while (left[rank] > 0) {
        const std::size_t end = left[rank];
        std::size_t first = end - 1;
        while (first > 0 && exchanges[rank][first - 1] == exchanges[rank][first]) --first;
        const int start = start_of(rank, first, end);
        if (start == kUnknown) break;
        for (std::size_t i = first; i < end; ++i) starts[rank][i] = start;
        left[rank] = first;
        moved = true;
      }
    }
  }
  for (const std::size_t count : left) MS_ASSERT(count == 0, "the orders of the ranks cannot come to an end");
  return starts;
}

struct Transfers {
  std::vector<Row> receives_first;  // before the send of the computation above
  std::vector<Row> receives;
};
using Gaps = std::vector<Transfers>;  // [i]: between computation i - 1 and i of a rank

Row receive_of(const Row& compute) {
  return {.action = compute.action == Action::forward ? Action::recv_forward : Action::recv_backward,
          .chunk = compute.chunk,
          .microbatch = compute.microbatch};
}

// One computation early, but never ahead of the forward of the same microbatch: that is what takes the slot.
Gaps early_receives(const std::vector<Row>& order, int rank, const Neighbours& neighbours) {
  Gaps gaps(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (!neighbours.producer(rank, order[i])) continue;
    const bool after_own =
        i > 0 && order[i - 1].chunk == order[i].chunk && order[i - 1].microbatch == order[i].microbatch;
    gaps[i == 0 || after_own ? i : i - 1].receives.push_back(receive_of(order[i]));
  }
  return gaps;
}

// Each where its sender stands in the run of latest_starts. A transfer of that run takes place when the computation
// (or pair) that it follows ends, and no computation is under way then, since all take one unit. So coupled executors,
// where a transfer holds up both sides, can all follow the run: a row waits only for rows of an earlier time, or of the
// same time and, of these, sends wait for no other transfer. That needs the receives of the time at which a send is
// made to stand before it. With one chunk two may stand behind it where that saves a slot, since it breaks no chain:
// that of a forward behind the send of a gradient (the receive which that one meets stands first), and behind the send
// of a forward, since the last rank sends none.
Gaps coupled_receives(const std::vector<Row>& order, int rank, const Shape& shape, const Neighbours& neighbours,
                      const Starts& starts) {
  struct Arrival {
    int time;
    const Row* compute;
  };
  const std::vector<int>& mine = starts[static_cast<std::size_t>(rank)];
  std::vector<std::vector<Arrival>> arrivals(order.size());
  for (const Row& compute : order) {
    const auto producer = neighbours.producer(rank, compute);
    if (!producer) continue;
    const int time = starts[static_cast<std::size_t>(producer.rank)][static_cast<std::size_t>(producer.index)] + 1;
    const auto next = std::lower_bound(mine.begin(), mine.end(), time) - mine.begin();
    arrivals[static_cast<std::size_t>(next)].push_back({time, &compute});
  }
  Gaps gaps(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto is_forward = [](const Arrival& arrival) { return arrival.compute->action == Action::forward; };
    std::sort(arrivals[i].begin(), arrivals[i].end(), [&](const Arrival& a, const Arrival& b) {
      return a.time != b.time ? a.time < b.time : is_forward(a) < is_forward(b);
    });
    for (const Arrival& arrival : arrivals[i]) {
      const bool meets_send = i > 0 && arrival.time == mine[i - 1] + 1;
      const bool first = meets_send && (!is_forward(arrival) || shape.chunks > 1);
      (first ? gaps[i].receives_first : gaps[i].receives).push_back(receive_of(*arrival.compute));
    }
  }
  return gaps;
}

// Places of dp's collectives: by computation, the chunks to gather before it and to reduce after it.
struct Parameters {
  std::vector<std::vector<int>> gathers, reductions;
};

Parameters place_parameters(const std::vector<Row>& order, int rank, const Shape& shape, bool spread) {
  constexpr std::size_t kPrefetched = 2;  // chunks
  const std::size_t skew = spread ? static_cast<std::size_t>(rank) : 0;
  Parameters parameters{std::vector<std::vector<int>>(order.size()), std::vector<std::vector<int>>(order.size())};
  std::vector<bool> gathered(static_cast<std::size_t>(shape.chunks), false);
  std::vector<int> left(static_cast<std::size_t>(shape.chunks), shape.microbatches);
  std::size_t gathers = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto chunk = static_cast<std::size_t>(order[i].chunk);
    if (!gathered[chunk]) {
      gathered[chunk] = true;
      const std::size_t lead = 1 + skew;
      const bool at_start = !spread || gathers < kPrefetched || i < lead;
      parameters.gathers[at_start ? 0 : i - lead].push_back(order[i].chunk);
      ++gathers;
    }
    const bool last_of_backward = order[i].action == Action::backward || order[i].action == Action::backward_weight;
    if (last_of_backward && --left[chunk] == 0) {
      const std::size_t last = order.size() - 1;
      parameters.reductions[spread ? std::min(i + skew, last) : last].push_back(order[i].chunk);
    }
  }
  return parameters;
}

}  // namespace

Schedule lower(const Orders& orders, const Shape& shape, const Options& options) {
  const Neighbours neighbours(orders, shape);
  const Starts starts = options.early_receives ? Starts{} : latest_starts(orders, shape, neighbours);
  Schedule schedule{.shape = shape, .rows = {}, .slots = {}};
  for (int rank = 0; rank < shape.pp; ++rank) {
    const std::vector<Row>& order = orders[static_cast<std::size_t>(rank)];
    const Gaps gaps = options.early_receives ? early_receives(order, rank, neighbours)
                                             : coupled_receives(order, rank, shape, neighbours, starts);
    const Parameters parameters = place_parameters(order, rank, shape, options.spread_parameters);
    const std::vector<int> exchanges = exchanges_of(order, shape);
    std::vector<Row>& rows = schedule.rows.emplace_back();
    std::vector<Row> sends;
    const auto add = [&](const std::vector<Row>& more) { rows.insert(rows.end(), more.begin(), more.end()); };
    for (std::size_t i = 0; i < order.size(); ++i) {
      for (const int chunk : parameters.gathers[i]) rows.push_back({.action = Action::gather_params, .chunk = chunk});
      add(gaps[i].receives);
      rows.push_back(order[i]);
      if (neighbours.consumer(rank, order[i])) {
        sends.push_back({.action = order[i].action == Action::forward ? Action::send_forward : Action::send_backward,
                         .chunk = order[i].chunk,
                         .microbatch = order[i].microbatch});
      }
      const bool last_of_pair = i + 1 == order.size() || exchanges[i + 1] != exchanges[i];
      if (options.early_receives || last_of_pair) {
        if (i + 1 < order.size()) add(gaps[i + 1].receives_first);
        add(std::exchange(sends, {}));
      }
      for (const int chunk : parameters.reductions[i]) rows.push_back({.action = Action::reduce_grads, .chunk = chunk});
    }
  }
  assign_slots(schedule);
  return schedule;
}

}  // namespace ms::sched
