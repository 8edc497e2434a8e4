#include "tensor/cuda/cuda_matmul.h"

#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "base/log.h"
#include "tensor/cuda/cuda_check.h"
#include "tensor/cuda/cuda_ops.h"
#include "tensor/cuda/fastest.h"

namespace ms::tensor {
namespace {

cudaDataType_t type_of(DType dtype) {
  MS_ASSERT(dtype == DType::bf16 || dtype == DType::f32, "a product of {}", to_string(dtype));
  return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

// Of its first element; all that algorithms ask for. 0: there is none.
std::uint32_t alignment_of(const Tensor& t) {
  if (!t) return 0;
  constexpr std::uintptr_t kMost = 256;
  const auto at = reinterpret_cast<std::uintptr_t>(t.data) | kMost;
  return static_cast<std::uint32_t>(at & (~at + 1));
}

// An algorithm as text: it is eight words that say nothing to others, good for one version of the library.
std::string text_of(const cublasLtMatmulAlgo_t& algorithm) {
  return fmt::format("{:x}", fmt::join(algorithm.data, "."));
}
std::optional<cublasLtMatmulAlgo_t> algorithm_of(const std::string& text) {
  cublasLtMatmulAlgo_t algorithm{};
  const char *at = text.data(), *const end = at + text.size();
  for (std::uint64_t& word : algorithm.data) {
    const auto [behind, problem] = std::from_chars(at, end, word, 16);
    const bool is_last = &word == std::end(algorithm.data) - 1;
    if (problem != std::errc() || (is_last ? behind != end : behind == end || *behind != '.')) return std::nullopt;
    at = behind + 1;
  }
  return algorithm;
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

// Memory for products that are only timed. Products of zeros take less power, and so less time, than those of a run.
class TrialMemory {
 public:
  TrialMemory(std::size_t bytes, cudaStream_t stream) {
    check(cudaMalloc(&data_, bytes), fmt::format("{} bytes to time products in", bytes));
    constexpr std::size_t kBlock = std::size_t{1} << 20;
    std::vector<std::uint16_t> block(std::min(bytes, kBlock) / 2);
    std::uint32_t state = 1;
    for (std::uint16_t& value : block) {  // bf16 of either sign between 1/2 and 1
      state = state * 1664525 + 1013904223;
      value = static_cast<std::uint16_t>(0x3f00 | ((state >> 16) & 0x807f));
    }
    std::size_t filled = block.size() * 2;
    check(cudaMemcpyAsync(data_, block.data(), filled, cudaMemcpyHostToDevice, stream), "filling memory");
    for (; filled < bytes; filled *= 2) {
      check(cudaMemcpyAsync(data() + filled, data_, std::min(filled, bytes - filled), cudaMemcpyDeviceToDevice, stream),
            "filling memory");
    }
    check(cudaStreamSynchronize(stream), "filling memory");  // the block goes
  }
  ~TrialMemory() { cudaFree(data_); }
  TrialMemory(const TrialMemory&) = delete;
  TrialMemory& operator=(const TrialMemory&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

}  // namespace

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error("cuda.cublas", Blame::gpu, fmt::format("cuBLASLt, {}: {}", what, cublasLtGetStatusString(status)));
}

struct CudaMatmul::Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t left = nullptr, right = nullptr, result = nullptr;  // as cuBLASLt sees them
  cublasLtMatmulAlgo_t algorithm{};

  ~Plan() {
    cublasLtMatmulDescDestroy(operation);
    for (cublasLtMatrixLayout_t layout : {left, right, result}) cublasLtMatrixLayoutDestroy(layout);
  }
};
void CudaMatmul::Close::operator()(Plan* plan) const { delete plan; }

CudaMatmul::CudaMatmul() {
  cublasLtHandle_t handle = nullptr;
  check(cublasLtCreate(&handle), "starting");
  handle_.reset(handle);
}

std::string CudaMatmul::Key::text() const {
  return fmt::format("{}x{}x{} {}{} {} to {}{}{} ld {},{},{} aligned {},{},{},{}", m, n, k, transpose_a ? "T" : "N",
                     transpose_b ? "T" : "N", to_string(in), to_string(out), accumulate ? " added" : "",
                     bias ? " with bias" : "", ld_a, ld_b, ld_c, alignment_a, alignment_b, alignment_c, alignment_bias);
}

CudaMatmul::Key CudaMatmul::key_of(const Matmul& op) {
  return {.m = op.c.rows,
          .n = op.c.cols,
          .k = op.transpose_a ? op.a.rows : op.a.cols,
          .ld_a = op.a.ld,
          .ld_b = op.b.ld,
          .ld_c = op.c.ld,
          .alignment_a = alignment_of(op.a),
          .alignment_b = alignment_of(op.b),
          .alignment_c = alignment_of(op.c),
          .alignment_bias = alignment_of(op.bias),
          .in = op.a.dtype,
          .out = op.c.dtype,
          .transpose_a = op.transpose_a,
          .transpose_b = op.transpose_b,
          .accumulate = op.accumulate,
          .bias = static_cast<bool>(op.bias)};
}

std::unique_ptr<CudaMatmul::Plan, CudaMatmul::Close> CudaMatmul::describe(const Matmul& op, const Key& key) {
  std::unique_ptr<Plan, Close> plan(new Plan);
  check(cublasLtMatmulDescCreate(&plan->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
  const auto set = [&](cublasLtMatmulDescAttributes_t name, const auto& value) {
    check(cublasLtMatmulDescSetAttribute(plan->operation, name, &value, sizeof value), "describing a product");
  };
  const auto turned = [](bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  set(CUBLASLT_MATMUL_DESC_TRANSA, turned(key.transpose_b));  // its first factor is our second
  set(CUBLASLT_MATMUL_DESC_TRANSB, turned(key.transpose_a));
  if (key.bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<std::int32_t>(type_of(key.out)));
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, op.bias.data);
  }
  const auto layout = [](cublasLtMatrixLayout_t& to, const Tensor& t) {
    check(cublasLtMatrixLayoutCreate(&to, type_of(t.dtype), static_cast<std::uint64_t>(t.cols),
                                     static_cast<std::uint64_t>(t.rows), t.ld),
          "describing a matrix");
  };
  layout(plan->left, op.b);
  layout(plan->right, op.a);
  layout(plan->result, op.c);
  return plan;
}

std::vector<cublasLtMatmulAlgo_t> CudaMatmul::algorithms(const Plan& plan, const Key& key, int most) const {
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "asking for algorithms");
  check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace,
                                             sizeof kWorkspace),
        "asking for algorithms");
  // Told of what the pointers are multiples of: unless told, it takes 256 bytes for granted.
  for (const auto& [name, alignment] : {std::pair{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.alignment_b},
                                        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.alignment_a},
                                        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.alignment_c},
                                        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.alignment_c}}) {
    check(cublasLtMatmulPreferenceSetAttribute(preference, name, &alignment, sizeof alignment),
          "asking for algorithms");
  }
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(most));
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_.get(), plan.operation, plan.left, plan.right, plan.result, plan.result,
                                     preference, most, found.data(), &count);
  cublasLtMatmulPreferenceDestroy(preference);
  check(status, "asking for algorithms");
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < count; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = found[static_cast<std::size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(result.algo);
  }
  if (algorithms.empty())
    throw Error("cuda.cublas", Blame::bug, fmt::format("cuBLASLt has no algorithm for {}", key.text()));
  return algorithms;
}

const CudaMatmul::Plan& CudaMatmul::plan(const Matmul& op, const Key& key) {
  auto& known = plans_[key];
  if (known) return *known;
  std::unique_ptr<Plan, Close> plan = describe(op, key);
  std::optional<cublasLtMatmulAlgo_t> chosen;
  if (const auto at = chosen_.find(key.text()); at != chosen_.end()) {
    chosen = algorithm_of(at->second);
    cublasLtMatmulHeuristicResult_t result{};
    if (!chosen || cublasLtMatmulAlgoCheck(handle_.get(), plan->operation, plan->left, plan->right, plan->result,
                                           plan->result, &*chosen, &result) != CUBLAS_STATUS_SUCCESS) {
      log::warn("tensor", "the algorithm that was chosen for {} is none here: cuBLASLt's first one is taken",
                key.text());
      chosen.reset();
    }
  }
  plan->algorithm = chosen ? *chosen : algorithms(*plan, key, 1).front();
  known = std::move(plan);
  return *known;
}

cublasStatus_t CudaMatmul::multiply(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const Matmul& op,
                                    void* workspace, cudaStream_t stream) const {
  const float one = 1, beta = op.accumulate ? 1.0F : 0.0F;
  return cublasLtMatmul(handle_.get(), plan.operation, &one, op.b.data, plan.left, op.a.data, plan.right, &beta,
                        op.c.data, plan.result, op.c.data, plan.result, &algorithm, workspace, kWorkspace, stream);
}

void CudaMatmul::take(MatmulChoices& choices) {
  int gpu = 0;
  check(cudaGetDevice(&gpu), "asking which GPU this is");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, gpu), "asking which GPU this is");
  const std::string library = fmt::format("{}, cuBLASLt {}", properties.name, cublasLtGetVersion());
  if (!choices.library.empty() && choices.library != library) {
    log::warn("tensor", "algorithms for products were chosen for {}, and this is {}: they are not taken",
              choices.library, library);
    choices.algorithms.clear();
  }
  choices.library = library;
  chosen_ = choices.algorithms;
  plans_.clear();
}

void CudaMatmul::prepare(const Matmul& op, MatmulChoices& choices, bool timed) {
  if (op.c.numel() == 0) return;
  Matmul form = op;
  if (converts_bias(op)) {  // as run() has it
    form.bias.data = reinterpret_cast<std::byte*>(std::uintptr_t{256});
    form.bias.dtype = op.c.dtype;
  }
  const Key key = key_of(form);
  if (plans_.contains(key)) return;
  if (timed && !chosen_.contains(key.text())) {
    std::string& chosen = chosen_[key.text()];
    chosen = choices.algorithms[key.text()] = text_of(fastest_algorithm(form, key));
  }
  plan(form, key);
}

cublasLtMatmulAlgo_t CudaMatmul::fastest_algorithm(const Matmul& op, const Key& key) const {
  constexpr int kMost = 16;
  // Each tensor begins at a multiple of 256 bytes, or as far behind one as it does in the run.
  std::size_t used = kWorkspace;
  const auto place = [&used](const Tensor& t) {
    const std::size_t at = (used + 255) / 256 * 256 + alignment_of(t) % 256;
    used = at + static_cast<std::size_t>(t.extent_bytes());
    return at;
  };
  const std::size_t a = place(op.a), b = place(op.b), c = place(op.c), bias = place(op.bias);
  const TrialStream stream;
  const TrialMemory memory(used, stream);
  Matmul trial = op;
  trial.a.data = memory.data() + a;
  trial.b.data = memory.data() + b;
  trial.c.data = memory.data() + c;
  if (op.bias) trial.bias.data = memory.data() + bias;
  const std::unique_ptr<Plan, Close> plan = describe(trial, key);
  const std::vector<cublasLtMatmulAlgo_t> ways = algorithms(*plan, key, kMost);
  const int best = fastest(static_cast<int>(ways.size()), stream, [&](int i) {
    return multiply(*plan, ways[static_cast<std::size_t>(i)], trial, memory.data(), stream) == CUBLAS_STATUS_SUCCESS;
  });
  check(cudaStreamSynchronize(stream), "timing products");
  return ways[static_cast<std::size_t>(std::max(best, 0))];
}

void CudaMatmul::run(Matmul op, cudaStream_t stream, void* workspace) {
  if (op.c.numel() == 0) return;
  if (converts_bias(op)) {  // cuBLASLt takes a bias of the result's type alone
    const Tensor converted{static_cast<std::byte*>(workspace) + kWorkspace, 1, op.c.cols, op.c.cols, op.c.dtype};
    kernels::convert(stream, kernel_matrix(converted), kernel_matrix(op.bias));
    op.bias = converted;
  }
  const Key key = key_of(op);
  const Plan& plan = this->plan(op, key);
  if (key.bias) {
    check(cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &op.bias.data,
                                         sizeof op.bias.data),
          "telling the bias");
  }
  check(multiply(plan, plan.algorithm, op, workspace, stream), "multiplying");
}

}  // namespace ms::tensor
