// CUDA kernels: pointers, sizes and a stream in, a launch out. No allocation, no synchronisation, no policy; the caller
// checks for errors afterwards. The op of the same name in libms/engine/tensor/ops.h defines what each computes. Sums
// are of f32 or f64 in an order that depends on sizes only, so that the same inputs give the same bits on every GPU.
//
// All pointers are to device memory. If rows and pointers are multiples of 16 bytes, memory is accessed in vectors of
// 16 bytes; anything else works too, but is slower.
#pragma once

#include <cstddef>
#include <cstdint>

struct CUstream_st;

namespace ms::kernels {

using Stream = CUstream_st*;

enum class Type : std::uint8_t { f32, bf16, f64, i32 };

// Rows of `cols` elements, `ld` apart. An absent matrix has no data.
struct Matrix {
  std::byte* data = nullptr;
  std::int64_t rows = 0, cols = 0, ld = 0;
  Type type = Type::f32;
};

// The number of blocks that sum rows, each its own: two for each of an H200's 132 multiprocessors, or four if rows are
// short and two have too few bytes in flight. Rows of more than 4096 columns leave registers for one at a time.
inline int partials_of(std::int64_t cols) { return cols <= 2048 ? 512 : 256; }
// The scratch bytes of kernels that sum over rows; the next launch on the same stream may reuse them.
inline std::size_t column_sums_bytes(std::int64_t cols, int sums) {
  return static_cast<std::size_t>(partials_of(cols)) * static_cast<std::size_t>(cols) * static_cast<std::size_t>(sums) *
         sizeof(float);
}
constexpr int kTotals = 1024;  // blocks of a sum over everything
inline std::size_t total_bytes() { return kTotals * 2 * sizeof(double); }

// norms.cu. y, x, gain, bias of one type; gain, bias of one row, of at most kMostNormColumns (norm_rows.h). With
// several heads, each part of a row that is as wide as gain is normed as a row. Bytes moved forward: x read, y written;
// with a residual: a and b read, x = a + b (+ bias) and y written. Here and in pointwise.cu, `amax`, unless it is null,
// becomes what compute_amax() would find in the result, without another read.
struct Residual {
  Matrix a, b, bias;  // no a: x is an input
};
void layernorm_fwd(Stream stream, Matrix y, float* mean, float* rstd, Matrix x, Matrix gain, Matrix bias, float eps,
                   const Residual& residual, float* amax = nullptr);
void rmsnorm_fwd(Stream stream, Matrix y, float* rstd, Matrix x, Matrix gain, float eps, const Residual& residual,
                 int heads, float* amax = nullptr);
// Backward: x and dy read, dx written (read, too, if it accumulates). `scratch`: column_sums_bytes(cols, 2).
void layernorm_bwd(Stream stream, Matrix dx, Matrix dgain, Matrix dbias, Matrix dy, Matrix x, const float* mean,
                   const float* rstd, Matrix gain, bool accumulate, void* scratch, float* amax = nullptr);
void rmsnorm_bwd(Stream stream, Matrix dx, Matrix dgain, Matrix dy, Matrix x, const float* rstd, Matrix gain,
                 bool accumulate, void* scratch, int heads,
                 float* amax = nullptr);  // scratch: column_sums_bytes(gain.cols, 1)

// pointwise.cu. Every input is read once, every output written once.
void gelu_fwd(Stream stream, Matrix y, Matrix x, float* amax = nullptr, bool exact = false);
void gelu_bwd(Stream stream, Matrix dx, Matrix dy, Matrix x, float* amax = nullptr, bool exact = false);
void swiglu_fwd(Stream stream, Matrix y, Matrix x, float* amax = nullptr, const float* factors = nullptr);
void swiglu_bwd(Stream stream, Matrix dx, Matrix dy, Matrix x, float* amax = nullptr, const float* factors = nullptr);
void rotary(Stream stream, Matrix x, Matrix table, std::int64_t seq, std::int64_t head_dim, bool inverse);
void add(Stream stream, Matrix y, Matrix a, Matrix b, Matrix bias);
void convert(Stream stream, Matrix dst, Matrix src);  // between types, or between leading dimensions
void fill(Stream stream, Matrix x, float value);

// embedding.cu. Bytes moved: y written and a row of the table read per row of y; position_fwd: y read and written, the
// table's rows read once; position_bwd: dy read, dtable read and written.
void embedding_fwd(Stream stream, Matrix y, Matrix table, const std::int32_t* tokens, std::int64_t first);
void position_fwd(Stream stream, Matrix y, Matrix table, std::int64_t offset);
void position_bwd(Stream stream, Matrix dtable, Matrix dy, std::int64_t offset);
// Tokens are sorted, stably, so that each element of dtable is summed by one thread, in the order of t. Bytes moved: dy
// read, the rows of dtable that tokens select read and written; the sort takes some hundred bytes a token.
std::size_t embedding_bwd_bytes(std::int64_t tokens);
void embedding_bwd(Stream stream, Matrix dtable, Matrix dy, const std::int32_t* tokens, std::int64_t first,
                   void* scratch);

// experts.cu. A pair is a token and one of its k experts; experts and slots have k for each token, without gaps.
// Bytes moved: logits and what is by token or by slot a few times; expert_combine: x read, y written, and
// swiglu_factors_bwd, which computes what swiglu_bwd does not: dy and x read. expert_dispatch is embedding_fwd.
struct RouteRule {
  bool sigmoid, normalized;
  float scale;
};
// The bias, which may be null, and the groups of tensor::Route.
struct RouteGroups {
  const float* bias = nullptr;
  int count = 1, chosen = 1;
};
struct Routed {
  std::int32_t *experts, *slots, *tokens;
  float* weights;
  std::int32_t* offsets;
};
std::size_t route_bytes(std::int64_t pairs);  // of scratch
// Experts [first, first + count) have slots.
void route(Stream stream, const Routed& to, Matrix logits, int k, RouteRule rule, RouteGroups groups, int first,
           int count, void* scratch);
void route_bwd(Stream stream, Matrix dlogits, const float* dweights, Matrix logits, const std::int32_t* experts,
               const std::int32_t* slots, Matrix counts, int k, RouteRule rule, float balance, float z);
void expert_count(Stream stream, Matrix counts, const std::int32_t* experts, std::int64_t pairs);
void expert_bias(Stream stream, Matrix bias, const double* counts, const float* factor, float rate);
void expert_combine(Stream stream, Matrix y, Matrix x, const std::int32_t* slots, int k);
void swiglu_factors_bwd(Stream stream, float* dfactors, Matrix dy, Matrix x);

// loss.cu. stats and gathered have a column for each row of logits. Negative targets are ignored; `targets` may be null
// in loss_combine(). Bytes moved: logits read; backward read and written.
void loss_stats(Stream stream, Matrix stats, Matrix logits, const std::int32_t* targets, std::int64_t first,
                std::int64_t valid);
void loss_combine(Stream stream, float* loss, float* lse, Matrix gathered, const std::int32_t* targets);
void loss_backward(Stream stream, Matrix logits, const float* lse, const std::int32_t* targets, std::int64_t first,
                   std::int64_t valid, float scale, float z);

// sums.cu. `scratch`: column_sums_bytes(cols, 1) or total_bytes(). Bytes moved: x read, and partial sums, at most 512
// rows of f32. sum_into() sums one number per token, which is few.
void column_sum(Stream stream, Matrix out, Matrix x, bool accumulate, void* scratch);
void sum_into(Stream stream, double* out, Matrix x, double scale, void* scratch);
void sum_squares(Stream stream, double* out, Matrix x, void* scratch);
void clip_factor(Stream stream, float* factor, float* norm, const double* sum_squares, float max_norm,
                 float skip_above);

// optimizer.cu. All flat, of n elements; the gradient is f32 or bf16; an absent master means that param is f32 and is
// the master. Bytes moved per element, with f32 gradients and bf16 parameters: adamw 30 (m, v, master read and written,
// the gradient read, the parameter written; 22 with m and v in bf16, which it rounds as tensor/ops.h says),
// lamb_moments 24, lamb_apply 18. AdamW takes any number of adjacent parameters at once; LAMB has norms per matrix and
// takes three launches, which is little beside the time for a matrix.
struct AdamWScalars {
  float lr, beta1, beta2, eps, weight_decay, correction1, correction2;
};
void adamw(Stream stream, Matrix param, float* master, Matrix m, Matrix v, Matrix grad, const float* factor,
           AdamWScalars scalars, unsigned seed);
void lamb_moments(Stream stream, double* norms, float* m, float* v, Matrix w, Matrix grad, const float* factor,
                  AdamWScalars scalars, void* scratch);  // total_bytes()
void lamb_apply(Stream stream, Matrix param, float* master, const float* m, const float* v, const double* norms,
                const float* factor, AdamWScalars scalars);

// Muon, with bf16 u, x, y and a, and f32 b; master and factor as above. Bytes moved per element, with f32 gradients
// and bf16 parameters: muon_momentum 14, muon_apply 12, normalize 4, blend 8.
void muon_momentum(Stream stream, Matrix u, float* m, Matrix grad, const float* factor, float momentum);
void muon_apply(Stream stream, Matrix param, float* master, Matrix u, const float* factor, float lr, float weight_decay,
                float scale);
void normalize(Stream stream, Matrix y, Matrix x, const double* sum_squares, float eps);
void blend(Stream stream, Matrix y, Matrix a, Matrix b, float alpha, float beta);

// init.cu. Element (i, j) is `std` times normal number first + i * global_cols + j of (seed, key); rows from `valid` on
// are 0. Bytes moved: x written.
void init_normal(Stream stream, Matrix x, std::int64_t valid, std::uint64_t seed, std::uint64_t key, std::int64_t first,
                 std::int64_t global_cols, float std);

// fp8.cu, of bf16. compute_amax() sets *amax to the largest |element|, not finite if an element is not. Bytes moved per
// element: 2; 3 to quantize, 4 to quantize both ways.
void compute_amax(Stream stream, float* amax, Matrix x);
// Quantizes x to to[rows, cols], or transposed to to[cols, rows], in fp8 without gaps; *back is the factor that undoes
// the scale. x must allow vectors of 16 bytes, and the columns of `to` must be a multiple of 16.
void fp8_quantize(Stream stream, void* to, float* back, Matrix x, const float* amax, bool is_e5m2, bool transposed);
// Both at once: to rows[rows, cols] and columns[cols, rows]. Rows and columns of x must be multiples of 16. If there
// are sums, they receive the column sums of x, too, for a 32nd more bytes: tile by tile, so that their bits are not
// column_sum()'s.
constexpr std::int64_t kFp8Tile = 64;  // rows and columns of a block
struct Fp8Sums {
  Matrix out;  // f32 or bf16, of one row; or absent
  bool accumulate = false;
  void* scratch = nullptr;  // fp8_sums_bytes()
};
inline std::size_t fp8_sums_bytes(std::int64_t rows, std::int64_t cols) {
  return static_cast<std::size_t>((rows + kFp8Tile - 1) / kFp8Tile * cols) * sizeof(float);
}
void fp8_quantize_both(Stream stream, void* rows, void* columns, float* back, Matrix x, const float* amax, bool is_e5m2,
                       const Fp8Sums& sums = {});
// Rounds x to fp8 and scales it back, as bf16 in to[rows, cols] without gaps. For GPUs and shapes without an fp8 GEMM,
// where speed does not matter: element by element.
void fp8_round(Stream stream, void* to, Matrix x, const float* amax, bool is_e5m2);

// reduce.cu. out = inputs[0] + inputs[1] + ... (or the maximum) of n elements, bf16 summed in f32. out may be one of
// the inputs. Bytes moved: every input read, out written.
constexpr int kMostInputs = 128;
void reduce(Stream stream, bool maximum, Type type, void* out, const void* const* inputs, int count, std::int64_t n);

}  // namespace ms::kernels
