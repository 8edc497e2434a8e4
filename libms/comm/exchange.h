// What the MPI communicator asks of the thread that owns MPI: a set of messages to and from peers, all of them posted
// together, with one notice when all are done. No MPI type appears here.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "comm/first_cause.h"
#include "comm/issue_counts.h"

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
};

class ExchangeService {
 public:
  virtual ~ExchangeService() = default;
  virtual int rank() const = 0;
  // From any thread. When it fails, cause() says why.
  virtual void post(std::shared_ptr<Exchange> exchange) = 0;
  virtual void abort(const Error& error) noexcept = 0;
  virtual const FirstCause& cause() const = 0;
  virtual IssueCounts& issue_counts() = 0;
};

// Communicator by direct exchange: every sum is made by one rank, in the order of the group.
std::unique_ptr<Communicator> make_exchange_communicator(std::shared_ptr<ExchangeService> service, const Group& group,
                                                         tensor::Stream& stream);

}  // namespace ms::comm
