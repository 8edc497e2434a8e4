#include "base/version.h"
#include "tensor/cuda/shared_gpu.h"
#include "tensor/cuda_door.h"

extern "C" __attribute__((visibility("default"))) const ms::tensor::CudaDoor* ms_cuda_door() {
  using namespace ms::tensor;
  static constexpr CudaDoor kDoor{
      .version = ms::kVersion,
      .door_size = sizeof(CudaDoor),
      .op_size = sizeof(Op),
      .device = [](int gpu, const CudaOptions& options) -> std::unique_ptr<Device> {
        return std::make_unique<CudaDevice>(gpu, options);
      },
      .shared_device = [](int gpu, CpuPool& pool, const CudaOptions& options) -> std::unique_ptr<Device> {
        return std::make_unique<SharedGpu>(gpu, pool, options);
      },
      .device_count = &CudaDevice::count};
  return &kDoor;
}
