// The interface to MPI: start, exchanges as sets of requests, control messages, finalize. One thread makes all calls,
// and only start() and finalize() wait for other ranks. All methods may throw Error("comm.mpi"). No MPI type appears
// here.
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
  // Collective. Throws Error("comm.deadline") if other ranks do not join within `deadline`, which does not cover
  // MPI_Init.
  virtual Started start(std::chrono::milliseconds deadline) = 0;
  // Collective.
  virtual void finalize() = 0;

  // -- Exchanges.

  virtual void begin(const std::shared_ptr<Exchange>& exchange) = 0;
  // Settles complete exchanges; returns true if any transfer finished. Throws Error("comm.mismatch") if the received
  // size is not the expected one.
  virtual bool test() = 0;
  virtual const Exchanges& active() const = 0;  // begun, not settled
  // Returns whether all ranks have closed the world.
  virtual bool world_closed() const = 0;
  // Cancels all receives; called before the memory that they write to is freed. Receives that cannot be cancelled leak
  // on purpose: waiting for them could last forever.
  virtual void cancel_receives() = 0;
  // Marks all active exchanges as failed.
  virtual void fail() = 0;

  // -- Control messages: at most kMaxControlBytes each, unordered between different senders.

  struct Control {
    int from;
    std::string text;
  };
  virtual void send(int peer, std::shared_ptr<const std::string> text) = 0;
  virtual void send_to_others(const std::string& text) = 0;
  virtual bool drop_finished_sends() = 0;  // true if any was sent
  virtual bool sends() const = 0;
  // Returns the next received message, if any. Also lets MPI make progress when nothing else calls it.
  virtual std::optional<Control> receive() = 0;
};

}  // namespace ms::comm
