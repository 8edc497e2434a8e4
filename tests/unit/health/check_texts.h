// What holds for every check, passive or active: its row is complete, and every key that its texts name is one of the
// policy.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <string>
#include <vector>

#include "health/checks/check.h"
#include "health/policy.h"

namespace ms::health {

inline std::vector<ConfigRow> policy_keys() {
  Policy policy;
  ConfigSchema schema;
  bind(schema, policy);
  return schema.reference();
}

// The words "section.key" of a text whose section is one of the policy.
inline std::vector<std::string> keys_in(const std::string& text) {
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

inline std::vector<std::string> unknown_keys_in(const std::string& text) {
  std::set<std::string> known;
  for (const ConfigRow& row : policy_keys()) known.insert(row.section + "." + row.key);
  std::vector<std::string> unknown = keys_in(text);
  std::erase_if(unknown, [&](const std::string& key) { return known.contains(key); });
  return unknown;
}

inline void expect_complete(const Check& check) {
  using testing::HasSubstr;
  using testing::Not;
  EXPECT_LE(check.code.size(), 12u) << check.code << ": a reason's first 20 characters would not show it";
  EXPECT_NE(check.code.find('.'), std::string_view::npos) << check.code;
  EXPECT_GT(check.explain.size(), 60u) << check.code;
  EXPECT_TRUE(check.remedy.ends_with('.')) << check.code;
  EXPECT_FALSE(check.summary.empty() || check.summary.ends_with('.')) << check.code;
  EXPECT_GT(check.deadline_s, 0) << check.code;
  EXPECT_NE(check.run, nullptr) << check.code;
  EXPECT_EQ(check.lane == Lane::active, check.level > 1) << check.code;
  EXPECT_TRUE(!check.user_can_cause || check.on_hang != Severity::critical) << check.code;
  EXPECT_THAT(std::string(check.summary), Not(HasSubstr(" as expected"))) << check.code << " must say what is found";
  EXPECT_THAT(std::string(check.summary), Not(HasSubstr(" as fast "))) << check.code << " must say what is found";
  for (const std::string_view part : {check.summary, check.needs, check.explain, check.remedy}) {
    EXPECT_THAT(unknown_keys_in(std::string(part)), testing::IsEmpty()) << check.code;
  }
}

}  // namespace ms::health
