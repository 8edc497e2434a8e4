// Embeddings: row lookup, and its gradient. Tokens are sorted so that each row of the table has one owner, which adds
// in the order of t.
#include <algorithm>
#include "sort.cuh"
#include "vector.cuh"

namespace ms::kernels {
namespace {

constexpr int kThreads = 256;

template <class T, int kL>
__global__ void __launch_bounds__(kThreads)
    lookup(T* y, std::int64_t y_ld, const T* table, std::int64_t table_ld, std::int64_t table_rows,
           const std::int32_t* tokens, std::int64_t first, std::int64_t rows, std::int64_t cols) {
  const std::int64_t vectors = cols / kL, all = rows * vectors, step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < all; i += step) {
    const std::int64_t t = i / vectors, col = (i - t * vectors) * kL, row = tokens[t] - first;
    Lanes<T, kL> v = {};
    if (row >= 0 && row < table_rows) v.load(table + row * table_ld + col);
    v.store(y + t * y_ld + col);
  }
}

template <class T, int kL>
__global__ void __launch_bounds__(kThreads)
    add_positions(T* y, std::int64_t y_ld, const T* table, std::int64_t table_ld, std::int64_t seq, std::int64_t offset,
                  std::int64_t rows, std::int64_t cols) {
  const std::int64_t vectors = cols / kL, all = rows * vectors, step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < all; i += step) {
    const std::int64_t t = i / vectors, col = (i - t * vectors) * kL;
    Lanes<T, kL> v, p;
    v.load(y + t * y_ld + col);
    p.load(table + (offset + t) % seq * table_ld + col);
#pragma unroll
    for (int j = 0; j < kL; ++j) v.v[j] += p.v[j];
    v.store(y + t * y_ld + col);
  }
}

// Row p of the table receives the rows t with (offset + t) mod seq = p, in order.
template <class T, class G, int kL>
__global__ void __launch_bounds__(kThreads)
    sum_positions(G* dtable, std::int64_t table_ld, const T* dy, std::int64_t dy_ld, std::int64_t seq,
                  std::int64_t offset, std::int64_t rows, std::int64_t cols) {
  const std::int64_t vectors = cols / kL, all = seq * vectors, step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < all; i += step) {
    const std::int64_t p = i / vectors, col = (i - p * vectors) * kL;
    std::int64_t t = ((p - offset) % seq + seq) % seq;
    if (t >= rows) continue;
    G* to = dtable + p * table_ld + col;
    float sum[kL];
    load_floats(sum, to);
    for (; t < rows; t += seq) {
      Lanes<T, kL> v;
      v.load(dy + t * dy_ld + col);
#pragma unroll
      for (int j = 0; j < kL; ++j) sum[j] += v.v[j];
    }
    store_floats(to, sum);
  }
}

__global__ void __launch_bounds__(kThreads) number(std::int32_t* at, std::int64_t n) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) at[i] = static_cast<std::int32_t>(i);
}

// If sorted position i begins a run of one token, its blocks, each with a strip of columns, sum the whole run, in
// order. Other blocks do nothing. A frequent token has hundreds of positions: several rows are read at once.
constexpr int kAtOnce = 16;
template <class T, class G, int kL>
__global__ void __launch_bounds__(kThreads)
    sum_runs(G* dtable, std::int64_t table_ld, std::int64_t table_rows, const T* dy, std::int64_t dy_ld,
             const std::int32_t* sorted, const std::int32_t* at, std::int64_t first, std::int64_t n,
             std::int64_t cols) {
  const std::int64_t begin = blockIdx.x;
  const std::int32_t token = sorted[begin];
  if (begin > 0 && sorted[begin - 1] == token) return;
  const std::int64_t row = token - first;
  if (row < 0 || row >= table_rows) return;
  const std::int64_t col = (std::int64_t{blockIdx.y} * kThreads + threadIdx.x) * kL;
  if (col >= cols) return;
  G* to = dtable + row * table_ld + col;
  float sum[kL];
  load_floats(sum, to);
  int count = kAtOnce;  // positions of the run from i on
  for (std::int64_t i = begin; count == kAtOnce; i += kAtOnce) {
    Packed<T, kL> v[kAtOnce];
    count = 0;
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) count += i + k < n && sorted[i + k] == token ? 1 : 0;
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (k < count) v[k].load(dy + at[i + k] * dy_ld + col);
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (k >= count) continue;
#pragma unroll
      for (int j = 0; j < kL; ++j) sum[j] += v[k][j];
    }
  }
  store_floats(to, sum);
}

}  // namespace

void embedding_fwd(Stream stream, Matrix y, Matrix table, const std::int32_t* tokens, std::int64_t first) {
  by_type(y.type, [&]<class T>(T) {
    by_lanes<T>(is_aligned(y) && is_aligned(table), [&]<int kL>() {
      launch(lookup<T, kL>, blocks_for(y.rows * y.cols / kL, kThreads), kThreads, stream, as<T>(y), y.ld, as<T>(table),
             table.ld, table.rows, tokens, first, y.rows, y.cols);
    });
  });
}

void position_fwd(Stream stream, Matrix y, Matrix table, std::int64_t offset) {
  by_type(y.type, [&]<class T>(T) {
    by_lanes<T>(is_aligned(y) && is_aligned(table), [&]<int kL>() {
      launch(add_positions<T, kL>, blocks_for(y.rows * y.cols / kL, kThreads), kThreads, stream, as<T>(y), y.ld,
             as<T>(table), table.ld, table.rows, offset, y.rows, y.cols);
    });
  });
}

void position_bwd(Stream stream, Matrix dtable, Matrix dy, std::int64_t offset) {
  by_type(dy.type, [&]<class T>(T) {
    by_lanes<T>(is_aligned(dtable) && is_aligned(dy), [&]<int kL>() {
      by_type(dtable.type, [&]<class G>(G) {
        launch(sum_positions<T, G, kL>, blocks_for(dtable.rows * dtable.cols / kL, kThreads), kThreads, stream,
               as<G>(dtable), dtable.ld, as<T>(dy), dy.ld, dtable.rows, offset, dy.rows, dy.cols);
      });
    });
  });
}

std::size_t embedding_bwd_bytes(std::int64_t tokens) {
  return 3 * rounded(static_cast<std::size_t>(tokens) * sizeof(std::int32_t)) + sort_bytes(tokens);
}

void embedding_bwd(Stream stream, Matrix dtable, Matrix dy, const std::int32_t* tokens, std::int64_t first,
                   void* scratch) {
  const std::int64_t n = dy.rows;
  const std::size_t each = rounded(static_cast<std::size_t>(n) * sizeof(std::int32_t));
  auto* memory = static_cast<std::byte*>(scratch);
  auto *numbers = reinterpret_cast<std::int32_t*>(memory), *sorted = reinterpret_cast<std::int32_t*>(memory + each),
       *at = reinterpret_cast<std::int32_t*>(memory + 2 * each);
  launch(number, blocks_for(n, kThreads), kThreads, stream, numbers, n);
  std::size_t bytes = sort_bytes(n);
  cub::DeviceRadixSort::SortPairs(memory + 3 * each, bytes, tokens, sorted, numbers, at, static_cast<int>(n), 0, 32,
                                  stream);
  by_type(dy.type, [&]<class T>(T) {
    by_lanes<T>(is_aligned(dtable) && is_aligned(dy), [&]<int kL>() {
      const dim3 blocks(static_cast<unsigned>(n),
                        static_cast<unsigned>((dy.cols + kThreads * kL - 1) / (kThreads * kL)));
      by_type(dtable.type, [&]<class G>(G) {
        launch(sum_runs<T, G, kL>, blocks, kThreads, stream, as<G>(dtable), dtable.ld, dtable.rows, as<T>(dy), dy.ld,
               sorted, at, first, n, dy.cols);
      });
    });
  });
}

}  // namespace ms::kernels
