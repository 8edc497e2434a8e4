#include "tensor/cuda/cuda_check.h"

#include <algorithm>
#include <iterator>

namespace ms::tensor {

namespace {

struct Row {
  cudaError_t code;
  const char* kind;
  Blame blame;
  const char* hint;
};

constexpr const char* kDriverHint = "nvidia-smi lists the driver and GPUs of this node";
constexpr const char* kBuildHint = "build with -DMS_CUDA_ARCHS for this GPU";
constexpr const char* kNodeHint = "nvidia-smi and the kernel's log of this node may have details";
constexpr const char* kHardwareHint = "'ms-diag run' looks at the GPU; it may have to be drained";
constexpr const char* kProgramHint =
    "the same step on another GPU tells a fault of the program from one of this GPU: please report it with this line";

constexpr Row kRows[] = {
    {cudaErrorStubLibrary, "cuda.none", Blame::node, kDriverHint},
    {cudaErrorInsufficientDriver, "cuda.none", Blame::node, kDriverHint},
    {cudaErrorNoDevice, "cuda.none", Blame::node, kDriverHint},
    {cudaErrorNoKernelImageForDevice, "cuda.architecture", Blame::node, kBuildHint},
    {cudaErrorUnsupportedPtxVersion, "cuda.architecture", Blame::node, kBuildHint},
    {cudaErrorInvalidKernelImage, "cuda.architecture", Blame::node, kBuildHint},
    {cudaErrorMemoryAllocation, "tensor.memory", Blame::user, "'ms-train plan' prints what every rank needs"},
    // The node's driver, or who else uses its GPUs.
    {cudaErrorDevicesUnavailable, "cuda.node", Blame::node, kNodeHint},
    {cudaErrorSystemNotReady, "cuda.node", Blame::node, kNodeHint},
    {cudaErrorSystemDriverMismatch, "cuda.node", Blame::node, kNodeHint},
    {cudaErrorInitializationError, "cuda.node", Blame::node, kNodeHint},
    {cudaErrorMpsConnectionFailed, "cuda.node", Blame::node, kNodeHint},
    {cudaErrorMpsServerNotReady, "cuda.node", Blame::node, kNodeHint},
    // The hardware reports these of itself.
    {cudaErrorECCUncorrectable, "cuda.hardware", Blame::gpu, kHardwareHint},
    {cudaErrorNvlinkUncorrectable, "cuda.hardware", Blame::gpu, kHardwareHint},
    {cudaErrorHardwareStackError, "cuda.hardware", Blame::gpu, kHardwareHint},
    {cudaErrorContained, "cuda.hardware", Blame::gpu, kHardwareHint},
    // A kernel or a call did what it must not do. Broken memory can be the cause too, but seldom is.
    {cudaErrorIllegalAddress, "cuda.program", Blame::bug, kProgramHint},
    {cudaErrorMisalignedAddress, "cuda.program", Blame::bug, kProgramHint},
    {cudaErrorInvalidAddressSpace, "cuda.program", Blame::bug, kProgramHint},
    {cudaErrorAssert, "cuda.program", Blame::bug, kProgramHint},
    {cudaErrorInvalidValue, "cuda.program", Blame::bug, kProgramHint},
    {cudaErrorInvalidConfiguration, "cuda.program", Blame::bug, kProgramHint},
    {cudaErrorInvalidDeviceFunction, "cuda.program", Blame::bug, kProgramHint},
    {cudaErrorInvalidResourceHandle, "cuda.program", Blame::bug, kProgramHint},
    {cudaErrorLaunchOutOfResources, "cuda.program", Blame::bug, kProgramHint},
};

}  // namespace

Error cuda_error(cudaError_t code, std::string_view what) {
  cudaGetLastError();  // reported here; the next launch must not report it again
  const std::string text = fmt::format("{}: {} ({})", what, cudaGetErrorString(code), static_cast<int>(code));
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.code == code; });
  if (row == std::end(kRows)) return Error("cuda.error", Blame::gpu, text, kHardwareHint);
  return Error(row->kind, row->blame, text, row->hint);
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
