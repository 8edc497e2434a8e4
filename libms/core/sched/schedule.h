// Pipeline schedules are data: for every pp rank a list of rows, each one thing to do, in the order in which the rank
// issues them. The executor only obeys rows; the checker, the simulator and the CSV format read the same table. Pure.
//
// Words: virtual stage s of pp * chunks lives on pp rank s mod pp as chunk s div pp (mesh/layers.h). A microbatch goes
// forward through all virtual stages in order, then backward. Issuing never blocks: compute and each channel are
// streams of their own, and a row waits only for its own stream and for the rows it depends on (checker.h lists those).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mesh/mesh.h"

namespace ms::sched {

using mesh::Channel;

inline constexpr int kNone = -1;  // of a field that the row's kind does not have

enum class Action : std::uint8_t {
  recv_forward,     // activations of (chunk, microbatch) from the previous virtual stage, into its slot
  forward,          // compute
  send_forward,     // the result to the next virtual stage
  recv_backward,    // gradient of that result, from the next virtual stage
  backward,         // compute, all of it; frees the activations of the slot
  backward_input,   // the half that the previous stage waits for: the gradient of the received activations
  backward_weight,  // the other half, any time later: the gradients of the weights; frees the activations of the slot
  send_backward,    // gradient of the received activations to the previous virtual stage
  gather_params,    // parameters of the chunk are all-gathered over dp
  reduce_grads,     // gradients of the chunk are reduce-scattered over dp
};
std::string_view to_string(Action action);
// The mesh::Channel of a send or receive; kNone of the other kinds.
int channel_of(Action action);

struct Row {
  Action action = Action::forward;
  int chunk = 0;
  int microbatch = kNone;  // not of gather_params, reduce_grads
  // Where (chunk, microbatch) keeps its activations on this rank: the same on all its rows. The chunks of a rank share
  // its slots, numbered from 0; one is taken by the first row of a (chunk, microbatch) and free for others after its
  // last.
  int slot = kNone;
  // The channel of a send or receive, numbered as mesh::Channel: 0 forward-in, 1 forward-out, 2 backward-in,
  // 3 backward-out. kNone for other rows.
  int channel = kNone;

  bool is_compute() const {
    return action == Action::forward || action == Action::backward || action == Action::backward_input ||
           action == Action::backward_weight;
  }
  bool is_transfer() const { return channel != kNone; }
  bool operator==(const Row&) const = default;
};

// "F0.3", "SB1.2", "G0": the cell of csv.h.
std::string cell(const Row& row);

struct Shape {
  int pp = 1, chunks = 1, microbatches = 1;
  bool training = true;  // false: forward only, no backward and no reduce_grads rows

  int stages() const { return pp * chunks; }
  bool operator==(const Shape&) const = default;
};

// Durations of a full stage, all its chunks together; a chunk takes 1/chunks of it. A transfer takes its time
// whatever the chunks. Gathers and reductions take none.
struct Times {
  double forward = 1.0, backward = 2.0;
  double weight_share = 0.5;  // of backward: what backward_weight takes; backward_input takes the rest
  double transfer = 0.0;      // from when both sides have been reached
};

struct Schedule {
  Shape shape;
  std::vector<std::vector<Row>> rows;  // [pp rank]
  std::vector<int> slots;              // [pp rank]: how many the rank needs

  bool operator==(const Schedule&) const = default;
};

// Fills in slot and channel of every row, and the slot counts: each (chunk, microbatch) takes the slot that has been
// free the longest, or a new one if none is, which needs as few slots as the order of rows allows. For generators and
// parsers.
void assign_slots(Schedule& schedule);

}  // namespace ms::sched
