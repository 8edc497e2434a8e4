// One rank's view of the run: who is there, how to open communicators, how to stop everybody.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "comm/communicator.h"
#include "comm/store.h"

namespace ms::comm {

class World {
 public:
  virtual ~World() = default;
  virtual std::string_view kind() const = 0;  // "threads", "mpi"
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int ranks_on_node() const = 0;
  virtual std::string node(int rank) const = 0;  // the host that a rank runs on
  virtual Store& store() = 0;

  // Local on the CPU and between threads: no message is sent, and every member must open the group with the same id
  // before any operation of it can complete. Between processes with GPUs (NCCL) collective over the group, in one order
  // of groups on all ranks. The stream is of this rank's device and outlives the communicator.
  virtual std::unique_ptr<Communicator> open(const Group& group, tensor::Stream& stream) = 0;

  // Fails every pending and later operation of all ranks with this cause; the first call wins. From any thread
  // that may wait a moment: it returns when the others have been told, as far as they can be.
  virtual void abort(const Error& cause) noexcept = 0;
  // The first cause, once something was aborted, with the rank it came from.
  struct Cause {
    int rank;
    Error error;
  };
  virtual std::optional<Cause> cause() const = 0;
  // Collective over the world, success path only: every operation has completed on every rank; ends the service
  // threads. Without it the destructor leaves at once and tells nobody.
  virtual void close() = 0;
};

}  // namespace ms::comm
