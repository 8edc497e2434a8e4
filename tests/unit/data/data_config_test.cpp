// The [data] section: sources, their weights by step, and what is refused.
#include "data/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "token_files.h"

namespace ms::data {
namespace {

TEST(DataConfig, ParsesSources) {
  struct Row {
    std::string entry;
    std::string prefix;
    std::vector<SourceWeight> weights = {};
  };
  for (const Row& row : {Row{"a/b", "a/b"}, Row{"0.7 a/b", "a/b", {{0, 0.7}}}, Row{" 2  a b ", "a b", {{0, 2}}},
                         Row{"my dir/x", "my dir/x"}, Row{"2x y", "2x y"}, Row{"7", "7"},
                         Row{"0:0.9;10000:0 a b", "a b", {{0, 0.9}, {10'000, 0}}}, Row{"0:1;x:2 y", "0:1;x:2 y"}}) {
    const DataSource source = parse_source(row.entry);
    EXPECT_EQ(source.prefix, row.prefix);
    EXPECT_EQ(source.weights, row.weights);
  }
  for (const std::string entry : {"", "  ", "0 x", "-1 x", "inf x", "x.bin", "1 x.idx"}) {
    EXPECT_EQ(thrown_by([&] { parse_source(entry); }).kind(), "data.source") << entry;
  }
}

TEST(DataConfig, RefusesSchedulesThatMakeNoSense) {
  std::string long_one = "0:1";
  for (int i = 1; i <= 1024; ++i) long_one += ";" + std::to_string(i) + ":1";
  for (const auto& [weights, message] : std::vector<std::pair<std::string, std::string>>{
           {"1:1;2:1", "the weights of 'a' begin at step 1, expected step 0"},
           {"0:1;5:2;5:1", "the weights of 'a' have step 5 after step 5"},
           {"0:1;5:2;4:1", "the weights of 'a' have step 4 after step 5"},
           {"0:1;5:-2", "the weight -2 of 'a' from step 5 on is not between 0.000001 and 1000000"},
           {"0:1;5:nan", "the weight nan of 'a' from step 5 on"},
           {"0:inf;5:1", "the weight inf of 'a' from step 0 on"},
           {"1e-9", "the weight 1e-09 of 'a' is not between 0.000001 and 1000000"},
           {"1.7e308", "the weight 1.7e+308 of 'a' is not between"},
           {"-1", "the weight -1 of 'a' is not between"},
           {"0:0;5:0", "the weight of 'a' is never above 0"},
           {long_one, "'a' has 1025 weights by step, at most 1024 are possible"}}) {
    const Error error = thrown_by([&weights = weights] { parse_source(weights + " a"); });
    EXPECT_EQ(error.kind(), "data.source");
    EXPECT_THAT(error.message(), testing::HasSubstr(message));
  }
}

TEST(DataConfig, JoinsTheWeightsOfAllSourcesByStep) {
  const std::vector<DataSource> sources{parse_source("0:1;10:0 a"), parse_source("2 b"), parse_source("0:0;20:3 c")};
  EXPECT_EQ(weight_stages(sources), (std::vector<WeightStage>{{0, {1, 2, 0}}, {10, {0, 2, 0}}, {20, {0, 2, 3}}}));

  const std::vector<DataSource> pause{parse_source("0:1;10:0 a"), parse_source("0:0;20:3 c")};
  const Error error = thrown_by([&] { weight_stages(pause); });
  EXPECT_EQ(error.kind(), "data.weight");
  EXPECT_THAT(error.message(), testing::HasSubstr("from step 10 on all weights of data.train are 0"));

  std::string even = "0:1", odd = "0:1";
  for (int i = 1; i < 1000; ++i) (i % 2 == 0 ? even : odd) += ";" + std::to_string(i) + ":" + std::to_string(i);
  for (int i = 1000; i < 1030; ++i) even += ";" + std::to_string(i) + ":1";
  const std::vector<DataSource> many{parse_source(even + " a"), parse_source(odd + " b")};
  EXPECT_THAT(thrown_by([&] { weight_stages(many); }).message(), testing::HasSubstr("change at 1030 steps"));
}

TEST(DataConfig, ASourceAloneIsAListAndTablesHaveWeights) {
  const auto train_of = [](const std::string& text) {
    DataConfig config;
    ConfigSchema schema;
    schema.section("data", "What to train on.", config, kDataFields);
    schema.load_text("[data]\ntrain = " + text, "c.toml");
    validate(config, schema);
    schema.throw_if_problems();
    return config.train;
  };
  using Sources = std::vector<std::string>;
  EXPECT_EQ(train_of("\"a/b\""), Sources{"a/b"});
  EXPECT_EQ(train_of("[{path = \"a\", weight = 3}, {path = \"b c\", weight = 0.5}]"), (Sources{"3 a", "0.5 b c"}));
  EXPECT_EQ(train_of("[{path = \"a\"}, \"b\"]"), (Sources{"a", "b"}));
  EXPECT_EQ(train_of("[{path = \"a\", weight = [[0, 0.9], [10000, 0]]}, {path = \"b c\", weight = 1}]"),
            (Sources{"0:0.9;10000:0 a", "1 b c"}));
  const auto pairs = "weight is not a list of [STEP, WEIGHT] pairs";
  for (const auto& [wrong, message] : std::vector<std::pair<std::string, std::string>>{
           {"[{weight = 1}]", "data.train: entry 1: path is missing"},
           {"[{path = 1}]", "entry 1: path must be a string, got the integer 1"},
           {"[\"a\", {path = \"b\", weight = \"1\"}]",
            "entry 2: weight must be a number or [[STEP, WEIGHT], ...], got"},
           {"[{path = \"a\", weight = 1, x = 2}]", "entry 1: unknown key 'x', expected path and weight"},
           {"[{path = \"a\", weight = -1}]", "the weight -1 of 'a'"},
           {"[{path = \"a\", weight = 1}, \"b\"]", "either every training file has a weight, or none"},
           {"[\"a\", 3]", "entry 2: expected a string or {path = ..., weight = ...}, got the integer 3"},
           {"{path = \"a\"}", "expected a list of strings, got a table"},
           {"3", "expected a list of strings"},
           {"[{path = \"a\", weight = []}]", "entry 1: weight is an empty list"},
           {"[{path = \"a\", weight = [[0, 1, 2]]}]", pairs},
           {"[{path = \"a\", weight = [[0.5, 1]]}]", pairs},
           {"[{path = \"a\", weight = [0, 1]}]", pairs},
           {"[{path = \"a\", weight = [[0, \"1\"]]}]", pairs},
           {"[{path = \"a\", weight = [[0, 1], [9223372036854775808, 2]]}]", "a step of its weight is too large"},
           {"[{path = \"a\", weight = [[0, nan]]}]", "the weight nan of 'a'"},
           {"[{path = \"a\", weight = [[0, 0], [5, 1]]}]", "from step 0 on all weights of data.train are 0"}}) {
    const Error error = thrown_by([&, &wrong = wrong] { train_of(wrong); });
    EXPECT_EQ(error.kind(), "config.invalid") << wrong;
    EXPECT_THAT(error.message(), testing::HasSubstr(message)) << wrong;
  }
}

TEST(DataConfig, LoadsAndSaysAllThatIsWrong) {
  DataConfig config;
  ConfigSchema schema;
  schema.section("data", "What to train on.", config, kDataFields);
  schema.load_text("[data]\ntrain = [\"0.7 a\", \"b\"]\nvalid = [\"1 c\"]\nread_timeout = \"2m\"\n", "x.toml");
  validate(config, schema);
  EXPECT_EQ(config.read_timeout_s, 120);
  ASSERT_EQ(schema.problems().size(), 2U);
  EXPECT_THAT(schema.problems()[0].str(), testing::HasSubstr("either every training file has a weight"));
  EXPECT_THAT(schema.problems()[1].str(), testing::HasSubstr("take no weights"));
}

}  // namespace
}  // namespace ms::data
