// A set of point-to-point transfers that are posted together, with one notification when all are done. No MPI type
// appears here.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/inquiry.h"

namespace ms::comm {

enum class TransferKind : std::uint8_t {
  send,          // done when the buffer may be reused
  matched_send,  // done when the peer has begun to receive
  recv
};

struct Transfer {
  TransferKind kind;
  int peer;  // global rank
  std::byte* data;
  std::int64_t size_bytes;
};

struct Exchange {
  enum class State { pending, complete, failed };

  // The operation that the exchange belongs to, for error messages.
  Request request;
  std::shared_ptr<const Group> group;
  bool closes_world = false;  // the last exchange; begins after published values have been sent
  std::string label = {};     // what() of a wait that is no operation of the group

  std::vector<Transfer> transfers;  // between two ranks in the same order on both
  std::function<void()> notify;     // called once, by the service thread, after state has changed
  std::atomic<State> state = State::pending;

  // Used by the service thread only.
  std::vector<bool> done;  // by transfer
  std::size_t left = 0;
  std::chrono::steady_clock::time_point posted;

  std::string what() const;  // describes the operation, for error messages
  // Returns the peers of unfinished transfers, each once, in ascending order.
  std::vector<int> awaited() const;
  Wait as_wait() const;  // leaves `peer` unset
  // Sets the final state and notifies. May destroy the exchange's owner.
  void settle(State end);
};

// Returns an exchange of `rank` with all other members of the group, which another backend carries: nothing is to be
// transferred, and the service only watches its deadline.
std::shared_ptr<Exchange> exchange_with_all(const Request& request, std::shared_ptr<const Group> group, int rank);

using Exchanges = std::vector<std::shared_ptr<Exchange>>;

}  // namespace ms::comm
