#include "tensor/cuda/host_integers.h"

#include <algorithm>
#include <iterator>

#include "tensor/cuda/cuda_check.h"
#include "tensor/cuda/owned_memory.h"

namespace ms::tensor {

HostIntegers::~HostIntegers() {
  for (const auto& [address, copy] : copies_) free(copy);
}

void HostIntegers::free(const Copy& copy) {
  cudaEventSynchronize(copy.arrived);  // before its memory is freed
  cudaEventDestroy(copy.arrived);
}

void HostIntegers::copy(const Tensor& x, cudaStream_t stream) {
  // Copies of other tensors that had this memory are out of date.
  std::erase_if(copies_, [&](const auto& entry) {
    const auto& [address, copy] = entry;
    if (address == x.data || address >= x.data + x.size_bytes() || address + copy.bytes <= x.data) return false;
    free(copy);
    return true;
  });
  Copy& copy = copies_[x.data];
  if (copy.arrived == nullptr)
    check(cudaEventCreateWithFlags(&copy.arrived, cudaEventDisableTiming), "making an event");
  const auto bytes = static_cast<std::size_t>(x.size_bytes());
  if (copy.host == nullptr || copy.host->size_bytes() < bytes) {
    check(cudaEventSynchronize(copy.arrived), "waiting for the GPU");
    void* data = nullptr;
    check(cudaHostAlloc(&data, bytes, cudaHostAllocDefault), "memory of the host for an exchange");
    copy.host = std::make_unique<OwnedMemory>(data, bytes, [](void* at) { cudaFreeHost(at); });
  }
  copy.bytes = x.size_bytes();
  check(cudaMemcpyAsync(copy.host->data(), x.data, bytes, cudaMemcpyDeviceToHost, stream), "copying from the GPU");
  check(cudaEventRecord(copy.arrived, stream), "recording an event");
}

std::vector<std::int32_t> HostIntegers::read(const Tensor& x, cudaStream_t stream) const {
  std::vector<std::int32_t> values(static_cast<std::size_t>(x.numel()));
  const auto bytes = static_cast<std::size_t>(x.size_bytes());
  const auto behind = copies_.upper_bound(x.data);
  if (behind != copies_.begin()) {
    const auto& [address, copy] = *std::prev(behind);
    const std::int64_t first = x.data - address;
    if (first + x.size_bytes() <= copy.bytes) {
      check(cudaEventSynchronize(copy.arrived), "waiting for the GPU");
      std::copy_n(copy.host->data() + first, bytes, reinterpret_cast<std::byte*>(values.data()));
      return values;
    }
  }
  check(cudaMemcpyAsync(values.data(), x.data, bytes, cudaMemcpyDeviceToHost, stream), "copying from the GPU");
  check(cudaStreamSynchronize(stream), "waiting for the GPU");
  return values;
}

}  // namespace ms::tensor
