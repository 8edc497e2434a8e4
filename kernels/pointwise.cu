// Pointwise kernels: activations, rotary positions, additions, conversions. A thread processes one vector of 16 bytes
// of a row at a time and strides by the grid.
#include <algorithm>
#include <type_traits>

#include "amax.cuh"

namespace ms::kernels {
namespace {

constexpr int kThreads = 256;

// A matrix as kernels see it.
template <class T>
struct Rows {
  T* data;
  std::int64_t ld;
  __device__ T* at(std::int64_t row, std::int64_t col) const { return data + row * ld + col; }
};

// Returns i / vectors. Flat memory has one row, and a 64-bit division takes as long as all other work on a vector.
__device__ std::int64_t row_of(std::int64_t i, std::int64_t vectors) {
  if (i < vectors) return 0;
  if ((i | vectors) >> 32 == 0) return static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(vectors);
  return i / vectors;
}

// Calls body(row, col) for every vector of kL elements of rows x cols.
template <int kL, class Body>
__global__ void __launch_bounds__(kThreads) each_vector(std::int64_t rows, std::int64_t cols, Body body) {
  const std::int64_t vectors = cols / kL, all = rows * vectors, step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < all; i += step) {
    const std::int64_t row = row_of(i, vectors);
    body(row, (i - row * vectors) * kL);
  }
}
template <int kL, class Body>
void launch_vectors(Stream stream, std::int64_t rows, std::int64_t cols, Body body) {
  launch(each_vector<kL, Body>, blocks_for(rows * cols / kL, kThreads), kThreads, stream, rows, cols, body);
}
// The same, of a body that returns the amax of what it stores.
template <class T, int kL, class Body>
__global__ void __launch_bounds__(kThreads)
    each_vector_amax(std::int64_t rows, std::int64_t cols, Body body, float* amax) {
  __shared__ unsigned shared[kWarp];
  const std::int64_t vectors = cols / kL, all = rows * vectors, step = std::int64_t{gridDim.x} * kThreads;
  unsigned most = 0;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < all; i += step) {
    const std::int64_t row = row_of(i, vectors);
    most = max(most, body(row, (i - row * vectors) * kL));
  }
  block_amax<T>(most, shared, amax);
}

template <class T>
Rows<T> argument(const Matrix& m) {
  return {as<T>(m), m.ld};
}
template <class T, class Other>
Other argument(Other other) {
  return other;
}
// Launches Body<T, kL>{arguments...} over rows x cols; matrices become Rows<T>.
template <template <class, int> class Body, class... Arguments>
void run(Stream stream, Type type, bool aligned, std::int64_t rows, std::int64_t cols, const Arguments&... arguments) {
  by_type(type, [&]<class T>(T) {
    if (aligned) {
      constexpr int kL = kLanes<T, true>;
      launch_vectors<kL>(stream, rows, cols, Body<T, kL>{argument<T>(arguments)...});
    } else {
      launch_vectors<1>(stream, rows, cols, Body<T, 1>{argument<T>(arguments)...});
    }
  });
}

// Returns the same elements as one row, if they are contiguous.
template <class... M>
void flatten(Matrix& first, M&... others) {
  if (!is_flat(first) || !(is_flat(others) && ...)) return;
  for (Matrix* m : {&first, &others...}) *m = {m->data, 1, m->rows * m->cols, m->rows * m->cols, m->type};
}

// As run(), and finds the amax of the result unless that is null. With as many blocks as a GPU runs at once, few
// contend for it.
template <template <class, int> class Body, class... Arguments>
void run_activation(Stream stream, float* amax, Type type, bool aligned, std::int64_t rows, std::int64_t cols,
                    const Arguments&... arguments) {
  if (amax == nullptr) return run<Body>(stream, type, aligned, rows, cols, arguments...);
  constexpr unsigned kMostBlocks = 2048;
  clear_amax(stream, amax);
  by_type(type, [&]<class T>(T) {
    const auto start = [&]<int kL>(std::integral_constant<int, kL>) {
      launch(each_vector_amax<T, kL, Body<T, kL>>, std::min(blocks_for(rows * cols / kL, kThreads), kMostBlocks),
             kThreads, stream, rows, cols, Body<T, kL>{argument<T>(arguments)...}, amax);
    };
    if (aligned) {
      start(std::integral_constant<int, kLanes<T, true>>());
    } else {
      start(std::integral_constant<int, 1>());
    }
  });
}

constexpr float kGeluA = 0.7978845608028654F, kGeluB = 0.044715F;  // sqrt(2 / pi)

// bf16 uses the fast instructions, exact to about 2^-20: with the others, instructions, not memory, limit the kernel.
template <class T>
__device__ float sigmoid(float x) {
  if constexpr (sizeof(T) == 2) return __fdividef(1, 1 + __expf(-x));
  return 1 / (1 + expf(-x));
}
// 1 + tanh(u) = 2 sigmoid(2u), without cancellation when tanh is near -1.
template <class T>
__device__ float gelu(float x) {
  return x * sigmoid<T>(2 * kGeluA * x * (1 + kGeluB * x * x));
}
template <class T>
__device__ float gelu_slope(float x) {
  const float s = sigmoid<T>(2 * kGeluA * x * (1 + kGeluB * x * x)), bend = s * (1 - s);
  // For large |x| the bend is 0 while its factor may have overflowed.
  return bend == 0 ? s : s + bend * 2 * kGeluA * x * (1 + 3 * kGeluB * x * x);
}

// The normal distribution at x and its density.
__device__ float normal(float x) { return 0.5F * erfcf(-0.70710678F * x); }
__device__ float density(float x) { return 0.39894228F * expf(-0.5F * x * x); }

template <class T, bool kExact>
__device__ float gelu_of(float x) {
  return kExact ? x * normal(x) : gelu<T>(x);
}
template <class T, bool kExact>
__device__ float gelu_slope_of(float x) {
  return kExact ? normal(x) + x * density(x) : gelu_slope<T>(x);
}

template <class T, int kL, bool kExact>
struct AnyGeluFwd {
  Rows<T> y, x;
  __device__ unsigned operator()(std::int64_t row, std::int64_t col) const {
    Lanes<T, kL> v;
    v.load(x.at(row, col));
#pragma unroll
    for (int i = 0; i < kL; ++i) v.v[i] = gelu_of<T, kExact>(v.v[i]);
    v.store(y.at(row, col));
    return v.amax(0);
  }
};

template <class T, int kL, bool kExact>
struct AnyGeluBwd {
  Rows<T> dx, dy, x;
  __device__ unsigned operator()(std::int64_t row, std::int64_t col) const {
    Lanes<T, kL> v, d;
    v.load(x.at(row, col));
    d.load(dy.at(row, col));
#pragma unroll
    for (int i = 0; i < kL; ++i) v.v[i] = d.v[i] * gelu_slope_of<T, kExact>(v.v[i]);
    v.store(dx.at(row, col));
    return v.amax(0);
  }
};

template <class T, int kL>
using GeluFwd = AnyGeluFwd<T, kL, false>;
template <class T, int kL>
using GeluBwd = AnyGeluBwd<T, kL, false>;
template <class T, int kL>
using ExactGeluFwd = AnyGeluFwd<T, kL, true>;
template <class T, int kL>
using ExactGeluBwd = AnyGeluBwd<T, kL, true>;

template <class T, int kL>
struct SwigluFwd {
  Rows<T> y, x;
  std::int64_t half;
  const float* factors;
  __device__ unsigned operator()(std::int64_t row, std::int64_t col) const {
    Lanes<T, kL> gate, up;
    gate.load(x.at(row, col));
    up.load(x.at(row, half + col));
    const float factor = factors == nullptr ? 1 : factors[row];
#pragma unroll
    for (int i = 0; i < kL; ++i) up.v[i] *= factor * (gate.v[i] * sigmoid<T>(gate.v[i]));
    up.store(y.at(row, col));
    return up.amax(0);
  }
};

template <class T, int kL>
struct SwigluBwd {
  Rows<T> dx, dy, x;
  std::int64_t half;
  const float* factors;
  __device__ unsigned operator()(std::int64_t row, std::int64_t col) const {
    Lanes<T, kL> gate, up, d;
    gate.load(x.at(row, col));
    up.load(x.at(row, half + col));
    d.load(dy.at(row, col));
    const float factor = factors == nullptr ? 1 : factors[row];
#pragma unroll
    for (int i = 0; i < kL; ++i) {
      d.v[i] *= factor;
      const float g = gate.v[i], s = sigmoid<T>(g);
      gate.v[i] = d.v[i] * up.v[i] * s * (1 + g * (1 - s));
      up.v[i] = d.v[i] * g * s;
    }
    gate.store(dx.at(row, col));
    up.store(dx.at(row, half + col));
    return up.amax(gate.amax(0));
  }
};

// A vector of the first half of a head's rotated elements, and the vector of the second half that it rotates with.
template <class T, int kL>
struct Rotary {
  Rows<T> x;
  Rows<const float> table;
  std::int64_t seq, half, head_dim;
  float sign;
  __device__ void operator()(std::int64_t row, std::int64_t col) const {
    const std::int64_t head = col / half, i0 = col - head * half;
    const float* turn = table.at(row % seq, i0);
    T* at = x.at(row, head * head_dim + i0);
    float c[kL], s[kL];
    load_floats(c, turn);
    load_floats(s, turn + half);
    Lanes<T, kL> a, b;
    a.load(at);
    b.load(at + half);
#pragma unroll
    for (int i = 0; i < kL; ++i) {
      const float x0 = a.v[i], x1 = b.v[i];
      a.v[i] = x0 * c[i] - sign * x1 * s[i];
      b.v[i] = x1 * c[i] + sign * x0 * s[i];
    }
    a.store(at);
    b.store(at + half);
  }
};

template <class T, int kL>
struct Add {
  Rows<T> y, a, b, bias;
  __device__ void operator()(std::int64_t row, std::int64_t col) const {
    Lanes<T, kL> v, w;
    v.load(a.at(row, col));
    w.load(b.at(row, col));
#pragma unroll
    for (int i = 0; i < kL; ++i) v.v[i] += w.v[i];
    if (bias.data != nullptr) {
      w.load(bias.data + col);
#pragma unroll
      for (int i = 0; i < kL; ++i) v.v[i] += w.v[i];
    }
    v.store(y.at(row, col));
  }
};

template <class T, int kL>
struct Fill {
  Rows<T> x;
  float value;
  __device__ void operator()(std::int64_t row, std::int64_t col) const {
    Lanes<T, kL> v;
#pragma unroll
    for (int i = 0; i < kL; ++i) v.v[i] = value;
    v.store(x.at(row, col));
  }
};
template <class T>
struct FillOne {
  Rows<T> x;
  float value;
  __device__ void operator()(std::int64_t row, std::int64_t col) const { *x.at(row, col) = static_cast<T>(value); }
};

// kL elements are one vector of the narrower type.
template <class To, class From, int kL>
struct Convert {
  Rows<To> dst;
  Rows<From> src;
  static constexpr int kIn = kL == 1 ? 1 : kLanes<From, true>, kOut = kL == 1 ? 1 : kLanes<To, true>;
  __device__ void operator()(std::int64_t row, std::int64_t col) const {
    float v[kL];
#pragma unroll
    for (int i = 0; i < kL; i += kIn) {
      Lanes<From, kIn> in;
      in.load(src.at(row, col + i));
#pragma unroll
      for (int j = 0; j < kIn; ++j) v[i + j] = in.v[j];
    }
#pragma unroll
    for (int i = 0; i < kL; i += kOut) {
      Lanes<To, kOut> out;
#pragma unroll
      for (int j = 0; j < kOut; ++j) out.v[j] = v[i + j];
      out.store(dst.at(row, col + i));
    }
  }
};

}  // namespace

void gelu_fwd(Stream stream, Matrix y, Matrix x, float* amax, bool exact) {
  flatten(y, x);
  const bool aligned = is_aligned(x) && is_aligned(y);
  if (exact) return run_activation<ExactGeluFwd>(stream, amax, x.type, aligned, x.rows, x.cols, y, x);
  run_activation<GeluFwd>(stream, amax, x.type, aligned, x.rows, x.cols, y, x);
}
void gelu_bwd(Stream stream, Matrix dx, Matrix dy, Matrix x, float* amax, bool exact) {
  flatten(dx, dy, x);
  const bool aligned = is_aligned(x) && is_aligned(dy) && is_aligned(dx);
  if (exact) return run_activation<ExactGeluBwd>(stream, amax, x.type, aligned, x.rows, x.cols, dx, dy, x);
  run_activation<GeluBwd>(stream, amax, x.type, aligned, x.rows, x.cols, dx, dy, x);
}
void swiglu_fwd(Stream stream, Matrix y, Matrix x, float* amax, const float* factors) {
  run_activation<SwigluFwd>(stream, amax, x.type, is_aligned(x) && is_aligned(y), y.rows, y.cols, y, x, y.cols,
                            factors);
}
void swiglu_bwd(Stream stream, Matrix dx, Matrix dy, Matrix x, float* amax, const float* factors) {
  run_activation<SwigluBwd>(stream, amax, x.type, is_aligned(x) && is_aligned(dy) && is_aligned(dx), dy.rows, dy.cols,
                            dx, dy, x, dy.cols, factors);
}
void rotary(Stream stream, Matrix x, Matrix table, std::int64_t seq, std::int64_t head_dim, bool inverse) {
  const std::int64_t half = table.cols / 2;
  const bool aligned = is_aligned(x) && is_aligned(table) && half % 8 == 0 && head_dim % 8 == 0;
  run<Rotary>(stream, x.type, aligned, x.rows, x.cols / head_dim * half, x,
              Rows<const float>{as<float>(table), table.ld}, seq, half, head_dim, inverse ? -1.0F : 1.0F);
}
void add(Stream stream, Matrix y, Matrix a, Matrix b, Matrix bias) {
  if (bias.data == nullptr) flatten(y, a, b);
  run<Add>(stream, y.type, is_aligned(y) && is_aligned(a) && is_aligned(b) && is_aligned(bias), y.rows, y.cols, y, a, b,
           bias);
}

void fill(Stream stream, Matrix x, float value) {
  flatten(x);
  if (x.type == Type::f64)
    return launch_vectors<1>(stream, x.rows, x.cols, FillOne<double>{argument<double>(x), value});
  if (x.type == Type::i32)
    return launch_vectors<1>(stream, x.rows, x.cols, FillOne<std::int32_t>{argument<std::int32_t>(x), value});
  run<Fill>(stream, x.type, is_aligned(x), x.rows, x.cols, x, value);
}

void convert(Stream stream, Matrix dst, Matrix src) {
  flatten(dst, src);
  constexpr int kL = 8;
  by_type_or_f64(dst.type, [&]<class To>(To) {
    by_type_or_f64(src.type, [&]<class From>(From) {
      const Rows<To> to = argument<To>(dst);
      const Rows<From> from = argument<From>(src);
      if (is_aligned(dst) && is_aligned(src) && dst.cols % kL == 0) {
        launch_vectors<kL>(stream, dst.rows, dst.cols, Convert<To, From, kL>{to, from});
      } else {
        launch_vectors<1>(stream, dst.rows, dst.cols, Convert<To, From, 1>{to, from});
      }
    });
  });
}

}  // namespace ms::kernels
