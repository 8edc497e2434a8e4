// Operations of a device's stream that are in progress, for a service that watches their deadlines.
#pragma once

#include <chrono>
#include <deque>
#include <memory>

#include "comm/exchange_communicator.h"

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

}  // namespace ms::comm
