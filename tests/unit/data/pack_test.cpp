// Packing: best fit, padding, masks at the seams, policies for documents that are too long, and what the loader asks.
#include "data/pack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "base/rng.h"
#include "data/loader.h"
#include "data/merge.h"
#include "data/note.h"
#include "data/target_mask.h"
#include "token_files.h"

namespace ms::data {
namespace {

using ::testing::ElementsAre;
using Ids = std::vector<std::int32_t>;
using Samples = std::vector<std::vector<std::size_t>>;

TEST(BestFit, TakesTheSampleWithTheLeastRoom) {
  const struct {
    std::vector<std::int64_t> lengths;
    Samples samples;
  } kRows[] = {{{}, {}},
               {{3}, {{0}}},
               {{10}, {{0}}},
               {{4, 6, 5, 5}, {{1, 0}, {2, 3}}},
               {{1, 7, 8, 2, 3}, {{2, 3}, {1, 4}, {0}}},  // 2 fits 8 exactly, 3 fits 7
               {{6, 6, 4, 4}, {{0, 2}, {1, 3}}}};         // of one length and one room in order
  for (const auto& row : kRows) EXPECT_EQ(best_fit(row.lengths, 10), row.samples);
}

TEST(BestFit, LosesAndSplitsNothing) {
  std::vector<std::int64_t> lengths;
  for (std::uint64_t i = 0; i < 2000; ++i) lengths.push_back(1 + static_cast<std::int64_t>(uniform_below(3, 1, i, 97)));
  std::set<std::size_t> seen;
  const Samples samples = best_fit(lengths, 100);
  for (const auto& sample : samples) {
    std::int64_t used = 0;
    for (const std::size_t i : sample) {
      used += lengths[i];
      EXPECT_TRUE(seen.insert(i).second);
    }
    EXPECT_LE(used, 100);
  }
  EXPECT_EQ(seen.size(), lengths.size());
  // Best fit decreasing needs at most 11/9 of the fewest samples, and one more.
  const std::int64_t all = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  EXPECT_LE(std::ssize(samples), all / 100 * 11 / 9 + 2);
}

// A token file with a note, whose token 0 ends documents.
void write_packable(const std::string& prefix, const std::vector<Ids>& documents) {
  write_tokens(prefix, documents);
  Note note{.tokenizer = "byte",
            .tokenizer_path = {},
            .tokenizer_fingerprint = {},
            .eod_token = {},
            .vocab_size = 300,
            .frame = {{}, {0}}};
  spill(note_path(prefix), to_json(note).dump());
}

Ids marked(const std::string& prefix) {
  const TokenFile file(prefix);
  Ids tokens(static_cast<std::size_t>(file.num_tokens()));
  file.read(0, tokens);
  file.mark_ignored(0, tokens);
  return tokens;
}

TEST(Pack, IgnoresPaddingAndFirstTokens) {
  const TempDir dir;
  write_packable(dir / "t", {{1, ~2, 3}, {4, 5}, {~6, 7, 8, 9}});
  const PackReport report = pack(dir / "t", dir / "p", {.seq = 5});
  EXPECT_THAT(marked(dir / "p"), ElementsAre(~6, 7, 8, 9, ~0, ~1, ~2, 3, ~4, 5, ~0));
  EXPECT_EQ(report.num_samples, 2);
  EXPECT_EQ(report.num_documents, 3);
  EXPECT_EQ(report.num_tokens, 9);
  EXPECT_EQ(report.num_padding, 2);
  EXPECT_EQ(report.num_too_long, 0);
  const TokenFile file(dir / "p");
  EXPECT_EQ(file.document(0).end, 4);
  EXPECT_EQ(file.document(1).end, 5);  // padding does not see the document
  EXPECT_EQ(read_note(dir / "p")->packed_to, 5);
}

TEST(Pack, DoesWithLongDocumentsWhatItIsTold) {
  const TempDir dir;
  write_packable(dir / "t", {{1, 2}, {3, 4, 5, 6, 7}, {8}});
  const Error error = thrown_by([&] { pack(dir / "t", dir / "p", {.seq = 3}); });
  EXPECT_EQ(error.kind(), "data.long");
  EXPECT_EQ(error.blame(), Blame::user);
  PackReport report = pack(dir / "t", dir / "p", {.seq = 3, .too_long = TooLong::truncate});
  EXPECT_THAT(marked(dir / "p"), ElementsAre(~3, 4, 5, ~1, 2, ~8, ~0));
  EXPECT_EQ(report.num_too_long, 1);
  EXPECT_EQ(report.lost_tokens, 2);
  report = pack(dir / "t", dir / "p", {.seq = 3, .too_long = TooLong::skip});
  EXPECT_THAT(marked(dir / "p"), ElementsAre(~1, 2, ~8, ~0));
  EXPECT_EQ(report.num_too_long, 1);
  EXPECT_EQ(report.lost_tokens, 5);
  write_packable(dir / "long", {{3, 4, 5, 6, 7}});
  EXPECT_EQ(thrown_by([&] { pack(dir / "long", dir / "p", {.seq = 3, .too_long = TooLong::skip}); }).kind(),
            "data.empty");
}

TEST(Pack, DropsDocumentsWithoutATargetLeft) {
  const TempDir dir;
  write_packable(dir / "t", {{~1, ~2, ~3, 4}, {5, ~6, ~7}, {~8, 9}, {~10, ~11}});
  const PackReport report = pack(dir / "t", dir / "p", {.seq = 3, .too_long = TooLong::truncate});
  EXPECT_THAT(marked(dir / "p"), ElementsAre(~8, 9, ~0, ~0));
  EXPECT_EQ(report.num_documents, 1);
  EXPECT_EQ(report.num_ignored_documents, 3);
  EXPECT_EQ(report.num_too_long, 0);  // the first one is truncated, then dropped: it counts once
  EXPECT_EQ(report.lost_tokens, 0);
  EXPECT_EQ(report.num_targets, 1);
  EXPECT_EQ(TokenFile(dir / "p").num_targets(), 1);
}

TEST(Pack, CountsEachDocumentOnce) {
  const TempDir dir;
  write_packable(dir / "t", {{~1, ~2, ~3, 4}, {~1, 5, ~6, 7, 8}, {~1, ~9}, {~1, 2}});
  for (const auto policy : {TooLong::truncate, TooLong::skip}) {
    const bool skips = policy == TooLong::skip;
    const PackReport report = pack(dir / "t", dir / "p", {.seq = 3, .too_long = policy});
    EXPECT_EQ(report.num_documents, skips ? 1 : 2);
    EXPECT_EQ(report.num_ignored_documents, skips ? 1 : 2);
    EXPECT_EQ(report.num_too_long, skips ? 2 : 1);
    EXPECT_EQ(report.lost_tokens, skips ? 9 : 2);
  }
}

TEST(Pack, RefusesWhatHasNoTargetLeft) {
  const TempDir dir;
  write_packable(dir / "masked", {{~1, ~2, ~3, 4}, {~5, ~6}});
  write_packable(dir / "single", {{1}, {2}});  // the first token of a document is no target
  for (const char* name : {"masked", "single"}) {
    const Error error = thrown_by([&] { pack(dir / name, dir / "p", {.seq = 3, .too_long = TooLong::truncate}); });
    EXPECT_EQ(error.kind(), "data.mask");
    EXPECT_EQ(error.blame(), Blame::user);
    EXPECT_FALSE(std::filesystem::exists(dir / "p.idx"));
  }
}

TEST(Pack, BuffersAreIndependent) {
  const TempDir dir;
  write_packable(dir / "t", {{1}, {2, 3}, {4}, {5, 6}});
  pack(dir / "t", dir / "p", {.seq = 3, .buffer = 2});
  EXPECT_THAT(marked(dir / "p"), ElementsAre(~2, 3, ~1, ~5, 6, ~4, ~0));
}

TEST(Pack, IsNotDoneTwiceNorMerged) {
  const TempDir dir;
  write_packable(dir / "t", {{1, 2}});
  pack(dir / "t", dir / "p", {.seq = 3});
  EXPECT_EQ(thrown_by([&] { pack(dir / "p", dir / "q", {.seq = 6}); }).kind(), "data.packed");
  EXPECT_EQ(thrown_by([&] { merge({dir / "p", dir / "p"}, dir / "q"); }).kind(), "data.merge");
  write_tokens(dir / "foreign", {{1, 2}});  // no token of padding is known
  EXPECT_EQ(thrown_by([&] { pack(dir / "foreign", dir / "q", {.seq = 6}); }).kind(), "data.packed");
}

// Each row of a packed file is a sample: it begins with a document, and so does the held-out part.
TEST(Pack, SamplesAreRowsOfTheLoader) {
  const TempDir dir;
  std::vector<Ids> documents;
  for (std::int32_t i = 0; i < 300; ++i) documents.emplace_back(1 + i % 7, i);
  write_packable(dir / "t", documents);
  pack(dir / "t", dir / "p", {.seq = 8});
  DataConfig config{.train = {dir / "p"}, .valid = {}, .valid_fraction = 0.1, .reset_attention = true};
  const Loader loader(config, {.seq = 8, .global_batch = 4}, 300, 1);
  std::multiset<std::int32_t> firsts;
  const auto look_at = [&](const std::vector<std::int32_t>& row, const std::vector<std::int32_t>& starts) {
    EXPECT_EQ(starts[0], 0);
    for (std::size_t i = 0; i < 8; ++i) {
      const bool begins = starts[i] == static_cast<std::int32_t>(i);
      EXPECT_EQ(row[i] < 0, begins || token_id(row[i]) == 0) << i;
      if (begins && token_id(row[i]) != 0) firsts.insert(token_id(row[i]));
    }
    EXPECT_LT(row[8], 0);
  };
  std::vector<std::int32_t> row(9), starts(8);
  const std::int64_t samples = (TokenFile(dir / "p").num_tokens() - 1) / 8, valid = loader.num_validation_samples();
  for (std::int64_t i = 0; i < samples - valid; ++i) {
    loader.fill(i / 4, i % 4, 1, row.data(), starts.data());
    look_at(row, starts);
  }
  for (std::int64_t i = 0; i < valid; ++i) {
    loader.fill_validation(i, 1, valid, row.data(), starts.data());
    look_at(row, starts);
  }
  EXPECT_EQ(firsts.size(), 299U);  // every document once but the first, whose token is that of padding
  config.train = {dir / "p"};
  const Error error = thrown_by([&] { Loader(config, {.seq = 4, .global_batch = 4}, 300, 1); });
  EXPECT_EQ(error.kind(), "data.packed");
  EXPECT_EQ(error.blame(), Blame::user);
}

}  // namespace
}  // namespace ms::data
