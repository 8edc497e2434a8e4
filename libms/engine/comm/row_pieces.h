// The pieces of an all_to_all (communicator.h), which every implementation moves in its own way. Pure.
#pragma once

#include "comm/communicator.h"
#include "tensor/expert_slots.h"

namespace ms::comm {

// Calls f(to, from, bytes) for every piece that member `sender` of `members` has for `receiver`, in the same order
// wherever it is called: where in the receiver's `out` and in the sender's `in` it begins, in bytes. `offsets`: those
// of the request, where the host can read them.
template <class F>
void each_piece(const Request& request, const std::int32_t* offsets, int members, int sender, int receiver, F&& f) {
  const bool back = request.goes_back;
  const int owner = back ? receiver : sender, holder = back ? sender : receiver;
  const std::int64_t room = request.room(), experts = request.offsets.cols - 1;
  const std::int64_t part = request.gathers() && back ? holder * room : 0;  // of the receiver's parts, the sender's
  const auto piece = [&](std::int64_t own, std::int64_t held, std::int64_t rows) {
    const std::int64_t to = back ? own + part : held, from = back ? held : own;
    f(to * request.row_bytes, from * request.row_bytes, rows * request.row_bytes);
  };
  if (request.gathers()) {
    const tensor::GatheredSlots slots(offsets, members, request.offsets.rows / members, experts, room);
    slots.each_part(owner, request.holder, request.range, piece);
  } else {
    tensor::ExpertSlots(offsets, members, experts, room).each_part(owner, holder, request.range, piece);
  }
}

// Calls f(is_sent, peer, data, bytes) for every transfer of member `me`, also from and to itself, in an order that
// matches those of its peers.
template <class F>
void each_transfer(const Request& request, const std::int32_t* offsets, int members, int me, F&& f) {
  for (int k = 0; k < members; ++k) {
    each_piece(request, offsets, members, me, k, [&](std::int64_t, std::int64_t from, std::int64_t bytes) {
      f(true, k, request.in.data + from, static_cast<std::size_t>(bytes));
    });
    each_piece(request, offsets, members, k, me, [&](std::int64_t to, std::int64_t, std::int64_t bytes) {
      f(false, k, request.out.data + to, static_cast<std::size_t>(bytes));
    });
  }
}

}  // namespace ms::comm
