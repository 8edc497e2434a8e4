// Mixture of experts: the router's choice and its gradient, the slots of tokens, and rows by slot. A warp owns a token,
// or a pair of an expert and a part of the tokens.
#include "sort.cuh"
#include "vector.cuh"

namespace ms::kernels {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

__device__ int lane() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ std::int64_t warp_of_grid() { return std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp; }
unsigned blocks_of_warps(std::int64_t warps) { return static_cast<unsigned>((warps + kWarps - 1) / kWarps); }

__device__ float warp_max(float x) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(~0U, x, offset));
  return x;
}

// The scores of a token: softmax(logits) or their sigmoids.
struct Scores {
  const float* logits;
  float lse, sum = 1;  // log of the sum of the exponentials; the sum of the scores
  bool sigmoids;

  __device__ Scores(const float* of, int experts, bool sigmoids_in) : logits(of), sigmoids(sigmoids_in) {
    float top = -INFINITY;
    for (int e = lane(); e < experts; e += kWarp) top = fmaxf(top, logits[e]);
    top = warp_max(top);
    float exponentials = 0, all = 0;
    for (int e = lane(); e < experts; e += kWarp) {
      exponentials += expf(logits[e] - top);
      all += 1 / (1 + expf(-logits[e]));
    }
    lse = top + logf(warp_sum(exponentials));
    if (sigmoids) sum = warp_sum(all);
  }
  __device__ float probability(int e) const { return expf(logits[e] - lse); }
  __device__ float operator[](int e) const { return sigmoids ? 1 / (1 + expf(-logits[e])) : probability(e); }
  // The divisor of normalized weights.
  __device__ float of_chosen(const std::int32_t* experts, int k) const {
    float total = 0;
    for (int j = lane(); j < k; j += kWarp) total += (*this)[experts[j]];
    return warp_sum(total) + 1e-20F;
  }
};

// An expert or a group of experts. Better is a higher value, or the same and a lower number; NaN counts as the lowest.
struct Candidate {
  float value = -INFINITY;
  int number = -1;
  __device__ Candidate(float x, int n) : value(x == x ? x : -INFINITY), number(n) {}
  __device__ bool is_better(const Candidate& other) const {
    return other.number < 0 || value > other.value || (value == other.value && number < other.number);
  }
};

__device__ Candidate best_of_warp(Candidate best) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    Candidate other(__shfl_xor_sync(~0U, best.value, offset), __shfl_xor_sync(~0U, best.number, offset));
    if (other.number >= 0 && other.is_better(best)) best = other;
  }
  return best;
}

// The values that decide which experts a token chooses: their logits, or their scores plus the bias if there is one or
// if experts are in groups; and the groups to choose from, a bit each.
struct Choice {
  const Scores& scores;
  RouteGroups groups;
  int size;  // of a group
  std::uint64_t open = ~std::uint64_t{0};

  __device__ Choice(const Scores& of, int experts, RouteGroups by) : scores(of), groups(by), size(experts / by.count) {
    if (groups.count == 1) return;
    open = 0;
    for (int j = 0; j < groups.chosen; ++j) {
      Candidate best(0, -1);
      for (int g = lane(); g < groups.count; g += kWarp) {
        const Candidate candidate(best_two(g), g);
        if ((open >> g & 1) == 0 && candidate.is_better(best)) best = candidate;
      }
      open |= std::uint64_t{1} << best_of_warp(best).number;
    }
  }
  __device__ float operator[](int e) const {
    if (groups.bias == nullptr && groups.count == 1) return scores.logits[e];
    return scores[e] + (groups.bias == nullptr ? 0 : groups.bias[e]);
  }
  // Returns the sum of the two best of a group.
  __device__ float best_two(int group) const {
    float best = -INFINITY, second = -INFINITY;
    for (int e = group * size; e < (group + 1) * size; ++e) {
      const Candidate next((*this)[e], e);  // without NaN
      second = fmaxf(second, fminf(best, next.value));
      best = fmaxf(best, next.value);
    }
    return best + second;
  }
  __device__ bool is_open(int e) const { return groups.count == 1 || (open >> (e / size) & 1) != 0; }
};

__global__ void __launch_bounds__(kThreads)
    route_kernel(std::int32_t* chosen, float* weights, const float* logits, std::int64_t ld, std::int64_t tokens,
                 int experts, int k, RouteRule rule, RouteGroups groups) {
  const std::int64_t t = warp_of_grid();
  if (t >= tokens) return;
  const float* x = logits + t * ld;
  std::int32_t* own = chosen + t * k;
  const Scores scores(x, experts, rule.sigmoid);
  const Choice choice(scores, experts, groups);
  float total = 1e-20F;  // sigmoids may all be 0
  Candidate last(0, -1);
  for (int j = 0; j < k; ++j) {
    Candidate best(0, -1);
    for (int e = lane(); e < experts; e += kWarp) {
      if (!choice.is_open(e)) continue;
      const Candidate candidate(choice[e], e);
      if ((j == 0 || last.is_better(candidate)) && candidate.is_better(best)) best = candidate;
    }
    last = best = best_of_warp(best);
    const float score = scores[best.number];
    total += score;
    if (lane() == 0) own[j] = best.number, weights[t * k + j] = rule.scale * score;
  }
  if (lane() != 0 || !rule.normalized) return;
  for (int j = 0; j < k; ++j) weights[t * k + j] /= total;
}

// Numbers the pairs, and gives each the number of its expert among those with slots; `count`: it has none.
__global__ void __launch_bounds__(kThreads)
    number(std::int32_t* at, std::int32_t* own, const std::int32_t* chosen, int first, int count, std::int64_t n) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  at[i] = static_cast<std::int32_t>(i);
  const int e = chosen[i] - first;
  own[i] = e >= 0 && e < count ? e : count;
}

// `sorted` experts, of pairs `at` of a token and a choice. A slot writes where the experts begin that come after that
// of the slot before it, up to its own; the last slot those behind, too. Pairs of expert `experts` have no slot.
__global__ void __launch_bounds__(kThreads)
    place_slots(std::int32_t* slots, std::int32_t* tokens, float* weights, std::int32_t* offsets,
                const std::int32_t* sorted, const std::int32_t* at, const float* pair_weights, int k, int experts,
                std::int64_t n) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  const std::int32_t pair = at[i];
  const bool has_slot = sorted[i] < experts;
  slots[pair] = has_slot ? static_cast<std::int32_t>(i) : -1;
  tokens[i] = has_slot ? pair / k : -1;
  weights[i] = has_slot ? pair_weights[pair] : 0;
  for (int e = i == 0 ? 0 : sorted[i - 1] + 1; e <= sorted[i]; ++e) offsets[e] = static_cast<std::int32_t>(i);
  if (i + 1 < n) return;
  for (int e = sorted[i] + 1; e <= experts; ++e) offsets[e] = static_cast<std::int32_t>(n);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    route_bwd_kernel(T* dlogits, std::int64_t dlogits_ld, const float* dweights, const float* logits, std::int64_t ld,
                     const std::int32_t* chosen, const std::int32_t* slots, const float* counts, std::int64_t counts_ld,
                     std::int64_t part, std::int64_t tokens, int experts, int k, RouteRule rule, float balance,
                     float z) {
  const std::int64_t t = warp_of_grid();
  if (t >= tokens) return;
  const std::int32_t *own = chosen + t * k, *slot = slots + t * k;
  const float* count = counts == nullptr ? nullptr : counts + t / part * counts_ld;
  const Scores scores(logits + t * ld, experts, rule.sigmoid);
  const float divisor = rule.normalized ? scores.of_chosen(own, k) : 1;
  float mean = 0, shares = 0;
  const auto given = [&](int j) { return slot[j] < 0 ? 0 : dweights[slot[j]]; };
  if (rule.normalized) {
    for (int j = lane(); j < k; j += kWarp) mean += given(j) * scores[own[j]] / divisor;
    mean = warp_sum(mean);
  }
  if (count != nullptr) {
    for (int e = lane(); e < experts; e += kWarp) shares += scores[e] * count[e];
    shares = warp_sum(shares) / scores.sum;
  }
  const auto dscore = [&](int e) {
    // A softmax's sum is constant; that of sigmoids is not.
    float d = count == nullptr ? 0 : balance * (count[e] - (rule.sigmoid ? shares : 0)) / scores.sum;
    for (int j = 0; j < k; ++j) {
      if (own[j] == e) d += rule.scale * (given(j) - mean) / divisor;
    }
    return d;
  };
  float dot = 0;
  for (int e = lane(); e < experts; e += kWarp) dot += scores[e] * dscore(e);
  dot = warp_sum(dot);
  for (int e = lane(); e < experts; e += kWarp) {
    const float s = scores[e], d = dscore(e);
    const float slope = rule.sigmoid ? d * s * (1 - s) : s * (d - dot);
    dlogits[t * dlogits_ld + e] = from_float<T>(slope + 2 * z * scores.lse * scores.probability(e));
  }
}

__global__ void __launch_bounds__(kThreads)
    count_experts(float* counts, std::int64_t ld, std::int64_t parts, std::int64_t experts, const std::int32_t* chosen,
                  std::int64_t pairs) {
  const std::int64_t i = warp_of_grid();
  if (i >= parts * experts) return;
  const std::int64_t part = i / experts, e = i % experts;
  int found = 0;
  for (std::int64_t j = lane(); j < pairs; j += kWarp) found += chosen[part * pairs + j] == e ? 1 : 0;
  found = warp_sum(found);
  if (lane() == 0) counts[part * ld + e] = static_cast<float>(found);
}

__global__ void __launch_bounds__(kThreads)
    bias_kernel(float* bias, std::int64_t ld, const double* counts, std::int64_t rows, std::int64_t experts,
                const float* factor, float rate) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= rows * experts || *factor == 0) return;
  const std::int64_t row = i / experts, e = i % experts;
  const double* of_row = counts + row * experts;
  double total = 0;
  for (std::int64_t other = 0; other < experts; ++other) total += of_row[other];
  const double scaled = of_row[e] * static_cast<double>(experts);  // whole numbers: compared without rounding
  bias[row * ld + e] += scaled < total ? rate : scaled > total ? -rate : 0;
}

template <class T, int kL>
__global__ void __launch_bounds__(kThreads)
    combine(T* y, std::int64_t y_ld, const T* x, std::int64_t x_ld, const std::int32_t* slots, int k, std::int64_t rows,
            std::int64_t cols) {
  const std::int64_t vectors = cols / kL, all = rows * vectors, step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < all; i += step) {
    const std::int64_t t = i / vectors, col = (i - t * vectors) * kL;
    Lanes<T, kL> sum = {};
    for (int j = 0; j < k; ++j) {
      if (slots[t * k + j] < 0) continue;
      Lanes<T, kL> v;
      v.load(x + slots[t * k + j] * x_ld + col);
#pragma unroll
      for (int l = 0; l < kL; ++l) sum.v[l] += v.v[l];
    }
    sum.store(y + t * y_ld + col);
  }
}

template <class T, int kL>
__global__ void __launch_bounds__(kThreads) factors_kernel(float* dfactors, const T* dy, std::int64_t dy_ld, const T* x,
                                                           std::int64_t x_ld, std::int64_t rows, std::int64_t cols) {
  const std::int64_t row = warp_of_grid();
  if (row >= rows) return;
  const T *given = dy + row * dy_ld, *gate = x + row * x_ld, *up = gate + cols;
  float sum = 0;
  for (std::int64_t i = std::int64_t{lane()} * kL; i < cols; i += kWarp * kL) {
    Lanes<T, kL> d, g, u;
    d.load(given + i);
    g.load(gate + i);
    u.load(up + i);
#pragma unroll
    for (int j = 0; j < kL; ++j) sum += d.v[j] * (g.v[j] / (1 + expf(-g.v[j])) * u.v[j]);
  }
  sum = warp_sum(sum);
  if (lane() == 0) dfactors[row] = sum;
}

}  // namespace

std::size_t route_bytes(std::int64_t pairs) {
  return 5 * rounded(static_cast<std::size_t>(pairs) * sizeof(std::int32_t)) + sort_bytes(pairs);
}

void route(Stream stream, const Routed& to, Matrix logits, int k, RouteRule rule, RouteGroups groups, int first,
           int count, void* scratch) {
  const std::int64_t n = logits.rows * k;
  const std::size_t each = rounded(static_cast<std::size_t>(n) * sizeof(std::int32_t));
  auto* memory = static_cast<std::byte*>(scratch);
  const auto words = [&](int index) { return reinterpret_cast<std::int32_t*>(memory + index * each); };
  std::int32_t *numbers = words(0), *sorted = words(1), *at = words(2), *own = words(3);
  auto* weights = reinterpret_cast<float*>(memory + 4 * each);
  const int experts = static_cast<int>(logits.cols);
  launch(route_kernel, blocks_of_warps(logits.rows), kThreads, stream, to.experts, weights, as<float>(logits),
         logits.ld, logits.rows, experts, k, rule, groups);
  launch(number, static_cast<unsigned>((n + kThreads - 1) / kThreads), kThreads, stream, numbers, own, to.experts,
         first, count, n);
  std::size_t bytes = sort_bytes(n);
  cub::DeviceRadixSort::SortPairs(memory + 5 * each, bytes, static_cast<const std::int32_t*>(own), sorted, numbers, at,
                                  static_cast<int>(n), 0, 32, stream);
  launch(place_slots, static_cast<unsigned>((n + kThreads - 1) / kThreads), kThreads, stream, to.slots, to.tokens,
         to.weights, to.offsets, sorted, at, weights, k, count, n);
}

void route_bwd(Stream stream, Matrix dlogits, const float* dweights, Matrix logits, const std::int32_t* experts,
               const std::int32_t* slots, Matrix counts, int k, RouteRule rule, float balance, float z) {
  const std::int64_t part = counts.data == nullptr ? logits.rows : logits.rows / counts.rows;
  by_type(dlogits.type, [&]<class T>(T) {
    launch(route_bwd_kernel<T>, blocks_of_warps(logits.rows), kThreads, stream, as<T>(dlogits), dlogits.ld, dweights,
           as<float>(logits), logits.ld, experts, slots, as<float>(counts), counts.ld, part, logits.rows,
           static_cast<int>(logits.cols), k, rule, balance, z);
  });
}

void expert_count(Stream stream, Matrix counts, const std::int32_t* experts, std::int64_t pairs) {
  launch(count_experts, blocks_of_warps(counts.rows * counts.cols), kThreads, stream, as<float>(counts), counts.ld,
         counts.rows, counts.cols, experts, pairs / counts.rows);
}

void expert_bias(Stream stream, Matrix bias, const double* counts, const float* factor, float rate) {
  launch(bias_kernel, static_cast<unsigned>((bias.rows * bias.cols + kThreads - 1) / kThreads), kThreads, stream,
         as<float>(bias), bias.ld, counts, bias.rows, bias.cols, factor, rate);
}

void expert_combine(Stream stream, Matrix y, Matrix x, const std::int32_t* slots, int k) {
  by_type(y.type, [&]<class T>(T) {
    by_lanes<T>(is_aligned(y) && is_aligned(x), [&]<int kL>() {
      launch(combine<T, kL>, blocks_for(y.rows * y.cols / kL, kThreads), kThreads, stream, as<T>(y), y.ld, as<T>(x),
             x.ld, slots, k, y.rows, y.cols);
    });
  });
}

void swiglu_factors_bwd(Stream stream, float* dfactors, Matrix dy, Matrix x) {
  const Matrix half{x.data, x.rows, x.cols / 2, x.ld, x.type};
  by_type(dy.type, [&]<class T>(T) {
    by_lanes<T>(is_aligned(dy) && is_aligned(half), [&]<int kL>() {
      launch(factors_kernel<T, kL>, blocks_of_warps(dy.rows), kThreads, stream, dfactors, as<T>(dy), dy.ld, as<T>(x),
             x.ld, dy.rows, dy.cols);
    });
  });
}

}  // namespace ms::kernels
