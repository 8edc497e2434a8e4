// The thread that owns MPI. Only this thread calls MPI, and only non-blocking functions once it has started, so that
// every wait has a deadline and a lost peer is noticed. Other threads post exchanges and are notified when they
// complete.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "comm/exchange_communicator.h"
#include "comm/patience.h"
#include "comm/process.h"
#include "comm/store_memory.h"

namespace ms::comm {

class MpiService : public ExchangeService {
 public:
  // Starts the thread and MPI. Throws Error("comm.mpi"), or Error("comm.deadline") if other ranks do not join in time.
  static std::shared_ptr<MpiService> start(std::chrono::milliseconds deadline);

  virtual int size() const = 0;
  virtual const ProcessId& process(int rank) const = 0;
  virtual std::vector<int> node_ranks() const = 0;
  virtual KeyValueTable& table() = 0;
  virtual Patience& patience() = 0;
  // After abort(): returns when the stop message has been sent, or soon if peers cannot be reached.
  virtual void wait_until_notified() noexcept = 0;
  // Sends this rank's values to all ranks.
  virtual void publish(MemoryStore::Values values) = 0;
  // Collective: waits for everybody, then finalises MPI and ends the thread.
  virtual void close() = 0;
  // Ends the thread, tells nobody. Returns at once; where MPI itself hangs, the thread is left behind.
  virtual void shutdown() noexcept = 0;
};

}  // namespace ms::comm
