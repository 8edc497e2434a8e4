// Tries a matmul: times the algorithms that cuBLASLt offers on the GPU, or runs one for the first time. Implements a
// part of CudaMatmul.
#include <fmt/ranges.h>

#include "tensor/cuda/autotune.h"
#include "tensor/cuda/cuda_check.h"
#include "tensor/cuda/cuda_matmul.h"
#include "tensor/cuda/owned_memory.h"

namespace ms::tensor {
namespace {

// Returns an algorithm as text: eight opaque words, valid for one version of the library.
std::string text_of(const cublasLtMatmulAlgo_t& algorithm) {
  return fmt::format("{:x}", fmt::join(algorithm.data, "."));
}

class TrialStream {
 public:
  TrialStream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream"); }
  ~TrialStream() { cudaStreamDestroy(stream_); }
  TrialStream(const TrialStream&) = delete;
  TrialStream& operator=(const TrialStream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// Memory for matmuls that are only tried. GEMMs of zeros take less power, and so less time, than those of a run.
class TrialMemory {
 public:
  TrialMemory(std::size_t bytes, cudaStream_t stream) {
    check(cudaMalloc(&data_, bytes), fmt::format("{} bytes to try a matmul", bytes));
    constexpr std::size_t kBlock = std::size_t{1} << 20;
    std::vector<std::uint16_t> block(std::min(bytes, kBlock) / 2);
    std::uint32_t state = 1;
    for (std::uint16_t& value : block) {  // bf16 of either sign between 1/2 and 1
      state = state * 1664525 + 1013904223;
      value = static_cast<std::uint16_t>(0x3f00 | ((state >> 16) & 0x8077));  // and two numbers of either fp8 format
    }
    std::size_t filled = block.size() * 2;
    check(cudaMemcpyAsync(data_, block.data(), filled, cudaMemcpyHostToDevice, stream), "filling memory");
    for (; filled < bytes; filled *= 2) {
      check(cudaMemcpyAsync(data() + filled, data_, std::min(filled, bytes - filled), cudaMemcpyDeviceToDevice, stream),
            "filling memory");
    }
    check(cudaStreamSynchronize(stream), "filling memory");  // before the block is destroyed
  }
  ~TrialMemory() { cudaFree(data_); }
  TrialMemory(const TrialMemory&) = delete;
  TrialMemory& operator=(const TrialMemory&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

// Returns those that are present and that cuBLASLt reads or writes.
auto tensors_of(auto& matmul) {
  std::vector<decltype(&matmul.a)> all{&matmul.a,      &matmul.b,      &matmul.c,     &matmul.bias,
                                       &matmul.gelu_y, &matmul.gelu_x, &matmul.a_sums};
  std::erase_if(all, [](const Tensor* t) { return !*t; });
  return all;
}

// A matmul in other memory, bytes_of() long. Each tensor has the alignment, up to 256 bytes, that it has in the run.
class Trial {
 public:
  Trial(const Matmul& like, std::byte* memory) : matmul_(like), memory_(memory) {
    std::size_t used = LoweredMatmul::kWorkspace;
    for (Tensor* t : tensors_of(matmul_)) t->data = memory_ + place(*t, used);
    sums_scratch_ = memory_ + (used + 255) / 256 * 256;
  }
  const Matmul& matmul() const { return matmul_; }
  LoweredMatmul::Scales scales() const {  // any will do
    const auto* numbers = reinterpret_cast<const float*>(matmul_.a.data);
    return {numbers, numbers};
  }
  void* workspace() const { return memory_; }
  void* sums_scratch() const { return sums_scratch_; }
  static std::size_t bytes_of(const Matmul& matmul) {
    std::size_t used = LoweredMatmul::kWorkspace;
    for (const Tensor* t : tensors_of(matmul)) place(*t, used);
    return matmul.a_sums ? (used + 255) / 256 * 256 + sums_bytes(matmul) : used;
  }

 private:
  static std::size_t place(const Tensor& t, std::size_t& used) {
    const std::size_t at = (used + 255) / 256 * 256 + alignment_of(t) % 256;
    used = at + static_cast<std::size_t>(t.extent_bytes());
    return at;
  }

  Matmul matmul_;
  std::byte *memory_, *sums_scratch_ = nullptr;
};

}  // namespace

std::string CudaMatmul::autotuned(const Matmul& like) const {
  constexpr int kMost = 16;
  const TrialStream stream;
  const TrialMemory memory(Trial::bytes_of(like), stream);
  const Trial trial(like, memory.data());
  struct Timed {
    std::unique_ptr<Plan> plan;
    bool found = false;
  };
  const auto multiplies = [&](const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const Matmul& matmul) {
    return multiply(plan, algorithm, matmul, trial.workspace(), stream) == CUBLAS_STATUS_SUCCESS;
  };
  const auto timed = [&](const Matmul& matmul) {
    const Key key = key_of(matmul);
    Timed best{.plan = describe(matmul, key, trial.scales())};
    const std::vector<cublasLtMatmulAlgo_t> found = algorithms(*best.plan, key, kMost);
    const int i = autotune(static_cast<int>(found.size()), stream, [&](int variant) {
      return multiplies(*best.plan, found[static_cast<std::size_t>(variant)], matmul);
    });
    best.found = i >= 0;
    if (best.found) best.plan->algorithm = found[static_cast<std::size_t>(i)];
    return best;
  };

  const Matmul& matmul = trial.matmul();
  const Timed whole = timed(matmul);
  if (!whole.found) return {};
  if (!key_of(matmul).fuses()) return text_of(whole.plan->algorithm);
  Matmul alone = matmul;
  alone.gelu_y = alone.gelu_x = alone.a_sums = {};
  const Timed part = timed(alone);
  const int faster = autotune(2, stream, [&](int variant) {
    if (variant == 0) return multiplies(*whole.plan, whole.plan->algorithm, matmul);
    if (!part.found || !multiplies(*part.plan, part.plan->algorithm, alone)) return false;
    apply_gelu(matmul, stream);
    if (matmul.a_sums) apply_sums(matmul, trial.sums_scratch(), stream);
    return true;
  });
  return faster == 1 ? std::string(kApart) : text_of(whole.plan->algorithm);
}

void CudaMatmul::add_new(const Matmul& like, const Plan& plan) {
  if (known_.emplace(key_of(like).text(), text_of(plan.algorithm)).second) new_.emplace_back(like, plan.algorithm);
}
void CudaMatmul::run_new() {
  std::size_t most = 0;
  for (const auto& [like, algorithm] : new_) most = std::max(most, Trial::bytes_of(like));
  const auto to_run = std::exchange(new_, {});
  if (to_run.empty()) return;
  const TrialStream stream;
  void* data = nullptr;
  if (cudaMalloc(&data, most) != cudaSuccess) {  // the run takes more, and is refused with what takes how much
    cudaGetLastError();
    return;
  }
  const OwnedMemory memory(data, most, [](void* at) { cudaFree(at); });
  for (const auto& [like, algorithm] : to_run) {
    const Trial trial(like, memory.data());
    const std::unique_ptr<Plan> plan = describe(trial.matmul(), key_of(trial.matmul()), trial.scales());
    check(multiply(*plan, algorithm, trial.matmul(), trial.workspace(), stream), "multiplying");
  }
  check(cudaStreamSynchronize(stream), "multiplying");
}

}  // namespace ms::tensor
