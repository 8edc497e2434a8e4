// CUDA kernels: pointers, sizes and a stream in, a launch out. No allocation, no synchronisation, no policy; who calls
// looks for errors afterwards. What each computes is said by the op of the same name in libms/tensor/ops.h; sums are of
// f32 or f64 in an order that depends on sizes only, so that the same inputs give the same bits on every GPU.
//
// All pointers are to device memory. Where rows and pointers are multiples of 16 bytes, memory is read and written in
// pieces of 16; everything else works, too, and is slower.
#pragma once

#include <cstddef>
#include <cstdint>

struct CUstream_st;

namespace ms::kernels {

using Stream = CUstream_st*;

enum class Type : std::uint8_t { f32, bf16, f64, i32 };

// Rows of `cols` elements, `ld` apart. An absent one has no data.
struct Matrix {
  std::byte* data = nullptr;
  std::int64_t rows = 0, cols = 0, ld = 0;
  Type type = Type::f32;
};

// Blocks that add rows up, each its own: two on each of an H200's 132 multiprocessors, or four where rows are short and
// two have too few bytes under way.
inline int partials_of(std::int64_t cols) { return cols <= 2048 ? 512 : 256; }
// What kernels that sum over rows need besides: so many bytes, which the next launch of the same stream may reuse.
inline std::size_t column_sums_bytes(std::int64_t cols, int sums) {
  return static_cast<std::size_t>(partials_of(cols)) * static_cast<std::size_t>(cols) * static_cast<std::size_t>(sums) *
         sizeof(float);
}
constexpr int kTotals = 1024;  // blocks that add everything up
inline std::size_t total_bytes() { return kTotals * 2 * sizeof(double); }

// norms.cu. y, x, gain, bias of one type; gain, bias of one row, of kMostNormColumns (norm_rows.h) at most. Bytes moved
// forward: x read, y written; where x is
// made first, of a + b (+ bias): a and b read, x and y written.
struct Addends {
  Matrix a, b, bias;  // no a: x is there
};
void layernorm_fwd(Stream stream, Matrix y, float* mean, float* rstd, Matrix x, Matrix gain, Matrix bias, float eps,
                   const Addends& addends);
void rmsnorm_fwd(Stream stream, Matrix y, float* rstd, Matrix x, Matrix gain, float eps, const Addends& addends);
// Backward: x and dy read, dx written (read, too, if it accumulates). `scratch`: column_sums_bytes(cols, 2).
void layernorm_bwd(Stream stream, Matrix dx, float* dgain, float* dbias, Matrix dy, Matrix x, const float* mean,
                   const float* rstd, Matrix gain, bool accumulate, void* scratch);
void rmsnorm_bwd(Stream stream, Matrix dx, float* dgain, Matrix dy, Matrix x, const float* rstd, Matrix gain,
                 bool accumulate, void* scratch);  // column_sums_bytes(cols, 1)

// pointwise.cu. Everything that is read is read once, everything written written once.
void gelu_fwd(Stream stream, Matrix y, Matrix x);
void gelu_bwd(Stream stream, Matrix dx, Matrix dy, Matrix x);
void swiglu_fwd(Stream stream, Matrix y, Matrix x);
void swiglu_bwd(Stream stream, Matrix dx, Matrix dy, Matrix x);
void rotary(Stream stream, Matrix x, Matrix table, std::int64_t seq, std::int64_t head_dim, bool inverse);
void add(Stream stream, Matrix y, Matrix a, Matrix b, Matrix bias);
void convert(Stream stream, Matrix dst, Matrix src);  // between types, or between leading dimensions
void fill(Stream stream, Matrix x, float value);

// embedding.cu. Bytes moved: y written, a row of the table read for each of its rows; y read and written, the table's
// rows once; dy read, dtable read and written, both ways round.
void embedding_fwd(Stream stream, Matrix y, Matrix table, const std::int32_t* tokens, std::int64_t first);
void position_fwd(Stream stream, Matrix y, Matrix table, std::int64_t offset);
void position_bwd(Stream stream, Matrix dtable, Matrix dy, std::int64_t offset);
// Tokens are sorted, stably, so that each element of dtable is added up by one thread, in order of t. Bytes moved: dy
// read, the rows of dtable that tokens name read and written; the sort takes some hundred bytes a token.
std::size_t embedding_bwd_bytes(std::int64_t tokens);
void embedding_bwd(Stream stream, Matrix dtable, Matrix dy, const std::int32_t* tokens, std::int64_t first,
                   void* scratch);

// loss.cu. stats and gathered have a column for each row of logits. Bytes moved: logits read; backward read and
// written.
void loss_stats(Stream stream, Matrix stats, Matrix logits, const std::int32_t* targets, std::int64_t first,
                std::int64_t valid);
void loss_combine(Stream stream, float* loss, float* lse, Matrix gathered);
void loss_backward(Stream stream, Matrix logits, const float* lse, const std::int32_t* targets, std::int64_t first,
                   std::int64_t valid, float scale);

// sums.cu. `scratch`: column_sums_bytes(cols, 1) or total_bytes(). Bytes moved: x read, and partial sums, 512 rows
// of f32 at the most. What sum_into() adds is a number for each token, and few.
void column_sum(Stream stream, float* out, Matrix x, void* scratch);
void sum_into(Stream stream, double* out, Matrix x, double scale, void* scratch);
void sum_squares(Stream stream, double* out, Matrix x, void* scratch);
void clip_factor(Stream stream, float* factor, float* norm, const double* sum_squares, float max_norm);

// optimizer.cu. All flat, of n elements; the gradient f32 or bf16; an absent master means that param is f32 and is it.
// Bytes moved an element, with a gradient of f32 and parameters of bf16: adamw 30 (m, v, master read and written, the
// gradient read, the parameter written), lamb_moments 24, lamb_apply 18. AdamW takes whatever lies side by side at
// once; LAMB has norms for each matrix, and three launches, which is little beside what a matrix takes.
struct AdamWScalars {
  float lr, beta1, beta2, eps, weight_decay, correction1, correction2;
};
void adamw(Stream stream, Matrix param, float* master, float* m, float* v, Matrix grad, const float* factor,
           AdamWScalars scalars);
void lamb_moments(Stream stream, double* norms, float* m, float* v, Matrix w, Matrix grad, const float* factor,
                  AdamWScalars scalars, void* scratch);  // total_bytes()
void lamb_apply(Stream stream, Matrix param, float* master, const float* m, const float* v, const double* norms,
                const float* factor, AdamWScalars scalars);

// init.cu. Element (i, j) is `std` times normal number first + i * global_cols + j of (seed, key); rows from `valid` on
// are 0. Bytes moved: x written.
void init_normal(Stream stream, Matrix x, std::int64_t valid, std::uint64_t seed, std::uint64_t key, std::int64_t first,
                 std::int64_t global_cols, float std);

// fp8.cu, of bf16: what products of eight bits are made of. `largest`: the largest magnitude in x, not finite where x
// is not. Bytes moved a number: 2, and 3 where it is quantized.
void largest_magnitude(Stream stream, float* largest, Matrix x);
// to[rows, cols], or to[cols, rows] transposed, in eight bits each and without gaps; *back: what they are to be
// multiplied by. x in pieces of 16 bytes, and what becomes the columns of `to` a multiple of 16.
void fp8_quantize(Stream stream, void* to, float* back, Matrix x, const float* largest, bool is_e5m2, bool transposed);
// to[rows, cols] of bf16, without gaps: the same numbers, multiplied back. For GPUs and forms without products of eight
// bits, where nobody asks for speed: element by element.
void fp8_round(Stream stream, void* to, Matrix x, const float* largest, bool is_e5m2);

// reduce.cu. out = inputs[0] + inputs[1] + ... (or the maximum) of n elements, bf16 added in f32. out may be one of the
// inputs. Bytes moved: every input read, out written.
constexpr int kMostInputs = 128;
void reduce(Stream stream, bool maximum, Type type, void* out, const void* const* inputs, int count, std::int64_t n);

}  // namespace ms::kernels
