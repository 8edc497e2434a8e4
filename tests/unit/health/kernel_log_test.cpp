// Records of /dev/kmsg: what the kernel wrote counts, what programs wrote does not.
#include "health/evidence/kernel_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../base/fake_root.h"
#include "health/checks/check.h"

namespace ms::health {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> texts(const std::vector<KernelLine>& lines) {
  std::vector<std::string> result;
  for (const KernelLine& line : lines) result.push_back(line.text);
  return result;
}

TEST(ParseKernelLog, TakesARecordApart) {
  const std::vector<KernelLine> lines = parse_kernel_log("3,339,5140900,-;NVRM: text; with, marks\n");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_DOUBLE_EQ(lines[0].since_boot_s, 5.1409);
  EXPECT_EQ(lines[0].level, 3);
  EXPECT_EQ(lines[0].text, "NVRM: text; with, marks");
}

TEST(ParseKernelLog, TakesOnlyTheKernelsWholeLines) {
  struct Row {
    const char* record;
    bool counts;
    const char* why;
  };
  const Row rows[] = {
      {"6,1,100,-;x", true, "no line end"},
      {"6,1,100,-,caller=T1;x", true, "more fields, as newer kernels have"},
      {"0,1,0,-;x", true, "emergency, at boot"},
      {"14,1,100,-;x", false, "facility user: a program wrote it into /dev/kmsg"},
      {"30,1,100,-;x", false, "facility daemon: systemd"},
      {"6,1,100,c;x", false, "a fragment of a line"},
      {"6,1,100,+;x", false, "a fragment of a line, on old kernels"},
      {" 6,1,100,-;x", false, "begins with a blank: belongs to the record before it"},
      {" SUBSYSTEM=pci", false, "a continuation line"},
      {"6,1,100,-", false, "no text"},
      {"6,1,100;x", false, "no flags"},
      {"6,1,-100,-;x", false, "a negative time"},
      {"x,1,100,-;x", false, "no priority"},
      {"-6,1,100,-;x", false, "a negative priority"},
      {"99999999999,1,100,-;x", false, "no priority"},
      {"6,1,100,;x", false, "empty flags"},
      {"", false, "nothing"},
      {";", false, "nothing"},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(parse_kernel_log(row.record).size(), row.counts ? 1u : 0u) << row.record << ": " << row.why;
  }
}

TEST(ParseKernelLog, AnEscapedLineEndBeginsNoLine) {
  const auto lines = parse_kernel_log("6,1,100,-;a name\\x0a6,2,100,-;NVRM: Xid\n6,3,100,-;b\n");
  EXPECT_THAT(texts(lines), ElementsAre("a name\\x0a6,2,100,-;NVRM: Xid", "b"));
}

TEST(ReadKernelLog, FromAFakeRoot) {
  FakeRoot fake;
  fake.write("/dev/kmsg", "6,1,1000000,-;one\n KEY=value\n14,2,2000000,-;program\n6,3,3000000,-;two\n");
  EXPECT_THAT(texts(read_kernel_log(fake.root(), 0).lines), ElementsAre("one", "two"));
  EXPECT_THAT(texts(read_kernel_log(fake.root(), 1.5).lines), ElementsAre("two"));
  EXPECT_THAT(texts(read_kernel_log(fake.root(), 3).lines), ElementsAre("two")) << "from the time on";
  EXPECT_THAT(texts(read_kernel_log(fake.root(), 3.1).lines), IsEmpty());
  EXPECT_EQ(read_kernel_log(fake.root(), 0).error, "");
}

TEST(ReadKernelLog, SaysThatThereIsNone) {
  EXPECT_THAT(read_kernel_log(FakeRoot().root(), 0).error, testing::HasSubstr("/dev/kmsg"));
}

TEST(Evidence, TheLogBeginsAtTheLastUndrain) {
  FakeRoot fake;
  fake.write("/proc/uptime", "1000.00 3000.00\n");  // booted at 9000, if it is 10000 now
  fake.write("/dev/kmsg", "6,1,100000000,-;early\n6,2,900000000,-;late\n");
  Policy policy;
  policy.paths.sysroot = fake.directory();
  const auto seen = [&](double undrained_wall_s) {
    return texts(Evidence(policy, 10000, undrained_wall_s, {}).kernel_log().lines);
  };
  EXPECT_THAT(seen(0), ElementsAre("early", "late"));
  EXPECT_THAT(seen(8000), ElementsAre("early", "late")) << "undrained before it booted";
  EXPECT_THAT(seen(9500), ElementsAre("late"));
  EXPECT_THAT(seen(9950), IsEmpty());
}

TEST(Evidence, KeepsWhatItRead) {
  FakeRoot fake;
  fake.write("/dev/kmsg", "6,1,1,-;one\n");
  Policy policy;
  policy.paths.sysroot = fake.directory();
  policy.paths.nvml = fake.directory() + "/none.so";
  Evidence evidence(policy, 10, 0, {{"net.flaps eth0", {17, 3}}});
  EXPECT_EQ(evidence.kernel_log().lines.size(), 1u);
  fake.write("/dev/kmsg", "");
  EXPECT_EQ(evidence.kernel_log().lines.size(), 1u);
  EXPECT_FALSE(evidence.gpus().library_found);
  ASSERT_TRUE(evidence.before("net.flaps eth0"));
  EXPECT_EQ(evidence.before("net.flaps eth0")->value, 17);
  EXPECT_FALSE(evidence.before("net.flaps eth1"));
}

}  // namespace
}  // namespace ms::health
