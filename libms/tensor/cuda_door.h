// The door of libms_cuda.so, which has the CUDA device. It lies beside libms.so and is opened where a run asks for a
// GPU, so that the same programs start where there is no CUDA.
#pragma once

#include <memory>
#include <string_view>

#include "tensor/cpu_stream.h"

namespace ms::tensor {

struct CudaDoor {
  std::string_view version;  // of ms: that of libms.so
  std::size_t op_size;       // of the op list, as it was compiled there
  // Throws Error("cuda.*"), see tensor/cuda/cuda_check.h.
  std::unique_ptr<Device> (*device)(int gpu);
  std::unique_ptr<Device> (*shared_device)(int gpu, CpuPool& pool);
};

// The rank's view of a GPU, by number among those that the process sees. Throws Error("cuda.plugin", node) where there
// is no libms_cuda.so, where what it needs is not there, or where it is of another build; and what the device throws.
std::unique_ptr<Device> make_cuda_device(int gpu);
// The same where several ranks of this process share the GPU; the pool issues what they do, and outlives the device.
std::unique_ptr<Device> make_shared_cuda_device(int gpu, CpuPool& pool);

}  // namespace ms::tensor
