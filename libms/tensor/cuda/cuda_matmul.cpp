#include "tensor/cuda/cuda_matmul.h"

#include <charconv>
#include <optional>
#include <utility>

#include "base/log.h"
#include "tensor/cuda/cuda_check.h"
#include "tensor/fp8.h"

namespace ms::tensor {
namespace {

cudaDataType_t type_of(Fp8 format) { return format == Fp8::e5m2 ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3; }
cudaDataType_t type_of(DType dtype) {
  MS_ASSERT(dtype == DType::bf16 || dtype == DType::f32, "a product of {}", to_string(dtype));
  return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

cudaDeviceProp this_gpu() {
  int gpu = 0;
  check(cudaGetDevice(&gpu), "asking which GPU this is");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, gpu), "asking which GPU this is");
  return properties;
}

// matmul_timing.cpp writes it.
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

CudaMatmul::CudaMatmul() : major_(this_gpu().major) {
  cublasLtHandle_t handle = nullptr;
  check(cublasLtCreate(&handle), "starting");
  handle_.reset(handle);
}

std::string CudaMatmul::Key::text() const {
  const std::string_view type = factors == Factors::as_given ? to_string(in)
                                : factors == Factors::fp8    ? "e4m3"
                                                             : "e5m2";
  std::string text =
      fmt::format("{}x{}x{} {}{} {} to {}{}{} ld {},{},{} aligned {},{},{},{}", m, n, k, transpose_a ? "T" : "N",
                  transpose_b ? "T" : "N", type, to_string(out), accumulate ? " added" : "", bias ? " with bias" : "",
                  ld_a, ld_b, ld_c, alignment_a, alignment_b, alignment_c, alignment_bias);
  if (gelu != Gelu::none)
    text += fmt::format(" {} ld {} aligned {}", gelu == Gelu::y ? "gelu" : "gelu'", ld_aux, alignment_aux);
  return text;
}

CudaMatmul::Key CudaMatmul::key_of(const Matmul& product) {
  const ResultAndAux to(product);
  return {.m = product.c.rows,
          .n = product.c.cols,
          .k = product.transpose_a ? product.a.rows : product.a.cols,
          .ld_a = product.a.ld,
          .ld_b = product.b.ld,
          .ld_c = to.result.ld,
          .ld_aux = to.aux.ld,
          .alignment_a = alignment_of(product.a),
          .alignment_b = alignment_of(product.b),
          .alignment_c = alignment_of(to.result),
          .alignment_bias = alignment_of(product.bias),
          .alignment_aux = alignment_of(to.aux),
          .in = product.a.dtype,
          .out = product.c.dtype,
          .factors = product.factors,
          .gelu = product.gelu_y   ? Gelu::y
                  : product.gelu_x ? Gelu::x
                                   : Gelu::none,
          .transpose_a = product.transpose_a,
          .transpose_b = product.transpose_b,
          .accumulate = product.accumulate,
          .bias = static_cast<bool>(product.bias)};
}

std::unique_ptr<CudaMatmul::Plan> CudaMatmul::describe(const Matmul& product, const Key& key, const float* scales) {
  auto plan = std::make_unique<Plan>();
  check(cublasLtMatmulDescCreate(&plan->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
  const auto set = [&](cublasLtMatmulDescAttributes_t name, const auto& value) {
    check(cublasLtMatmulDescSetAttribute(plan->operation, name, &value, sizeof value), "describing a product");
  };
  const auto turned = [](bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  set(CUBLASLT_MATMUL_DESC_TRANSA, turned(key.transpose_b));  // its first factor is our second
  set(CUBLASLT_MATMUL_DESC_TRANSB, turned(key.transpose_a));
  std::uint32_t epilogue = key.gelu == Gelu::y   ? CUBLASLT_EPILOGUE_GELU_AUX
                           : key.gelu == Gelu::x ? CUBLASLT_EPILOGUE_DGELU
                                                 : CUBLASLT_EPILOGUE_DEFAULT;
  if (key.bias) {
    epilogue = key.gelu == Gelu::y ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_BIAS;
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<std::int32_t>(type_of(key.out)));
  }
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  if (key.gelu != Gelu::none) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.ld_aux);
  const bool is_fp8 = key.factors != Factors::as_given;
  // Sums of fewer bits, which are faster, are good enough forward.
  if (is_fp8) set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(key.factors == Factors::fp8));
  set_pointers(*plan, product, scales);
  const auto layout = [](cublasLtMatrixLayout_t& to, const Tensor& t, cudaDataType_t type) {
    check(cublasLtMatrixLayoutCreate(&to, type, static_cast<std::uint64_t>(t.cols), static_cast<std::uint64_t>(t.rows),
                                     t.ld),
          "describing a matrix");
  };
  layout(plan->left, product.b, is_fp8 ? type_of(kFp8OfB) : type_of(key.in));
  layout(plan->right, product.a, is_fp8 ? type_of(fp8_of_a(key.factors)) : type_of(key.in));
  layout(plan->result, ResultAndAux(product).result, type_of(key.out));
  return plan;
}

void CudaMatmul::set_pointers(const Plan& plan, const Matmul& product, const float* scales) {
  const auto set = [&](cublasLtMatmulDescAttributes_t name, const void* pointer) {
    check(cublasLtMatmulDescSetAttribute(plan.operation, name, &pointer, sizeof pointer), "telling where things are");
  };
  if (product.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias.data);
  if (const Tensor aux = ResultAndAux(product).aux) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux.data);
  if (product.factors == Factors::as_given) return;
  set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales + 1);  // its first factor is our second
  set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales);
}

std::vector<cublasLtMatmulAlgo_t> CudaMatmul::algorithms(const Plan& plan, const Key& key, int most) const {
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "asking for algorithms");
  check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &MadeMatmul::kWorkspace, sizeof MadeMatmul::kWorkspace),
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
  // Either is said of forms that there are none for.
  if (status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_INVALID_VALUE)
    check(status, "asking for algorithms");
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < count; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = found[static_cast<std::size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(result.algo);
  }
  return algorithms;
}

const CudaMatmul::Plan* CudaMatmul::plan(const MadeMatmul& made, const Key& key) {
  const auto known = plans_.find(key);
  if (known != plans_.end()) return known->second.get();
  const auto keep = [&](std::unique_ptr<Plan> plan) { return (plans_[key] = std::move(plan)).get(); };
  const auto at = chosen_.find(key.text());
  if (key.gelu != Gelu::none && at != chosen_.end() && at->second == kApart) return keep(nullptr);
  std::unique_ptr<Plan> plan = describe(made.product(), key, made.scales());
  std::optional<cublasLtMatmulAlgo_t> chosen;
  if (at != chosen_.end()) {
    chosen = algorithm_of(at->second);
    cublasLtMatmulHeuristicResult_t result{};
    if (!chosen ||
        cublasLtMatmulAlgoCheck(handle_.get(), plan->operation, plan->left, plan->right, plan->result, plan->result,
                                &*chosen, &result) != CUBLAS_STATUS_SUCCESS ||
        result.workspaceSize > MadeMatmul::kWorkspace) {
      log::warn("tensor", "the algorithm that was chosen for {} is none here: cuBLASLt's first one is taken",
                key.text());
      chosen.reset();
      chosen_.erase(at);
    }
  }
  if (!chosen) {
    constexpr int kFew = 4;  // it may name some that it cannot take then
    const std::vector<cublasLtMatmulAlgo_t> found = algorithms(*plan, key, kFew);
    if (found.empty()) {
      if (key.factors != Factors::as_given && key.gelu == Gelu::none)
        log::warn("tensor", "cuBLASLt does not multiply {} in eight bits: bf16 is taken", key.text());
      return keep(nullptr);
    }
    chosen = found.front();
  }
  plan->algorithm = *chosen;
  return keep(std::move(plan));
}

cublasStatus_t CudaMatmul::multiply(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const Matmul& product,
                                    void* workspace, cudaStream_t stream) const {
  const float one = 1, beta = product.accumulate ? 1.0F : 0.0F;
  void* result = ResultAndAux(product).result.data;
  return cublasLtMatmul(handle_.get(), plan.operation, &one, product.b.data, plan.left, product.a.data, plan.right,
                        &beta, result, plan.result, result, plan.result, &algorithm, workspace, MadeMatmul::kWorkspace,
                        stream);
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

namespace {

Error no_algorithm(const std::string& form) {
  return {"cuda.cublas", Blame::bug, fmt::format("cuBLASLt has no algorithm for {}", form)};
}

}  // namespace

std::size_t CudaMatmul::prepare(const Matmul& op, MatmulChoices& choices, bool timed) {
  if (op.c.numel() == 0) return 0;
  for (const MatmulWay way : ways_of(op, major_)) {
    const MadeMatmul made(op, way);
    const Key key = key_of(made.product());
    if (timed && !plans_.contains(key) && !chosen_.contains(key.text())) {
      const std::string chosen = chosen_by_timing(made.product());
      if (!chosen.empty()) chosen_[key.text()] = choices.algorithms[key.text()] = chosen;
    }
    if (plan(made, key) != nullptr) return made.scratch_bytes();
  }
  throw no_algorithm(key_of(MadeMatmul(op, {}).product()).text());
}

void CudaMatmul::run(const Matmul& op, cudaStream_t stream, CudaScratch& scratch) {
  if (op.c.numel() == 0) return;
  for (const MatmulWay way : ways_of(op, major_)) {
    const MadeMatmul form(op, way);
    const Plan* plan = this->plan(form, key_of(form.product()));
    if (plan == nullptr) continue;
    const MadeMatmul made(op, way, scratch.take(form.scratch_bytes()));
    made.before(stream);
    set_pointers(*plan, made.product(), made.scales());
    check(multiply(*plan, plan->algorithm, made.product(), made.workspace(), stream), "multiplying");
    return made.after(stream);
  }
  throw no_algorithm(key_of(MadeMatmul(op, {}).product()).text());
}

}  // namespace ms::tensor
