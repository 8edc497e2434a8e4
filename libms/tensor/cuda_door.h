// The door of libms_cuda.so, which has the CUDA device. It lies beside libms.so and is opened where a run asks for a
// GPU, so that the same programs start where there is no CUDA.
#pragma once

#include <memory>
#include <string_view>

#include "tensor/cpu_stream.h"

namespace ms::tensor {

struct CudaOptions {
  bool deterministic = true;  // the same bits from every run; else gradients of attention are added up by atomics
  bool time_ops = true;       // op_seconds() knows of ops one by one, which takes two events each
};

struct CudaDoor {
  std::string_view version;  // of ms: that of libms.so
  std::size_t door_size;     // of this, and
  std::size_t op_size;       // of the op list, as they were compiled there
  // Throws Error("cuda.*"), see tensor/cuda/cuda_check.h.
  std::unique_ptr<Device> (*device)(int gpu, const CudaOptions& options);
  std::unique_ptr<Device> (*shared_device)(int gpu, CpuPool& pool, const CudaOptions& options);
  int (*device_count)();
};

// The rank's view of a GPU, by number among those that the process sees. Throws Error("cuda.plugin", node) where there
// is no libms_cuda.so, where what it needs is not there, or where it is of another build; and what the device throws.
std::unique_ptr<Device> make_cuda_device(int gpu, const CudaOptions& options = {});
// The same where several ranks of this process share the GPU; the pool issues what they do, and outlives the device.
std::unique_ptr<Device> make_shared_cuda_device(int gpu, CpuPool& pool, const CudaOptions& options = {});

// GPUs that the process sees. Throws as above, and Error("cuda.none", node) where there is none.
int cuda_device_count();
// Another function of libms_cuda.so, by name; nullptr where it has none of this name. Throws as above.
void* cuda_symbol(const char* name);

}  // namespace ms::tensor
