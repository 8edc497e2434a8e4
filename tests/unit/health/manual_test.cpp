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

TEST(Explain, AnXidByItsNumberOrItsLine) {
  struct Row {
    const char* asked;
    const char* begins;
    bool counts;
  };
  const Row rows[] = {
      {"79", "Xid 79: GPU has fallen off the bus\n", true},
      {"Xid 79", "Xid 79: ", true},
      {"xid13", "Xid 13: ", false},
      {"145", "Xid 145: NVLink error\n", true},
      {"9999", "Xid 9999: not in the table", true},
      {"[12.5] NVRM: Xid (PCI:0000:11:00): 79, pid=0, GPU has fallen off the bus.", "Xid 79: ", true},
      {"Nov 2 gpu07 kernel: NVRM: Xid (PCI:0000:11:00): 31, pid=8, name=python3, Ch 8", "Xid 31: ", false},
      {"NVRM: Xid (PCI:0000:11:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 03 (0x025001c6 0x0)",
       "Xid 149: fatal NVLink error of link 3", true},
      {"NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)",
       "Xid 154: the driver asks for ", true},
      {"nvidia-nvswitch2: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 42 LTSSM Fault Up", "gpu.sxid ", false},
  };
  for (const Row& row : rows) {
    const std::string text = explain(passive_checks(), row.asked);
    EXPECT_TRUE(text.starts_with(row.begins)) << text;
    EXPECT_EQ(text.find("reports it as gpu.xid") != std::string::npos, row.counts) << text;
  }
  for (const char* severity : {"critical", "warning"})
    EXPECT_NE(explain(passive_checks(), "149").find(severity), std::string::npos) << severity;
  for (const char* asked : {"Xid", "79x", "", "NVRM: Xid"})
    EXPECT_THROW(explain(passive_checks(), asked), Error) << asked;
}

}  // namespace
}  // namespace ms::health
