// All that is asked of MPI: the start, exchanges as sets of requests, control messages, the end. One thread makes all
// calls, and none of them waits for others but start() and finalize(). All may throw Error("comm.mpi"). No MPI type
// appears here.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/exchange.h"
#include "comm/process.h"

namespace ms::comm {

class MpiTransport {
 public:
  static std::unique_ptr<MpiTransport> make();
  virtual ~MpiTransport() = default;

  struct Started {
    int rank;
    std::vector<ProcessId> processes;  // by rank
  };
  // Collective. Throws Error("comm.deadline") when the others do not come within `deadline`; MPI_Init itself has none.
  virtual Started start(std::chrono::milliseconds deadline) = 0;
  // Collective.
  virtual void finalize() = 0;

  // -- Exchanges.

  virtual void begin(const std::shared_ptr<Exchange>& exchange) = 0;
  // Settles those that are complete; true where a message is done. Throws Error("comm.mismatch") where what came is not
  // what was awaited.
  virtual bool test() = 0;
  virtual const Exchanges& active() const = 0;  // begun, not settled
  // Everybody has been met at the closing of the world.
  virtual bool world_closed() const = 0;
  // Before the memory that they write to is freed. What cannot be cancelled leaks, on purpose: waiting for it could
  // last for ever.
  virtual void cancel_receives() = 0;
  // All that are active have failed.
  virtual void fail() = 0;

  // -- Control messages: of at most kMaxControlBytes, without an order, from whoever sends them.

  struct Control {
    int from;
    std::string text;
  };
  virtual void send(int peer, std::shared_ptr<const std::string> text) = 0;
  virtual void send_to_others(const std::string& text) = 0;
  virtual bool drop_finished_sends() = 0;  // true where one has left
  virtual bool sends() const = 0;
  // The next one, if it has come. Lets MPI work, where nothing else is asked of it.
  virtual std::optional<Control> receive() = 0;
};

}  // namespace ms::comm
