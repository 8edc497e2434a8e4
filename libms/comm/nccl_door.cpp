#include "comm/nccl_door.h"

#include "tensor/cuda_door.h"

namespace ms::comm {

std::unique_ptr<Nccl> make_nccl(std::shared_ptr<ExchangeService> service, Store& store,
                                std::chrono::milliseconds deadline) {
  const auto door = reinterpret_cast<const NcclDoor* (*)()>(tensor::cuda_symbol("ms_nccl_door"));
  if (door == nullptr) {
    throw Error("cuda.plugin", Blame::node, "libms_cuda.so was built without NCCL, which ranks with GPUs need",
                "build where nccl.h and libnccl.so are, or train with one process");
  }
  return door()->make(std::move(service), store, deadline);
}

}  // namespace ms::comm
