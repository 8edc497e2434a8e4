// Loss masks in token files: written, read, merged, refused; and what loaders make of them.
#include "data/target_mask.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/check.h"
#include "data/eval_set.h"
#include "data/facts.h"
#include "data/loader.h"
#include "data/merge.h"
#include "data/note.h"
#include "data/pack.h"
#include "token_files.h"

namespace ms::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

Ids marked(const TokenFile& file, std::int64_t begin, std::size_t count) {
  Ids tokens(count);
  file.read(begin, tokens);
  file.mark_ignored(begin, tokens);
  return tokens;
}

std::vector<std::pair<std::int64_t, std::int64_t>> ignored(const TokenFile& file, const TokenRange& tokens) {
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  for (const TokenRange& range : file.ignored(tokens)) ranges.emplace_back(range.begin, range.end);
  return ranges;
}

TEST(TargetMask, MarksAreComplements) {
  for (const std::int32_t id : {0, 1, 70'000, 2147483647}) {
    EXPECT_LT(ignored_target(id), 0);
    EXPECT_EQ(token_id(ignored_target(id)), id);
    EXPECT_EQ(token_id(id), id);
  }
}

TEST(TargetMask, IsReadAsItWasWritten) {
  const TempDir dir;
  const std::vector<Ids> documents{{~1, ~2, 3, 4, ~5}, {6, 7}, {~0, ~9}, {10, ~11, 12}};
  for (const TokenType type : {TokenType::u16, TokenType::i32}) {
    write_tokens(dir / "t", documents, type);
    const TokenFile file(dir / "t");
    EXPECT_TRUE(file.has_mask());
    EXPECT_EQ(file.num_documents(), 4);
    EXPECT_EQ(file.num_sequences(), 8);
    EXPECT_EQ(file.num_tokens(), 12);
    EXPECT_EQ(file.num_targets(), 6);
    EXPECT_THAT(marked(file, 0, 12), ElementsAre(~1, ~2, 3, 4, ~5, 6, 7, ~0, ~9, 10, ~11, 12));
    EXPECT_THAT(marked(file, 1, 4), ElementsAre(~2, 3, 4, ~5));
    EXPECT_THAT(ignored(file, {1, 8}), ElementsAre(std::pair(1, 2), std::pair(4, 5), std::pair(7, 8)));
    EXPECT_EQ(file.document(2).begin, 7);
    EXPECT_EQ(file.document_of(8), 2);
    for (std::int64_t begin = 0; begin < 12; ++begin) {
      for (std::int64_t end = begin; end <= 12; ++end) {
        std::int64_t targets = 0;
        for (const std::int32_t token : marked(file, begin, static_cast<std::size_t>(end - begin)))
          targets += token >= 0 ? 1 : 0;
        EXPECT_EQ(file.count_targets({begin, end}), targets) << begin << " to " << end;
      }
    }
  }
}

TEST(TargetMask, FilesWithoutOneAreAsTheyWere) {
  const TempDir dir;
  write_tokens(dir / "t", {{1, 2, 3}, {4}});
  EXPECT_EQ(slurp(dir / "t.idx"), index_of({3, 1}, {0, 1, 2}, 8, 2));
  const TokenFile file(dir / "t");
  EXPECT_FALSE(file.has_mask());
  EXPECT_EQ(file.num_targets(), 4);
  EXPECT_TRUE(file.ignored({0, 4}).empty());
  // Modes of version 1 mean nothing.
  spill(dir / "t.idx", index_of({3, 1}, {0, 1, 2}, 8, 2) + std::string("\1\1", 2));
  EXPECT_EQ(TokenFile(dir / "t").num_targets(), 4);
}

TEST(TargetMask, HasAVersionThatOtherReadersRefuse) {
  const TempDir dir;
  write_tokens(dir / "t", {{~1, 2, 3}, {4}});
  std::string want = index_of({1, 2, 1}, {0, 2, 3}, 8, 2);
  want[9] = 2;
  want += std::string("\1\0\0", 3);
  EXPECT_EQ(slurp(dir / "t.idx"), want);
  const auto refused = [&](const std::string& idx) {
    spill(dir / "t.idx", idx);
    const Error error = thrown_by([&] { TokenFile(dir / "t"); });
    EXPECT_EQ(error.kind(), "data.index");
    return error;
  };
  EXPECT_EQ(refused(want.substr(0, want.size() - 3)).blame(), Blame::storage);  // no modes
  EXPECT_EQ(refused(want.substr(0, want.size() - 1)).blame(), Blame::storage);
  std::string other = want;
  other.back() = 2;
  EXPECT_EQ(refused(other).blame(), Blame::storage);
  other = want;
  other[9] = 3;
  EXPECT_EQ(refused(other).blame(), Blame::user);
}

TEST(TargetMask, SurvivesAMerge) {
  const TempDir dir;
  write_tokens(dir / "a", {{~1, 2}});
  write_tokens(dir / "b", {{3, 4}, {5, ~6}});
  merge({dir / "a", dir / "b"}, dir / "all");
  const TokenFile file(dir / "all");
  EXPECT_EQ(file.num_documents(), 3);
  EXPECT_THAT(marked(file, 0, 6), ElementsAre(~1, 2, 3, 4, 5, ~6));
}

Note note_of_bytes() {
  Note note = note_of(ByteTokenizer(), "byte", {});
  note.chat_template = "chatml";
  return note;
}

// Documents with a note as an encoding leaves it.
void write_noted(const std::string& prefix, const std::vector<Ids>& documents) {
  TokenWriter writer(prefix, TokenType::u16);
  for (const Ids& document : documents) {
    writer.append(document);
    writer.end_document();
  }
  Note note = note_of_bytes();
  note.documents = writer.num_documents();
  note.tokens = writer.num_tokens();
  writer.commit(to_json(note));
}

TEST(TargetMask, IsRecordedByEveryWriterAndVerified) {
  const TempDir dir;
  write_noted(dir / "encoded", {{~1, 2, 3, ~4, 5, ~6}, {~7, 8}});
  merge({dir / "encoded", dir / "encoded"}, dir / "merged");
  pack(dir / "encoded", dir / "packed", {.seq = 8});
  for (const std::string& prefix : {dir / "encoded", dir / "merged", dir / "packed"}) {
    const auto error = [&] {
      return test::error_from([&] { check_tokens(TokenFile(prefix), read_note(prefix), {}); });
    };
    const std::string idx = slurp(prefix + ".idx"), note = slurp(note_path(prefix));
    const auto modes = static_cast<std::size_t>(TokenFile(prefix).num_sequences());
    EXPECT_FALSE(error());
    for (std::size_t bit = 0; bit <= modes; ++bit) {  // behind them: all of them
      std::string damaged = idx;
      for (std::size_t i = 0; i < modes; ++i) damaged[idx.size() - 1 - i] ^= i == bit || bit == modes ? 1 : 0;
      spill(prefix + ".idx", damaged);
      ASSERT_TRUE(error()) << bit;
      EXPECT_EQ(error()->kind(), "data.note");
      EXPECT_EQ(error()->blame(), Blame::storage);
    }
    std::string unmasked = idx;
    unmasked[kIndexMagic.size()] = 1;
    spill(prefix + ".idx", unmasked);
    EXPECT_EQ(error()->kind(), "data.note");
    // Notes of old releases tell nothing of the mask.
    Note old = *read_note(prefix);
    spill(note_path(prefix), to_json(old).dump());
    EXPECT_FALSE(error());
    spill(prefix + ".idx", idx);
    EXPECT_FALSE(error());
  }
}

// Ranges of one length exchanged: the number of targets is the same.
TEST(TargetMask, IsVerifiedByMoreThanItsTargets) {
  const TempDir dir;
  write_noted(dir / "t", {{~1, 2}});
  std::string idx = slurp(dir / "t.idx");
  std::swap(idx[idx.size() - 1], idx[idx.size() - 2]);
  spill(dir / "t.idx", idx);
  EXPECT_EQ(TokenFile(dir / "t").num_targets(), read_note(dir / "t")->targets);
  EXPECT_EQ(thrown_by([&] { check_tokens(TokenFile(dir / "t"), read_note(dir / "t"), {}); }).kind(), "data.note");
}

TEST(TargetMask, SurvivesAResume) {
  const TempDir dir;
  TokenWriter::Mark mark;
  {
    TokenWriter writer(dir / "t", TokenType::u16, true);
    writer.append(Ids{~1, 2, ~3});
    writer.end_document();
    writer.save();
    mark = writer.mark();
    writer.append(Ids{~4, 5});  // lost
  }
  TokenWriter writer(dir / "t", TokenType::u16, true);
  ASSERT_TRUE(writer.resume(mark));
  writer.append(Ids{6, ~7});
  writer.end_document();
  writer.commit();
  EXPECT_THAT(marked(TokenFile(dir / "t"), 0, 5), ElementsAre(~1, 2, ~3, 6, ~7));
}

// Every third token of a ramp is ignored, and all of the last ones.
void write_masked_ramp(const std::string& prefix, std::int32_t size, std::int32_t ignored_from) {
  std::vector<Ids> documents(1);
  for (std::int32_t i = 0; i < size; ++i) {
    if (documents.back().size() == 11) documents.emplace_back();
    documents.back().push_back(i % 3 == 0 || i >= ignored_from ? ignored_target(i) : i);
  }
  write_tokens(prefix, documents);
}

TEST(MaskedLoader, CountsTargetsOfAStepOnceForAllRanks) {
  const TempDir dir;
  write_masked_ramp(dir / "t", 1000, 900);
  write_tokens(dir / "plain", {Ids(200, 7)});
  DataConfig config{.train = {"3 " + dir / "t", "1 " + dir / "plain"}, .valid = {dir / "t"}, .valid_fraction = 0};
  const BatchShape shape{.seq = 8, .global_batch = 12};
  Loader loader(config, shape, 1000, 1);
  EXPECT_TRUE(loader.has_mask());
  for (std::int64_t step = 0; step < 6; ++step) {
    std::vector<std::int32_t> rows(12 * 9);
    loader.fill(step, 0, 12, rows.data());
    std::int64_t want = 0;
    for (std::size_t row = 0; row < 12; ++row) {
      for (std::size_t i = 0; i < 9; ++i) {
        const std::int32_t token = rows[row * 9 + i], id = token_id(token);
        const bool is_ignored = id != 7 && (id % 3 == 0 || id >= 900);  // 7 is the plain file's
        if (id != 7) { EXPECT_EQ(token < 0, is_ignored) << id; }
        want += i > 0 && token >= 0 ? 1 : 0;
      }
    }
    for (const int dp : {1, 2, 4}) {
      for (int rank = 0; rank < dp; ++rank) {
        const LoaderTask task{.order = {.begin = 0, .end = 6}, .dp_ranks = {rank}, .division = {dp, 1}};
        EXPECT_EQ(loader.plan(task, {.step = step}).num_targets, want);
      }
    }
  }
}

TEST(MaskedLoader, CountsTargetsOfAWholeValidation) {
  const TempDir dir;
  write_masked_ramp(dir / "t", 1000, 1000);
  const DataConfig config{.train = {dir / "t"}, .valid = {dir / "t"}, .valid_fraction = 0};
  const Loader loader(config, {.seq = 8, .global_batch = 4}, 1000, 1);
  std::vector<std::int32_t> rows(12 * 9);
  loader.fill_validation(0, 12, 12, rows.data());
  std::int64_t want = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) want += i % 9 > 0 && rows[i] >= 0 ? 1 : 0;
  const LoaderTask task{
      .order = {.begin = 0, .end = 1, .validate_every = 1, .rounds = 3}, .dp_ranks = {0}, .division = {1, 1}};
  for (std::int64_t round = 0; round < 3; ++round)
    EXPECT_EQ(loader.plan(task, {.step = 0, .round = round}).num_targets, want);
  EXPECT_EQ(loader.num_validation_targets(12), want);
  EXPECT_THAT(facts_of(loader).prompt, testing::Each(testing::Ge(0)));
}

TEST(MaskedLoader, RefusesAFileThatTheLossIgnores) {
  const TempDir dir;
  write_tokens(dir / "t", {Ids(100, ~5)});
  const Error error =
      thrown_by([&] { Loader({.train = {dir / "t"}, .valid = {}}, {.seq = 8, .global_batch = 1}, 10, 1); });
  EXPECT_EQ(error.kind(), "data.mask");
  EXPECT_EQ(error.blame(), Blame::user);
}

TEST(MaskedLoader, KnowsAFileWithAnotherMask) {
  const TempDir dir;
  const auto fingerprint = [&](const Ids& document) {
    write_tokens(dir / "t", {document});
    return Loader({.train = {dir / "t"}, .valid = {}, .valid_fraction = 0}, {.seq = 2, .global_batch = 1}, 10, 1)
        .fingerprint();
  };
  EXPECT_NE(fingerprint({1, 2, 3, 4}), fingerprint({1, ~2, 3, 4}));
}

TEST(MaskedEvalSet, PredictsTargetsAlone) {
  const TempDir dir;
  write_masked_ramp(dir / "t", 50, 40);
  const EvalSet set({"t", dir / "t"}, 8, 1000, 0);
  std::int64_t targets = 0;
  std::vector<std::int32_t> row(9);
  for (std::int64_t i = 0; i < set.windows(); ++i) {
    set.read(set.begin_of(i), row);
    for (std::size_t t = 1; t < row.size(); ++t) targets += row[t] >= 0 ? 1 : 0;
  }
  EXPECT_EQ(set.predictions(), targets);
  EXPECT_EQ(targets, 26);  // 1 to 39 but for multiples of 3
}

TEST(MaskedEvalSet, RefusesWhatTheLossIgnores) {
  const TempDir dir;
  write_tokens(dir / "all", {Ids(20, ~5)});
  Ids begins(20, ~5);
  begins[3] = 5;
  write_tokens(dir / "begins", {begins});
  EXPECT_EQ(EvalSet({"t", dir / "begins"}, 8, 10, 0).predictions(), 1);
  for (const EvalSource& source : {EvalSource{"t", dir / "all"}, EvalSource{"t", dir / "begins", 0.5}}) {
    const Error error = thrown_by([&] { EvalSet(source, 8, 10, 0); });
    EXPECT_EQ(error.kind(), "data.mask");
    EXPECT_EQ(error.blame(), Blame::user);
  }
}

TEST(MaskedEvalSet, RefusesSamplesOfAnotherLength) {
  const TempDir dir;
  write_noted(dir / "t", {{~1, 2, 3}, {~4, 5}});
  pack(dir / "t", dir / "p", {.seq = 4});
  EXPECT_EQ(EvalSet({"p", dir / "p"}, 4, 257, 0).predictions(), 3);
  for (const std::int64_t seq : {3, 8}) {
    const Error error = thrown_by([&] { EvalSet({"p", dir / "p"}, seq, 257, 0); });
    EXPECT_EQ(error.kind(), "data.packed");
    EXPECT_EQ(error.blame(), Blame::user);
  }
}

}  // namespace
}  // namespace ms::data
