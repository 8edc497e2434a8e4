// The emulated GPU's cuBLASLt: matrices are column-major and transposed as requested, sums are in f32. It accepts what
// our matmuls request and refuses everything else, and memory too short for a layout.
//
// MS_EMULATED_CUBLASLT_COUNTS  the process says at its end how many GEMMs it ran, by the number of multiprocessors that
//     their descriptions leave them, and how many of them summed an operand
// MS_EMULATED_CUBLASLT_SUMS=0  no algorithm sums an operand
#include <cublasLt.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "stream.h"

namespace {

float from_bf16(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}
std::uint16_t to_bf16(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (value != value) return 0x7fff;  // NaN
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

bool is_fp8(cudaDataType type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }
float from_fp8(std::uint8_t bits, cudaDataType type) {
  const int mantissa_bits = type == CUDA_R_8F_E4M3 ? 3 : 2, bias = type == CUDA_R_8F_E4M3 ? 7 : 15;
  const int exponent = (bits & 0x7f) >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
  const int all = (1 << (7 - mantissa_bits)) - 1;
  const bool is_nan = type == CUDA_R_8F_E4M3 ? (bits & 0x7f) == 0x7f : exponent == all;
  if (is_nan) return std::numeric_limits<float>::quiet_NaN();
  const int whole = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
  const float magnitude = std::ldexp(static_cast<float>(whole), std::max(exponent, 1) - bias - mantissa_bits);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

// A matrix in column-major order.
struct Layout {
  cudaDataType type;
  std::uint64_t rows, cols;
  std::int64_t ld;
};
float get(const Layout& layout, const void* data, std::uint64_t row, std::uint64_t col) {
  const std::uint64_t at = col * static_cast<std::uint64_t>(layout.ld) + row;
  if (layout.type == CUDA_R_16BF) return from_bf16(static_cast<const std::uint16_t*>(data)[at]);
  if (is_fp8(layout.type)) return from_fp8(static_cast<const std::uint8_t*>(data)[at], layout.type);
  return static_cast<const float*>(data)[at];
}
void put(const Layout& layout, void* data, std::uint64_t row, std::uint64_t col, float value) {
  const std::uint64_t at = col * static_cast<std::uint64_t>(layout.ld) + row;
  if (layout.type == CUDA_R_16BF) {
    static_cast<std::uint16_t*>(data)[at] = to_bf16(value);
  } else {
    static_cast<float*>(data)[at] = value;
  }
}

struct Description {
  std::map<int, std::vector<std::byte>> attributes;

  template <class T>
  T of(cublasLtMatmulDescAttributes_t name, T otherwise) const {
    const auto at = attributes.find(name);
    if (at == attributes.end()) return otherwise;
    std::memcpy(&otherwise, at->second.data(), sizeof otherwise);
    return otherwise;
  }
};

Layout& layout_of(cublasLtMatrixLayout_t layout) { return *reinterpret_cast<Layout*>(layout); }
const Description& description_of(cublasLtMatmulDesc_t description) {
  return *reinterpret_cast<const Description*>(description);
}

// op(a) is m x k, op(b) is k x n, c and d are m x n.
struct Sizes {
  std::uint64_t m = 0, n = 0, k = 0;
  bool fit = false;
};
Sizes sizes_of(const Description& description, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  const bool turn_a = description.of(CUBLASLT_MATMUL_DESC_TRANSA, std::int32_t{CUBLAS_OP_N}) == CUBLAS_OP_T;
  const bool turn_b = description.of(CUBLASLT_MATMUL_DESC_TRANSB, std::int32_t{CUBLAS_OP_N}) == CUBLAS_OP_T;
  Sizes sizes{turn_a ? a.cols : a.rows, turn_b ? b.rows : b.cols, turn_a ? a.rows : a.cols};
  sizes.fit = sizes.k == (turn_b ? b.cols : b.rows) && d.rows == sizes.m && d.cols == sizes.n && c.rows == d.rows &&
              c.cols == d.cols && c.type == d.type;
  // fp8 GEMMs: one layout, at most one operand in e5m2, everything aligned to 16 bytes.
  if (is_fp8(a.type)) {
    sizes.fit = sizes.fit && is_fp8(b.type) && (a.type == CUDA_R_8F_E4M3 || b.type == CUDA_R_8F_E4M3) && turn_a &&
                !turn_b && sizes.k % 16 == 0 && sizes.m % 16 == 0 && a.ld % 16 == 0 && b.ld % 16 == 0 && d.ld % 8 == 0;
  } else {
    sizes.fit = sizes.fit && a.type == b.type;
  }
  for (const Layout* layout : {&a, &b, &c, &d}) {
    sizes.fit = sizes.fit && layout->ld >= static_cast<std::int64_t>(layout->rows) && layout->rows > 0 &&
                layout->cols > 0 &&
                (layout->type == CUDA_R_16BF || layout->type == CUDA_R_32F ||
                 (is_fp8(layout->type) && layout != &c && layout != &d));
  }
  return sizes;
}

// The epilogue: nothing, or a GELU whose input is written, or the derivative of a GELU whose input is read, or the sums
// of the terms of the second operand.
struct Epilogue {
  explicit Epilogue(const Description& description)
      : kind(description.of(CUBLASLT_MATMUL_DESC_EPILOGUE, std::uint32_t{CUBLASLT_EPILOGUE_DEFAULT})),
        bias((kind & CUBLASLT_EPILOGUE_BIAS) != 0),
        gelu((kind & CUBLASLT_EPILOGUE_GELU_AUX) == CUBLASLT_EPILOGUE_GELU_AUX),
        slope(kind == CUBLASLT_EPILOGUE_DGELU),
        sums(kind == CUBLASLT_EPILOGUE_BGRADB),
        aux_ld(description.of(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{0})) {}
  // fp8 has fewer combinations.
  bool is_known(const Layout& a, const Layout& b, const Layout& d) const {
    if (kind != CUBLASLT_EPILOGUE_DEFAULT && kind != CUBLASLT_EPILOGUE_BIAS && kind != CUBLASLT_EPILOGUE_GELU_AUX &&
        kind != CUBLASLT_EPILOGUE_GELU_AUX_BIAS && kind != CUBLASLT_EPILOGUE_DGELU && !sums)
      return false;
    const char* allowed = std::getenv("MS_EMULATED_CUBLASLT_SUMS");
    if (sums && (a.type != CUDA_R_16BF || (allowed != nullptr && *allowed == '0'))) return false;
    if ((gelu || slope) &&
        (d.type != CUDA_R_16BF || aux_ld % 8 != 0 || aux_ld < static_cast<std::int64_t>(d.rows) || d.ld % 8 != 0))
      return false;
    if (slope && is_fp8(a.type)) return false;
    return !(bias && (a.type == CUDA_R_8F_E5M2 || b.type == CUDA_R_8F_E5M2));
  }
  std::uint32_t kind;
  bool bias, gelu, slope, sums;
  std::int64_t aux_ld;
};
float gelu_of(float x) { return 0.5F * x * (1 + std::tanh(std::sqrt(2 / 3.14159265F) * (x + 0.044715F * x * x * x))); }
float gelu_slope(float x) {
  const float root = std::sqrt(2 / 3.14159265F), t = std::tanh(root * (x + 0.044715F * x * x * x));
  return 0.5F * (1 + t) + 0.5F * x * (1 - t * t) * root * (1 + 3 * 0.044715F * x * x);
}

// Sums a dot product in kSums partial sums, which the compiler keeps in a vector.
template <std::uint64_t kSums>
float dot(const float* a, const float* b, std::uint64_t n) {
  float sums[kSums] = {};
  std::uint64_t p = 0;
  for (; p + kSums <= n; p += kSums) {
    for (std::uint64_t i = 0; i < kSums; ++i) sums[i] += a[p + i] * b[p + i];
  }
  for (; p < n; ++p) sums[p % kSums] += a[p] * b[p];
  float all = 0;
  for (const float sum : sums) all += sum;
  return all;
}

// The algorithms that the heuristic offers: each sums in its own order. The first is slow on request, so that another
// is always faster.
constexpr std::uint64_t kAlgorithms = 4;
constexpr auto kFirstTakes = std::chrono::microseconds(300);

// GEMMs by the multiprocessors that they may take.
class Counts {
 public:
  ~Counts() {
    if (std::getenv("MS_EMULATED_CUBLASLT_COUNTS") == nullptr) return;
    for (const auto& [left, gemms] : gemms_)
      std::fprintf(stderr, "emulated cuBLASLt: %d SMs for %d GEMMs\n", left, gemms);
    std::fprintf(stderr, "emulated cuBLASLt: %d GEMMs summed an operand\n", sums_);
  }
  void add(int left, bool sums) {
    const std::lock_guard lock(mutex_);
    ++gemms_[left];
    sums_ += sums ? 1 : 0;
  }

 private:
  std::mutex mutex_;
  std::map<int, int> gemms_;
  int sums_ = 0;
} counts;

// Returns the multiprocessors that a GEMM may take; 0 if it was told of a number that there cannot be.
int multiprocessors_of(const Description& description) {
  int all = 0;
  cudaDeviceGetAttribute(&all, cudaDevAttrMultiProcessorCount, 0);
  const auto told = description.of(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, std::int32_t{0});
  return told == 0 ? all : told < 0 || told > all ? 0 : told;
}

}  // namespace

extern "C" {

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : "an error of the emulated cuBLASLt";
}
const char* cublasGetStatusString(cublasStatus_t status) { return cublasLtGetStatusString(status); }
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new int);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<int*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *description = reinterpret_cast<cublasLtMatmulDesc_t>(new Description);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  delete reinterpret_cast<Description*>(description);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t name,
                                              const void* value, std::size_t size) {
  const bool is_pointer = name == CUBLASLT_MATMUL_DESC_BIAS_POINTER || name == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER ||
                          name == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER ||
                          name == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER;
  const std::size_t plain = name == CUBLASLT_MATMUL_DESC_FAST_ACCUM        ? 1
                            : name == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD ? sizeof(std::int64_t)
                                                                           : sizeof(std::int32_t);
  if (size != (is_pointer ? sizeof(void*) : plain)) return CUBLAS_STATUS_INVALID_VALUE;
  const auto* bytes = static_cast<const std::byte*>(value);
  reinterpret_cast<Description*>(description)->attributes[name] = {bytes, bytes + size};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t cols, std::int64_t ld) {
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, cols, ld});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete reinterpret_cast<Layout*>(layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new int);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete reinterpret_cast<int*>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t, int most,
                                              cublasLtMatmulHeuristicResult_t results[], int* count) {
  *count = 0;
  if (!sizes_of(description_of(description), layout_of(a), layout_of(b), layout_of(c), layout_of(d)).fit ||
      !Epilogue(description_of(description)).is_known(layout_of(a), layout_of(b), layout_of(d)))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  for (std::uint64_t i = 0; i < kAlgorithms && *count < most; ++i, ++*count) {
    results[i] = {};
    results[i].algo.data[0] = i + 1;
    results[i].state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

std::size_t cublasLtGetVersion() { return 130000; }
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result) {
  *result = {};
  const bool is_one = algorithm->data[0] >= 1 && algorithm->data[0] <= kAlgorithms;
  return is_one ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t matmul, const void* alpha_at, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta_at, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_size, cudaStream_t stream) {
  if (const cudaError_t gpu = ms::emulated::begin_call("matmul"); gpu != cudaSuccess)
    return gpu == cudaErrorMemoryAllocation ? CUBLAS_STATUS_ALLOC_FAILED : CUBLAS_STATUS_EXECUTION_FAILED;
  const Description& description = description_of(matmul);
  const Layout la = layout_of(a_layout), lb = layout_of(b_layout), lc = layout_of(c_layout), ld = layout_of(d_layout);
  const Sizes sizes = sizes_of(description, la, lb, lc, ld);
  const int multiprocessors = multiprocessors_of(description);
  if (!sizes.fit || multiprocessors == 0 || algorithm == nullptr || algorithm->data[0] == 0 ||
      algorithm->data[0] > kAlgorithms)
    return CUBLAS_STATUS_INVALID_VALUE;
  const bool turn_a = description.of(CUBLASLT_MATMUL_DESC_TRANSA, std::int32_t{CUBLAS_OP_N}) == CUBLAS_OP_T;
  const bool turn_b = description.of(CUBLASLT_MATMUL_DESC_TRANSB, std::int32_t{CUBLAS_OP_N}) == CUBLAS_OP_T;
  const Epilogue epilogue(description);
  if (!epilogue.is_known(la, lb, ld)) return CUBLAS_STATUS_NOT_SUPPORTED;
  void* aux = description.of(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, static_cast<void*>(nullptr));
  const Layout aux_layout{ld.type, sizes.m, sizes.n, epilogue.aux_ld};
  if ((epilogue.gelu || epilogue.slope) && (aux == nullptr || reinterpret_cast<std::uintptr_t>(aux) % 16 != 0))
    return CUBLAS_STATUS_INVALID_VALUE;
  void* bias = nullptr;  // one per row of d, or, of sums, per column
  const std::uint64_t biases = epilogue.sums ? sizes.n : sizes.m;
  Layout bias_layout{CUDA_R_16BF, biases, 1, static_cast<std::int64_t>(biases)};
  if (epilogue.bias || epilogue.sums) {
    bias = description.of(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    bias_layout.type = static_cast<cudaDataType>(
        description.of(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<std::int32_t>(ld.type)));
    if (bias == nullptr || bias_layout.type != ld.type) return CUBLAS_STATUS_INVALID_VALUE;
  }
  const float* no_scale = nullptr;
  const float* scale_a = description.of(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, no_scale);
  const float* scale_b = description.of(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, no_scale);
  if (is_fp8(la.type) != (scale_a != nullptr && scale_b != nullptr)) return CUBLAS_STATUS_INVALID_VALUE;
  // As cuBLASLt 13.1 on an H200, whose documentation does not say so.
  for (const float* scale : {scale_a, scale_b})
    if (reinterpret_cast<std::uintptr_t>(scale) % 16 != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  const float alpha = *static_cast<const float*>(alpha_at), beta = *static_cast<const float*>(beta_at);
  constexpr std::array kOrders{dot<16>, dot<8>, dot<32>, dot<4>};
  static_assert(kOrders.size() == kAlgorithms);
  const auto ordered_dot = kOrders[algorithm->data[0] - 1];
  counts.add(multiprocessors, epilogue.sums);
  // Only for tests of autotuning: it would slow everything down.
  const bool waits = algorithm->data[0] == 1 && std::getenv("MS_EMULATED_SLOW_FIRST") != nullptr;
  // MS_EMULATED_FLIP=N: one bit of the result of GEMM N (1) is wrong.
  static std::atomic<std::int64_t> gemms{0};
  const char* wrong = std::getenv("MS_EMULATED_FLIP");
  const bool flips = wrong != nullptr && ++gemms == std::atoll(wrong);
  ms::emulated::on_stream(stream, [=] {
    if (waits) std::this_thread::sleep_for(kFirstTakes);
    const float scale = scale_a != nullptr ? *scale_a * *scale_b : 1.0F;
    if (workspace != nullptr) std::memset(workspace, 0xff, std::min<std::size_t>(workspace_size, 4096));
    std::vector<float> left(sizes.m * sizes.k), right(sizes.k * sizes.n);  // rows of op(a), columns of op(b)
    for (std::uint64_t i = 0; i < sizes.m; ++i) {
      for (std::uint64_t p = 0; p < sizes.k; ++p) left[i * sizes.k + p] = turn_a ? get(la, a, p, i) : get(la, a, i, p);
    }
    for (std::uint64_t j = 0; j < sizes.n; ++j) {
      for (std::uint64_t p = 0; p < sizes.k; ++p) right[j * sizes.k + p] = turn_b ? get(lb, b, j, p) : get(lb, b, p, j);
    }
    for (std::uint64_t j = 0; j < sizes.n; ++j) {
      for (std::uint64_t i = 0; i < sizes.m; ++i) {
        float sum = alpha * scale * ordered_dot(&left[i * sizes.k], &right[j * sizes.k], sizes.k);
        if (beta != 0) sum += beta * get(lc, c, i, j);
        if (epilogue.bias) sum += get(bias_layout, bias, i, 0);
        if (epilogue.gelu) put(aux_layout, aux, i, j, sum);
        if (epilogue.gelu) sum = gelu_of(sum);
        if (epilogue.slope) sum *= gelu_slope(get(aux_layout, aux, i, j));
        put(ld, d, i, j, sum);
      }
    }
    for (std::uint64_t j = 0; epilogue.sums && j < sizes.n; ++j) {
      float sum = 0;
      for (std::uint64_t p = 0; p < sizes.k; ++p) sum += right[j * sizes.k + p];
      put(bias_layout, bias, j, 0, sum);
    }
    if (flips) *static_cast<unsigned char*>(d) ^= 4;
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
