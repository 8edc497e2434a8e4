#include "tensor/cuda/cuda_matmul.h"

#include <fmt/format.h>

#include "tensor/cuda/cuda_ops.h"

namespace ms::tensor {
namespace {

cudaDataType_t type_of(DType dtype) {
  MS_ASSERT(dtype == DType::bf16 || dtype == DType::f32, "a product of {}", to_string(dtype));
  return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

// Of its first element; all that algorithms ask for.
std::uint32_t alignment_of(const Tensor& t) {
  constexpr std::uintptr_t kMost = 256;
  const auto at = reinterpret_cast<std::uintptr_t>(t.data) | kMost;
  return static_cast<std::uint32_t>(at & (~at + 1));
}

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

const CudaMatmul::Plan& CudaMatmul::plan(const Matmul& op, const Key& key) {
  auto& known = plans_[key];
  if (known) return *known;
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

  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "asking for algorithms");
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
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
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_.get(), plan->operation, plan->left, plan->right, plan->result,
                                     plan->result, preference, 1, &found, &count);
  cublasLtMatmulPreferenceDestroy(preference);
  check(status, "asking for algorithms");
  if (count == 0) {
    throw Error("cuda.cublas", Blame::bug,
                fmt::format("cuBLASLt has no algorithm for {}x{}x{} {}", key.m, key.n, key.k, to_string(key.in)));
  }
  plan->algorithm = found.algo;
  known = std::move(plan);
  return *known;
}

void CudaMatmul::run(Matmul op, cudaStream_t stream, void* workspace) {
  if (op.c.numel() == 0) return;
  if (converts_bias(op)) {  // cuBLASLt takes a bias of the result's type alone
    const Tensor converted{static_cast<std::byte*>(workspace) + kWorkspace, 1, op.c.cols, op.c.cols, op.c.dtype};
    kernels::convert(stream, kernel_matrix(converted), kernel_matrix(op.bias));
    op.bias = converted;
  }
  const Key key{.m = op.c.rows,
                .n = op.c.cols,
                .k = op.transpose_a ? op.a.rows : op.a.cols,
                .ld_a = op.a.ld,
                .ld_b = op.b.ld,
                .ld_c = op.c.ld,
                .alignment_a = alignment_of(op.a),
                .alignment_b = alignment_of(op.b),
                .alignment_c = alignment_of(op.c),
                .alignment_bias = op.bias ? alignment_of(op.bias) : 0,
                .in = op.a.dtype,
                .out = op.c.dtype,
                .transpose_a = op.transpose_a,
                .transpose_b = op.transpose_b,
                .accumulate = op.accumulate,
                .bias = static_cast<bool>(op.bias)};
  const Plan& plan = this->plan(op, key);
  if (key.bias) {
    check(cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &op.bias.data,
                                         sizeof op.bias.data),
          "telling the bias");
  }
  const float one = 1, beta = op.accumulate ? 1.0F : 0.0F;
  check(cublasLtMatmul(handle_.get(), plan.operation, &one, op.b.data, plan.left, op.a.data, plan.right, &beta,
                       op.c.data, plan.result, op.c.data, plan.result, &plan.algorithm, workspace, kWorkspace, stream),
        "multiplying");
}

}  // namespace ms::tensor
