// Mixture of experts: the router's choice, slots, losses and gradients, against f64.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/rng.h"
#include "support.h"

namespace ms::tensor::test {
namespace {

constexpr double kRouteF32 = 4e-6;  // an exponential and its sum, a handful of roundings

struct RouteCase {
  std::int64_t tokens, experts, k;
  bool sigmoid, normalized;
};
constexpr RouteCase kRoutes[] = {{1, 1, 1, false, true},  {7, 4, 2, false, true},   {33, 8, 2, false, false},
                                 {40, 19, 5, true, true}, {24, 64, 8, true, false}, {513, 3, 3, false, true}};

std::string name_of(const RouteCase& c) {
  return fmt::format("{} tokens, {} of {} experts{}{}", c.tokens, c.k, c.experts, c.sigmoid ? ", sigmoid" : "",
                     c.normalized ? ", normalized" : "");
}

Mat scores_of(const Mat& logits, bool sigmoid) {
  Mat scores = logits;
  for (std::int64_t t = 0; t < logits.rows; ++t) {
    double total = 0;
    for (std::int64_t e = 0; e < logits.cols; ++e) {
      scores(t, e) = sigmoid ? 1 / (1 + std::exp(-logits(t, e))) : std::exp(logits(t, e));
      total += scores(t, e);
    }
    for (std::int64_t e = 0; e < logits.cols && !sigmoid; ++e) scores(t, e) /= total;
  }
  return scores;
}

// The weights of the experts chosen in `experts`, [T,k].
Mat weights_of(const Mat& logits, const Mat& experts, const RouteCase& c, double scale) {
  const Mat scores = scores_of(logits, c.sigmoid);
  Mat weights(c.tokens, c.k);
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    double total = 0;
    for (std::int64_t j = 0; j < c.k; ++j) total += scores(t, static_cast<std::int64_t>(experts(t, j)));
    for (std::int64_t j = 0; j < c.k; ++j)
      weights(t, j) = scale * scores(t, static_cast<std::int64_t>(experts(t, j))) / (c.normalized ? total : 1);
  }
  return weights;
}

Route routed(Memory& m, const RouteCase& c, const Tensor& logits) {
  return {.experts = m.tensor(DType::i32, c.tokens, c.k),
          .slots = m.tensor(DType::i32, c.tokens, c.k),
          .tokens = m.tensor(DType::i32, 1, c.tokens * c.k),
          .weights = m.tensor(DType::f32, 1, c.tokens * c.k),
          .offsets = m.tensor(DType::i32, 1, c.experts + 1),
          .logits = logits,
          .sigmoid = c.sigmoid,
          .normalized = c.normalized,
          .scale = 1.5F};
}

// What must hold whatever was chosen: slots are sorted by expert, then by token, and say the same as the choice.
void expect_sorted(const Route& op) {
  const Mat experts = read(op.experts), slots = read(op.slots), tokens = read(op.tokens), offsets = read(op.offsets);
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
  for (std::int64_t t = 0; t < experts.rows; ++t) {
    for (std::int64_t j = 0; j < experts.cols; ++j) pairs.emplace_back(static_cast<std::int64_t>(experts(t, j)), t);
  }
  std::ranges::sort(pairs);
  ASSERT_EQ(std::ranges::adjacent_find(pairs), pairs.end()) << "an expert twice for a token";
  EXPECT_EQ(offsets(0, 0), 0);
  EXPECT_EQ(offsets(0, offsets.cols - 1), static_cast<double>(pairs.size()));
  for (std::int64_t slot = 0; slot < std::ssize(pairs); ++slot) {
    const auto& [expert, token] = pairs[static_cast<std::size_t>(slot)];
    EXPECT_EQ(tokens(0, slot), static_cast<double>(token)) << slot;
    EXPECT_LE(offsets(0, expert), static_cast<double>(slot));
    EXPECT_GT(offsets(0, expert + 1), static_cast<double>(slot));
  }
  for (std::int64_t t = 0; t < experts.rows; ++t) {
    for (std::int64_t j = 0; j < experts.cols; ++j) {
      const auto slot = static_cast<std::int64_t>(slots(t, j));
      EXPECT_EQ(pairs.at(static_cast<std::size_t>(slot)), std::pair(static_cast<std::int64_t>(experts(t, j)), t));
    }
  }
}

TEST(Experts, RouteChoosesTheHighest) {
  for (const RouteCase& c : kRoutes) {
    SCOPED_TRACE(name_of(c));
    Memory m;
    const Tensor logits = m.tensor(DType::f32, c.tokens, c.experts, 1, 2.0);
    put(logits, 0, c.experts - 1, get(logits, 0, 0));  // equal: the lower number is the better one
    const Route op = routed(m, c, logits);
    const Mat x = read(logits);
    everywhere(m, op, [&] {
      expect_sorted(op);
      const Mat experts = read(op.experts), slots = read(op.slots), weights = weights_of(x, experts, c, op.scale);
      for (std::int64_t t = 0; t < c.tokens; ++t) {
        std::vector<std::int64_t> best(static_cast<std::size_t>(c.experts));
        std::iota(best.begin(), best.end(), 0);
        std::ranges::stable_sort(best, std::greater(), [&](std::int64_t e) { return x(t, e); });
        for (std::int64_t j = 0; j < c.k; ++j) {
          EXPECT_EQ(experts(t, j), static_cast<double>(best[static_cast<std::size_t>(j)])) << t << "," << j;
          EXPECT_NEAR(get(op.weights, 0, static_cast<std::int64_t>(slots(t, j))), weights(t, j), kRouteF32);
        }
      }
    });
  }
}

// With a bias or groups, scores plus bias decide; the weights are the scores alone. A group counts with its two best.
TEST(Experts, RouteChoosesByBiasAndGroups) {
  struct Case {
    RouteCase route;
    bool biased;
    std::int64_t groups, from_groups;
  };
  const Case cases[] = {{{33, 8, 2, true, true}, true, 1, 1},   {{40, 24, 5, true, true}, true, 4, 2},
                        {{24, 64, 8, true, false}, true, 8, 4}, {{50, 12, 3, false, true}, false, 6, 2},
                        {{7, 6, 6, true, true}, false, 3, 3},   {{20, 128, 4, false, true}, true, 64, 3}};
  for (const auto& [c, biased, groups, from_groups] : cases) {
    SCOPED_TRACE(fmt::format("{}, {} of {} groups", name_of(c), from_groups, groups));
    Memory m;
    const Tensor logits = m.tensor(DType::f32, c.tokens, c.experts, 1, 2.0);
    Route op = routed(m, c, logits);
    op.groups = groups, op.from_groups = from_groups;
    if (biased) op.bias = m.tensor(DType::f32, 1, c.experts, 1, 0.3);
    const Mat x = read(logits), scores = scores_of(x, c.sigmoid);
    const std::int64_t size = c.experts / groups;
    everywhere(m, op, [&] {
      expect_sorted(op);
      const Mat experts = read(op.experts), slots = read(op.slots), weights = weights_of(x, experts, c, op.scale);
      for (std::int64_t t = 0; t < c.tokens; ++t) {
        const auto rank = [&](std::int64_t e) { return scores(t, e) + (biased ? get(op.bias, 0, e) : 0.0); };
        const auto of_group = [&](std::int64_t g) {
          std::vector<double> ranks;
          for (std::int64_t e = g * size; e < (g + 1) * size; ++e) ranks.push_back(rank(e));
          std::ranges::sort(ranks, std::greater());
          return ranks[0] + ranks[1];
        };
        std::vector<std::int64_t> open(static_cast<std::size_t>(groups)), best;
        std::iota(open.begin(), open.end(), 0);
        if (groups > 1) std::ranges::stable_sort(open, std::greater(), of_group);
        open.resize(static_cast<std::size_t>(from_groups));
        for (std::int64_t e = 0; e < c.experts; ++e) {
          if (std::ranges::find(open, e / size) != open.end()) best.push_back(e);
        }
        std::ranges::stable_sort(best, std::greater(), rank);
        for (std::int64_t j = 0; j < c.k; ++j) {
          EXPECT_EQ(experts(t, j), static_cast<double>(best[static_cast<std::size_t>(j)])) << t << "," << j;
          EXPECT_NEAR(get(op.weights, 0, static_cast<std::int64_t>(slots(t, j))), weights(t, j), kRouteF32);
        }
      }
    });
  }
}

TEST(Experts, BiasRisesWhereFewTokensCome) {
  Memory m;
  const Tensor bias = m.of(DType::f32, Mat(2, 3)), counts = m.of(DType::f64, Mat(2, 3)),
               factor = m.of(DType::f32, Mat(1, 1));
  const double given[2][3] = {{5, 1, 3}, {16777217, 16777217, 16777217}};  // equal, and not exact in f32
  for (const double step : {1.0, 0.0}) {
    for (std::int64_t i = 0; i < 6; ++i) put(counts, i / 3, i % 3, given[i / 3][i % 3]), put(bias, i / 3, i % 3, 0.5);
    put(factor, 0, 0, step);
    everywhere(m, ExpertBias{bias, counts, factor, 0.25F}, [&] {
      EXPECT_EQ(read(bias).values, (std::vector<double>{0.5 - 0.25 * step, 0.5 + 0.25 * step, 0.5, 0.5, 0.5, 0.5}));
    });
  }
}

// A rank that holds some of the experts: their slots are those of all, without the others.
TEST(Experts, SomeHaveSlots) {
  const RouteCase c{40, 9, 3, false, true};
  Memory m;
  const Tensor logits = m.tensor(DType::f32, c.tokens, c.experts, 1);
  const Route whole = routed(m, c, logits);
  cpu_kernels().run(whole);
  const Mat experts = read(whole.experts), slots = read(whole.slots), tokens = read(whole.tokens),
            weights = read(whole.weights), offsets = read(whole.offsets);
  for (const auto& [first, count] : {std::pair{std::int64_t{0}, std::int64_t{4}}, {3, 5}, {8, 1}}) {
    SCOPED_TRACE(fmt::format("experts {}+{}", first, count));
    Route part = routed(m, c, logits);
    part.first = first, part.count = count;
    part.offsets = m.tensor(DType::i32, 1, count + 1);
    const auto begin = static_cast<std::int64_t>(offsets(0, first));
    const auto used = static_cast<std::int64_t>(offsets(0, first + count)) - begin;
    everywhere(m, part, [&, first = first, count = count] {
      EXPECT_EQ(read(part.experts).values, experts.values);
      for (std::int64_t e = 0; e <= count; ++e)
        EXPECT_EQ(get(part.offsets, 0, e), offsets(0, first + e) - static_cast<double>(begin));
      for (std::int64_t s = 0; s < c.tokens * c.k; ++s) {
        EXPECT_EQ(get(part.tokens, 0, s), s < used ? tokens(0, begin + s) : -1.0);
        EXPECT_NEAR(get(part.weights, 0, s), s < used ? weights(0, begin + s) : 0.0, kRouteF32);
      }
      for (std::int64_t t = 0; t < c.tokens; ++t) {
        for (std::int64_t j = 0; j < c.k; ++j) {
          const double at = slots(t, j) - static_cast<double>(begin);
          EXPECT_EQ(get(part.slots, t, j), at >= 0 && at < static_cast<double>(used) ? at : -1.0);
        }
      }
    });
    // Rows and gradients leave out what has no slot.
    const Tensor x = m.tensor(DType::f32, c.tokens, 5), by_slot = m.tensor(DType::f32, c.tokens * c.k, 5);
    cpu_kernels().run(part);
    const ExpertDispatch dispatch{.y = m.tensor(DType::f32, c.tokens * c.k, 5), .x = x, .tokens = part.tokens};
    everywhere(m, dispatch, [&] {
      for (std::int64_t s = 0; s < c.tokens * c.k; ++s)
        EXPECT_EQ(get(dispatch.y, s, 0), s < used ? get(x, static_cast<std::int64_t>(get(part.tokens, 0, s)), 0) : 0.0);
    });
    const ExpertCombine combine{.y = m.tensor(DType::f32, c.tokens, 5), .x = by_slot, .slots = part.slots};
    everywhere(m, combine, [&] {
      for (std::int64_t t = 0; t < c.tokens; ++t) {
        double want = 0;
        for (std::int64_t j = 0; j < c.k; ++j) {
          const double slot = get(part.slots, t, j);
          if (slot >= 0) want += get(by_slot, static_cast<std::int64_t>(slot), 4);
        }
        EXPECT_NEAR(get(combine.y, t, 4), want, 1e-5);
      }
    });
    RouteBwd given{.dlogits = m.tensor(DType::f32, c.tokens, c.experts),
                   .dweights = m.tensor(DType::f32, 1, c.tokens * c.k),
                   .logits = logits,
                   .experts = part.experts,
                   .slots = part.slots,
                   .normalized = true};
    RouteBwd zeros = given;  // every slot there, and 0 where `part` has none
    zeros.dlogits = m.tensor(DType::f32, c.tokens, c.experts), zeros.slots = whole.slots;
    zeros.dweights = m.of(DType::f32, Mat(1, c.tokens * c.k));
    for (std::int64_t s = 0; s < used; ++s) put(zeros.dweights, 0, begin + s, get(given.dweights, 0, s));
    cpu_kernels().run(zeros);
    const Mat want = read(zeros.dlogits);
    everywhere(m, given, [&] { EXPECT_TRUE(close(given.dlogits, want, kRouteF32)); });
  }
}

TEST(Experts, RouteOfWhatIsNotFiniteStaysInBounds) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
  Memory m;
  const RouteCase c{4, 6, 3, false, true};
  const Tensor logits = m.tensor(DType::f32, c.tokens, c.experts);
  for (std::int64_t e = 0; e < c.experts; ++e) {
    put(logits, 0, e, kNan);
    put(logits, 1, e, e % 2 == 0 ? kNan : -kInf);
    put(logits, 2, e, kInf);
  }
  Route op = routed(m, c, logits);
  everywhere(m, op, [&] { expect_sorted(op); });
  op.groups = 3, op.from_groups = 2;
  everywhere(m, op, [&] { expect_sorted(op); });
}

TEST(Experts, RouteGradientsAgreeWithFiniteDifferences) {
  for (const RouteCase& c : kRoutes) {
    if (c.tokens > 50) continue;
    for (const std::int64_t parts : {0, 1, 2}) {
      if (parts == 2 && c.tokens % 2 != 0) continue;
      SCOPED_TRACE(fmt::format("{}, balanced in {} parts", name_of(c), parts));
      Memory m;
      const Tensor logits = m.tensor(DType::f32, c.tokens, c.experts, 2);
      const Route forward = routed(m, c, logits);
      cpu_kernels().run(forward);
      const Tensor counts = parts == 0 ? Tensor{} : m.tensor(DType::f32, parts, c.experts, 1);
      const Mat experts = read(forward.experts), slots = read(forward.slots), x = read(logits);
      if (parts > 0) {
        const ExpertCount count{.counts = counts, .experts = forward.experts};
        everywhere(m, count, [&] {
          for (std::int64_t part = 0; part < parts; ++part) {
            for (std::int64_t e = 0; e < c.experts; ++e) {
              double want = 0;
              for (std::int64_t t = part * c.tokens / parts; t < (part + 1) * c.tokens / parts; ++t) {
                for (std::int64_t j = 0; j < c.k; ++j) want += experts(t, j) == static_cast<double>(e) ? 1 : 0;
              }
              EXPECT_EQ(get(counts, part, e), want);
            }
          }
        });
      }
      RouteBwd op{.dlogits = m.tensor(DType::f32, c.tokens, c.experts, 3),
                  .dweights = m.tensor(DType::f32, 1, c.tokens * c.k),
                  .logits = logits,
                  .experts = forward.experts,
                  .slots = forward.slots,
                  .counts = counts,
                  .sigmoid = c.sigmoid,
                  .normalized = c.normalized,
                  .scale = forward.scale,
                  .balance = parts > 0 ? 0.05F : 0.0F,
                  .z = 0.02F};
      Mat dweights(c.tokens, c.k);
      for (std::int64_t t = 0; t < c.tokens; ++t) {
        for (std::int64_t j = 0; j < c.k; ++j)
          dweights(t, j) = get(op.dweights, 0, static_cast<std::int64_t>(slots(t, j)));
      }
      const auto loss = [&](const Mat& at) {
        double total = weighted_sum(weights_of(at, experts, c, op.scale), dweights);
        const Mat scores = scores_of(at, c.sigmoid);
        for (std::int64_t t = 0; t < c.tokens; ++t) {
          double exponentials = 0, sum = 0, balance = 0;
          for (std::int64_t e = 0; e < c.experts; ++e) {
            exponentials += std::exp(at(t, e));
            sum += scores(t, e);
            if (parts > 0) balance += scores(t, e) * get(counts, t * parts / c.tokens, e);
          }
          total += double{op.z} * std::pow(std::log(exponentials), 2) + double{op.balance} * balance / sum;
        }
        return total;
      };
      const Mat want = numeric_gradient(loss, x);
      everywhere(m, op, [&] { EXPECT_TRUE(close(op.dlogits, want, 2e-5)); });
      op.dlogits = m.tensor(DType::bf16, c.tokens, c.experts);
      everywhere(m, op, [&] { EXPECT_TRUE(close(op.dlogits, want, kBf16Tolerance)); });
    }
  }
}

TEST(Experts, RowsBySlot) {
  for (const DType dtype : activation_types()) {
    for (const std::int64_t cols : {1, 7, 64, 515}) {
      SCOPED_TRACE(label(dtype, 37, cols));
      const RouteCase c{37, 5, 3, false, true};
      Memory m;
      const Route forward = routed(m, c, m.tensor(DType::f32, c.tokens, c.experts));
      cpu_kernels().run(forward);
      const Tensor by_token = m.tensor(dtype, c.tokens, cols, 2), by_slot = m.tensor(dtype, c.tokens * c.k, cols, 1);
      const Mat x = read(by_token), y = read(by_slot), slots = read(forward.slots), tokens = read(forward.tokens);
      const ExpertDispatch dispatch{
          .y = m.tensor(dtype, c.tokens * c.k, cols), .x = by_token, .tokens = forward.tokens};
      everywhere(m, dispatch, [&] {
        for (std::int64_t s = 0; s < c.tokens * c.k; ++s) {
          for (std::int64_t j = 0; j < cols; ++j)
            EXPECT_EQ(get(dispatch.y, s, j), x(static_cast<std::int64_t>(tokens(0, s)), j));
        }
      });
      const ExpertCombine combine{.y = m.tensor(dtype, c.tokens, cols, 1), .x = by_slot, .slots = forward.slots};
      Mat sums(c.tokens, cols);
      for (std::int64_t t = 0; t < c.tokens; ++t) {
        for (std::int64_t j = 0; j < cols; ++j) {
          for (std::int64_t n = 0; n < c.k; ++n) sums(t, j) += y(static_cast<std::int64_t>(slots(t, n)), j);
        }
      }
      everywhere(m, combine, [&] { EXPECT_TRUE(close(combine.y, sums, tolerance_of(dtype, 1e-6))); });
    }
  }
}

TEST(Experts, SwigluWithFactors) {
  for (const DType dtype : activation_types()) {
    for (const std::int64_t cols : {1, 16, 37, 300}) {
      SCOPED_TRACE(label(dtype, 21, cols));
      Memory m;
      const Tensor x = m.tensor(dtype, 21, 2 * cols, 1), dy = m.tensor(dtype, 21, cols),
                   factors = m.tensor(DType::f32, 1, 21);
      const SwigluFwd forward{.y = m.tensor(dtype, 21, cols, 2), .x = x, .factors = factors};
      const SwigluBwd backward{.dx = m.tensor(dtype, 21, 2 * cols),
                               .dy = dy,
                               .x = x,
                               .factors = factors,
                               .dfactors = m.tensor(DType::f32, 1, 21)};
      const auto y_of = [&](const Mat& at, const Mat& by) {
        Mat y(21, cols);
        for (std::int64_t i = 0; i < 21; ++i) {
          for (std::int64_t j = 0; j < cols; ++j)
            y(i, j) = by(0, i) * at(i, j) / (1 + std::exp(-at(i, j))) * at(i, cols + j);
        }
        return y;
      };
      const Mat at = read(x), by = read(factors), given = read(dy), y = y_of(at, by);
      const Mat dx = numeric_gradient([&](const Mat& v) { return weighted_sum(y_of(v, by), given); }, at);
      const Mat dby = numeric_gradient([&](const Mat& v) { return weighted_sum(y_of(at, v), given); }, by);
      everywhere(m, forward, [&] { EXPECT_TRUE(close(forward.y, y, tolerance_of(dtype, 4e-6))); });
      everywhere(m, backward, [&] {
        EXPECT_TRUE(close(backward.dx, dx, tolerance_of(dtype, 4e-6)));
        EXPECT_TRUE(close(backward.dfactors, dby, 4e-6));
      });
    }
  }
}

}  // namespace
}  // namespace ms::tensor::test
