// The loader over real files: rows, splits, vocabulary, blends, independence of who reads which rows.
#include "data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "token_files.h"

namespace ms::data {
namespace {

// A file whose token at position i is first + i, so that a row tells where it comes from.
void write_ramp(const std::string& prefix, std::int32_t first, std::size_t size) {
  std::vector<std::int32_t> tokens(size);
  std::iota(tokens.begin(), tokens.end(), first);
  write_tokens(prefix, {tokens});
}

struct Rows {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
};

// Splits rows of seq + 1 tokens.
Rows split_rows(const std::vector<std::int32_t>& all, std::int64_t seq) {
  Rows rows;
  for (auto row = all.begin(); row != all.end(); row += seq + 1) {
    rows.tokens.insert(rows.tokens.end(), row, row + seq);
    rows.targets.insert(rows.targets.end(), row + 1, row + seq + 1);
  }
  return rows;
}

Rows fill(const Loader& loader, std::int64_t step, std::int64_t first, std::int64_t count) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(count * (loader.shape().seq + 1)));
  loader.fill(step, first, count, all.data());
  return split_rows(all, loader.shape().seq);
}

Rows fill_validation(const Loader& loader, std::int64_t first, std::int64_t count, std::int64_t total) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(count * (loader.shape().seq + 1)));
  loader.fill_validation(first, count, total, all.data());
  return split_rows(all, loader.shape().seq);
}

DataConfig train_on(std::vector<std::string> train, double valid_fraction = 0) {
  return {.train = std::move(train), .valid = {}, .valid_fraction = valid_fraction};
}

TEST(Loader, TargetsAreTheNextTokens) {
  const TempDir dir;
  write_ramp(dir / "t", 0, 1000);
  const Loader loader(train_on({dir / "t"}), {.seq = 8, .global_batch = 6}, 1000, 1);
  const Rows rows = fill(loader, 3, 0, 6);
  for (std::size_t row = 0; row < 6; ++row) {
    EXPECT_EQ(rows.tokens[row * 8] % 8, 0);  // at a window's beginning
    for (std::size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(rows.tokens[row * 8 + i], rows.tokens[row * 8] + static_cast<std::int32_t>(i));
      EXPECT_EQ(rows.targets[row * 8 + i], rows.tokens[row * 8 + i] + 1);
    }
  }
}

TEST(Loader, TellsWhereDocumentsBegin) {
  const TempDir dir;
  // Documents of 1 to 30 tokens; one of 100, longer than rows.
  std::vector<std::vector<std::int32_t>> documents;
  std::vector<std::int32_t> begin_of;  // by token
  for (std::int32_t i = 0; begin_of.size() < 900; ++i) {
    documents.emplace_back();
    const auto begin = static_cast<std::int32_t>(begin_of.size());
    for (std::int32_t k = 0; k < (i == 20 ? 100 : 1 + i * 7 % 30); ++k) {
      documents.back().push_back(static_cast<std::int32_t>(begin_of.size()));
      begin_of.push_back(begin);
    }
  }
  write_tokens(dir / "t", documents);
  DataConfig config = train_on({dir / "t"}, 0.3);
  config.reset_attention = true;
  const Loader loader(config, {.seq = 16, .global_batch = 30}, 1000, 1);
  EXPECT_TRUE(loader.has_starts());
  constexpr std::size_t kSize = 30 * 16;
  std::vector<std::int32_t> all(30 * 17), tokens, starts(kSize);
  const auto check = [&] {
    for (std::size_t i = 0; i < kSize; ++i) {
      const std::int32_t row_begins = tokens[i / 16 * 16], document = begin_of[static_cast<std::size_t>(tokens[i])];
      EXPECT_EQ(starts[i], std::max(document - row_begins, 0)) << i;
    }
  };
  loader.fill(2, 0, 30, all.data(), starts.data());
  tokens = split_rows(all, 16).tokens;
  check();
  loader.fill_validation(0, 30, 30, all.data(), starts.data());
  tokens = split_rows(all, 16).tokens;
  check();
}

TEST(Loader, ARunThatGoesOnWithOtherBatchesMissesNoSampleAndRepeatsNone) {
  const TempDir dir;
  write_ramp(dir / "t", 0, 1000);
  const Loader all(train_on({dir / "t"}), {.seq = 8, .global_batch = 60}, 1000, 1);
  const Rows expected = fill(all, 0, 0, 60);
  Loader later(train_on({dir / "t"}), {.seq = 8, .global_batch = 10}, 1000, 1);
  later.start_at(5, 30);  // five steps of six samples are done
  Rows joined;
  for (std::int64_t step = 5; step < 8; ++step) {
    const Rows rows = fill(later, step, 0, 10);
    joined.tokens.insert(joined.tokens.end(), rows.tokens.begin(), rows.tokens.end());
  }
  EXPECT_EQ(joined.tokens, std::vector<std::int32_t>(expected.tokens.begin() + 30 * 8, expected.tokens.end()));
  EXPECT_EQ(later.shape().first_sample(8), 60);
}

TEST(Loader, TheFingerprintTellsWhatDecidesOnTheOrder) {
  const TempDir dir;
  write_ramp(dir / "t", 0, 1000);
  write_ramp(dir / "u", 0, 1000);
  write_ramp(dir / "v", 0, 1001);
  const auto of = [&](std::vector<std::string> files, std::int64_t seq = 8, double valid_fraction = 0) {
    return Loader(train_on(std::move(files), valid_fraction), {.seq = seq, .global_batch = 1}, 2000, 1).fingerprint();
  };
  const std::string one = of({dir / "t"});
  EXPECT_EQ(one.size(), 16U);
  EXPECT_EQ(one, of({dir / "t"}));
  std::filesystem::create_directory(dir / "moved");
  for (const char* end : {".bin", ".idx"}) std::filesystem::copy(dir / "t" + end, dir / "moved" + "/t" + end);
  EXPECT_EQ(one, of({dir / "moved" + "/t"}));  // where the files are does not matter
  for (const std::string& other : {of({dir / "u"}), of({dir / "v"}), of({dir / "t", dir / "u"}), of({"2 " + dir / "t"}),
                                   of({dir / "t"}, 9), of({dir / "t"}, 8, 0.1)}) {
    EXPECT_NE(one, other);
  }
}

// Two sources, first only the one and then only the other.
DataConfig one_then_the_other(const TempDir& dir) {
  write_ramp(dir / "a", 0, 801);
  write_ramp(dir / "b", 10'000, 801);
  return train_on({"0:1;5:0 " + dir / "a", "0:0;5:1 " + dir / "b"});
}

TEST(Loader, ChangesWeightsAtTheirStep) {
  const TempDir dir;
  const DataConfig config = one_then_the_other(dir);
  const BatchShape grows{.seq = 8, .global_batch = 6, .ramp = {{.batch = 2, .steps = 4}}};
  for (const BatchShape& shape : {BatchShape{.seq = 8, .global_batch = 6}, grows}) {
    Loader loader(config, shape, 20'000, 1);
    const Rows before = fill(loader, 4, 0, shape.batch(4)), after = fill(loader, 5, 0, 6);
    EXPECT_LT(std::ranges::max(before.tokens), 10'000);
    EXPECT_GE(std::ranges::min(after.tokens), 10'000);
    loader.start_at(7, loader.shape().first_sample(7));  // resumed
    EXPECT_EQ(fill(loader, 7, 0, 6).tokens, fill(Loader(config, shape, 20'000, 1), 7, 0, 6).tokens);
    EXPECT_NE(loader.fingerprint(), Loader(config, {.seq = 8, .global_batch = 5}, 20'000, 1).fingerprint());
  }
}

TEST(Loader, DataThatBeginsAnewHasTheWeightsOfItsStep) {
  const TempDir dir;
  const DataConfig config = one_then_the_other(dir);
  Loader loader(config, {.seq = 8, .global_batch = 10}, 20'000, 1);
  loader.start_at(4, 0);
  EXPECT_LT(std::ranges::max(fill(loader, 4, 0, 10).tokens), 10'000);
  std::set<std::int32_t> firsts;
  for (std::int64_t step = 5; step < 15; ++step) {  // one epoch of 100 windows
    const Rows rows = fill(loader, step, 0, 10);
    for (std::size_t row = 0; row < 10; ++row) firsts.insert(rows.tokens[row * 8]);
  }
  EXPECT_EQ(firsts.size(), 100U);
  EXPECT_GE(*firsts.begin(), 10'000);

  const Rows expected = fill(loader, 9, 0, 10);
  loader.start_at(9, 50);  // and resumed from there
  EXPECT_EQ(fill(loader, 9, 0, 10).tokens, expected.tokens);
}

TEST(Loader, RowsDoNotDependOnWhoReadsThem) {
  const TempDir dir;
  write_ramp(dir / "t", 0, 1000);
  const Loader loader(train_on({dir / "t"}), {.seq = 8, .global_batch = 8}, 1000, 1);
  const Rows whole = fill(loader, 2, 0, 8);
  for (const std::int64_t dp : {2, 4, 8}) {
    Rows joined;
    for (std::int64_t rank = 0; rank < dp; ++rank) {
      const Rows part = fill(loader, 2, rank * 8 / dp, 8 / dp);
      joined.tokens.insert(joined.tokens.end(), part.tokens.begin(), part.tokens.end());
      joined.targets.insert(joined.targets.end(), part.targets.begin(), part.targets.end());
    }
    EXPECT_EQ(joined.tokens, whole.tokens) << "dp " << dp;
    EXPECT_EQ(joined.targets, whole.targets) << "dp " << dp;
  }
}

TEST(Loader, EpochsRollOverInsideABatch) {
  const TempDir dir;
  write_ramp(dir / "t", 0, 41);  // 5 windows of 8
  const Loader loader(train_on({dir / "t"}), {.seq = 8, .global_batch = 3}, 1000, 1);
  std::vector<std::int32_t> firsts;
  for (std::int64_t step = 0; step < 10; ++step) {
    const Rows rows = fill(loader, step, 0, 3);
    for (std::size_t row = 0; row < 3; ++row) firsts.push_back(rows.tokens[row * 8]);
  }
  for (std::size_t epoch = 0; epoch < 6; ++epoch) {
    const auto at = firsts.begin() + static_cast<std::ptrdiff_t>(5 * epoch);
    EXPECT_THAT(std::vector<std::int32_t>(at, at + 5), testing::UnorderedElementsAre(0, 8, 16, 24, 32))
        << "epoch " << epoch;
  }
}

TEST(Loader, HoldsOutTheLastTokens) {
  const TempDir dir;
  write_ramp(dir / "t", 0, 1000);
  const Loader loader(train_on({dir / "t"}, 0.2), {.seq = 8, .global_batch = 1}, 1000, 1);
  EXPECT_EQ(loader.num_validation_samples(), 24);
  for (std::int64_t step = 0; step < 99; ++step) EXPECT_LT(fill(loader, step, 0, 1).targets.back(), 800);
  std::set<std::int32_t> firsts;
  const Rows rows = fill_validation(loader, 0, 24, 24);
  for (std::size_t row = 0; row < 24; ++row) firsts.insert(rows.tokens[row * 8]);
  EXPECT_EQ(firsts.size(), 24U);
  EXPECT_EQ(*firsts.begin(), 800);
  EXPECT_EQ(rows.targets.back(), 992);

  const std::vector<std::int32_t> part = fill_validation(loader, 3, 1, 24).tokens;  // row 3 alone
  EXPECT_TRUE(std::equal(part.begin(), part.end(), rows.tokens.begin() + 24));
}

TEST(Loader, ReadsValidationFilesAndTrainsOnAllOfTheOthers) {
  const TempDir dir;
  write_ramp(dir / "t", 0, 81);
  write_ramp(dir / "v", 5000, 81);
  DataConfig config = train_on({dir / "t"}, 0.5);
  config.valid = {dir / "v"};
  const Loader loader(config, {.seq = 8, .global_batch = 1}, 6000, 1);
  EXPECT_EQ(loader.num_validation_samples(), 10);
  const Rows rows = fill_validation(loader, 0, 1, 2);
  EXPECT_EQ(rows.tokens[0], 5000);
  EXPECT_EQ(rows.targets[7], 5008);
}

TEST(Loader, BlendsByWeightAndOtherwiseShufflesTogether) {
  const TempDir dir;
  write_ramp(dir / "a", 0, 801);
  write_ramp(dir / "b", 10'000, 161);
  const auto from_b = [](const Loader& loader, std::int64_t steps) {
    int count = 0;
    for (std::int64_t step = 0; step < steps; ++step) count += fill(loader, step, 0, 1).tokens[0] >= 10'000 ? 1 : 0;
    return count;
  };
  const BatchShape shape{.seq = 8, .global_batch = 1};
  EXPECT_EQ(from_b(Loader(train_on({"3 " + dir / "a", "1 " + dir / "b"}), shape, 20'000, 1), 400), 100);
  EXPECT_EQ(from_b(Loader(train_on({dir / "a", dir / "b"}), shape, 20'000, 1), 120), 20);  // one epoch of 100 + 20
}

TEST(Loader, RefusesWhatItCannotTrainOn) {
  const TempDir dir;
  write_ramp(dir / "t", 0, 1000);
  write_ramp(dir / "short", 0, 8);
  const BatchShape shape{.seq = 8, .global_batch = 1};
  struct Row {
    DataConfig config;
    std::int64_t vocab_size;
    std::string kind;
    std::string message;
  };
  const std::vector<Row> rows{
      {train_on({}), 1000, "data.train", "names no token file"},
      {train_on({dir / "short"}), 1000, "data.short", "short.bin has 8 tokens"},
      {train_on({dir / "t"}, 0.005), 1000, "data.short", "held out"},
      {train_on({dir / "t"}), 999, "data.vocab",
       "t.bin: the token at position 999 is 999, and the model's vocabulary is 0 to 998"},
      {train_on({dir / "nowhere"}), 1000, "file.open", "nowhere.idx"},
      {train_on({dir / "t.bin"}), 1000, "data.source", "expected the prefix"},
      {train_on({"1 " + dir / "t", dir / "t"}), 1000, "data.weight", "1 of 2"},
      {train_on({"-1 " + dir / "t"}), 1000, "data.source", "is not between"},
  };
  for (const Row& row : rows) {
    const Error error = thrown_by([&] { Loader(row.config, shape, row.vocab_size, 1); });
    EXPECT_EQ(error.kind(), row.kind);
    EXPECT_EQ(error.blame(), Blame::user);
    EXPECT_THAT(error.message(), testing::HasSubstr(row.message));
  }
}

// One token beyond the vocabulary, hidden from the pieces that are looked at when the file is opened.
TEST(Loader, RefusesABadTokenWhenItIsRead) {
  const TempDir dir;
  std::vector<std::int32_t> tokens(1'000'000, 1);
  tokens[10'000] = 300;
  write_tokens(dir / "t", {tokens});
  const Loader loader(train_on({dir / "t"}), {.seq = 1000, .global_batch = 999}, 257, 1);
  const Error error = thrown_by([&] { fill(loader, 0, 0, 999); });
  EXPECT_EQ(error.kind(), "data.vocab");
  EXPECT_THAT(error.message(), testing::HasSubstr("position 10000 is 300"));
}

}  // namespace
}  // namespace ms::data
