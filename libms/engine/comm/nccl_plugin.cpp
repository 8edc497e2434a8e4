#include "comm/nccl_plugin.h"

#include "tensor/cuda_plugin.h"

namespace ms::comm {
namespace {

void* nccl_entry_point() { return tensor::cuda_symbol("ms_nccl_plugin"); }

}  // namespace

bool has_nccl() { return nccl_entry_point() != nullptr; }

std::unique_ptr<Nccl> make_nccl(std::shared_ptr<ExchangeService> service, Store& store,
                                std::chrono::milliseconds deadline) {
  const auto plugin = reinterpret_cast<const NcclPlugin* (*)()>(nccl_entry_point());
  if (plugin == nullptr) {
    throw Error("cuda.plugin", Blame::node, "libms_cuda.so was built without NCCL, which ranks with GPUs need",
                "build on a machine with nccl.h and libnccl.so, or train with one process");
  }
  return plugin()->make(std::move(service), store, deadline);
}

}  // namespace ms::comm
