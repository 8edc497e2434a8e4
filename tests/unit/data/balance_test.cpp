// Samples divided by the work of attention: every sample once, as even as the samples allow.
#include "data/balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "data/loader.h"
#include "token_files.h"

namespace ms::data {
namespace {

std::vector<std::int64_t> in_order(std::size_t count) {
  std::vector<std::int64_t> rows(count);
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

// Windows of `seq` tokens of documents with lognormal lengths, as those of text on the web: most are short, and the
// longest have most of the tokens.
std::vector<double> long_tailed(std::mt19937_64& random, std::size_t count, double seq) {
  std::lognormal_distribution<double> length(6.5, 1.5);
  std::vector<double> work;
  double left = 0;
  for (std::size_t i = 0; i < count; ++i) {
    double sum = 0;
    for (double room = seq; room > 0;) {
      if (left <= 0) left = std::ceil(length(random));
      const double part = std::min(left, room);
      sum += part * part;
      left -= part;
      room -= part;
    }
    work.push_back(sum);
  }
  return work;
}

TEST(Balance, EverySampleHasOneRow) {
  std::mt19937_64 random(1);
  for (const auto& [samples, dp, microbatch] : {std::tuple{24, 4, 2}, {24, 1, 24}, {7, 7, 1}, {64, 2, 1}, {12, 3, 4}}) {
    const std::vector<double> work = long_tailed(random, static_cast<std::size_t>(samples), 2048);
    std::vector<std::int64_t> rows = balance(work, {dp, microbatch});
    EXPECT_EQ(rows, balance(work, {dp, microbatch}));
    std::ranges::sort(rows);
    EXPECT_EQ(rows, in_order(work.size()));
  }
}

TEST(Balance, LongTailedLengthsAreEvenOverDpRanksAndMicrobatches) {
  std::mt19937_64 random(2);
  double before = 0, worst = 0, worst_microbatch = 0, microbatch_before = 0;
  for (int step = 0; step < 50; ++step) {
    const std::vector<double> work = long_tailed(random, 512, 8192);
    const std::vector<std::int64_t> rows = balance(work, {16, 4});
    before += imbalance(work, in_order(work.size()), 16) / 50;
    worst = std::max(worst, imbalance(work, rows, 16));
    microbatch_before += imbalance(work, in_order(work.size()), 128) / 50;
    worst_microbatch = std::max(worst_microbatch, imbalance(work, rows, 128));
  }
  EXPECT_GT(before, 1.15);
  EXPECT_LT(worst, 1.01);
  EXPECT_GT(microbatch_before, 1.5);
  EXPECT_LT(worst_microbatch, 1.1);
}

// Of all ways to divide eight samples between two ranks.
TEST(Balance, IsCloseToTheBestDivision) {
  std::mt19937_64 random(3);
  double ratios = 0;
  for (int trial = 0; trial < 20; ++trial) {
    const std::vector<double> work = long_tailed(random, 8, 2048);
    double best = 2;
    std::vector<std::int64_t> rows = in_order(8);
    do { best = std::min(best, imbalance(work, rows, 2)); } while (std::ranges::next_permutation(rows).found);
    const double ratio = imbalance(work, balance(work, {2, 1}), 2) / best;
    EXPECT_LT(ratio, 1.2);
    ratios += ratio / 20;
  }
  EXPECT_LT(ratios, 1.02);
}

TEST(Balance, OneLongDocumentIsAsMuchAsOneRankCanHave) {
  const std::vector<double> work{1, 1, 100, 1, 1, 1};
  const std::vector<std::int64_t> rows = balance(work, {3, 1});
  EXPECT_DOUBLE_EQ(imbalance(work, rows, 3), 3 * 101.0 / 105);
  EXPECT_EQ(imbalance(std::vector<double>(4, 0.0), in_order(4), 2), 1);
}

TEST(Balance, TheLoaderKnowsTheWorkFromTheIndex) {
  const TempDir dir;
  std::vector<std::vector<std::int32_t>> documents;
  for (std::size_t i = 0; i < 100; ++i) documents.emplace_back(1 + i * i % 37, 1);
  write_tokens(dir / "t", documents);
  DataConfig config{.train = {dir / "t"}, .valid = {}, .valid_fraction = 0};
  config.reset_attention = true;
  constexpr std::int64_t kSeq = 32;
  const Loader loader(config, {.seq = kSeq, .global_batch = 12}, 1000, 1);
  const std::vector<double> work = loader.attention_work(1);
  for (std::int64_t sample = 0; sample < 12; ++sample) {
    std::vector<std::int32_t> row(kSeq + 1), starts(kSeq);
    loader.fill(1, sample, 1, row.data(), starts.data());
    double pairs = 0;  // a token attends to itself and all before it in its document
    for (std::int64_t i = 0; i < kSeq; ++i)
      pairs += static_cast<double>(2 * (i - starts[static_cast<std::size_t>(i)]) + 1);
    EXPECT_DOUBLE_EQ(work[static_cast<std::size_t>(sample)], pairs);
  }
  EXPECT_EQ(loader.rows(1, {3, 2}), balance(work, {3, 2}));
  config.balance = false;
  EXPECT_EQ(Loader(config, {.seq = kSeq, .global_batch = 12}, 1000, 1).rows(1, {3, 2}), in_order(12));
}

}  // namespace
}  // namespace ms::data
