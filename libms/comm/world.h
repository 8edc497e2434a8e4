// One rank's view of the run: its peers, how to open communicators, how to stop all ranks.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
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
  // Returns the ranks of this node, in order, this one among them: those that can see each other's processes, so that
  // they can share memory.
  virtual std::vector<int> node_ranks() const;
  virtual Store& store() = 0;

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
  };
  virtual std::optional<Cause> cause() const = 0;
  // Ends the service threads. Collective over the world, success path only: every operation has completed on every
  // rank. The destructor without close() does not communicate.
  virtual void close() = 0;
};

}  // namespace ms::comm
