// The vocabulary-parallel cross entropy: over shards, with ignored targets, and its gradient.
#include <cmath>
#include <limits>

#include "base/rng.h"
#include "support.h"
#include "tensor/team.h"

namespace ms::tensor::test {
namespace {

constexpr double kLossF32 = 2e-6;  // an exponential, a logarithm, sums of some hundred terms in f32

constexpr double kLossInfinity = std::numeric_limits<double>::infinity();

// Plain cross entropy over the first `vocabulary` columns.
struct Loss {
  Mat loss, lse, gradient;
};
Loss cross_entropy(const Mat& logits, const std::vector<std::int64_t>& targets, std::int64_t vocabulary, double scale) {
  Loss out{Mat(1, logits.rows), Mat(1, logits.rows), Mat(logits.rows, logits.cols)};
  for (std::int64_t t = 0; t < logits.rows; ++t) {
    double top = -kLossInfinity, total = 0;
    for (std::int64_t j = 0; j < vocabulary; ++j) top = std::max(top, logits(t, j));
    for (std::int64_t j = 0; j < vocabulary; ++j) total += std::exp(logits(t, j) - top);
    const std::int64_t target = targets[static_cast<std::size_t>(t)];
    out.lse(0, t) = top + std::log(total);
    out.loss(0, t) = out.lse(0, t) - logits(t, target);
    for (std::int64_t j = 0; j < vocabulary; ++j) {
      out.gradient(t, j) = scale * (std::exp(logits(t, j) - out.lse(0, t)) - (j == target ? 1 : 0));
    }
  }
  return out;
}

TEST(Loss, OverShardsIsPlainCrossEntropy) {
  struct Row {
    std::int64_t tokens, vocabulary, shards;
    double spread;
  };
  // Five shards of 61 for 200 words: one shard has padding, the last is all padding.
  for (const Row& c : {Row{1, 3, 1, 1}, Row{9, 200, 1, 3}, Row{9, 200, 2, 3}, Row{9, 200, 4, 3}, Row{9, 200, 5, 30},
                       Row{40, 5000, 2, 3}}) {
    for (const DType dtype : activation_types()) {
      SCOPED_TRACE(testing::Message() << label(dtype, c.tokens, c.vocabulary) << " over " << c.shards);
      const std::int64_t cols = c.shards == 5 ? 61 : (c.vocabulary + c.shards - 1) / c.shards + 3;
      const std::int64_t used = c.shards == 5 ? 61 : (c.vocabulary + c.shards - 1) / c.shards;
      Memory m;
      const Tensor gathered = m.tensor(DType::f32, 3 * c.shards, c.tokens, 2),
                   targets = m.tensor(DType::i32, 1, c.tokens);
      std::vector<std::int64_t> target_ids;
      for (std::int64_t t = 0; t < c.tokens; ++t) {
        target_ids.push_back(static_cast<std::int64_t>(
            uniform_below(1, 1, static_cast<std::uint64_t>(t), static_cast<std::uint64_t>(c.vocabulary))));
        put(targets, 0, t, static_cast<double>(target_ids.back()));
      }
      std::vector<LossStats> stats;
      Mat logits(c.tokens, cols * c.shards);
      for (std::int64_t s = 0; s < c.shards; ++s) {
        const std::int64_t first = s * used, valid = std::clamp<std::int64_t>(c.vocabulary - first, 0, used);
        stats.push_back({.stats = gathered.slice_rows(3 * s, 3),
                         .logits = m.tensor(dtype, c.tokens, cols, 1, c.spread),
                         .targets = targets,
                         .first = first,
                         .valid = valid});
        for (std::int64_t t = 0; t < c.tokens; ++t) {
          for (std::int64_t j = 0; j < valid; ++j) logits(t, first + j) = get(stats.back().logits, t, j);
        }
      }
      const double scale = 0.125;
      const Loss want = cross_entropy(logits, target_ids, c.vocabulary, scale);
      for (const LossStats& op : stats) {
        everywhere(m, op, [&] {
          if (op.valid > 0) return;
          EXPECT_EQ(get(op.stats, 0, 0), -kLossInfinity);
          EXPECT_EQ(get(op.stats, 1, 0), 0.0);
          EXPECT_EQ(get(op.stats, 2, 0), 0.0);
        });
      }
      const LossCombine combine{.loss = m.tensor(DType::f32, 1, c.tokens),
                                .lse = m.tensor(DType::f32, 1, c.tokens),
                                .gathered = gathered,
                                .targets = {}};
      everywhere(m, combine, [&] {
        EXPECT_TRUE(close(combine.lse, want.lse, kLossF32));
        EXPECT_TRUE(close(combine.loss, want.loss, kLossF32));
      });
      for (const LossStats& op : stats) {
        const LossBackward backward{.logits = op.logits,
                                    .lse = combine.lse,
                                    .targets = targets,
                                    .first = op.first,
                                    .valid = op.valid,
                                    .scale = static_cast<float>(scale)};
        Mat part(c.tokens, cols);
        for (std::int64_t t = 0; t < c.tokens; ++t) {
          for (std::int64_t j = 0; j < op.valid; ++j) part(t, j) = want.gradient(t, op.first + j);
        }
        // exp(logit - lse) turns the absolute error of lse, which grows with it, into a relative one.
        everywhere(m, backward, [&] {
          EXPECT_TRUE(close(backward.logits, part, tolerance_of(dtype, 5 * kLossF32 * c.spread)));
          for (std::int64_t j = op.valid; j < cols; ++j) EXPECT_EQ(get(op.logits, 0, j), 0.0);
        });
      }
    }
  }
}

TEST(Loss, BackwardAgreesWithFiniteDifferences) {
  for (const double z : {0.0, 0.25}) {
    Memory m;
    const LossBackward op{.logits = m.tensor(DType::f32, 3, 8),
                          .lse = m.tensor(DType::f32, 1, 3),
                          .targets = m.tensor(DType::i32, 1, 3),
                          .first = 0,
                          .valid = 7,
                          .scale = 0.5F,
                          .z = static_cast<float>(z)};
    const std::vector<std::int64_t> targets{6, 0, 3};
    for (std::int64_t t = 0; t < 3; ++t)
      put(op.targets, 0, t, static_cast<double>(targets[static_cast<std::size_t>(t)]));
    const auto loss = [&](const Mat& logits) {
      const Loss at = cross_entropy(logits, targets, 7, 1);
      double total = 0;
      for (const double x : at.loss.values) total += 0.5 * x;
      for (const double lse : at.lse.values) total += 0.5 * z * lse * lse;
      return total;
    };
    write(op.lse, cross_entropy(read(op.logits), targets, 7, 1).lse);
    const Mat want = numeric_gradient(loss, read(op.logits));
    everywhere(m, op, [&] { EXPECT_TRUE(close(op.logits, want, kLossF32)); });
  }
}

// As F.cross_entropy(ignore_index=...) does it: no loss, no gradient, z-loss included.
TEST(Loss, IgnoresNegativeTargets) {
  for (const DType dtype : activation_types()) {
    Memory m;
    constexpr std::int64_t kTokens = 5, kVocabulary = 33;
    const std::vector<std::int64_t> targets{6, -1, 32, -100, 0};
    const Tensor logits = m.tensor(dtype, kTokens, kVocabulary + 3), ids = m.tensor(DType::i32, 1, kTokens);
    for (std::int64_t t = 0; t < kTokens; ++t)
      put(ids, 0, t, static_cast<double>(targets[static_cast<std::size_t>(t)]));
    const LossStats stats{
        .stats = m.tensor(DType::f32, 3, kTokens), .logits = logits, .targets = ids, .first = 0, .valid = kVocabulary};
    std::vector<std::int64_t> known = targets;
    for (std::int64_t& target : known) target = std::max<std::int64_t>(target, 0);
    const Loss want = cross_entropy(read(logits), known, kVocabulary, 0.5);
    everywhere(m, stats, [] {});
    const LossCombine combine{.loss = m.tensor(DType::f32, 1, kTokens),
                              .lse = m.tensor(DType::f32, 1, kTokens),
                              .gathered = stats.stats,
                              .targets = ids};
    everywhere(m, combine, [&] {
      EXPECT_TRUE(close(combine.lse, want.lse, kLossF32));
      for (std::int64_t t = 0; t < kTokens; ++t) {
        const double loss = targets[static_cast<std::size_t>(t)] < 0 ? 0 : want.loss(0, t);
        EXPECT_NEAR(get(combine.loss, 0, t), loss, kLossF32 * 10) << t;
      }
    });
    const LossBackward backward{.logits = logits,
                                .lse = combine.lse,
                                .targets = ids,
                                .first = 0,
                                .valid = kVocabulary,
                                .scale = 0.5F,
                                .z = 0.0F};
    Mat gradient(kTokens, kVocabulary + 3);
    for (std::int64_t t = 0; t < kTokens; ++t) {
      for (std::int64_t j = 0; j < kVocabulary; ++j)
        gradient(t, j) = targets[static_cast<std::size_t>(t)] < 0 ? 0 : want.gradient(t, j);
    }
    everywhere(m, backward, [&] {
      EXPECT_TRUE(close(backward.logits, gradient, tolerance_of(dtype, 5 * kLossF32)));
      for (std::int64_t j = 0; j < kVocabulary + 3; ++j) EXPECT_EQ(get(backward.logits, 3, j), 0.0) << j;
    });
  }
}

TEST(Loss, PropagatesNan) {
  for (const double bad : {static_cast<double>(NAN), kLossInfinity}) {
    Memory m;
    const LossStats op{.stats = m.tensor(DType::f32, 3, 1),
                       .logits = m.tensor(DType::f32, 1, 40),
                       .targets = m.tensor(DType::i32, 1, 1),
                       .first = 0,
                       .valid = 40};
    put(op.logits, 0, 33, bad);
    everywhere(m, op, [&] { EXPECT_TRUE(std::isnan(get(op.stats, 1, 0))); });
  }
}

}  // namespace
}  // namespace ms::tensor::test
