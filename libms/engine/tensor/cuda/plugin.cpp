// The entry point of libms_cuda.so (tensor/cuda_plugin.h).
#include "base/version.h"
#include "tensor/cuda/shared_gpu.h"
#include "tensor/cuda_plugin.h"

extern "C" __attribute__((visibility("default"))) const ms::tensor::CudaPlugin* ms_cuda_plugin() {
  using namespace ms::tensor;
  static constexpr CudaPlugin kPlugin{.version = ms::kVersion,
                                      .plugin_size = sizeof(CudaPlugin),
                                      .op_size = sizeof(Op),
                                      .device = [](int gpu, const CudaOptions& options) -> std::unique_ptr<Device> {
                                        return std::make_unique<CudaDevice>(gpu, options);
                                      },
                                      .shared_device = [](int gpu, CpuPool& pool, SharedPlans& plans,
                                                          const CudaOptions& options) -> std::unique_ptr<Device> {
                                        return std::make_unique<SharedGpu>(gpu, pool, plans, options);
                                      },
                                      .device_count = &CudaDevice::count,
                                      .enable_peer = &CudaDevice::enable_peer};
  return &kPlugin;
}
