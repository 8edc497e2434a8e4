// The thread that owns MPI. It alone calls the library, with non-blocking calls only once it has started, so that every
// wait has a deadline and a lost peer is noticed. Others hand it exchanges and are told when they are done.
#pragma once

#include <chrono>
#include <memory>

#include "comm/board.h"
#include "comm/exchange_communicator.h"

namespace ms::comm {

class MpiService : public ExchangeService {
 public:
  // Starts the thread and MPI. Throws Error("comm.mpi"), or Error("comm.deadline") when the others do not come.
  static std::shared_ptr<MpiService> start(std::chrono::milliseconds deadline);

  virtual int size() const = 0;
  virtual int ranks_on_node() const = 0;
  virtual std::string node(int rank) const = 0;
  virtual Board& board() = 0;
  // After abort(): returns when the others have been told, or soon if they cannot be.
  virtual void wait_until_told() noexcept = 0;
  // Sends this rank's values to everybody.
  virtual void publish(BoardStore::Values values) = 0;
  // Collective: waits for everybody, then finalises MPI and ends the thread.
  virtual void close() = 0;
  // Ends the thread, tells nobody. Returns at once; where MPI itself hangs, the thread is left behind.
  virtual void leave() noexcept = 0;
};

}  // namespace ms::comm
