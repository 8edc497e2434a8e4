// Pointwise ops, on one element or one pair of elements at a time: activations, rotary, sums of tensors, copies, the
// embedding's rows. All are bound by memory: one pass, whole vectors.
#include "tensor/cpu/parallel.h"

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <emmintrin.h>
#define MS_STREAMS  // has streaming stores, which the sanitizers cannot see
#endif

namespace ms::tensor::MS_ISA {
namespace {

constexpr float kGeluLinear = 0.7978845608F;             // sqrt(2/pi)
constexpr float kGeluCubic = 0.7978845608F * 0.044715F;  // times x^3

// 1 + tanh(u) = 2 sigmoid(2u), so gelu(x) = x sigmoid(2u) with u the polynomial.
MS_INLINE Vf gelu(Vf x) { return x * sigmoid(2.0F * x * (kGeluLinear + kGeluCubic * x * x)); }
MS_INLINE Vf gelu_slope(Vf x) {
  const Vf s = sigmoid(2.0F * x * (kGeluLinear + kGeluCubic * x * x));
  const Vf slope = 2.0F * x * (kGeluLinear + 3.0F * kGeluCubic * x * x);
  // For large |x|, s (1 - s) is 0 while the slope may have overflowed.
  const Vf bend = s * (1.0F - s);
  return s + (bend == 0.0F ? Vf{} : bend * slope);
}

// The normal distribution at x, and its density.
struct Normal {
  Vf below, density;
};
// The upper tail is t p(t) exp(-x^2 / 2), t = 1 / (1 + 0.3 |x|). The polynomial p is fitted by least squares of
// relative errors, which are below 2e-7 for |x| up to 14.
MS_INLINE Normal normal(Vf x) {
  const Vf t = 1.0F / (1.0F + 0.3F * (x < 0.0F ? -x : x));
  const Vf bell = exp(-0.5F * x * x);
  Vf p = splat(0.0362233714F);
  p = p * t - 0.159354558F;
  p = p * t + 0.209819637F;
  p = p * t - 0.0566450144F;
  p = p * t + 0.130005008F;
  p = p * t + 0.0995135047F;
  p = p * t + 0.120812181F;
  p = p * t + 0.119625866F;
  const Vf tail = t * p * bell;
  return {x > 0.0F ? 1.0F - tail : tail, 0.398942280F * bell};
}
MS_INLINE Vf exact_gelu(Vf x) { return x * normal(x).below; }
MS_INLINE Vf exact_gelu_slope(Vf x) {
  const Normal at = normal(x);
  return at.below + x * at.density;
}

template <class T>
void gelu_fwd(const GeluFwd& op, auto&& value) {
  each_span(op.x.rows, op.x.cols, is_flat(op.x) && is_flat(op.y), [&](Index row, Index begin, Index n) {
    const T* x = row_of<T>(op.x, row) + begin;
    T* y = row_of<T>(op.y, row) + begin;
    each_vector(n, [&](Index i, auto lanes) { store(y + i, value(load(x + i, lanes)), lanes); });
  });
}

template <class T>
void gelu_bwd(const GeluBwd& op, auto&& slope) {
  const bool flat = is_flat(op.x) && is_flat(op.dx) && is_flat(op.dy);
  each_span(op.x.rows, op.x.cols, flat, [&](Index row, Index begin, Index n) {
    const T* x = row_of<T>(op.x, row) + begin;
    const T* dy = row_of<T>(op.dy, row) + begin;
    T* dx = row_of<T>(op.dx, row) + begin;
    each_vector(n, [&](Index i, auto lanes) { store(dx + i, load(dy + i, lanes) * slope(load(x + i, lanes)), lanes); });
  });
}

template <class T>
void swiglu_fwd(const SwigluFwd& op) {
  const Index cols = op.y.cols;
  each_span(op.y.rows, cols, false, [&](Index row, Index begin, Index n) {
    const T* gate = row_of<T>(op.x, row) + begin;
    const T* up = gate + cols;
    T* y = row_of<T>(op.y, row) + begin;
    const float factor = op.factors ? row_of<float>(op.factors, 0)[row] : 1.0F;
    each_vector(n, [&](Index i, auto lanes) {
      const Vf g = load(gate + i, lanes);
      store(y + i, factor * (g * sigmoid(g) * load(up + i, lanes)), lanes);
    });
  });
}

template <class T>
void swiglu_bwd(const SwigluBwd& op) {
  const Index cols = op.dy.cols;
  each_chunk(op.dy.rows, op.dy.numel(), [&](Index row) {
    const T* gate = row_of<T>(op.x, row);
    const T* up = gate + cols;
    const T* dy = row_of<T>(op.dy, row);
    T* dgate = row_of<T>(op.dx, row);
    T* dup = dgate + cols;
    const float factor = op.factors ? row_of<float>(op.factors, 0)[row] : 1.0F;
    Vf dfactor{};
    each_vector(cols, [&](Index i, auto lanes) {
      const Vf g = load(gate + i, lanes), u = load(up + i, lanes), given = load(dy + i, lanes), d = factor * given;
      const Vf s = sigmoid(g);
      store(dgate + i, d * u * (s + g * s * (1.0F - s)), lanes);
      store(dup + i, d * g * s, lanes);
      dfactor += keep(given * (g * s * u), lanes);
    });
    if (op.factors) row_of<float>(op.dfactors, 0)[row] = sum(dfactor);
  });
}

template <class T>
void rotary(const Rotary& op) {
  const Index half = op.table.cols / 2;
  each_chunk(op.x.rows, op.x.numel(), [&](Index row) {
    const float* cosine = row_of<float>(op.table, row % op.seq);
    const float* sine = cosine + half;
    const float turn = op.inverse ? -1.0F : 1.0F;
    for (Index head = 0; head < op.x.cols; head += op.head_dim) {
      T* a = row_of<T>(op.x, row) + head;
      T* b = a + half;
      each_vector(half, [&](Index i, auto lanes) {
        const Vf x = load(a + i, lanes), y = load(b + i, lanes);
        const Vf c = load(cosine + i, lanes), s = turn * load(sine + i, lanes);
        store(a + i, x * c - y * s, lanes);
        store(b + i, y * c + x * s, lanes);
      });
    }
  });
}

template <class T>
void add(const Add& op) {
  if (op.bias) {
    each_span(op.y.rows, op.y.cols, false, [&](Index row, Index begin, Index n) {
      const T* a = row_of<T>(op.a, row) + begin;
      const T* b = row_of<T>(op.b, row) + begin;
      const T* bias = row_of<T>(op.bias, 0) + begin;
      T* y = row_of<T>(op.y, row) + begin;
      each_vector(n, [&](Index i, auto lanes) {
        store(y + i, load(a + i, lanes) + load(b + i, lanes) + load(bias + i, lanes), lanes);
      });
    });
    return;
  }
  const bool flat = is_flat(op.y) && is_flat(op.a) && is_flat(op.b);
  each_span(op.y.rows, op.y.cols, flat, [&](Index row, Index begin, Index n) {
    const T* a = row_of<T>(op.a, row) + begin;
    const T* b = row_of<T>(op.b, row) + begin;
    T* y = row_of<T>(op.y, row) + begin;
    each_vector(n, [&](Index i, auto lanes) { store(y + i, load(a + i, lanes) + load(b + i, lanes), lanes); });
  });
}

template <class To, class From>
void convert(const Copy& op) {
  each_span(op.dst.rows, op.dst.cols, is_flat(op.dst) && is_flat(op.src), [&](Index row, Index begin, Index n) {
    const From* src = row_of<From>(op.src, row) + begin;
    To* dst = row_of<To>(op.dst, row) + begin;
    if constexpr (sizeof(To) == 8 || sizeof(From) == 8) {
      for (Index i = 0; i < n; ++i) dst[i] = static_cast<To>(src[i]);
    } else {
      each_vector(n, [&](Index i, auto lanes) { store(dst + i, load(src + i, lanes), lanes); });
    }
  });
}

// A copy larger than this leaves the caches before it is read. A store into a cache first reads what it overwrites,
// which is a third of the traffic.
constexpr std::size_t kStreamedBytes = std::size_t{4} << 20;

MS_INLINE void copy_bytes(std::byte* dst, const std::byte* src, std::size_t n, [[maybe_unused]] bool streamed) {
#ifdef MS_STREAMS
  constexpr std::size_t kLine = 64, kStore = sizeof(__m128i);
  if (streamed && n >= kLine) {
    const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(dst) % kLine) % kLine;
    __builtin_memcpy(dst, src, head);
    dst += head, src += head, n -= head;
    for (; n >= kLine; dst += kLine, src += kLine, n -= kLine) {
      __m128i part[kLine / kStore];
      __builtin_memcpy(part, src, kLine);
      for (std::size_t i = 0; i < kLine / kStore; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(dst) + i, part[i]);
    }
    _mm_sfence();  // the copy is visible before the op is reported done
  }
#endif
  __builtin_memcpy(dst, src, n);
}

template <class T>
void copy_same(const Copy& op) {
  const bool flat = is_flat(op.dst) && is_flat(op.src);
  const bool streamed = flat && static_cast<std::size_t>(op.dst.numel()) * sizeof(T) >= kStreamedBytes;
  each_span(op.dst.rows, op.dst.cols, flat, [&](Index row, Index begin, Index n) {
    copy_bytes(reinterpret_cast<std::byte*>(row_of<T>(op.dst, row) + begin),
               reinterpret_cast<const std::byte*>(row_of<T>(op.src, row) + begin),
               static_cast<std::size_t>(n) * sizeof(T), streamed);
  });
}

template <class T>
void fill(const Fill& op, T value) {
  each_span(op.x.rows, op.x.cols, is_flat(op.x), [&](Index row, Index begin, Index n) {
    T* x = row_of<T>(op.x, row) + begin;
    for (Index i = 0; i < n; ++i) x[i] = value;
  });
}

template <class T>
void embedding_fwd(const EmbeddingFwd& op) {
  const Index cols = op.y.cols;
  each_chunk(op.y.rows, op.y.numel(), [&](Index row) {
    const Index token = row_of<std::int32_t>(op.tokens, 0)[row] - op.first;
    T* y = row_of<T>(op.y, row);
    const std::size_t bytes = static_cast<std::size_t>(cols) * sizeof(T);
    if (token >= 0 && token < op.table.rows) {
      __builtin_memcpy(y, row_of<T>(op.table, token), bytes);
    } else {
      __builtin_memset(y, 0, bytes);
    }
  });
}

constexpr Index kSummedCols = 128;  // of a table's gradient at a time: their sums stay in the nearest cache

// Adds columns [begin, begin + n) of the rows of dy that belong to a row of a table, in order, to `to`: rows `row`,
// next(row), ... below dy.rows.
template <class T, class G, class Next>
MS_INLINE void add_rows(G* to, const Tensor& dy, Index begin, Index n, Index row, Next&& next) {
  float sums[kSummedCols];
  each_vector(n, [&](Index i, auto lanes) { store(sums + i, load(to + i, lanes), lanes); });
  for (; row < dy.rows; row = next(row)) {
    const T* from = row_of<T>(dy, row) + begin;
    each_vector(n, [&](Index i, auto lanes) { store(sums + i, load(sums + i, lanes) + load(from + i, lanes), lanes); });
  }
  each_vector(n, [&](Index i, auto lanes) { store(to + i, load(sums + i, lanes), lanes); });
}

// Tokens of one row of the table are linked, in order. The team shares the columns.
template <class T, class G>
void embedding_bwd(const EmbeddingBwd& op) {
  const Index rows = op.dy.rows;
  const Scratch memory(op.dtable.rows + rows);
  auto *first = reinterpret_cast<std::int32_t*>(memory.data()), *next = first + op.dtable.rows;
  for (Index row = 0; row < op.dtable.rows; ++row) first[row] = static_cast<std::int32_t>(rows);
  const auto token_of = [&](Index row) { return row_of<std::int32_t>(op.tokens, 0)[row] - op.first; };
  for (Index row = rows; row-- > 0;) {
    const Index token = token_of(row);
    if (token < 0 || token >= op.dtable.rows) continue;
    next[row] = first[token];
    first[token] = static_cast<std::int32_t>(row);
  }
  each_chunk(ceil_div(op.dy.cols, kSummedCols), op.dy.numel(), [&](Index chunk) {
    const Index begin = chunk * kSummedCols, n = least(kSummedCols, op.dy.cols - begin);
    for (Index row = 0; row < rows; ++row) {
      const Index token = token_of(row);
      if (token < 0 || token >= op.dtable.rows || first[token] != row) continue;
      add_rows<T>(row_of<G>(op.dtable, token) + begin, op.dy, begin, n, row, [&](Index at) { return next[at]; });
    }
  });
}

template <class T>
void position_fwd(const PositionFwd& op) {
  each_chunk(op.y.rows, op.y.numel(), [&](Index row) {
    const T* add_row = row_of<T>(op.table, (op.offset + row) % op.table.rows);
    T* y = row_of<T>(op.y, row);
    each_vector(op.y.cols,
                [&](Index i, auto lanes) { store(y + i, load(y + i, lanes) + load(add_row + i, lanes), lanes); });
  });
}

// Each row of the table has one owner, which adds its tokens in order.
template <class T, class G>
void position_bwd(const PositionBwd& op) {
  const Index seq = op.dtable.rows;
  each_chunk(seq, op.dy.numel(), [&](Index position) {
    const Index row = (position - op.offset % seq + seq) % seq;
    for (Index begin = 0; row < op.dy.rows && begin < op.dy.cols; begin += kSummedCols) {
      add_rows<T>(row_of<G>(op.dtable, position) + begin, op.dy, begin, least(kSummedCols, op.dy.cols - begin), row,
                  [&](Index at) { return at + seq; });
    }
  });
}

// Calls function(T{}, G{}) with the element types of an op's input and of the sum that it adds to.
template <class Function>
void with_types(const Tensor& x, const Tensor& sum, Function&& function) {
  with_type(x.dtype, [&](auto type) { with_type(sum.dtype, [&](auto to) { function(type, to); }); });
}

}  // namespace

void run(const GeluFwd& op) {
  with_type(op.x.dtype, [&]<class T>(T) {
    if (op.exact) return gelu_fwd<T>(op, [](Vf x) { return exact_gelu(x); });
    gelu_fwd<T>(op, [](Vf x) { return gelu(x); });
  });
}
void run(const GeluBwd& op) {
  with_type(op.x.dtype, [&]<class T>(T) {
    if (op.exact) return gelu_bwd<T>(op, [](Vf x) { return exact_gelu_slope(x); });
    gelu_bwd<T>(op, [](Vf x) { return gelu_slope(x); });
  });
}
void run(const SwigluFwd& op) {
  with_type(op.x.dtype, [&](auto type) { swiglu_fwd<decltype(type)>(op); });
}
void run(const SwigluBwd& op) {
  with_type(op.x.dtype, [&](auto type) { swiglu_bwd<decltype(type)>(op); });
}
void run(const Rotary& op) {
  with_type(op.x.dtype, [&](auto type) { rotary<decltype(type)>(op); });
}
void run(const Add& op) {
  with_type(op.y.dtype, [&](auto type) { add<decltype(type)>(op); });
}
void run(const EmbeddingFwd& op) {
  with_type(op.y.dtype, [&](auto type) { embedding_fwd<decltype(type)>(op); });
}
void run(const EmbeddingBwd& op) {
  with_types(op.dy, op.dtable, [&](auto type, auto sum) { embedding_bwd<decltype(type), decltype(sum)>(op); });
}
void run(const PositionFwd& op) {
  with_type(op.y.dtype, [&](auto type) { position_fwd<decltype(type)>(op); });
}
void run(const PositionBwd& op) {
  with_types(op.dy, op.dtable, [&](auto type, auto sum) { position_bwd<decltype(type), decltype(sum)>(op); });
}
void run(const Copy& op) {
  const DType to = op.dst.dtype, from = op.src.dtype;
  if (to == from) {
    if (to == DType::f64) return copy_same<double>(op);
    if (to == DType::bf16) return copy_same<bfloat16>(op);
    return copy_same<float>(op);  // or i32: the same bytes
  }
  if (to == DType::f64) return convert<double, float>(op);
  if (from == DType::f64) return convert<float, double>(op);
  if (to == DType::bf16) return convert<bfloat16, float>(op);
  return convert<float, bfloat16>(op);
}
void run(const Fill& op) {
  switch (op.x.dtype) {
    case DType::f32: return fill(op, op.value);
    case DType::bf16: return fill(op, bfloat16{narrow(op.value)});
    case DType::f64: return fill(op, static_cast<double>(op.value));
    case DType::i32: return fill(op, static_cast<std::int32_t>(op.value));
  }
}

}  // namespace ms::tensor::MS_ISA
