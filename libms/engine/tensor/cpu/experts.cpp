// Mixture of experts (tensor/expert_ops.h): the router's choice and its gradient, and rows by slot. The grouped matmuls
// are in tensor/grouped_matmul.cpp.
#include "tensor/cpu/parallel.h"

namespace ms::tensor::MS_ISA {
namespace {

using Int = std::int32_t;

// Sums over the experts of a token.
struct Softmax {
  float lse, sum;  // log of the sum of the exponentials; the sum of the scores
};

// scores = softmax(logits) or their sigmoids.
Softmax score(const float* logits, float* scores, Index n, bool sigmoids) {
  Vf tops = splat(-__builtin_inff());
  each_vector(n, [&](Index i, auto lanes) { tops = max(keep(load(logits + i, lanes), lanes, tops), tops); });
  const float top = max(tops);
  Vf sums{};
  each_vector(n, [&](Index i, auto lanes) {
    const Vf y = keep(exp(load(logits + i, lanes) - top), lanes);
    store(scores + i, y, lanes);
    sums += y;
  });
  const float total = sum(sums), lse = top + __builtin_logf(total);
  if (!sigmoids) {
    each_vector(n, [&](Index i, auto lanes) { store(scores + i, load(scores + i, lanes) / total, lanes); });
    return {lse, 1.0F};
  }
  Vf all{};
  each_vector(n, [&](Index i, auto lanes) {
    const Vf y = keep(sigmoid(load(logits + i, lanes)), lanes);
    store(scores + i, y, lanes);
    all += y;
  });
  return {lse, sum(all)};
}

// The divisor of normalized weights. Sigmoids may all be 0.
float chosen_sum(const float* scores, const Int* experts, Index k) {
  float total = 1e-20F;
  for (Index j = 0; j < k; ++j) total += scores[experts[j]];
  return total;
}

// NaN counts as the lowest.
MS_INLINE bool better(float x, float y) {
  const float lowest = -__builtin_inff();
  return (x == x ? x : lowest) > (y == y ? y : lowest);
}

// Writes the places of the k highest of x[0..n) that `allowed` accepts, the highest first. Whatever they are, NaN
// included, the places differ.
template <class Allowed>
void choose(const float* x, Index n, Int* places, Index k, Allowed&& allowed) {
  Index count = 0;
  for (Int i = 0; i < n; ++i) {
    if (!allowed(i) || (count == k && !better(x[i], x[places[k - 1]]))) continue;
    Index j = count < k ? count++ : k - 1;
    for (; j > 0 && better(x[i], x[places[j - 1]]); --j) places[j] = places[j - 1];
    places[j] = i;
  }
}
constexpr auto kAll = [](Int) { return true; };

// Returns the groups that a token chooses from, a bit each. `x` [n]: what experts are chosen by.
std::uint64_t choose_groups(const Route& op, const float* x, Index n) {
  const Index size = n / op.groups;
  float sums[kMostGroups];
  Int chosen[kMostGroups];
  for (Index g = 0; g < op.groups; ++g) {
    float best = -__builtin_inff(), second = best;
    for (Index e = g * size; e < (g + 1) * size; ++e) {
      if (better(x[e], best)) {
        second = best, best = x[e];
      } else if (better(x[e], second)) {
        second = x[e];
      }
    }
    sums[g] = best + second;
  }
  choose(sums, op.groups, chosen, op.from_groups, kAll);
  std::uint64_t bits = 0;
  for (Index g = 0; g < op.from_groups; ++g) bits |= std::uint64_t{1} << chosen[g];
  return bits;
}

// Writes the experts of a token. `x` [n] is working memory.
void choose_experts(const Route& op, const float* logits, const float* scores, Index n, float* x, Int* experts) {
  const Index k = op.experts.cols;
  if (!op.chooses_by_score()) return choose(logits, n, experts, k, kAll);
  for (Index e = 0; e < n; ++e) x[e] = scores[e] + (op.bias ? row_of<float>(op.bias, 0)[e] : 0.0F);
  if (op.groups == 1) return choose(x, n, experts, k, kAll);
  const std::uint64_t groups = choose_groups(op, x, n);
  choose(x, n, experts, k, [&, size = n / op.groups](Index e) { return (groups >> (e / size) & 1) != 0; });
}

// Counts the slots of every expert that has some, and gives them to tokens in order.
void sort_slots(const Route& op, const float* weights) {
  const Index tokens = op.experts.rows, k = op.experts.cols, experts = op.with_slots();
  Int *offsets = row_of<Int>(op.offsets, 0), *at = row_of<Int>(op.tokens, 0);
  const auto own = [&](Index t, Index j) {  // the expert's number among those with slots; -1: it has none
    const Index e = row_of<Int>(op.experts, t)[j] - op.first;
    return e >= 0 && e < experts ? e : -1;
  };
  for (Index e = 0; e <= experts; ++e) offsets[e] = 0;
  for (Index t = 0; t < tokens; ++t) {
    for (Index j = 0; j < k; ++j) {
      if (const Index e = own(t, j); e >= 0) ++offsets[e + 1];
    }
  }
  for (Index e = 0; e < experts; ++e) offsets[e + 1] += offsets[e];
  const Index used = offsets[experts];
  for (Index t = 0; t < tokens; ++t) {
    for (Index j = 0; j < k; ++j) {
      const Index e = own(t, j);
      const Int slot = e >= 0 ? offsets[e]++ : -1;  // put back below
      row_of<Int>(op.slots, t)[j] = slot;
      if (slot < 0) continue;
      at[slot] = static_cast<Int>(t);
      row_of<float>(op.weights, 0)[slot] = weights[t * k + j];
    }
  }
  for (Index e = experts; e > 0; --e) offsets[e] = offsets[e - 1];
  offsets[0] = 0;
  for (Index slot = used; slot < tokens * k; ++slot) at[slot] = -1, row_of<float>(op.weights, 0)[slot] = 0.0F;
}

// dscores of the chosen experts from those of their weights; all others stay as they are.
void weights_backward(const RouteBwd& op, Index t, const float* scores, float* dscores) {
  const Index k = op.experts.cols;
  const Int *experts = row_of<Int>(op.experts, t), *slots = row_of<Int>(op.slots, t);
  const float* dweights = row_of<float>(op.dweights, 0);
  const auto given = [&](Index j) { return slots[j] < 0 ? 0.0F : dweights[slots[j]]; };
  const float total = op.normalized ? chosen_sum(scores, experts, k) : 1.0F;
  float mean = 0.0F;
  if (op.normalized) {
    for (Index j = 0; j < k; ++j) mean += given(j) * scores[experts[j]] / total;
  }
  for (Index j = 0; j < k; ++j) dscores[experts[j]] += op.scale * (given(j) - mean) / total;
}

template <class T>
void route_bwd(const RouteBwd& op) {
  const Index tokens = op.logits.rows, n = op.logits.cols;
  const Index part = op.counts ? tokens / op.counts.rows : tokens;
  const Scratch memory(2 * tokens * n);
  each_chunk(tokens, tokens * n, [&](Index t) {
    const float* logits = row_of<float>(op.logits, t);
    float *scores = memory.data() + 2 * t * n, *dscores = scores + n;
    const Softmax of = score(logits, scores, n, op.sigmoid);
    const float* counts = op.counts ? row_of<float>(op.counts, t / part) : nullptr;
    Vf balances{};
    if (counts != nullptr) {
      each_vector(
          n, [&](Index i, auto lanes) { balances += keep(load(scores + i, lanes) * load(counts + i, lanes), lanes); });
    }
    const float balance = sum(balances) / of.sum;
    each_vector(n, [&](Index i, auto lanes) {
      // A softmax's sum is constant; that of sigmoids is not.
      const Vf share = counts == nullptr ? Vf{} : load(counts + i, lanes) - (op.sigmoid ? balance : 0.0F);
      store(dscores + i, op.balance * share / of.sum, lanes);
    });
    weights_backward(op, t, scores, dscores);
    Vf dots{};
    each_vector(n,
                [&](Index i, auto lanes) { dots += keep(load(scores + i, lanes) * load(dscores + i, lanes), lanes); });
    const float dot = sum(dots);
    T* dlogits = row_of<T>(op.dlogits, t);
    each_vector(n, [&](Index i, auto lanes) {
      const Vf s = load(scores + i, lanes), d = load(dscores + i, lanes);
      const Vf slope = op.sigmoid ? d * s * (1.0F - s) : s * (d - dot);
      const Vf p = op.sigmoid ? exp(load(logits + i, lanes) - of.lse) : s;
      store(dlogits + i, slope + 2.0F * op.z * of.lse * p, lanes);
    });
  });
}

template <class T>
void combine(const ExpertCombine& op) {
  each_span(op.y.rows, op.y.cols, false, [&](Index t, Index begin, Index n) {
    const Int* slots = row_of<Int>(op.slots, t);
    T* y = row_of<T>(op.y, t) + begin;
    each_vector(n, [&](Index i, auto lanes) {
      Vf total{};
      for (Index j = 0; j < op.slots.cols; ++j) {
        if (slots[j] >= 0) total += load(row_of<T>(op.x, slots[j]) + begin + i, lanes);
      }
      store(y + i, total, lanes);
    });
  });
}

}  // namespace

void run(const Route& op) {
  const Index tokens = op.logits.rows, n = op.logits.cols, k = op.experts.cols;
  const Index each = op.chooses_by_score() ? 2 * n : n;
  const Scratch memory(tokens * (each + k));
  float* const weights = memory.data() + tokens * each;
  each_chunk(tokens, tokens * n, [&](Index t) {
    float* scores = memory.data() + t * each;
    Int* experts = row_of<Int>(op.experts, t);
    score(row_of<float>(op.logits, t), scores, n, op.sigmoid);
    choose_experts(op, row_of<float>(op.logits, t), scores, n, scores + n, experts);
    const float factor = op.normalized ? op.scale / chosen_sum(scores, experts, k) : op.scale;
    for (Index j = 0; j < k; ++j) weights[t * k + j] = factor * scores[experts[j]];
  });
  sort_slots(op, weights);
}

void run(const RouteBwd& op) {
  with_type(op.dlogits.dtype, [&](auto type) { route_bwd<decltype(type)>(op); });
}

void run(const ExpertCount& op) {
  const Index part = op.experts.rows / op.counts.rows;
  for (Index p = 0; p < op.counts.rows; ++p) {
    float* counts = row_of<float>(op.counts, p);
    for (Index e = 0; e < op.counts.cols; ++e) counts[e] = 0.0F;
    for (Index t = p * part; t < (p + 1) * part; ++t) {
      for (Index j = 0; j < op.experts.cols; ++j) counts[row_of<Int>(op.experts, t)[j]] += 1.0F;
    }
  }
}

void run(const ExpertBias& op) {
  if (row_of<float>(op.factor, 0)[0] == 0.0F) return;
  for (Index i = 0; i < op.bias.rows; ++i) {
    float* bias = row_of<float>(op.bias, i);
    const double* counts = row_of<double>(op.counts, i);
    const Index n = op.bias.cols;
    double total = 0;
    for (Index e = 0; e < n; ++e) total += counts[e];
    for (Index e = 0; e < n; ++e) {
      const double scaled = counts[e] * static_cast<double>(n);  // whole numbers: compared without rounding
      bias[e] += scaled < total ? op.rate : scaled > total ? -op.rate : 0.0F;
    }
  }
}

void run(const ExpertDispatch& op) {
  const Int* tokens = row_of<Int>(op.tokens, 0);
  const auto bytes = static_cast<std::size_t>(op.x.cols * size_of(op.x.dtype));
  each_chunk(op.y.rows, op.y.numel(), [&](Index slot) {
    with_type(op.x.dtype, [&](auto type) {
      using T = decltype(type);
      if (tokens[slot] < 0) {
        __builtin_memset(row_of<T>(op.y, slot), 0, bytes);
      } else {
        __builtin_memcpy(row_of<T>(op.y, slot), row_of<T>(op.x, tokens[slot]), bytes);
      }
    });
  });
}

void run(const ExpertCombine& op) {
  with_type(op.x.dtype, [&](auto type) { combine<decltype(type)>(op); });
}

}  // namespace ms::tensor::MS_ISA
