// What makes a calibration doubtful: other processes, and curves that are noise.
#include "train/simulate/calibration_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/files.h"

namespace ms::train {
namespace {

using Points = std::vector<std::string>;

TEST(BusySeconds, AreThoseOfTheProcessorsThatCount) {
  const test::TempDir dir;
  std::filesystem::create_directories(dir.path() + "/proc");
  test::spill(
      dir.path() + "/proc/stat",
      "cpu  900 0 0 0 0 0 0 0 0 0\ncpu0 100 1 20 5000 70 3 4 2 0 0\ncpu1 50 0 0 9 9 0 0 0 0 0\ncpu10 7 0 0 0 0 0\n"
      "intr 5\n");
  const Sysroot root(dir.path());
  EXPECT_EQ(busy_seconds(root, {0}, 100), 1.30);
  EXPECT_EQ(busy_seconds(root, {0, 1}, 100), 1.80);
  EXPECT_EQ(busy_seconds(root, {1, 2}, 100), std::nullopt) << "one is not reported";
  EXPECT_EQ(busy_seconds(Sysroot(dir.path() + "/none"), {0}, 100), std::nullopt);
}

TEST(Doubts, AreOtherWorkAndCurvesOfNoise) {
  struct Case {
    Points gemm, attention, memory;
    double others;
    std::vector<const char*> doubts;
  };
  const Points level{"1:1"}, rising{"1e3:0.01", "1e4:0.08", "1e5:0.5", "1e6:1"};
  for (const Case& c : {
           Case{rising, level, level, 0.02, {}},
           Case{rising, level, level, 0.4, {"other processes had 40 % of the processors"}},
           Case{{"1e5:0.01", "1e6:0.9"}, level, level, 0, {"gemm: size 1e+06 takes 9.0 times less time"}},
           Case{{"1e5:0.9", "1e6:1", "1e7:0.2"}, level, level, 0, {"gemm: size 1e+07 reaches 5.0 times less"}},
           Case{{"1e5:0.9", "1e6:1", "1e7:0.6"}, level, level, 0, {}},
           Case{level, level, {"1e5:1", "1e7:0.2"}, 0, {}},  // beyond the caches
           Case{{"1e5:0.01", "1e6:0.9"}, {"1:1", "2:0.1"}, level, 0.3, {"other processes", "gemm", "attention"}},
       }) {
    cost::DeviceConfig device;
    device.gemm = c.gemm, device.attention = c.attention, device.memory = c.memory;
    const std::vector<std::string> reasons = doubts(device, c.others);
    ASSERT_EQ(reasons.size(), c.doubts.size()) << testing::PrintToString(reasons);
    for (std::size_t i = 0; i < reasons.size(); ++i) EXPECT_THAT(reasons[i], testing::HasSubstr(c.doubts[i]));
  }
}

// A loop that works is this process's own work, whatever else runs meanwhile.
TEST(OtherWork, IsAPart) {
  const OtherWork others;
  const double part = others.part();
  EXPECT_GE(part, 0);
  EXPECT_LE(part, 1);
}

}  // namespace
}  // namespace ms::train
