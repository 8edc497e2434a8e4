#include "data/eval_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "token_files.h"

namespace ms::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(EvalSources, AreThoseOfTheCommandLineOrOfTheConfiguration) {
  DataConfig held_out, valid;
  held_out.train = {"0.3 a/books", "0.7 web"};
  held_out.valid_fraction = 0.1;
  valid.train = {"web"};
  valid.valid = {"a/wiki", "code"};
  EXPECT_THAT(eval_sources({"wiki=a/b", "c/d"}, valid), ElementsAre(EvalSource{"wiki", "a/b"}, EvalSource{"d", "c/d"}));
  EXPECT_THAT(eval_sources({}, valid), ElementsAre(EvalSource{"wiki", "a/wiki"}, EvalSource{"code", "code"}));
  EXPECT_THAT(eval_sources({}, held_out),
              ElementsAre(EvalSource{"books", "a/books", 0.1}, EvalSource{"web", "web", 0.1}));
}

TEST(EvalSources, AreRefusedWithOneClearMessage) {
  DataConfig none;
  none.train = {"web"};
  none.valid_fraction = 0;
  const struct {
    std::vector<std::string> entries;
    const char* message;
  } kRows[] = {{{}, "names no validation data"},
               {{"a/x", "b/x"}, "two data sets are called 'x'"},
               {{"=x"}, "not NAME=PREFIX"},
               {{"x="}, "names no token file"},
               {{"x=a.bin"}, "expected the prefix"}};
  for (const auto& row : kRows) {
    const Error error = thrown_by([&] { eval_sources(row.entries, none); });
    EXPECT_EQ(error.blame(), Blame::user);
    EXPECT_THAT(error.message(), HasSubstr(row.message));
  }
}

// The predicted tokens of all windows, in order.
std::vector<std::int32_t> predicted(const EvalSet& set, std::int64_t seq) {
  std::vector<std::int32_t> all, row(static_cast<std::size_t>(seq + 1));
  for (std::int64_t i = 0; i < set.windows(); ++i) {
    set.read(set.begin_of(i), row);
    for (std::size_t t = 1; t < row.size() && row[t] >= 0; ++t) {
      EXPECT_EQ(row[t], row[t - 1] + 1) << "not the token that follows";
      all.push_back(row[t]);
    }
  }
  EXPECT_EQ(set.predictions(), std::ssize(all));
  return all;
}

TEST(EvalSet, PredictsEveryTokenButTheFirstOnce) {
  const TempDir dir;
  for (std::int32_t count = 2; count < 20; ++count) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
    for (std::int32_t i = 0; i < count; ++i) tokens[static_cast<std::size_t>(i)] = i;
    write_tokens(dir / "a", {tokens});
    for (const std::int64_t seq : {1, 4, 5, 30}) {
      const EvalSet set({"a", dir / "a"}, seq, 100, 0);
      EXPECT_EQ(predicted(set, seq), std::vector<std::int32_t>(tokens.begin() + 1, tokens.end()))
          << count << " " << seq;
    }
  }
}

TEST(EvalSet, TakesThePartAndTheWindowsThatAreAskedFor) {
  const TempDir dir;
  std::vector<std::int32_t> tokens(101);
  for (std::int32_t i = 0; i < 101; ++i) tokens[static_cast<std::size_t>(i)] = i;
  write_tokens(dir / "a", {tokens});
  EXPECT_THAT(predicted({{"a", dir / "a", 0.05}, 3, 101, 0}, 3), ElementsAre(97, 98, 99, 100));
  EXPECT_THAT(predicted({{"a", dir / "a"}, 2, 101, 4}, 2), ElementsAre(1, 2, 25, 26, 51, 52, 75, 76));
  EXPECT_EQ(EvalSet({"a", dir / "a"}, 2, 101, 1000).windows(), 50);
}

TEST(EvalSet, SaysWhereDocumentsBegin) {
  const TempDir dir;
  write_tokens(dir / "a", {{1, 2, 3}, {4}, {5, 6, 7}});
  const EvalSet set({"a", dir / "a"}, 5, 100, 0);
  std::vector<std::int32_t> row(6), starts(5);
  set.read(set.begin_of(0), row, starts);
  EXPECT_THAT(starts, ElementsAre(0, 0, 0, 3, 4));
  set.read(set.begin_of(1), row, starts);
  EXPECT_THAT(row, ElementsAre(6, 7, -1, -1, -1, -1));
  EXPECT_THAT(starts, ElementsAre(0, 0, 0, 0, 0));
}

TEST(EvalSet, RefusesWhatCannotBeEvaluated) {
  const TempDir dir;
  write_tokens(dir / "one", {{7}});
  write_tokens(dir / "large", {{1, 2, 300}});
  EXPECT_EQ(thrown_by([&] { EvalSet({"x", dir / "absent"}, 4, 10, 0); }).blame(), Blame::user);
  EXPECT_EQ(thrown_by([&] { EvalSet({"x", dir / "one"}, 4, 10, 0); }).kind(), "data.short");
  std::vector<std::int32_t> row(5);
  const Error error = thrown_by([&] { EvalSet({"x", dir / "large"}, 4, 257, 0).read(0, row); });
  EXPECT_EQ(error.kind(), "data.vocab");
  EXPECT_THAT(error.message(), HasSubstr("position 2 is 300"));
}

}  // namespace
}  // namespace ms::data
