// The GPUs that this process tests, each through the engine's own device (tensor/cuda_plugin.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "diag/share.h"
#include "health/checks/check.h"
#include "tensor/stream.h"

namespace ms::diag {

inline constexpr std::string_view kCuda = "GPUs and libms_cuda.so";     // Check::needs
inline constexpr std::string_view kProvedEmulated = "an emulated GPU";  // Check::proved
inline constexpr Severity kUnseen = Severity::warning;                  // the worst of what no hardware has shown yet

struct TestGpu {
  int number = 0;      // among those that this process sees
  std::string entity;  // "gpu 3": the number that the driver gives it where CUDA_VISIBLE_DEVICES names such numbers
  std::string model = {};
  std::unique_ptr<tensor::Device> device = {};  // on_each_gpu() opens it
};

// Without GPUs why not: a result to return. Of processes of one launch that see the same GPUs the first tests them.
struct GpuSet {
  std::vector<TestGpu> gpus = {};
  std::optional<health::Result> nothing = {};
};
GpuSet find_gpus(health::Evidence& evidence, const Share& share);

// Runs `work` for all at once, a thread each, with its device open. Returns a finding for each GPU that failed.
std::vector<Finding> on_each_gpu(std::vector<TestGpu>& gpus, const std::function<void(TestGpu&)>& work);

// How many bytes a test may take of a GPU: an eighth of what is free, at most `most`.
std::int64_t test_bytes(tensor::Device& device, std::int64_t most);

}  // namespace ms::diag
