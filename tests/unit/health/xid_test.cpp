// Xids: the table's promises, and that no user's text makes a line count.
#include "health/evidence/xid.h"

#include <gtest/gtest.h>

namespace ms::health {
namespace {

TEST(XidTable, WhatAJobCanCauseIsNeverCritical) {
  for (const XidRow& row : xid_rows()) {
    EXPECT_FALSE(row.user_can_cause && row.severity == Severity::critical) << "Xid " << row.first;
  }
  for (const int number : {13, 31, 43, 45}) {
    ASSERT_NE(find_xid(number), nullptr) << number;
    EXPECT_TRUE(find_xid(number)->user_can_cause) << number;
  }
}

TEST(XidTable, WhatIsSurelyBrokenIsCritical) {
  for (const int number : {48, 62, 64, 79, 95, 119, 120, 140, 143}) {
    ASSERT_NE(find_xid(number), nullptr) << number;
    EXPECT_EQ(find_xid(number)->severity, Severity::critical) << number;
    EXPECT_FALSE(find_xid(number)->user_can_cause) << number;
  }
}

TEST(XidTable, RowsAreSortedAndDoNotOverlap) {
  int last = 0;
  for (const XidRow& row : xid_rows()) {
    EXPECT_GT(row.first, last);
    EXPECT_GE(row.last, row.first);
    EXPECT_FALSE(row.meaning.empty());
    last = row.last;
  }
}

TEST(XidTable, FindsRangesAndNothingElse) {
  EXPECT_EQ(find_xid(149), find_xid(144));
  EXPECT_EQ(find_xid(0), nullptr);
  EXPECT_EQ(find_xid(-1), nullptr);
  EXPECT_EQ(find_xid(9999), nullptr);
}

TEST(ParseXid, TheFormsThatDriversWrite) {
  struct Row {
    const char* line;
    const char* pci;
    int number;
  };
  const Row rows[] = {
      {"NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.", "0000:9b:00.0", 79},
      {"NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "0000:05:00.0",
       79},
      {"NVRM: Xid (PCI:0008:01:00): 119, pid=1234, name=python, Timeout waiting for RPC", "0008:01:00.0", 119},
      {"NVRM: Xid (PCI:0000:9b:00 GPU-I:05): 94, pid=7194, name=python3, Contained", "0000:9b:00.0", 94},
      {"NVRM: Xid (PCI:10000:9b:1f): 48", "10000:9b:1f.0", 48},
  };
  for (const Row& row : rows) {
    const std::optional<XidLine> xid = parse_xid(row.line);
    ASSERT_TRUE(xid) << row.line;
    EXPECT_EQ(xid->pci, row.pci);
    EXPECT_EQ(xid->number, row.number);
    EXPECT_EQ(xid->action, std::nullopt);
  }
}

TEST(ParseXid, ForgedAndBrokenLinesAreNone) {
  const char* const lines[] = {
      "",
      "x NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.",
      " NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.",
      "python[77]: segfault NVRM: Xid (PCI:0000:9b:00): 79, x",
      "NVRM: Xid (PCI:[1234]: segfault at 0 ip 0 sp 0 error 4",  // the name of a process is its first 15 bytes
      "NVRM: Xid (PCI: page allocation failure: order:0",
      "NVRM: Xid (0000:9b:00): 79, x",  // before driver 300
      "NVRM: xid (PCI:0000:9b:00): 79, x",
      "NVRM: Xid (PCI:0000:9b:00) 79, x",
      "NVRM: Xid (PCI:0000:9b:00): , x",
      "NVRM: Xid (PCI:0000:9b:00): -79, x",
      "NVRM: Xid (PCI:0000:9b:00): 79x",
      "NVRM: Xid (PCI:0000:9b:00): 79,x",
      "NVRM: Xid (PCI:0000:9b:00): 79000, x",
      "NVRM: Xid (PCI:0000:9b:00): 99999999999999999999, x",
      "NVRM: Xid (PCI:zzzz:9b:00): 79, x",
      "NVRM: Xid (PCI:0000:1ff:00): 79, x",
      "NVRM: Xid (PCI:0000:9b:20): 79, x",
      "NVRM: Xid (PCI:0000:9b:00 GPU-I:x): 79, x",
      "NVRM: Xid (PCI:0000:9b",
  };
  for (const char* line : lines) EXPECT_EQ(parse_xid(line), std::nullopt) << line;
}

TEST(ParseXid, TheNameOfAProcessChangesNoNumber) {
  const auto xid = parse_xid("NVRM: Xid (PCI:0000:9b:00): 31, pid=7, name=): 79, GPU has, MMU Fault");
  ASSERT_TRUE(xid);
  EXPECT_EQ(xid->number, 31);
}

TEST(ParseXid, TheActionOf154) {
  const std::string prefix = "NVRM: Xid (PCI:0000:9b:00): ";
  struct Row {
    const char* text;
    std::optional<RecoveryAction> action;
  };
  const Row rows[] = {
      {"154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", RecoveryAction::gpu_reset},
      {"154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", RecoveryAction::node_reboot},
      {"154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)", RecoveryAction::node_reboot},
      {"154, GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)", RecoveryAction::drain_p2p},
      {"154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)", RecoveryAction::drain_and_reset},
      {"154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", RecoveryAction::none},
      {"154, GPU recovery action changed from 0x0 (None) to 0x9 (Something New)", static_cast<RecoveryAction>(9)},
      {"154, pid='<unknown>', name=<unknown>, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
       RecoveryAction::gpu_reset},
      // A name that looks like the text does not count: what the driver wrote stands at the end.
      {"154, pid=7, name=to 0x2 (x), GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
       RecoveryAction::none},
      {"154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required), name=x", std::nullopt},
      {"154, GPU recovery action changed", std::nullopt},
      {"154, GPU recovery action changed from 0x0 (None) to 0x2", std::nullopt},
      {"154, GPU recovery action changed from 0x0 (None) to 0x1234 (x)", std::nullopt},
      {"154", std::nullopt},
      {"79, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", std::nullopt},
  };
  for (const Row& row : rows) {
    const std::optional<XidLine> xid = parse_xid(prefix + row.text);
    ASSERT_TRUE(xid) << row.text;
    EXPECT_EQ(xid->action, row.action) << row.text;
  }
}

TEST(RecoveryAdvice, OnlyResetsAndRebootsAreCritical) {
  EXPECT_EQ(advice_for(RecoveryAction::none).severity, Severity::note);
  EXPECT_EQ(advice_for(RecoveryAction::gpu_reset).severity, Severity::critical);
  EXPECT_EQ(advice_for(RecoveryAction::node_reboot).severity, Severity::critical);
  EXPECT_EQ(advice_for(RecoveryAction::drain_p2p).severity, Severity::warning);
  EXPECT_EQ(advice_for(RecoveryAction::drain_and_reset).severity, Severity::critical);
  EXPECT_EQ(advice_for(static_cast<RecoveryAction>(9)).severity, Severity::warning)
      << "what we do not know never drains";
}

}  // namespace
}  // namespace ms::health
