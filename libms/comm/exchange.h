// A set of messages to and from peers, all of them posted together, with one notice when all are done. No MPI type
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

enum class Way : std::uint8_t {
  send,          // done when the data may be changed
  matched_send,  // done when the peer has begun to receive it
  recv
};

struct Message {
  Way way;
  int peer;  // global rank
  std::byte* data;
  std::int64_t size_bytes;
};

struct Exchange {
  enum class State { pending, complete, failed };

  // What it is for, for messages.
  Request request;
  std::shared_ptr<const Group> group;
  bool closes_world = false;  // the last exchange of all: waits until published values have left

  std::vector<Message> messages;  // between two ranks: in the same order on both
  std::function<void()> notify;   // called once, by the service thread, after state has changed
  std::atomic<State> state = State::pending;

  // The service thread's.
  std::vector<bool> done;  // by message
  std::size_t left = 0;
  std::chrono::steady_clock::time_point posted;

  std::string what() const;  // the operation, for messages
  // The peers of messages that are not done, each once, in ascending order.
  std::vector<int> awaited() const;
  Wait as_wait() const;  // for whomever
  // The end. May destroy the exchange's owner.
  void settle(State end);
};

using Exchanges = std::vector<std::shared_ptr<Exchange>>;

}  // namespace ms::comm
