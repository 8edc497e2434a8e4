// One rank's view of the run: its peers, how to open communicators, how to stop all ranks.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/patience.h"
#include "comm/store.h"

namespace ms::comm {

class World {
 public:
  virtual ~World() = default;
  virtual std::string_view kind() const = 0;  // "threads", "mpi", "sim"
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int ranks_on_node() const = 0;
  virtual std::string node(int rank) const = 0;  // the host that a rank runs on
  // The process of a rank that this one can see in /proc; 0: it cannot, or does not know it.
  virtual int pid(int /*rank*/) const { return 0; }
  // Returns the ranks of this node, in order, this one among them: those that can see each other's processes, so that
  // they can share memory.
  virtual std::vector<int> node_ranks() const;
  virtual Store& store() = 0;
  // This rank's, whose ceiling is the deadline that the world was made with.
  virtual Patience& patience() { return nobody_waits_; }

  // Opens a communicator. On the CPU and between threads this is local and does not communicate, and every member must
  // open the group with the same id before any of its operations can complete. Between processes with GPUs (NCCL) it is
  // collective over the group, and all ranks open groups in one order. The stream belongs to this rank's device and
  // outlives the communicator.
  virtual std::unique_ptr<Communicator> open(const Group& group, tensor::Stream& stream) = 0;

  // Fails every pending and later operation of all ranks with this cause; the first call wins. From any thread that may
  // block briefly: returns when the other ranks have been notified, as far as they can be reached.
  virtual void abort(const Error& cause) noexcept = 0;
  // The first cause of an abort, with the rank it came from.
  struct Cause {
    int rank;
    Error error;
    // Returns the rank at fault: the one that the error names, or else the one that it comes from. nullopt: it is
    // about peers and names none, so whoever noticed it is no more at fault than the others.
    std::optional<int> accused() const {
      if (error.rank() || error.blame() == Blame::peer) return error.rank();
      return rank;
    }
  };
  virtual std::optional<Cause> cause() const = 0;
  // Has `witness` called once in this process, with the first cause and before any operation fails of it: hosts and
  // streams stand where they stood. On any thread; it must be quick, must not throw, and must not use the world.
  using Witness = std::function<void(const Cause&)>;
  virtual void before_stop(Witness /*witness*/) {}
  // Ends the service threads. Collective over the world, success path only: every operation has completed on every
  // rank. The destructor without close() does not communicate.
  virtual void close() = 0;

 private:
  Patience nobody_waits_{std::chrono::milliseconds::max()};  // of worlds without deadlines
};

}  // namespace ms::comm
