#include "base/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "base/file.h"

namespace ms {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

struct ModelConfig {
  std::int64_t layers = 4;
  double dropout = 0.1;
  bool tied = true;
  std::string attention = "causal";
  std::vector<std::string> dumps = {"loss", "norm"};
  std::string name;
};

constexpr Field<ModelConfig> kModelFields[] = {
    {.key = "layers", .member = &ModelConfig::layers, .doc = "Number of layers.", .min = 1, .max = 1000},
    {.key = "dropout", .member = &ModelConfig::dropout, .doc = "Chance to drop.", .min = 0},
    {.key = "tied", .member = &ModelConfig::tied, .doc = "Whether embeddings are shared."},
    {.key = "attention", .member = &ModelConfig::attention, .doc = "Mask.", .choices = {"causal", "window", "full"}},
    {.key = "dumps", .member = &ModelConfig::dumps, .doc = "What to print.", .choices = {"loss", "norm", "time"}},
    {.key = "name", .member = &ModelConfig::name, .doc = "A name for people."}};

struct RunConfig {
  std::string dir;
  double timeout_s = 30;
  std::int64_t patience_s = 90;
  std::int64_t buffer_bytes = 64 << 20;
  double rate = 3e-4;
};

constexpr Field<RunConfig> kRunFields[] = {
    {.key = "dir", .member = &RunConfig::dir, .doc = "Where the run lives.", .required = true},
    {.key = "timeout", .member = &RunConfig::timeout_s, .doc = "Patience.", .unit = Unit::seconds, .min = 0.1},
    {.key = "patience",
     .member = &RunConfig::patience_s,
     .doc = "Whole.",
     .unit = Unit::seconds,
     .min = 1,
     .max = 7200},
    {.key = "buffer", .member = &RunConfig::buffer_bytes, .doc = "Memory.", .unit = Unit::bytes, .min = 1024},
    {.key = "rate", .member = &RunConfig::rate, .doc = "Learning rate."}};

struct Bound {
  ModelConfig model;
  RunConfig run;
  ConfigSchema schema;
  Bound() {
    schema.section("model", "The network.", model, kModelFields);
    schema.section("run.main", "The run.", run, kRunFields);
  }
  std::vector<std::string> messages() const {
    std::vector<std::string> result;
    for (const ConfigProblem& problem : schema.problems()) result.push_back(problem.str());
    return result;
  }
};

TEST(Config, ReadsEveryType) {
  Bound b;
  b.schema.load_text(R"(
[model]
layers = 12
dropout = 0       # an integer is a number
tied = false
attention = "window"
dumps = []
name = "caf\u00e9 \"x\""
[run.main]
dir = '/tmp/x'
timeout = "1h30m"
patience = "60s"
buffer = "1GB"
rate = 1e-5
)",
                     "t.toml");
  EXPECT_THAT(b.messages(), IsEmpty());
  EXPECT_EQ(b.model.layers, 12);
  EXPECT_EQ(b.model.dropout, 0.0);
  EXPECT_FALSE(b.model.tied);
  EXPECT_EQ(b.model.attention, "window");
  EXPECT_THAT(b.model.dumps, IsEmpty());
  EXPECT_EQ(b.model.name, "caf\xc3\xa9 \"x\"");
  EXPECT_EQ(b.run.dir, "/tmp/x");
  EXPECT_EQ(b.run.timeout_s, 5400);
  EXPECT_EQ(b.run.patience_s, 60);
  EXPECT_EQ(b.run.buffer_bytes, 1'000'000'000);
  EXPECT_EQ(b.run.rate, 1e-5);
  EXPECT_NO_THROW(b.schema.throw_if_problems());
}

TEST(Config, UnitsAreExact) {
  const struct {
    const char* assignment;
    double timeout_s;
  } rows[] = {{"30s", 30},     {"5m", 300},     {"1h30m", 5400},
              {"250ms", 0.25}, {"3ms", 3e-3},   {"1d2h", 93600},
              {"1.5h", 5400},  {"\"45s\"", 45}, {"inf", std::numeric_limits<double>::infinity()}};
  for (const auto& row : rows) {
    Bound b;
    b.schema.set("run.main.dir=x");
    b.schema.set(std::string("run.main.timeout=") + row.assignment);
    if (row.timeout_s < 0.1) {
      EXPECT_THAT(b.messages(), ElementsAre(HasSubstr("must be at least 0.1 seconds, got 0.003"))) << row.assignment;
    } else {
      EXPECT_THAT(b.messages(), IsEmpty()) << row.assignment;
      EXPECT_EQ(b.run.timeout_s, row.timeout_s) << row.assignment;
    }
  }
}

TEST(Config, RefusesInFilesWithPlaceAndReason) {
  const struct {
    const char* text;
    const char* where;
    const char* message;
  } rows[] = {
      {"[model]\nlayers = 1.5", "t.toml:2:10", "model.layers: expected an integer, got the number 1.5"},
      {"[model]\nlayers = \"4\"", "t.toml:2:10", "model.layers: expected an integer, got the string \"4\""},
      {"[model]\nlayers = 0", "t.toml:2:10", "model.layers: must be 1 to 1000, got 0"},
      {"[model]\nlayers = 1001", "t.toml:2:10", "model.layers: must be 1 to 1000, got 1001"},
      {"[model]\ndropout = -0.5", "t.toml:2:11", "model.dropout: must be at least 0, got -0.5"},
      {"[model]\ndropout = nan", "t.toml:2:11", "model.dropout: must be at least 0, got nan"},
      {"[model]\ndropout = \"30s\"", "t.toml:2:11", "expected a number, got the string \"30s\""},
      {"[model]\ntied = 1", "t.toml:2:8", "model.tied: expected true or false, got the integer 1"},
      {"[model]\nname = true", "t.toml:2:8", "model.name: expected a string, got the boolean true"},
      {"[model]\nname = 1979-05-27", "t.toml:2:8", "expected a string, got a date or time"},
      {"[model]\nattention = \"casual\"", "t.toml:2:13",
       "must be one of causal, window, full, got 'casual', did you mean 'causal'?"},
      {"[model]\ndumps = \"loss\"", "t.toml:2:9", "expected a list of strings, got the string \"loss\""},
      {"[model]\ndumps = [1]", "t.toml:2:9", "model.dumps: entry 1: expected a string, got the integer 1"},
      {"[model]\ndumps = [\"los\"]", "t.toml:2:9", "must be one of loss, norm, time, got 'los', did you mean 'loss'?"},
      {"[model]\nlayer = 3", "t.toml:2:9", "unknown key 'model.layer', did you mean 'model.layers'?"},
      {"[model]\ntimeout = 3", "t.toml:2:11", "unknown key 'model.timeout', did you mean 'run.main.timeout'?"},
      {"[model]\nxyzzy = 3", "t.toml:2:9", "unknown key 'model.xyzzy'"},
      {"[modle]\nlayers = 3", "t.toml:1:1", "unknown section 'modle', did you mean 'model'?"},
      {"[run.mian]\ndir = 3", "t.toml:1:1", "unknown section 'run.mian', did you mean 'run.main'?"},
      {"layers = 3", "t.toml:1:10", "unknown key 'layers', did you mean 'model.layers'?"},
      {"model = 3", "t.toml:1:9", "'model' is a section, a table [model] was expected, got the integer 3"},
      {"[[model]]\nlayers = 3", "t.toml:1:", "'model' is a section, a table [model] was expected, got an array"},
      {"[run]\nmain = 1", "t.toml:2:8", "'run.main' is a section"},
      {"[model.layers]\nx = 1", "t.toml:1:1", "model.layers: expected an integer, got a table"},
      {"[run.main]\ntimeout = \"30\"", "t.toml:2:11",
       "expected a duration such as \"30s\" or \"1h30m\", got the string \"30\""},
      {"[run.main]\ntimeout = \"30m1h\"", "t.toml:2:11", "expected a duration"},
      {"[run.main]\ntimeout = \"64MiB\"", "t.toml:2:11", "expected a duration"},
      {"[run.main]\npatience = \"250ms\"", "t.toml:2:12", "must be whole seconds, got the string \"250ms\""},
      {"[run.main]\npatience = \"3h\"", "t.toml:2:12", "must be 1 to 7200 seconds, got 10800"},
      {"[run.main]\nbuffer = \"64M\"", "t.toml:2:10",
       "expected a size such as \"64MiB\" or \"1GB\", got the string \"64M\""},
      {"[run.main]\nbuffer = 7", "t.toml:2:10", "must be at least 1024 bytes, got 7"},
      {"[run.main]\nrate = nan", "t.toml:2:8", "must be a number, got nan"},
      {"[model]\nlayers = \n", "t.toml:2:", "not valid TOML: "},
      {"[model\nlayers = 1", "t.toml:1:1", "not valid TOML: '[' is not closed"},
      {"[model]\nname = { a = 1\ntied = true", "t.toml:2:8", "not valid TOML: '{' is not closed"},
      {"[model]\nname = gpt", "t.toml:2:8", "not valid TOML: a string needs quotes: \"gpt\""},
      {"[model]\nlayers = 1\nlayers = 2", "t.toml:3:", "already exists"},
      {"[model]\nlayers = 99999999999999999999", "t.toml:2:10", "model.layers: the number is too large"},
      {"[run.main]\nrate = 1e999", "t.toml:2:8", "run.main.rate: the number is too large"},
  };
  for (const auto& row : rows) {
    Bound b;
    b.schema.set("run.main.dir=x");
    b.schema.load_text(row.text, "t.toml");
    ASSERT_EQ(b.schema.problems().size(), 1) << row.text << "\n" << ::testing::PrintToString(b.messages());
    EXPECT_THAT(b.schema.problems()[0].where, StartsWith(row.where)) << row.text;
    EXPECT_THAT(b.schema.problems()[0].message, HasSubstr(row.message)) << row.text;
  }
}

TEST(Config, RefusesInAssignments) {
  const struct {
    const char* assignment;
    const char* message;
  } rows[] = {
      {"model.layers", "expected SECTION.KEY=VALUE"},
      {"modle.layers=3", "unknown key 'modle.layers', did you mean 'model.layers'?"},
      {"model=3", "unknown key 'model'"},
      {"model.layers=abc", "expected an integer, got the string \"abc\""},
      {"model.layers=", "expected an integer, got the string \"\""},
      {"run.main.dir=\"a\\u0000b\"", "run.main.dir: must not hold U+0000"},
      {"model.layers=1\ntied=false", "expected an integer, got the string"},
      {"model.tied=yes", "expected true or false, got the string \"yes\""},
      {"model.dumps=loss,lost", "must be one of loss, norm, time, got 'lost'"},
      {"model.dumps=[loss]", "expected a list of strings, got the string \"[loss]\""},
  };
  for (const auto& row : rows) {
    Bound b;
    b.schema.set("run.main.dir=x");
    b.schema.set(row.assignment);
    ASSERT_EQ(b.schema.problems().size(), 1) << row.assignment;
    EXPECT_EQ(b.schema.problems()[0].where, std::string("--set ") + row.assignment);
    EXPECT_THAT(b.schema.problems()[0].message, HasSubstr(row.message)) << row.assignment;
  }
}

TEST(Config, AssignmentsReadByTheTypeOfTheField) {
  Bound b;
  for (const char* assignment :
       {"model.name=12", "model.dumps= time , loss", "model.attention=full", "model.layers = 7", "model.tied=false",
        "run.main.buffer=2KiB", "run.main.dir=\"a b\""}) {
    b.schema.set(assignment);
  }
  EXPECT_THAT(b.messages(), IsEmpty());
  EXPECT_EQ(b.model.name, "12");
  EXPECT_THAT(b.model.dumps, ElementsAre("time", "loss"));
  EXPECT_EQ(b.model.layers, 7);
  EXPECT_FALSE(b.model.tied);
  EXPECT_EQ(b.run.buffer_bytes, 2048);
  EXPECT_EQ(b.run.dir, "a b");
  b.schema.set("model.dumps=[\"norm\"]");
  EXPECT_THAT(b.model.dumps, ElementsAre("norm"));
  b.schema.set("model.dumps=");
  EXPECT_THAT(b.model.dumps, IsEmpty());
}

TEST(Config, AllProblemsAtOnceInReadingOrder) {
  Bound b;
  b.schema.load_text("[model]\nzzz = 1\nlayers = 0\ntied = 3\n[nothing_like_it]\na = 1\n", "t.toml");
  b.schema.set("model.dropout=x");
  b.schema.add_problem("model.layers", "layers must divide by stages");  // follows from another one
  b.schema.add_problem("model.name", "names must rhyme");
  EXPECT_THAT(b.messages(),
              ElementsAre("t.toml:2:7: unknown key 'model.zzz'", "t.toml:3:10: model.layers: must be 1 to 1000, got 0",
                          "t.toml:4:8: model.tied: expected true or false, got the integer 3",
                          "t.toml:5:1: unknown section 'nothing_like_it'",
                          "--set model.dropout=x: model.dropout: expected a number, got the string \"x\"",
                          "names must rhyme", "run.main.dir is required and was not set: Where the run lives."));
  EXPECT_EQ(b.model.layers, 4) << "a refused value is not stored";
  try {
    b.schema.throw_if_problems();
    FAIL() << "nothing thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), "config.invalid");
    EXPECT_EQ(exit_code(error.blame()), ExitCode::usage);
    EXPECT_THAT(error.message(), StartsWith("7 problems in the configuration:\n  t.toml:2:7: unknown key"));
    EXPECT_THAT(error.message(), HasSubstr("run.main.dir is required"));
  }
}

TEST(Config, ProblemsOfRulesShowWhereTheKeyWasSet) {
  Bound b;
  b.schema.load_text("[model]\nlayers = 7\n[run.main]\ndir = \"x\"", "t.toml");
  b.schema.add_problem("model.layers", "7 layers do not divide by 2 stages");
  EXPECT_THAT(b.messages(), ElementsAre("t.toml:2:10: 7 layers do not divide by 2 stages"));
}

TEST(Config, HigherSourcesWinInAnyOrder) {
  Bound b;
  b.schema.set("model.layers=40");
  b.schema.load_text("[model]\nlayers = 20\nname = \"site\"\ndropout = 0.5", "site.toml", Provenance::site);
  b.schema.load_text("[model]\nlayers = 30\nname = \"file\"", "run.toml", Provenance::file);
  EXPECT_EQ(b.model.layers, 40);
  EXPECT_EQ(b.model.name, "file");
  EXPECT_EQ(b.model.dropout, 0.5);
  EXPECT_EQ(b.schema.provenance("model.layers"), Provenance::set);
  EXPECT_EQ(b.schema.provenance("model.name"), Provenance::file);
  EXPECT_EQ(b.schema.provenance("model.dropout"), Provenance::site);
  EXPECT_EQ(b.schema.provenance("model.tied"), Provenance::by_default);
  EXPECT_EQ(b.schema.where("model.name"), "run.toml:3:8");
  EXPECT_EQ(b.schema.where("model.layers"), "--set model.layers=40");
  EXPECT_EQ(b.schema.where("model.tied"), "");
  EXPECT_EQ(
      b.schema.dump(true).substr(0, 150),
      std::string("[model]\nlayers = 40  # set by --set\ndropout = 0.5  # set by site\ntied = true  # set by "
                  "default\nattention = \"causal\"  # set by default\ndumps = [\"loss\", \"norm\"]  # set by default\n")
          .substr(0, 150));
  b.schema.load_text("[model]\nlayers = 0", "late.toml", Provenance::file);
  EXPECT_EQ(b.messages().size(), 2) << "a value that loses is still checked";
}

TEST(Config, DumpReloadsToTheSameValues) {
  const double numbers[] = {
      0.1,    1e-5, 6.02214076e23, 1.0 / 3, 123456789.0, 5e-300, 0, 2.5e-9, std::numeric_limits<double>::infinity(),
      1.7e308};
  const std::int64_t sizes[] = {
      1024, 1025, 64 << 20, 1'000'000'000, std::int64_t{3} << 40, std::numeric_limits<std::int64_t>::max() - 1};
  const double durations[] = {0.1, 0.25, 1.0 / 3, 30, 90.5, 5400, 93600, 1e12, std::numeric_limits<double>::infinity()};
  const std::string strings[] = {
      "", "plain", "a \"quoted\" \\ back", "tab\tline\nend\x01\x7f", "caf\xc3\xa9", "# not a comment"};
  for (std::size_t i = 0; i < 10; ++i) {
    Bound a;
    a.run.rate = numbers[i];
    a.run.buffer_bytes = sizes[i % std::size(sizes)];
    a.run.timeout_s = durations[i % std::size(durations)];
    a.run.dir = strings[i % std::size(strings)];
    a.model.dumps = i % 2 ? std::vector<std::string>{"time", "time"} : std::vector<std::string>{};
    a.model.tied = i % 2;
    a.model.layers = static_cast<std::int64_t>(i) * 111 + 1;
    const std::string text = a.schema.dump(i % 2);
    Bound b;
    b.schema.load_text(text, "dump");
    ASSERT_THAT(b.messages(), IsEmpty()) << text;
    EXPECT_EQ(b.run.rate, a.run.rate) << text;
    EXPECT_EQ(b.run.buffer_bytes, a.run.buffer_bytes) << text;
    EXPECT_EQ(b.run.timeout_s, a.run.timeout_s) << text;
    EXPECT_EQ(b.run.dir, a.run.dir) << text;
    EXPECT_EQ(b.model.dumps, a.model.dumps) << text;
    EXPECT_EQ(b.model.tied, a.model.tied) << text;
    EXPECT_EQ(b.model.layers, a.model.layers) << text;
    EXPECT_EQ(b.schema.dump(false), a.schema.dump(false));
  }
}

TEST(Config, ReferenceRowsSayEverything) {
  Bound b;
  b.model.layers = 99;  // documentation shows the default, not the current value
  const std::vector<ConfigRow> rows = b.schema.reference();
  ASSERT_EQ(rows.size(), std::size(kModelFields) + std::size(kRunFields));
  EXPECT_EQ(rows[0].section, "model");
  EXPECT_EQ(rows[0].section_doc, "The network.");
  EXPECT_EQ(rows[0].key, "layers");
  EXPECT_EQ(rows[0].type, "integer");
  EXPECT_EQ(rows[0].default_value, "4");
  EXPECT_EQ(rows[0].range, "1 to 1000");
  EXPECT_EQ(rows[1].range, "at least 0");
  EXPECT_THAT(rows[3].choices, ElementsAre("causal", "window", "full"));
  EXPECT_EQ(rows[4].default_value, "[\"loss\", \"norm\"]");
  EXPECT_TRUE(rows[6].required);
  EXPECT_EQ(rows[6].default_value, "");
  EXPECT_EQ(rows[7].type, "duration");
  EXPECT_EQ(rows[7].unit, "seconds");
  EXPECT_EQ(rows[7].default_value, "\"30s\"");
  EXPECT_EQ(rows[9].type, "size");
  EXPECT_EQ(rows[9].default_value, "\"64MiB\"");
}

TEST(Config, LoadsFiles) {
  const std::string path = ::testing::TempDir() + "ms_config_test.toml";
  write_file_atomic(path, "[model]\r\nlayers = 5 # last line without an end");
  Bound b;
  b.schema.load_file(path);
  EXPECT_EQ(b.model.layers, 5);
  EXPECT_EQ(b.schema.where("model.layers"), path + ":2:10");
  std::filesystem::remove(path);
  try {
    b.schema.load_file(path);
    FAIL() << "nothing thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.blame(), Blame::user);
    EXPECT_THAT(error.message(), HasSubstr("No such file"));
  }
}

TEST(ConfigDeathTest, TablesThatContradictThemselvesAreBugs) {
  struct Bad {
    std::int64_t n = 0;
    std::string s = "x";
  };
  const auto bind = [](std::vector<Field<Bad>> fields) {
    Bad bad;
    ConfigSchema schema;
    schema.section("bad", "", bad, fields);
  };
  EXPECT_DEATH(bind({{.key = "n", .member = &Bad::n, .doc = "", .min = 1}}),
               "default is refused: bad.n: must be at least 1");
  EXPECT_DEATH(bind({{.key = "s", .member = &Bad::s, .doc = "", .choices = {"a"}}}), "must be one of a, got 'x'");
  EXPECT_DEATH(bind({{.key = "n", .member = &Bad::n, .doc = ""}, {.key = "n", .member = &Bad::n, .doc = ""}}), "twice");
  EXPECT_DEATH(bind({{.key = "s", .member = &Bad::s, .doc = "", .unit = Unit::bytes}}),
               "has a unit, but is not a number");
}

}  // namespace
}  // namespace ms
