#include "diag/gpu.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <future>

#include "base/text.h"
#include "health/checks/gpu_common.h"
#include "tensor/cuda_plugin.h"

namespace ms::diag {
namespace {

bool is_number(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

int number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoi(text);
}

// Throws what the device throws.
void open(TestGpu& gpu) {
  gpu.device = tensor::make_cuda_device(gpu.number, {.deterministic = true, .time_ops = false});
  gpu.model = gpu.device->name();
}

}  // namespace

GpuSet find_gpus(health::Evidence& evidence, const Share& share) {
  ::setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);  // as the driver numbers them; this process is the check's own
  int count = 0;
  try {
    count = tensor::cuda_device_count();
  } catch (const Error& error) {
    const bool expected = health::expected_gpus(evidence).count > 0;
    return {.nothing = expected ? health::broken(error.message()) : health::skipped(error.message())};
  }
  const bool own = share.processes == 1 || count < number_in("SLURM_GPUS_ON_NODE");
  if (!own && share.index > 0) return {.nothing = health::skipped("the first process of this node tests its GPUs")};
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::vector<std::string> names = visible == nullptr ? std::vector<std::string>{} : split(visible, ',');
  GpuSet set;
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const bool named = at < names.size() && is_number(names[at]);
    set.gpus.push_back({.number = i, .entity = fmt::format("gpu {}", named ? names[at] : std::to_string(i))});
  }
  return set;
}

std::vector<Finding> on_each_gpu(std::vector<TestGpu>& gpus, const std::function<void(TestGpu&)>& work) {
  std::vector<std::future<std::optional<Finding>>> threads;
  for (TestGpu& gpu : gpus) {
    threads.push_back(std::async(std::launch::async, [&gpu, &work]() -> std::optional<Finding> {
      try {
        if (gpu.device == nullptr) open(gpu);
        work(gpu);
      } catch (const Error& error) { return about(gpu.entity, kUnseen, "it failed: " + error.message()); }
      return std::nullopt;
    }));
  }
  std::vector<Finding> findings;
  for (auto& thread : threads) {
    if (std::optional<Finding> finding = thread.get()) findings.push_back(std::move(*finding));
  }
  return findings;
}

std::int64_t test_bytes(tensor::Device& device, std::int64_t most) {
  constexpr std::int64_t kPart = 8;
  constexpr std::int64_t kUnknown = 64 << 20;
  const std::int64_t free = device.memory().free_bytes;
  return std::min(most, free < 0 ? kUnknown : free / kPart / tensor::Arena::kAlignment * tensor::Arena::kAlignment);
}

}  // namespace ms::diag
