// What people read: every key that a text names is one of the policy, and the list says what checks find.
#include "health/manual.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>

#include "base/file.h"
#include "health/check.h"
#include "health/policy.h"

namespace ms::health {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::vector<ConfigRow> policy_keys() {
  Policy policy;
  ConfigSchema schema;
  bind(schema, policy);
  return schema.reference();
}

// The words "section.key" of a text whose section is one of the policy.
std::vector<std::string> keys_in(const std::string& text) {
  std::set<std::string> sections;
  for (const ConfigRow& row : policy_keys()) sections.insert(row.section);
  static const std::regex kDotted(R"(([\w./-]*)\b([a-z]+)\.(\w+))");
  std::vector<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), kDotted), end; it != end; ++it) {
    const std::smatch& word = *it;
    if (word[1].length() == 0 && sections.contains(word[2])) found.push_back(word[2].str() + "." + word[3].str());
  }
  return found;
}

std::vector<std::string> unknown_keys_in(const std::string& text) {
  std::set<std::string> known;
  for (const ConfigRow& row : policy_keys()) known.insert(row.section + "." + row.key);
  std::vector<std::string> unknown = keys_in(text);
  std::erase_if(unknown, [&](const std::string& key) { return known.contains(key); });
  return unknown;
}

TEST(Manual, KeysAreFoundInTexts) {
  EXPECT_THAT(keys_in("Above limits.clock_error_s. See (paths.nvml), expect.gpus, act.mode"),
              ElementsAre("limits.clock_error_s", "paths.nvml", "expect.gpus", "act.mode"));
  EXPECT_THAT(keys_in("It may act. Then perf.memory, gres.conf, /etc/act.conf, x.limits.y, contract.txt"), IsEmpty());
  EXPECT_THAT(unknown_keys_in("limits.clock_error, limits.clock_error_s, prolog.deadlines"),
              ElementsAre("limits.clock_error_s", "prolog.deadlines"));
}

TEST(Manual, EveryKeyThatAChecksTextsNameIsOne) {
  std::size_t named = 0;
  for (const Check& check : all_checks()) {
    for (const std::string_view part : {check.summary, check.needs, check.explain, check.remedy}) {
      named += keys_in(std::string(part)).size();
      EXPECT_THAT(unknown_keys_in(std::string(part)), IsEmpty()) << check.code;
    }
  }
  EXPECT_GT(named, 20u);
  for (const ConfigRow& row : policy_keys()) EXPECT_THAT(unknown_keys_in(row.doc), IsEmpty()) << row.key;
}

TEST(Manual, EveryKeyThatThePluginsPageNamesIsOne) {
  const std::string page = read_file(std::filesystem::path(MS_SOURCE_DIR) / "man/ms_spank.8");
  EXPECT_THAT(keys_in(page), Not(IsEmpty()));
  EXPECT_THAT(unknown_keys_in(page), IsEmpty());
}

TEST(Manual, SummariesSayWhatIsFoundNotThatAllIsWell) {
  for (const Check& check : all_checks()) {
    EXPECT_THAT(std::string(check.summary), Not(HasSubstr(" as expected"))) << check.code;
    EXPECT_THAT(std::string(check.summary), Not(HasSubstr(" as fast "))) << check.code;
  }
}

TEST(Manual, TheChecksPageHasEveryCheckUnderItsLevel) {
  const std::string page = checks_page();
  const std::size_t second = page.find("&LEVEL 2\"");
  ASSERT_NE(second, std::string::npos);
  EXPECT_THAT(page, Not(HasSubstr("LEVEL 3")));
  for (const Check& check : all_checks()) {
    const std::size_t at = page.find(fmt::format(".It Sy \"\\&{}\"", check.code));
    ASSERT_NE(at, std::string::npos) << check.code;
    EXPECT_EQ(at > second, check.level == 2) << check.code;
  }
}

}  // namespace
}  // namespace ms::health
