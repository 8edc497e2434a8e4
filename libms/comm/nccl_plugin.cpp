#include "comm/nccl_plugin.h"

#include "tensor/cuda_plugin.h"

namespace ms::comm {

std::unique_ptr<Nccl> make_nccl(std::shared_ptr<ExchangeService> service, Store& store,
                                std::chrono::milliseconds deadline) {
  const auto entry_point = reinterpret_cast<const NcclPlugin* (*)()>(tensor::cuda_symbol("ms_nccl_plugin"));
  if (entry_point == nullptr) {
    throw Error("cuda.plugin", Blame::node, "libms_cuda.so was built without NCCL, which ranks with GPUs need",
                "build where nccl.h and libnccl.so are, or train with one process");
  }
  return entry_point()->make(std::move(service), store, deadline);
}

}  // namespace ms::comm
