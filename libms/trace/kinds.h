// What a rank did, as traces name it; shared by those who write traces and those who read them. The numbers are part of
// the file format, ms-trace(5): new ones go to the end. Pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace ms::trace {

enum class Kind : std::uint8_t {
  other = 0,  // only the name says what
  // Of the host.
  step = 1,       // from the issue of a step to when its result was there
  data_wait = 2,  // waited for tokens
  save = 3,       // held up by a checkpoint
  // Sections of the compute stream.
  forward = 8,
  backward = 9,
  backward_input = 10,
  backward_weight = 11,
  optimizer = 12,
  other_compute = 13,
  // Messages.
  all_reduce = 16,
  reduce_scatter = 17,
  all_gather = 18,
  broadcast = 19,
  send = 20,
  recv = 21,
  barrier = 22,
  all_to_all = 23,
  other_message = 24,
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
inline constexpr int kKinds = 41;  // above all of them

std::string_view to_string(Kind kind);  // "all_gather"; "?" of a number that is none
constexpr bool is_host(Kind kind) { return kind >= Kind::step && kind <= Kind::save; }
constexpr bool is_section(Kind kind) { return kind >= Kind::forward && kind <= Kind::other_compute; }
constexpr bool is_message(Kind kind) { return kind >= Kind::all_reduce && kind <= Kind::other_message; }
constexpr bool is_op(Kind kind) { return kind >= Kind::matmul && kind <= Kind::init; }
// Between two ranks, not the same operation on both.
constexpr bool is_point_to_point(Kind kind) { return kind == Kind::send || kind == Kind::recv; }

// What for: the part of a step that something belongs to.
enum class Purpose : std::uint8_t {
  none = 0,
  forward = 1,
  backward = 2,
  params = 3,      // parameters are gathered over dp
  grads = 4,       // gradients are reduced over dp
  embedding = 5,   // the gradients of a shared embedding are summed over the pipeline's ends
  layernorm = 6,   // the gradients of replicated parameters are summed over tp
  clip = 7,        // loss and norm of the gradients are summed over all ranks
  optimizer = 8,   // the update
  evaluation = 9,  // validation loss, generated text
  checkpoint = 10,
};
inline constexpr int kPurposes = 11;
std::string_view to_string(Purpose purpose);  // "grads", "" of none

// Which communication: the axis of the mesh that a group lies on.
enum class GroupAxis : std::uint8_t { other, tp, dp, pp, world };
inline constexpr int kGroupAxes = 5;
std::string_view to_string(GroupAxis axis);
// By the name that the run gave the group: "tp[dp 0 pp 1]", "pp.fwd[dp 0 tp 1] 0>1", "world"; embedding pairs ("embed")
// lie on pp.
GroupAxis axis_of(std::string_view group_name);

}  // namespace ms::trace
