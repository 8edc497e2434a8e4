// gpu.xid: which lines of the driver speak against a GPU, and which of them a reset closed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "fake_node.h"
#include "gpu_node.h"

namespace ms::health {
namespace {

using ::testing::HasSubstr;

// Lines that are minutes apart.
void log(GpuNode& node, const std::vector<std::string>& lines) {
  std::string records;
  for (std::size_t i = 0; i < lines.size(); ++i)
    records += fmt::format("3,{0},{1}00000000,-;{2}\n", i, i + 1, lines[i]);
  node.fake.write("/dev/kmsg", records);
}

TEST(GpuXid, WhatSpeaksAgainstAGpu) {
  struct Row {
    const char* what;
    std::vector<std::string> lines;
    Outcome outcome;
    std::vector<std::string> entities;
    const char* message;
  };
  using enum Outcome;
  const std::string gpu3 = "NVRM: Xid (PCI:0000:13:00): ";
  const std::string action = "154, GPU recovery action changed from ";
  const std::string loaded = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.124.06";
  const Row rows[] = {
      {"nothing", {"nvme nvme0: ready", "NVRM: loading NVIDIA UNIX driver"}, pass, {}, ""},
      {"off the bus", {gpu3 + "79, GPU has fallen off the bus."}, critical, {"gpu 3 (0000:13:00.0)"}, "Xid 79"},
      {"twice", {gpu3 + "119, a", gpu3 + "119, b"}, critical, {"gpu 3 (0000:13:00.0)"}, "2 times"},
      {"a warning", {gpu3 + "74, NVLink"}, warn, {"gpu 3 (0000:13:00.0)"}, "Xid 74: NVLink error"},
      {"unknown to us", {gpu3 + "998, x"}, warn, {"gpu 3 (0000:13:00.0)"}, "not known"},
      {"a GPU that sysfs does not have", {"NVRM: Xid (PCI:0000:ff:00): 79, x"}, critical, {"gpu 0000:ff:00.0"}, "79"},
      {"a user's", {gpu3 + "13, x", gpu3 + "31, x", gpu3 + "43, x", gpu3 + "45, x", gpu3 + "109, x"}, pass, {}, ""},
      {"a note", {gpu3 + "63, x"}, pass, {}, ""},
      {"forged", {"x " + gpu3 + "79, x", "comm: " + gpu3 + "79"}, pass, {}, ""},
      {"forged by a name", {gpu3 + "31, pid=1, name=NVRM: Xid (PCI:, Ch 8"}, pass, {}, ""},
      {"a reset is asked for",
       {gpu3 + action + "0x0 (None) to 0x1 (GPU Reset Required)"},
       critical,
       {"gpu 3 (0000:13:00.0)"},
       "Xid 154: the driver asks for a reset"},
      {"and was done",
       {gpu3 + action + "0x0 (None) to 0x1 (GPU Reset Required)",
        gpu3 + action + "0x1 (GPU Reset Required) to 0x0 (None)"},
       pass,
       {},
       ""},
      {"peer-to-peer",
       {gpu3 + action + "0x0 (None) to 0x3 (Drain P2P)"},
       warn,
       {"gpu 3 (0000:13:00.0)"},
       "peer-to-peer"},
      {"an action we cannot read", {gpu3 + "154, something else"}, warn, {"gpu 3 (0000:13:00.0)"}, "something"},
      {"closed by a load of the driver",
       {gpu3 + "48, x", gpu3 + action + "0x0 (None) to 0x1 (GPU Reset Required)", loaded},
       warn,
       {"gpu 3 (0000:13:00.0)", "gpu 3 (0000:13:00.0)"},
       "before the GPU was reset"},
      {"of the load itself", {"x", loaded, gpu3 + "119, x"}, critical, {"gpu 3 (0000:13:00.0)"}, "Xid 119"},
      {"not mended by a load", {gpu3 + "79, x", loaded}, critical, {"gpu 3 (0000:13:00.0)"}, "Xid 79"},
      {"closed by the driver's own word",
       {gpu3 + "119, x", gpu3 + action + "0x0 (None) to 0x1 (GPU Reset Required)",
        gpu3 + action + "0x1 (GPU Reset Required) to 0x0 (None)"},
       warn,
       {"gpu 3 (0000:13:00.0)"},
       "Xid 119"},
      {"without an Xid, in three lines",
       {"NVRM: The NVIDIA GPU 0000:13:00.0", "NVRM: (PCI ID: 10de:2330) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands."},
       critical,
       {"gpu 3 (0000:13:00.0)"},
       "fallen off the bus"},
      {"and in one",
       {"NVRM: The NVIDIA GPU 0000:13:00.0\\x0aNVRM: (PCI ID: 10de:2330) installed in this system has\\x0aNVRM: fallen "
        "off the bus and is not responding to commands."},
       critical,
       {"gpu 3 (0000:13:00.0)"},
       "fallen off the bus"},
      {"beside its Xid, once",
       {gpu3 + "79, x", "NVRM: GPU 0000:13:00.0: GPU has fallen off the bus."},
       critical,
       {"gpu 3 (0000:13:00.0)"},
       "Xid 79"},
      {"not started",
       {"NVRM: GPU 0000:13:00.0: RmInitAdapter failed! (0x62:0x40:2393)"},
       warn,
       {"gpu 3 (0000:13:00.0)"},
       "could not start"},
      {"two GPUs, the worst first",
       {gpu3 + "74, x", "NVRM: Xid (PCI:0000:10:00): 48, x"},
       critical,
       {"gpu 0 (0000:10:00.0)", "gpu 3 (0000:13:00.0)"},
       "Xid 48"},
  };
  for (const Row& row : rows) {
    GpuNode node;
    log(node, row.lines);
    const Result result = node.run("gpu.xid");
    EXPECT_EQ(result.outcome, row.outcome) << row.what;
    ASSERT_EQ(entities(result), row.entities) << row.what;
    if (row.entities.empty()) continue;
    EXPECT_THAT(result.findings[0].message, HasSubstr(row.message)) << row.what;
  }
}

TEST(GpuXid, ProgramsCannotWriteThem) {
  GpuNode node;
  node.fake.write("/dev/kmsg", "11,1,1000000,-;NVRM: Xid (PCI:0000:13:00): 79, GPU has fallen off the bus.\n");
  EXPECT_EQ(node.run("gpu.xid").outcome, Outcome::pass);
}

TEST(GpuXid, IsSkippedWithoutTheLog) {
  GpuNode node;
  std::filesystem::remove(node.fake.directory() + "/dev/kmsg");
  EXPECT_EQ(node.run("gpu.xid").outcome, Outcome::skip);
  EXPECT_THAT(node.run("gpu.xid").note, HasSubstr("kmsg"));
}

}  // namespace
}  // namespace ms::health
