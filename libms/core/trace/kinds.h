// The kinds of trace events, for the writing and the reading side. The numbers are part of the file format ms-trace(5):
// append new ones. Pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace ms::trace {

enum class Kind : std::uint8_t {
  other = 0,      // described by its name only
                  // On the host.
  step = 1,       // from the issue of a step until its result is available
  data_wait = 2,  // waiting for tokens
  save = 3,       // blocked by a checkpoint
  // Sections of the compute stream.
  forward = 8,
  backward = 9,
  backward_input = 10,
  backward_weight = 11,
  optimizer = 12,
  other_compute = 13,
  // Communication.
  all_reduce = 16,
  reduce_scatter = 17,
  all_gather = 18,
  broadcast = 19,
  send = 20,
  recv = 21,
  barrier = 22,
  all_to_all = 23,
  other_comm = 24,
  // Single ops, by class.
  matmul = 32,
  attention = 33,
  norm = 34,
  activation = 35,
  embedding = 36,
  loss = 37,
  elementwise = 38,
  update = 39,
  init = 40,
};
inline constexpr int kKinds = 41;  // one more than the largest value

std::string_view to_string(Kind kind);  // "all_gather"; "?" if invalid
constexpr bool is_host(Kind kind) { return kind >= Kind::step && kind <= Kind::save; }
constexpr bool is_section(Kind kind) { return kind >= Kind::forward && kind <= Kind::other_compute; }
constexpr bool is_comm(Kind kind) { return kind >= Kind::all_reduce && kind <= Kind::other_comm; }
constexpr bool is_op(Kind kind) { return kind >= Kind::matmul && kind <= Kind::init; }
// Point-to-point transfers: the two ranks issue different operations.
constexpr bool is_point_to_point(Kind kind) { return kind == Kind::send || kind == Kind::recv; }

// The part of a step that an event belongs to.
enum class Purpose : std::uint8_t {
  none = 0,
  forward = 1,
  backward = 2,
  params = 3,      // all-gather of parameters over dp
  grads = 4,       // reduce-scatter or all-reduce of gradients over dp
  embedding = 5,   // all-reduce of a tied embedding's gradients over the pipeline's ends
  layernorm = 6,   // all-reduce of replicated parameters' gradients over tp
  clip = 7,        // all-reduce of loss and gradient norm over all ranks
  optimizer = 8,   // the update
  evaluation = 9,  // validation loss, generated text
  checkpoint = 10,
};
inline constexpr int kPurposes = 11;
std::string_view to_string(Purpose purpose);  // "grads"; "" for none

// The axis of the mesh that a group lies on.
enum class GroupAxis : std::uint8_t { other, tp, dp, pp, world };
inline constexpr int kGroupAxes = 5;
std::string_view to_string(GroupAxis axis);
// Derives the axis from the group's name: "tp[dp 0 pp 1]", "pp.fwd[dp 0 tp 1] 0>1", "world"; embedding pairs ("embed")
// lie on pp, and ranks that hold the same experts ("edp") on dp.
GroupAxis axis_of(std::string_view group_name);

}  // namespace ms::trace
