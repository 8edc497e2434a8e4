#include "sched/schedule.h"

#include <deque>
#include <map>
#include <utility>

#include "base/error.h"

namespace ms::sched {

int channel_of(Action action) {
  switch (action) {
    case Action::recv_forward: return static_cast<int>(Channel::forward_in);
    case Action::send_forward: return static_cast<int>(Channel::forward_out);
    case Action::recv_backward: return static_cast<int>(Channel::backward_in);
    case Action::send_backward: return static_cast<int>(Channel::backward_out);
    default: return kNone;
  }
}

std::string_view to_string(Action action) {
  switch (action) {
    case Action::recv_forward: return "recv_forward";
    case Action::forward: return "forward";
    case Action::send_forward: return "send_forward";
    case Action::recv_backward: return "recv_backward";
    case Action::backward: return "backward";
    case Action::backward_input: return "backward_input";
    case Action::backward_weight: return "backward_weight";
    case Action::send_backward: return "send_backward";
    case Action::gather_params: return "gather_params";
    case Action::reduce_grads: return "reduce_grads";
  }
  return "?";
}

std::string cell(const Row& row) {
  switch (row.action) {
    case Action::recv_forward: return fmt::format("RF{}.{}", row.chunk, row.microbatch);
    case Action::forward: return fmt::format("F{}.{}", row.chunk, row.microbatch);
    case Action::send_forward: return fmt::format("SF{}.{}", row.chunk, row.microbatch);
    case Action::recv_backward: return fmt::format("RB{}.{}", row.chunk, row.microbatch);
    case Action::backward: return fmt::format("B{}.{}", row.chunk, row.microbatch);
    case Action::backward_input: return fmt::format("I{}.{}", row.chunk, row.microbatch);
    case Action::backward_weight: return fmt::format("W{}.{}", row.chunk, row.microbatch);
    case Action::send_backward: return fmt::format("SB{}.{}", row.chunk, row.microbatch);
    case Action::gather_params: return fmt::format("G{}", row.chunk);
    case Action::reduce_grads: return fmt::format("D{}", row.chunk);
  }
  return "?";
}

void assign_slots(Schedule& schedule) {
  schedule.slots.assign(schedule.rows.size(), 0);
  for (std::size_t rank = 0; rank < schedule.rows.size(); ++rank) {
    std::vector<Row>& rows = schedule.rows[rank];
    std::map<std::pair<int, int>, std::size_t> last;  // (chunk, microbatch) -> its last row
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].microbatch != kNone) last[{rows[i].chunk, rows[i].microbatch}] = i;
    }
    std::map<std::pair<int, int>, int> held;  // (chunk, microbatch) -> slot
    std::deque<int> free;                     // the longest first
    for (std::size_t i = 0; i < rows.size(); ++i) {
      Row& row = rows[i];
      row.channel = channel_of(row.action);
      row.slot = kNone;
      if (row.microbatch == kNone) continue;
      const std::pair key{row.chunk, row.microbatch};
      const auto [holder, is_first] = held.try_emplace(key, kNone);
      if (is_first) {
        if (free.empty()) free.push_back(schedule.slots[rank]++);
        holder->second = free.front();
        free.pop_front();
      }
      row.slot = holder->second;
      if (last[key] == i) {
        free.push_back(row.slot);
        held.erase(holder);
      }
    }
  }
}

}  // namespace ms::sched
