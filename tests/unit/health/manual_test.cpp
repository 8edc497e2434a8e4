// What people read: every key that a text names is one of the policy, and the list says what checks find.
#include "health/commands/manual.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "check_texts.h"
#include "health/checks/registry.h"

namespace ms::health {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST(Manual, FindsKeysInTexts) {
  EXPECT_THAT(keys_in("Above limits.clock_error_s. See (paths.nvml), expect.gpus, act.mode"),
              ElementsAre("limits.clock_error_s", "paths.nvml", "expect.gpus", "act.mode"));
  EXPECT_THAT(keys_in("It may act. Then perf.memory, gres.conf, /etc/act.conf, x.limits.y, contract.txt"), IsEmpty());
  EXPECT_THAT(unknown_keys_in("limits.clock_error, limits.clock_error_s, prolog.deadlines"),
              ElementsAre("limits.clock_error_s", "prolog.deadlines"));
}

TEST(Manual, PolicyTextsNameOnlyKnownKeys) {
  for (const ConfigRow& row : policy_keys()) EXPECT_THAT(unknown_keys_in(row.doc), IsEmpty()) << row.key;
}

TEST(Manual, PluginPageNamesOnlyKnownKeys) {
  const std::string page = read_file(std::filesystem::path(MS_SOURCE_DIR) / "man/ms_spank.8");
  EXPECT_THAT(keys_in(page), Not(IsEmpty()));
  EXPECT_THAT(unknown_keys_in(page), IsEmpty());
}

TEST(Manual, ListsEveryCheckUnderItsLevel) {
  std::vector<Check> checks = passive_checks();
  checks.push_back({.code = "perf.some", .level = 2});
  const std::string page = checks_page(checks);
  const std::size_t second = page.find("&LEVEL 2\"");
  ASSERT_NE(second, std::string::npos);
  EXPECT_NE(page.find("&LEVEL 3\""), std::string::npos);
  for (const Check& check : checks) {
    const std::size_t at = page.find(fmt::format(".It Sy \"\\&{}\"", check.code));
    ASSERT_NE(at, std::string::npos) << check.code;
    EXPECT_EQ(at > second, check.level == 2) << check.code;
  }
}

}  // namespace
}  // namespace ms::health
