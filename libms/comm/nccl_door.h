// NCCL's communicators: ranks that own GPUs. They are in libms_cuda.so, which is opened when the first one is asked
// for.
#pragma once

#include <chrono>
#include <memory>

#include "comm/exchange_communicator.h"
#include "comm/store.h"

namespace ms::comm {

// All that a process has of NCCL. A thread of its own looks after what is under way: operations whose dependencies are
// met are told to the service, which knows their deadline and asks around when it passes; what NCCL reports aborts the
// world; and when the world stops for any reason, NCCL is aborted, so that streams that wait for lost peers end, with
// their device failed.
class Nccl {
 public:
  // Aborts what is open: it has been closed, or the world has stopped. A driver that hangs does not let it return.
  virtual ~Nccl() = default;
  // Collective over the group: returns when all members have come. Groups are opened in one order by all ranks. Throws
  // Error("comm.nccl"), or Error("comm.deadline") when the others do not come.
  virtual std::unique_ptr<Communicator> open(const Group& group, tensor::Stream& stream) = 0;
  // Every operation of this rank has completed: nothing is looked after any more.
  virtual void close() = 0;
};

struct NcclDoor {
  std::unique_ptr<Nccl> (*make)(std::shared_ptr<ExchangeService> service, Store& store,
                                std::chrono::milliseconds deadline);
};

// The store outlives what is made. Throws Error("cuda.plugin", node) where there is no NCCL.
std::unique_ptr<Nccl> make_nccl(std::shared_ptr<ExchangeService> service, Store& store,
                                std::chrono::milliseconds deadline);

}  // namespace ms::comm
