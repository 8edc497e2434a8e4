#include "tensor/cuda/cuda_matmul.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "base/log.h"
#include "tensor/cuda/channels.h"
#include "tensor/cuda/cuda_check.h"
#include "tensor/fp8.h"

namespace ms::tensor {
namespace {

cudaDataType_t type_of(Fp8 format) { return format == Fp8::e5m2 ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3; }
cudaDataType_t type_of(DType dtype) {
  MS_ASSERT(dtype == DType::bf16 || dtype == DType::f32, "a matmul of {}", to_string(dtype));
  return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

cudaDeviceProp this_gpu() {
  int gpu = 0;
  check(cudaGetDevice(&gpu), "asking which GPU this is");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, gpu), "asking which GPU this is");
  return properties;
}

// Parses what text_of() in matmul_autotune.cpp writes.
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

}  // namespace

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw library_error("cuda.cublas", fmt::format("cuBLASLt, {}: {}", what, cublasLtGetStatusString(status)),
                      status == CUBLAS_STATUS_ALLOC_FAILED);
}

CudaMatmul::Plan::~Plan() {
  cublasLtMatmulDescDestroy(operation);
  for (cublasLtMatrixLayout_t layout : {left, right, result}) cublasLtMatrixLayoutDestroy(layout);
}

CudaMatmul::CudaMatmul(int multiprocessors)
    : major_(this_gpu().major), all_(this_gpu().multiProcessorCount), multiprocessors_(multiprocessors) {
  cublasLtHandle_t handle = nullptr;
  check(cublasLtCreate(&handle), "starting");
  handle_.reset(handle);
}

std::string CudaMatmul::Key::text() const {
  const std::string_view type = operands == Operands::as_given ? to_string(in)
                                : operands == Operands::fp8    ? "e4m3"
                                                               : "e5m2";
  std::string text =
      fmt::format("{}x{}x{} {}{} {} to {}{}{} ld {},{},{} aligned {},{},{},{}", m, n, k, transpose_a ? "T" : "N",
                  transpose_b ? "T" : "N", type, to_string(out), accumulate ? " added" : "", bias ? " with bias" : "",
                  ld_a, ld_b, ld_c, alignment_a, alignment_b, alignment_c, alignment_bias);
  if (sums) text += fmt::format(" sums of a aligned {}", alignment_bias);
  if (multiprocessors > 0) text += fmt::format(" for {} SMs", multiprocessors);
  if (gelu != Gelu::none)
    text += fmt::format(" {} ld {} aligned {}", gelu == Gelu::y ? "gelu" : "gelu'", ld_aux, alignment_aux);
  return text;
}

std::int32_t CudaMatmul::multiprocessors_for(const Matmul& matmul) const {
  if (matmul.beside == 0) return multiprocessors_;
  return std::max(1, (multiprocessors_ > 0 ? multiprocessors_ : all_) - channels_among(all_, matmul.beside));
}

CudaMatmul::Key CudaMatmul::key_of(const Matmul& matmul) const {
  const ResultAndAux to(matmul);
  return {.m = matmul.c.rows,
          .n = matmul.c.cols,
          .k = matmul.transpose_a ? matmul.a.rows : matmul.a.cols,
          .ld_a = matmul.a.ld,
          .ld_b = matmul.b.ld,
          .ld_c = to.result.ld,
          .ld_aux = to.aux.ld,
          .alignment_a = alignment_of(matmul.a),
          .alignment_b = alignment_of(matmul.b),
          .alignment_c = alignment_of(to.result),
          .alignment_bias = alignment_of(matmul.a_sums ? matmul.a_sums : matmul.bias),
          .alignment_aux = alignment_of(to.aux),
          .multiprocessors = multiprocessors_for(matmul),
          .in = matmul.a.dtype,
          .out = matmul.c.dtype,
          .operands = matmul.operands,
          .gelu = matmul.gelu_y   ? Gelu::y
                  : matmul.gelu_x ? Gelu::x
                                  : Gelu::none,
          .transpose_a = matmul.transpose_a,
          .transpose_b = matmul.transpose_b,
          .accumulate = matmul.accumulate,
          .bias = static_cast<bool>(matmul.bias),
          .sums = static_cast<bool>(matmul.a_sums)};
}

std::unique_ptr<CudaMatmul::Plan> CudaMatmul::describe(const Matmul& matmul, const Key& key,
                                                       const LoweredMatmul::Scales& scales) {
  auto plan = std::make_unique<Plan>();
  check(cublasLtMatmulDescCreate(&plan->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a matmul");
  const auto set = [&](cublasLtMatmulDescAttributes_t name, const auto& value) {
    check(cublasLtMatmulDescSetAttribute(plan->operation, name, &value, sizeof value), "describing a matmul");
  };
  const auto turned = [](bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  set(CUBLASLT_MATMUL_DESC_TRANSA, turned(key.transpose_b));  // its first operand is our second
  set(CUBLASLT_MATMUL_DESC_TRANSB, turned(key.transpose_a));
  std::uint32_t epilogue = key.gelu == Gelu::y   ? CUBLASLT_EPILOGUE_GELU_AUX
                           : key.gelu == Gelu::x ? CUBLASLT_EPILOGUE_DGELU
                                                 : CUBLASLT_EPILOGUE_DEFAULT;
  if (key.bias) epilogue = key.gelu == Gelu::y ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_BIAS;
  if (key.sums) epilogue = CUBLASLT_EPILOGUE_BGRADB;  // its second operand is our first
  if (key.bias || key.sums) set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<std::int32_t>(type_of(key.out)));
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  if (key.gelu != Gelu::none) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.ld_aux);
  const bool is_fp8 = key.operands != Operands::as_given;
  // Accumulation in fewer bits is faster and good enough in the forward.
  if (is_fp8) set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(key.operands == Operands::fp8));
  // Otherwise a GEMM has a tile for every multiprocessor, and those whose multiprocessor is taken wait for all others.
  if (key.multiprocessors > 0) set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, key.multiprocessors);
  set_pointers(*plan, matmul, scales);
  const auto layout = [](cublasLtMatrixLayout_t& to, const Tensor& t, cudaDataType_t type) {
    check(cublasLtMatrixLayoutCreate(&to, type, static_cast<std::uint64_t>(t.cols), static_cast<std::uint64_t>(t.rows),
                                     t.ld),
          "describing a matrix");
  };
  layout(plan->left, matmul.b, is_fp8 ? type_of(kFp8OfB) : type_of(key.in));
  layout(plan->right, matmul.a, is_fp8 ? type_of(fp8_of_a(key.operands)) : type_of(key.in));
  layout(plan->result, ResultAndAux(matmul).result, type_of(key.out));
  return plan;
}

void CudaMatmul::set_pointers(const Plan& plan, const Matmul& matmul, const LoweredMatmul::Scales& scales) {
  const auto set = [&](cublasLtMatmulDescAttributes_t name, const void* pointer) {
    check(cublasLtMatmulDescSetAttribute(plan.operation, name, &pointer, sizeof pointer), "telling where things are");
  };
  if (matmul.bias || matmul.a_sums)
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, matmul.bias ? matmul.bias.data : matmul.a_sums.data);
  if (const Tensor aux = ResultAndAux(matmul).aux) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux.data);
  if (matmul.operands == Operands::as_given) return;
  set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales.b);  // its first operand is our second
  set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales.a);
}

std::vector<cublasLtMatmulAlgo_t> CudaMatmul::algorithms(const Plan& plan, const Key& key, int most) const {
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "asking for algorithms");
  check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &LoweredMatmul::kWorkspace, sizeof LoweredMatmul::kWorkspace),
        "asking for algorithms");
  // Partial sums of a split-K algorithm are added in f32, whatever the result's type.
  constexpr std::uint32_t kInF32 = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &kInF32,
                                             sizeof kInF32),
        "asking for algorithms");
  // Without these cuBLASLt assumes pointers aligned to 256 bytes.
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
  // cuBLASLt reports one of these for forms without an algorithm.
  if (status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_INVALID_VALUE)
    check(status, "asking for algorithms");
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < count; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = found[static_cast<std::size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(result.algo);
  }
  return algorithms;
}

const CudaMatmul::Plan* CudaMatmul::plan(const LoweredMatmul& lowered, const Key& key) {
  const auto known = plans_.find(key);
  if (known != plans_.end()) return known->second.get();
  const auto keep = [&](std::unique_ptr<Plan> plan) { return (plans_[key] = std::move(plan)).get(); };
  const auto at = chosen_.find(key.text());
  if (key.fuses() && (at == chosen_.end() ? key.is_slow() : at->second == kApart)) return keep(nullptr);
  std::unique_ptr<Plan> plan = describe(lowered.matmul(), key, lowered.scales());
  std::optional<cublasLtMatmulAlgo_t> chosen;
  if (at != chosen_.end()) {
    chosen = algorithm_of(at->second);
    cublasLtMatmulHeuristicResult_t result{};
    if (!chosen ||
        cublasLtMatmulAlgoCheck(handle_.get(), plan->operation, plan->left, plan->right, plan->result, plan->result,
                                &*chosen, &result) != CUBLAS_STATUS_SUCCESS ||
        result.workspaceSize > LoweredMatmul::kWorkspace) {
      log::warn("tensor", "the algorithm that was chosen for {} is none here: cuBLASLt's first one is taken",
                key.text());
      chosen_.erase(at);
      if (key.is_slow()) return keep(nullptr);
      chosen.reset();
    }
  }
  if (!chosen) {
    constexpr int kFew = 4;  // the heuristic may return some that then fail
    const std::vector<cublasLtMatmulAlgo_t> found = algorithms(*plan, key, kFew);
    if (found.empty()) {
      if (key.operands != Operands::as_given && !key.fuses())
        log::warn("tensor", "cuBLASLt has no fp8 algorithm for {}: using bf16", key.text());
      return keep(nullptr);
    }
    chosen = found.front();
  }
  plan->algorithm = *chosen;
  return keep(std::move(plan));
}

cublasStatus_t CudaMatmul::multiply(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const Matmul& matmul,
                                    void* workspace, cudaStream_t stream) const {
  const float one = 1, beta = matmul.accumulate ? 1.0F : 0.0F;
  void* result = ResultAndAux(matmul).result.data;
  return cublasLtMatmul(handle_.get(), plan.operation, &one, matmul.b.data, plan.left, matmul.a.data, plan.right, &beta,
                        result, plan.result, result, plan.result, &algorithm, workspace, LoweredMatmul::kWorkspace,
                        stream);
}

void CudaMatmul::take(MatmulChoices& choices) {
  const std::string library = fmt::format("{}, cuBLASLt {}", this_gpu().name, cublasLtGetVersion());
  if (!choices.library.empty() && choices.library != library) {
    log::warn("tensor", "ignoring autotuned matmul algorithms: they are for {}, and this is {}", choices.library,
              library);
    choices.algorithms.clear();
  }
  choices.library = library;
  chosen_ = choices.algorithms;
  plans_.clear();
}

namespace {

Error no_algorithm(const std::string& form) {
  return {"cuda.cublas", Blame::bug, fmt::format("cuBLASLt has no algorithm for {}", form)};
}

}  // namespace

std::size_t CudaMatmul::prepare(const Matmul& op, MatmulChoices& choices, bool timed) {
  if (op.c.numel() == 0) return 0;
  for (const MatmulVariant variant : variants_of(op, major_)) {
    const LoweredMatmul lowered(op, variant);
    const Key key = key_of(lowered.matmul());
    if (timed && !plans_.contains(key) && !chosen_.contains(key.text())) {
      const std::string chosen = autotuned(lowered.matmul());
      if (!chosen.empty()) chosen_[key.text()] = choices.algorithms[key.text()] = chosen;
    }
    if (const Plan* chosen = plan(lowered, key)) {
      add_new(lowered.matmul(), *chosen);
      return lowered.scratch_bytes();
    }
  }
  throw no_algorithm(key_of(LoweredMatmul(op, {}).matmul()).text());
}

void CudaMatmul::run(const Matmul& op, cudaStream_t stream, CudaScratch& scratch) {
  if (op.c.numel() == 0) return;
  for (const MatmulVariant variant : variants_of(op, major_)) {
    const LoweredMatmul form(op, variant);
    const Plan* plan = this->plan(form, key_of(form.matmul()));
    if (plan == nullptr) continue;
    const LoweredMatmul lowered(op, variant, scratch.take(form.scratch_bytes()));
    lowered.before(stream);
    set_pointers(*plan, lowered.matmul(), lowered.scales());
    check(multiply(*plan, plan->algorithm, lowered.matmul(), lowered.workspace(), stream), "multiplying");
    return lowered.after(stream);
  }
  throw no_algorithm(key_of(LoweredMatmul(op, {}).matmul()).text());
}

}  // namespace ms::tensor
