#include <gtest/gtest.h>

#include "base/config.h"

namespace ms {
namespace {

// Somebody who writes 8 may mean hours, somebody who writes 30 minutes or steps: no duration is guessed.
TEST(ConfigUnits, ADurationNeedsAUnit) {
  struct SavesConfig {
    double every_s = 1800;
    std::int64_t every_steps = 0;
    double most_s = 60;
    std::int64_t whole_s = 60;
  };
  constexpr Field<SavesConfig> kFields[] = {
      {.key = "every", .member = &SavesConfig::every_s, .doc = "Time.", .unit = Unit::seconds, .min = 0},
      {.key = "every_steps", .member = &SavesConfig::every_steps, .doc = "Steps.", .min = 0},
      {.key = "most", .member = &SavesConfig::most_s, .doc = "Time without steps.", .unit = Unit::seconds},
      {.key = "whole", .member = &SavesConfig::whole_s, .doc = "Whole seconds.", .unit = Unit::seconds}};
  const struct {
    const char* assignment;
    double every_s;
    const char* message;
    const char* option = "--set";
  } rows[] = {
      {"saves.every=30s", 30, ""},
      {"saves.every=0", 0, ""},
      {"saves.every=0.0", 0, ""},
      {"saves.most=inf", 1800, ""},
      {"saves.every_steps=30", 1800, ""},
      {"saves.every=30", 1800,
       "--set saves.every=30: saves.every: 30 needs a unit, as \"30s\" or \"30m\"; saves.every_steps counts "
       "steps"},
      {"saves.every=1.5", 1800,
       "--set saves.every=1.5: saves.every: 1.5 needs a unit, as \"1.5s\" or \"1.5m\"; saves.every_steps counts "
       "steps"},
      {"saves.most=8", 1800, "--set saves.most=8: saves.most: 8 needs a unit, as \"8s\" or \"8m\""},
      {"saves.whole=8", 1800, "--set saves.whole=8: saves.whole: 8 needs a unit, as \"8s\" or \"8m\""},
      {"saves.most=8", 1800, "--recovery saves.most=8: saves.most: 8 needs a unit, as \"8s\" or \"8m\"", "--recovery"},
      {"--recovery saves.every=8s", 1800,
       "--set --recovery saves.every=8s: unknown key '--recovery saves.every', did you mean 'saves.every'?"},
      {"most", 1800, "--recovery most: expected SECTION.KEY=VALUE", "--recovery"}};
  for (const auto& row : rows) {
    SavesConfig saves;
    ConfigSchema schema;
    schema.section("saves", "When.", saves, kFields);
    schema.set(row.assignment, row.option);
    const std::vector<ConfigProblem> problems = schema.problems();
    EXPECT_EQ(problems.empty() ? "" : problems[0].str(), row.message) << row.assignment;
    EXPECT_EQ(saves.every_s, row.every_s) << row.assignment;
  }
  // What is written down is read again.
  for (const double every_s : {0.0, 0.0005, 5e-6, 1.0 / 3e9, 1.1 * 3600, 1234.5678, 5400.0}) {
    SavesConfig saves{.every_s = every_s}, again;
    ConfigSchema schema, other;
    schema.section("saves", "When.", saves, kFields);
    other.section("saves", "When.", again, kFields);
    other.load_text(schema.dump(false), "a dump");
    EXPECT_TRUE(other.problems().empty()) << schema.dump(false);
    EXPECT_EQ(again.every_s, every_s) << schema.dump(false);
    if (every_s == 5e-6) { EXPECT_NE(schema.dump(false).find("every = \"5us\""), std::string::npos); }
  }
}

}  // namespace
}  // namespace ms
