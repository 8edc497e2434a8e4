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
#include "tensor/fp8.h"

namespace ms::tensor {
namespace {

cudaDataType_t type_of(Fp8 format) { return format == Fp8::e5m2 ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3; }
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

cudaDeviceProp this_gpu() {
  int gpu = 0;
  check(cudaGetDevice(&gpu), "asking which GPU this is");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, gpu), "asking which GPU this is");
  return properties;
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
      value = static_cast<std::uint16_t>(0x3f00 | ((state >> 16) & 0x8077));  // and two numbers of either fp8
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
  const cudaDeviceProp gpu = this_gpu();
  has_fp8_ = gpu.major >= 9;  // those of 8.9 would convert in software: kernels are not built for them
  cublasLtHandle_t handle = nullptr;
  check(cublasLtCreate(&handle), "starting");
  handle_.reset(handle);
}

std::string CudaMatmul::Key::text() const {
  const std::string_view type = factors == Factors::as_given ? to_string(in)
                                : factors == Factors::fp8    ? "e4m3"
                                                             : "e5m2";
  return fmt::format("{}x{}x{} {}{} {} to {}{}{} ld {},{},{} aligned {},{},{},{}", m, n, k, transpose_a ? "T" : "N",
                     transpose_b ? "T" : "N", type, to_string(out), accumulate ? " added" : "",
                     bias ? " with bias" : "", ld_a, ld_b, ld_c, alignment_a, alignment_b, alignment_c, alignment_bias);
}

CudaMatmul::Key CudaMatmul::key_of(const Matmul& made) {
  return {.m = made.c.rows,
          .n = made.c.cols,
          .k = made.transpose_a ? made.a.rows : made.a.cols,
          .ld_a = made.a.ld,
          .ld_b = made.b.ld,
          .ld_c = made.c.ld,
          .alignment_a = alignment_of(made.a),
          .alignment_b = alignment_of(made.b),
          .alignment_c = alignment_of(made.c),
          .alignment_bias = alignment_of(made.bias),
          .in = made.a.dtype,
          .out = made.c.dtype,
          .factors = made.factors,
          .transpose_a = made.transpose_a,
          .transpose_b = made.transpose_b,
          .accumulate = made.accumulate,
          .bias = static_cast<bool>(made.bias)};
}

std::unique_ptr<CudaMatmul::Plan, CudaMatmul::Close> CudaMatmul::describe(const Matmul& made, const Key& key,
                                                                          const float* scales) {
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
  }
  const bool is_fp8 = key.factors != Factors::as_given;
  // Sums of fewer bits, which are faster, are good enough forward.
  if (is_fp8) set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(key.factors == Factors::fp8));
  set_pointers(*plan, made, scales);
  const auto layout = [](cublasLtMatrixLayout_t& to, const Tensor& t, cudaDataType_t type) {
    check(cublasLtMatrixLayoutCreate(&to, type, static_cast<std::uint64_t>(t.cols), static_cast<std::uint64_t>(t.rows),
                                     t.ld),
          "describing a matrix");
  };
  layout(plan->left, made.b, is_fp8 ? type_of(kFp8OfB) : type_of(key.in));
  layout(plan->right, made.a, is_fp8 ? type_of(fp8_of_a(key.factors)) : type_of(key.in));
  layout(plan->result, made.c, type_of(key.out));
  return plan;
}

void CudaMatmul::set_pointers(const Plan& plan, const Matmul& made, const float* scales) {
  const auto set = [&](cublasLtMatmulDescAttributes_t name, const void* pointer) {
    check(cublasLtMatmulDescSetAttribute(plan.operation, name, &pointer, sizeof pointer), "telling where things are");
  };
  if (made.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, made.bias.data);
  if (made.factors == Factors::as_given) return;
  set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales + 1);  // its first factor is our second
  set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales);
}

CudaMatmul::Places CudaMatmul::places_of(const Matmul& op) const {
  std::size_t used = kWorkspace;
  const auto take = [&used](std::int64_t bytes) {
    const std::size_t at = used;
    used += (static_cast<std::size_t>(bytes) + 255) / 256 * 256;
    return at;
  };
  Places places{};
  places.bias = take(converts_bias(op) ? op.c.cols * size_of(op.c.dtype) : 0);
  const bool rounds = op.factors != Factors::as_given;
  const std::int64_t bytes = in_eight_bits(op) ? 1 : 2;
  places.scales = take(rounds ? 256 : 0);
  places.a = take(rounds ? op.a.numel() * bytes : 0);
  places.b = take(rounds ? op.b.numel() * bytes : 0);
  places.end = used;
  return places;
}

bool CudaMatmul::in_eight_bits(const Matmul& op) const {
  constexpr std::int64_t kPiece = 16;
  if (op.factors == Factors::as_given || !has_fp8_ || converts_bias(op)) return false;
  const auto in_pieces = [](const Tensor& t) {
    return reinterpret_cast<std::uintptr_t>(t.data) % kPiece == 0 && t.ld * size_of(t.dtype) % kPiece == 0 &&
           t.cols * size_of(t.dtype) % kPiece == 0;
  };
  const std::int64_t k = op.transpose_a ? op.a.rows : op.a.cols;
  return in_pieces(op.a) && in_pieces(op.b) && in_pieces(op.c) && k % kPiece == 0 && op.c.cols % kPiece == 0;
}

Matmul CudaMatmul::as_multiplied(const Matmul& op, std::byte* scratch) const {
  const Places places = places_of(op);
  Matmul made = op;
  // cuBLASLt takes a bias of the result's type alone.
  if (converts_bias(op)) made.bias = {scratch + places.bias, 1, op.c.cols, op.c.cols, op.c.dtype};
  if (op.factors == Factors::as_given) return made;
  if (in_eight_bits(op)) {  // of these, the type says nothing
    const std::int64_t k = op.transpose_a ? op.a.rows : op.a.cols;
    made.a = {scratch + places.a, op.c.rows, k, k, op.a.dtype};
    made.b = {scratch + places.b, op.c.cols, k, k, op.b.dtype};
    made.transpose_a = false;
    made.transpose_b = true;
  } else {
    made.a = {scratch + places.a, op.a.rows, op.a.cols, op.a.cols, op.a.dtype};
    made.b = {scratch + places.b, op.b.rows, op.b.cols, op.b.cols, op.b.dtype};
    made.factors = Factors::as_given;
  }
  return made;
}

void CudaMatmul::make_factors(const Matmul& op, const Matmul& made, cudaStream_t stream, std::byte* scratch) const {
  if (converts_bias(op)) kernels::convert(stream, kernel_matrix(made.bias), kernel_matrix(op.bias));
  if (op.factors == Factors::as_given) return;
  // Two scales, and behind them two magnitudes.
  auto* scales = reinterpret_cast<float*>(scratch + places_of(op).scales);
  auto* largest = reinterpret_cast<unsigned*>(scales + 2);
  check(cudaMemsetAsync(largest, 0, 2 * sizeof *largest, stream), "clearing a word");
  const auto make = [&](int i, const Tensor& from, const Tensor& to, Fp8 format, bool transposed) {
    const bool is_e5m2 = format == Fp8::e5m2;
    kernels::largest_magnitude(stream, largest + i, kernel_matrix(from));
    if (made.factors == Factors::as_given) {
      kernels::fp8_round(stream, to.data, kernel_matrix(from), largest + i, is_e5m2);
    } else {
      kernels::fp8_quantize(stream, to.data, scales + i, kernel_matrix(from), largest + i, is_e5m2, transposed);
    }
  };
  make(0, op.a, made.a, fp8_of_a(op.factors), op.transpose_a);
  make(1, op.b, made.b, kFp8OfB, !op.transpose_b);
}

std::vector<cublasLtMatmulAlgo_t> CudaMatmul::algorithms(const Plan& plan, const Key& key, int most) const {
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "asking for algorithms");
  check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace,
                                             sizeof kWorkspace),
        "asking for algorithms");
  // Where a sum is cut into parts, they are added up in f32, whatever the result's type.
  constexpr std::uint32_t kInF32 = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &kInF32,
                                             sizeof kInF32),
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
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) check(status, "asking for algorithms");
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < count; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = found[static_cast<std::size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(result.algo);
  }
  if (algorithms.empty())
    throw Error("cuda.cublas", Blame::bug, fmt::format("cuBLASLt has no algorithm for {}", key.text()));
  return algorithms;
}

const CudaMatmul::Plan& CudaMatmul::plan(const Matmul& made, const Key& key, const float* scales) {
  auto& known = plans_[key];
  if (known) return *known;
  std::unique_ptr<Plan, Close> plan = describe(made, key, scales);
  std::optional<cublasLtMatmulAlgo_t> chosen;
  if (const auto at = chosen_.find(key.text()); at != chosen_.end()) {
    chosen = algorithm_of(at->second);
    cublasLtMatmulHeuristicResult_t result{};
    if (!chosen ||
        cublasLtMatmulAlgoCheck(handle_.get(), plan->operation, plan->left, plan->right, plan->result, plan->result,
                                &*chosen, &result) != CUBLAS_STATUS_SUCCESS ||
        result.workspaceSize > kWorkspace) {
      log::warn("tensor", "the algorithm that was chosen for {} is none here: cuBLASLt's first one is taken",
                key.text());
      chosen.reset();
      chosen_.erase(at);
    }
  }
  plan->algorithm = chosen ? *chosen : algorithms(*plan, key, 1).front();
  known = std::move(plan);
  return *known;
}

cublasStatus_t CudaMatmul::multiply(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const Matmul& made,
                                    void* workspace, cudaStream_t stream) const {
  const float one = 1, beta = made.accumulate ? 1.0F : 0.0F;
  return cublasLtMatmul(handle_.get(), plan.operation, &one, made.b.data, plan.left, made.a.data, plan.right, &beta,
                        made.c.data, plan.result, made.c.data, plan.result, &algorithm, workspace, kWorkspace, stream);
}

void CudaMatmul::take(MatmulChoices& choices) {
  const std::string library = fmt::format("{}, cuBLASLt {}", this_gpu().name, cublasLtGetVersion());
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
  auto* nowhere = reinterpret_cast<std::byte*>(std::uintptr_t{256});  // aligned as scratch is
  const Matmul made = as_multiplied(op, nowhere);
  const Key key = key_of(made);
  if (plans_.contains(key)) return;
  if (timed && !chosen_.contains(key.text())) {
    std::string& chosen = chosen_[key.text()];
    chosen = choices.algorithms[key.text()] = text_of(fastest_algorithm(made, key));
  }
  plan(made, key, reinterpret_cast<const float*>(nowhere));
}

cublasLtMatmulAlgo_t CudaMatmul::fastest_algorithm(const Matmul& made, const Key& key) const {
  constexpr int kMost = 16;
  // Each tensor begins at a multiple of 256 bytes, or as far behind one as it does in the run.
  std::size_t used = kWorkspace;
  const auto place = [&used](const Tensor& t) {
    const std::size_t at = (used + 255) / 256 * 256 + alignment_of(t) % 256;
    used = at + static_cast<std::size_t>(t.extent_bytes());
    return at;
  };
  const std::size_t a = place(made.a), b = place(made.b), c = place(made.c), bias = place(made.bias);
  const TrialStream stream;
  const TrialMemory memory(used, stream);
  Matmul trial = made;
  trial.a.data = memory.data() + a;
  trial.b.data = memory.data() + b;
  trial.c.data = memory.data() + c;
  if (made.bias) trial.bias.data = memory.data() + bias;
  const auto* scales = reinterpret_cast<const float*>(memory.data() + a);  // any will do
  const std::unique_ptr<Plan, Close> plan = describe(trial, key, scales);
  const std::vector<cublasLtMatmulAlgo_t> ways = algorithms(*plan, key, kMost);
  const int best = fastest(static_cast<int>(ways.size()), stream, [&](int i) {
    return multiply(*plan, ways[static_cast<std::size_t>(i)], trial, memory.data(), stream) == CUBLAS_STATUS_SUCCESS;
  });
  check(cudaStreamSynchronize(stream), "timing products");
  if (best < 0) throw Error("cuda.cublas", Blame::bug, fmt::format("no algorithm multiplies {}", key.text()));
  return ways[static_cast<std::size_t>(best)];
}

void CudaMatmul::run(const Matmul& op, cudaStream_t stream, void* scratch) {
  if (op.c.numel() == 0) return;
  auto* at = static_cast<std::byte*>(scratch);
  const auto* scales = reinterpret_cast<const float*>(at + places_of(op).scales);
  const Matmul made = as_multiplied(op, at);
  make_factors(op, made, stream, at);
  const Plan& plan = this->plan(made, key_of(made), scales);
  set_pointers(plan, made, scales);
  check(multiply(plan, plan.algorithm, made, scratch, stream), "multiplying");
}

}  // namespace ms::tensor
