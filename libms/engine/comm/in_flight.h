// Operations that are in progress, for a service that watches their deadlines: on a device's stream, in the call that
// issues one, and in the call that joins a group.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "comm/blocking_calls.h"
#include "comm/exchange_communicator.h"
#include "comm/inquiry.h"

namespace ms::comm {

// One operation: it begins when the stream passes `begin` and is done when it passes `end`.
struct InFlight {
  tensor::Event begin = {}, end = {};
  std::shared_ptr<Exchange> exchange;  // passed to the service once begun
  bool begun = false;
};

// Passes operations that have begun to the service, and drops those that are done. In the order of the stream.
inline void advance(std::deque<InFlight>& in_flight, ExchangeService& service) {
  while (!in_flight.empty()) {
    InFlight& first = in_flight.front();
    if (!first.begun) {
      if (!first.begin.ready()) return;
      first.begun = true;
      first.exchange->posted = std::chrono::steady_clock::now();
      if (!first.end.ready()) service.watch(first.exchange);
    }
    if (!first.end.ready()) return;
    first.exchange->settle(Exchange::State::complete);
    in_flight.pop_front();
  }
}

// The operation of the call in progress, which is passed to the service once the call takes long. Call is for the
// thread that issues, watch() for any other.
class Issuing {
 public:
  class Call {
   public:
    Call(Issuing& issuing, std::shared_ptr<Exchange> exchange) : issuing_(issuing), exchange_(std::move(exchange)) {
      issuing_.set(exchange_);
    }
    ~Call() {
      if (!is_done_ && issuing_.set(nullptr)) exchange_->settle(Exchange::State::failed);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    // The call has returned. Returns whether the service has the operation.
    bool done() {
      is_done_ = true;
      return issuing_.set(nullptr);
    }

   private:
    Issuing& issuing_;
    std::shared_ptr<Exchange> exchange_;
    bool is_done_ = false;
  };

  // Passes the operation to the service. If the call in progress issues none, aborts once it has taken the deadline:
  // what it waits for is not known.
  void watch(ExchangeService& service, const BlockingCalls::Begun& call, std::chrono::duration<double> deadline) {
    const auto& [begun, what] = call;
    const std::lock_guard lock(mutex_);
    if (!exchange_) {
      if (std::chrono::steady_clock::now() - begun <= deadline) return;
      const std::string text = fmt::format("rank {} waited {:.1f} s in {}", service.rank(), deadline.count(), what);
      service.abort(Error("comm.deadline", Blame::peer, text).with_operation(what));
    } else if (!std::exchange(is_watched_, true)) {
      exchange_->posted = begun;
      service.watch(exchange_);
    }
  }

 private:
  // Returns whether the operation so far was watched.
  bool set(std::shared_ptr<Exchange> exchange) {
    const std::lock_guard lock(mutex_);
    exchange_ = std::move(exchange);
    return std::exchange(is_watched_, false);
  }

  std::mutex mutex_;
  std::shared_ptr<Exchange> exchange_;
  bool is_watched_ = false;
};

// While this lives, the service watches the wait for all members of the group to join it.
class Joining {
 public:
  Joining(const Group& group, std::string what, ExchangeService& service) {
    auto joined = std::make_shared<Group>(group);
    joined->id = joining_id(group.id);
    service.issue_counts().counter(joined->id)->store(1, std::memory_order_relaxed);
    wait_ = exchange_with_all({}, std::move(joined), service.rank());
    wait_->label = std::move(what);
    wait_->posted = std::chrono::steady_clock::now();
    service.watch(wait_);
  }
  ~Joining() { wait_->settle(Exchange::State::complete); }
  Joining(const Joining&) = delete;
  Joining& operator=(const Joining&) = delete;

 private:
  std::shared_ptr<Exchange> wait_;
};

}  // namespace ms::comm
