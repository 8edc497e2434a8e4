#include "tensor/cuda/cuda_check.h"

namespace ms::tensor {

Error cuda_error(cudaError_t code, std::string_view what) {
  cudaGetLastError();  // reported here; the next launch must not report it again
  const std::string text = fmt::format("{}: {} ({})", what, cudaGetErrorString(code), static_cast<int>(code));
  switch (code) {
    case cudaErrorStubLibrary:
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
      return Error("cuda.none", Blame::node, text, "nvidia-smi says what driver and GPUs this node has");
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorInvalidKernelImage:
      return Error("cuda.architecture", Blame::node, text, "build with -DMS_CUDA_ARCHS for this GPU");
    case cudaErrorMemoryAllocation:
      return Error("tensor.memory", Blame::user, text, "'ms-train plan' prints what every rank needs");
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorContained:
      return Error("cuda.hardware", Blame::gpu, text, "'ms-diag run' looks at the GPU; it may have to be drained");
    default:
      return Error("cuda.error", Blame::gpu, text);
  }
}

void check_launch(std::string_view what) { check(cudaGetLastError(), what); }

Error library_error(std::string_view kind, const std::string& text, bool memory_is_full) {
  // Libraries that call the driver leave nothing in the runtime's last error; a broken GPU fails all calls.
  cudaError_t code = cudaGetLastError();
  if (code == cudaSuccess || code == cudaErrorNotReady) code = cudaStreamQuery(nullptr);
  if (code != cudaSuccess && code != cudaErrorNotReady) return cuda_error(code, text);
  cudaGetLastError();
  if (memory_is_full) return cuda_error(cudaErrorMemoryAllocation, text);
  return Error(std::string(kind), Blame::gpu, text);
}

}  // namespace ms::tensor
