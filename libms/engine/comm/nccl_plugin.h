// Communicators over NCCL, for ranks that own GPUs: processes, or threads of one. They are in libms_cuda.so, which is
// loaded when the first one is opened.
#pragma once

#include <chrono>
#include <memory>

#include "comm/exchange_communicator.h"
#include "comm/store.h"

namespace ms::comm {

// A rank's NCCL communicators. A thread monitors the operations in progress: it registers those whose dependencies
// are met with the service, which enforces their deadlines; aborts the world when NCCL reports an error; and aborts
// NCCL when the world stops for any reason, so that streams waiting for lost peers end and their device is marked
// failed.
class Nccl {
 public:
  // Aborts the open communicators; called after close() or when the world has stopped. Does not return if the driver
  // hangs.
  virtual ~Nccl() = default;
  // Collective over the group: returns when all members have joined. All ranks open groups in one order. Throws
  // Error("comm.nccl"), or Error("comm.deadline") if other members do not join.
  virtual std::unique_ptr<Communicator> open(const Group& group, tensor::Stream& stream) = 0;
  // Ends the monitoring; every operation of this rank must have completed.
  virtual void close() = 0;
};

// A communicator of which many are opened, one after the other: otherwise it lasts as long as its world.
class Retiring {
 public:
  // Says that this member uses the communicator no more. Once all members have said so, and know it of each other,
  // destroying it gives back what NCCL holds. Local.
  virtual void retire() = 0;

 protected:
  ~Retiring() = default;
};

// The table that the plugin's second entry point, the C function ms_nccl_plugin(), returns.
struct NcclPlugin {
  std::unique_ptr<Nccl> (*make)(std::shared_ptr<ExchangeService> service, Store& store,
                                std::chrono::milliseconds deadline);
};

// Whether libms_cuda.so was built with NCCL. Throws what loading it throws.
bool has_nccl();

// Creates the communicators of a rank; the store must outlive them. Throws Error("cuda.plugin", node) if the
// plugin was built without NCCL.
std::unique_ptr<Nccl> make_nccl(std::shared_ptr<ExchangeService> service, Store& store,
                                std::chrono::milliseconds deadline);

}  // namespace ms::comm
