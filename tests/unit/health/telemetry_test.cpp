// Samples: what a node's sample holds, the file that keeps it, what is lost of a damaged one, and the reader.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmath>
#include <filesystem>

#include "../base/fake_root.h"
#include "health/telemetry/day_file.h"
#include "health/telemetry/series.h"
#include "health/telemetry/store.h"
#include "support/fork.h"
#include "test_files.h"

namespace ms::health {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr double kNoon_s = 1'800'014'400;  // 2027-01-15T12:00:00Z

Sample sample_at(double wall_s, float value = 1) {
  return {.wall_s = wall_s,
          .values = {{"", "load", value}, {"gpu0", "temperature_c", value + 40}},
          .facts = {{"gpu0", {{"uuid", "GPU-a"}}}}};
}

// A file of these samples.
std::string day_of(const std::vector<Sample>& samples) {
  std::string bytes;
  Layout last;
  for (const Sample& sample : samples) {
    const Layout layout = layout_for(sample, "n1", bytes.empty() ? nullptr : &last);
    if (bytes.empty() || !(layout == last)) bytes += encode_header(layout);
    bytes += encode_record(layout, sample);
    last = layout;
  }
  return bytes;
}

std::size_t records(const DayFile& file) {
  std::size_t count = 0;
  for (const Segment& segment : file.segments) count += segment.times.size();
  return count;
}

TEST(DayFile, WhatIsWrittenIsRead) {
  const std::string bytes = day_of({sample_at(kNoon_s, 1), sample_at(kNoon_s + 300, 2)});
  const DayFile file = parse_day_file(bytes);
  ASSERT_EQ(file.segments.size(), 1U);
  const Segment& segment = file.segments[0];
  EXPECT_EQ(segment.layout.node, "n1");
  EXPECT_EQ(segment.layout.facts.at("gpu0").at("uuid"), "GPU-a");
  EXPECT_EQ(segment.layout.columns, (std::vector<LayoutColumn>{{"", "load", ""}, {"gpu0", "temperature_c", "C"}}));
  EXPECT_THAT(segment.times, ElementsAre(kNoon_s, kNoon_s + 300));
  EXPECT_THAT(segment.values, ElementsAre(1, 41, 2, 42));
  EXPECT_EQ(file.whole_bytes, bytes.size());
  EXPECT_EQ(file.lost_bytes, 0U);
}

TEST(DayFile, ATornEndLosesTheLastRecordOnly) {
  const std::string before = day_of({sample_at(kNoon_s), sample_at(kNoon_s + 300)});
  const std::string bytes = day_of({sample_at(kNoon_s), sample_at(kNoon_s + 300), sample_at(kNoon_s + 600)});
  for (std::size_t size = before.size(); size < bytes.size(); ++size) {
    const DayFile file = parse_day_file(bytes.substr(0, size));
    EXPECT_EQ(records(file), 2U) << size;
    EXPECT_EQ(file.whole_bytes, before.size()) << size;
    EXPECT_EQ(file.lost_bytes, size - before.size()) << size;
  }
}

TEST(DayFile, AFlippedBitLosesOneRecordOrTheSegmentOfItsHeader) {
  const std::string first = day_of({sample_at(kNoon_s), sample_at(kNoon_s + 300), sample_at(kNoon_s + 600)});
  const std::size_t header = encode_header(layout_for(sample_at(0), "n1", nullptr)).size();
  const std::string bytes = first + day_of({sample_at(kNoon_s + 900)});
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    const DayFile file = parse_day_file(damaged);
    const bool in_padding = file.lost_bytes == 0;  // blanks behind a header's text say nothing
    const std::size_t expected = in_padding ? 4U : at < header ? 1U : 3U;
    EXPECT_EQ(records(file), expected) << at;
    for (const Segment& segment : file.segments) {
      for (const float value : segment.values) EXPECT_TRUE(value == 1 || value == 41) << at;
    }
  }
}

TEST(DayFile, ARecordOfOtherColumnsIsNone) {
  Sample other = sample_at(kNoon_s);
  other.values[1].column = "power_w";
  const Layout layout = layout_for(sample_at(kNoon_s), "n1", nullptr);
  const Layout intruder = layout_for(other, "n1", nullptr);
  EXPECT_EQ(records(parse_day_file(encode_header(layout) + encode_record(intruder, other))), 0U);
}

TEST(DayFile, ManyHeadersThatAreNoneCostLittle) {
  std::string bytes;
  while (bytes.size() < (std::size_t{8} << 20)) bytes += std::string("MSTELEM1\0\0\4\0\0\0\0\0", 16);
  const DayFile file = parse_day_file(bytes);
  EXPECT_TRUE(file.segments.empty());
  EXPECT_EQ(file.lost_bytes, bytes.size());
}

TEST(Layout, StaysWhereValuesAreMissingAndGrowsWhereColumnsAreNew) {
  const Layout first = layout_for(sample_at(kNoon_s), "n1", nullptr);
  Sample fewer = sample_at(kNoon_s);
  fewer.values.pop_back();
  fewer.facts.clear();  // the driver hangs
  EXPECT_EQ(layout_for(fewer, "n1", &first), first);
  Sample more = sample_at(kNoon_s);
  more.values.push_back({"net/eth0", "rx_errors", 0});
  EXPECT_EQ(layout_for(more, "n1", &first).columns.size(), 3U);
  Sample replaced = sample_at(kNoon_s);
  replaced.facts["gpu0"] = {{"uuid", "GPU-b"}, {"pci", "0000:10:00.0"}};
  const Layout next = layout_for(replaced, "n1", &first);
  EXPECT_NE(next, first);
  Sample lost = sample_at(kNoon_s);
  lost.facts["gpu0"] = {{"pci", "0000:10:00.0"}};
  EXPECT_EQ(layout_for(lost, "n1", &next), next);
}

class StoreTest : public testing::Test {
 protected:
  KeptSample keep(const Sample& sample) { return keep_sample(site(), "n1", sample, config_); }
  std::string site() const { return directory_ / "samples"; }
  std::string today() const { return site() + "/n1/2027-01-15.tlm"; }
  std::vector<Series> read(double from_s = 0, double to_s = 4e9) {
    notes_.clear();
    return read_telemetry(site(), "n1", from_s, to_s, &notes_);
  }

  test::TempDir directory_;
  TelemetryConfig config_;
  std::vector<std::string> notes_;
};

TEST_F(StoreTest, ASampleIsAppendedForEverybodyToRead) {
  const KeptSample first = keep(sample_at(kNoon_s));
  const KeptSample second = keep(sample_at(kNoon_s + 300, 2));
  EXPECT_EQ(first.file, today());
  EXPECT_EQ(second.bytes, 16U + 2 * 4);  // no second header
  EXPECT_EQ(fs::file_size(today()), first.bytes + second.bytes);
  EXPECT_EQ(mode_of(site()), 0755U);
  EXPECT_EQ(mode_of(site() + "/n1"), 0755U);
  EXPECT_EQ(mode_of(today()) & 0722U, 0600U);
  const std::vector<Series> series = read();
  ASSERT_EQ(series.size(), 2U);
  EXPECT_EQ(series[0].device, "");
  EXPECT_EQ(series[1].device, "gpu0");
  EXPECT_EQ(series[1].facts.at("uuid"), "GPU-a");
  EXPECT_THAT(series[1].columns, ElementsAre("temperature_c"));
  EXPECT_THAT(series[1].times, ElementsAre(kNoon_s, kNoon_s + 300));
  EXPECT_THAT(series[1].values, ElementsAre(41, 42));
  EXPECT_THAT(notes_, ElementsAre());
  EXPECT_THAT(telemetry_nodes(site()), ElementsAre("n1"));
}

TEST_F(StoreTest, AnUnfinishedRecordIsToldAndCutOffByTheNextSample) {
  keep(sample_at(kNoon_s));
  const auto whole = fs::file_size(today());
  keep(sample_at(kNoon_s + 300));
  fs::resize_file(today(), whole + 7);
  EXPECT_EQ(read()[0].rows(), 1U);
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("7 of")));
  EXPECT_EQ(keep(sample_at(kNoon_s + 600)).dropped_bytes, 7U);
  EXPECT_THAT(read()[0].times, ElementsAre(kNoon_s, kNoon_s + 600));
  EXPECT_THAT(notes_, ElementsAre());
}

TEST_F(StoreTest, ColumnsThatChangeInMidDayAndAReplacedGpu) {
  keep(sample_at(kNoon_s));
  Sample next = sample_at(kNoon_s + 300, 2);
  next.values.push_back({"", "fan_rpm", 900});
  next.facts["gpu0"]["uuid"] = "GPU-b";
  keep(next);
  Sample hung{.wall_s = kNoon_s + 600, .values = {{"", "load", 3}}};
  keep(hung);
  const std::vector<Series> series = read();
  ASSERT_EQ(series.size(), 3U);
  EXPECT_THAT(series[0].columns, ElementsAre("load", "fan_rpm"));
  EXPECT_EQ(series[0].rows(), 3U);
  EXPECT_TRUE(std::isnan(series[0].at(0, 1)));  // not 0
  EXPECT_EQ(series[0].at(1, 1), 900);
  EXPECT_TRUE(std::isnan(series[0].at(2, 1)));
  EXPECT_EQ(series[1].facts.at("uuid"), "GPU-a");
  EXPECT_EQ(series[1].rows(), 1U);
  EXPECT_EQ(series[2].facts.at("uuid"), "GPU-b");
  EXPECT_EQ(series[2].rows(), 1U);  // nothing was known of it while the driver hung
}

TEST_F(StoreTest, OnlyTheSpanThatIsAskedForAndInTheOrderOfTime) {
  keep(sample_at(kNoon_s + 300, 2));
  keep(sample_at(kNoon_s, 1));  // the clock was set back
  keep(sample_at(kNoon_s, 7));
  keep(sample_at(kNoon_s + 86'400, 3));
  EXPECT_THAT(read()[0].times, ElementsAre(kNoon_s, kNoon_s + 300, kNoon_s + 86'400));
  EXPECT_THAT(read(kNoon_s + 1, kNoon_s + 86'400)[0].times, ElementsAre(kNoon_s + 300));
  EXPECT_TRUE(read(0, kNoon_s).empty());
}

TEST_F(StoreTest, OldDaysGoWhenADayBegins) {
  config_.days = 2;
  for (const int day : {0, 1, 2, 3, 4}) keep(sample_at(kNoon_s + day * 86'400.0));
  test::spill(site() + "/n1/notes.txt", "mine");
  EXPECT_EQ(keep(sample_at(kNoon_s + 5 * 86'400.0)).removed_days, 1U);
  EXPECT_THAT(test::names_in(site() + "/n1"),
              ElementsAre(".lock", "2027-01-18.tlm", "2027-01-19.tlm", "2027-01-20.tlm", "notes.txt"));
}

TEST_F(StoreTest, ADayThatIsFullIsToldAndStaysAsItIs) {
  config_.day_size_bytes = 64 << 10;
  Sample sample = sample_at(kNoon_s);
  for (int i = 0; i < 1000; ++i) sample.values.push_back({"", "c" + std::to_string(i), 0});
  int kept = 0;
  std::string why;
  try {
    for (; kept < 100; ++kept) keep(sample);
  } catch (const Error& error) { why = error.message(); }
  EXPECT_GT(kept, 5);
  EXPECT_LT(kept, 20);
  EXPECT_THAT(why, HasSubstr("day_size"));
  EXPECT_EQ(records(parse_day_file(test::slurp(today()))), static_cast<std::size_t>(kept));
}

TEST_F(StoreTest, AFullDiskLeavesWhatWasThere) {
  keep(sample_at(kNoon_s));
  const std::string before = test::slurp(today());
  const pid_t child = test::fork_or_throw();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{before.size() + 9, before.size() + 9};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      keep(sample_at(kNoon_s + 300));
    } catch (const Error& error) { std::_Exit(error.kind() == "telemetry.write" ? 0 : 1); }
    std::_Exit(2);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(test::slurp(today()), before);
}

TEST_F(StoreTest, AFileThatWouldTakeMuchMoreMemoryThanItsSizeIsRefused) {
  keep(sample_at(kNoon_s));
  Sample narrow{.wall_s = kNoon_s, .values = {{"", "load", 1}}};
  const Layout one = layout_for(narrow, "n1", nullptr);
  const std::string row = encode_record(one, narrow);
  std::string bytes = encode_header(one);
  for (int i = 0; i < 20'000; ++i) bytes += row;
  Sample wide = narrow;
  for (int column = 0; column < 8000; ++column) wide.values.push_back({"", fmt::format("c{}", column), 1});
  const Layout many = layout_for(wide, "n1", nullptr);
  bytes += encode_header(many) + encode_record(many, wide);
  test::spill(today(), bytes);
  try {
    read();
    ADD_FAILURE();
  } catch (const Error& error) { EXPECT_THAT(error.message(), HasSubstr("of memory")); }
}

TEST_F(StoreTest, WhatIsNotOursIsRefused) {
  keep(sample_at(kNoon_s));
  test::spill(today(), "somebody's notes of that day");
  expect_error("telemetry.write", [&] { keep(sample_at(kNoon_s)); });
  EXPECT_EQ(test::slurp(today()), "somebody's notes of that day");
  fs::remove(today());
  test::spill(directory_ / "target", "");
  fs::create_symlink(directory_ / "target", today());
  expect_error("telemetry.write", [&] { keep(sample_at(kNoon_s)); });
  EXPECT_EQ(fs::file_size(directory_ / "target"), 0U);
  EXPECT_THROW(read(), Error);
  fs::remove(today());
  ASSERT_EQ(::mkfifo(today().c_str(), 0644), 0);  // must not be waited for
  expect_error("telemetry.write", [&] { keep(sample_at(kNoon_s)); });
  EXPECT_THROW(read(), Error);
  fs::permissions(site(), fs::perms::all);
  expect_error("telemetry.write", [&] { keep(sample_at(kNoon_s)); });
  expect_error("telemetry.write", [&] { keep_sample(site(), "../n1", sample_at(kNoon_s), config_); });
  EXPECT_THROW(read_telemetry(site(), "../n1", 0, 1), Error);
  EXPECT_THROW(telemetry_nodes(directory_ / "nowhere"), Error);
}

TEST(TakeSample, OfAFakeRootWhatItHasAndNothingElse) {
  FakeRoot fake;
  Policy policy;
  policy.paths.sysroot = fake.directory();
  policy.paths.nvml = fake.directory() + "/no.so";
  fake.write("/proc/loadavg", "0.50 0.18 0.12 1/80 11206\n");
  fake.write("/proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=1.25 total=9\nfull avg10=0.00\n");
  fake.write("/proc/meminfo", "MemTotal: 4096 kB\nMemAvailable:    2048 kB\n");
  fake.write("/sys/devices/system/edac/mc/mc0/ce_count", "3\n");
  fake.write("/sys/devices/system/edac/mc/mc1/ce_count", "4\n");
  fake.write("/sys/class/hwmon/hwmon0/name", "coretemp\n");
  fake.write("/sys/class/hwmon/hwmon0/temp1_input", "51000\n");
  fake.write("/sys/class/hwmon/hwmon0/temp2_input", "62500\n");
  fake.write("/sys/class/net/eth0/device/vendor", "0x15b3\n");
  fake.write("/sys/class/net/eth0/carrier_changes", "2\n");
  fake.write("/sys/class/net/eth0/speed", "-1\n");
  fake.write("/sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error", "17\n");
  fake.write("/dev/kmsg", "3,1,2000000,-;mce: [Hardware Error]: CPU 2: Machine Check: 0 Bank 5: be00000000800400\n");
  const Sample sample = take_sample(policy, 60);
  EXPECT_THAT(sample.missing, ElementsAre());
  std::map<std::string, float> values;
  for (const SampleValue& value : sample.values) {
    EXPECT_TRUE(values.emplace(value.device + ":" + value.column, value.value).second) << value.column;
  }
  const std::map<std::string, float> expected = {{":load", 0.5F},
                                                 {":memory_pressure_percent", 1.25F},
                                                 {":memory_available_mib", 2},
                                                 {":edac_corrected", 7},
                                                 {":cpu_temperature_c", 62.5F},
                                                 {"net/eth0:carrier_changes", 2},
                                                 {"ib/mlx5_0/1:symbol_errors", 17},
                                                 {":log_host_mce", 1}};
  for (const auto& [name, value] : expected) {
    ASSERT_TRUE(values.contains(name)) << name;
    EXPECT_EQ(values.at(name), value) << name;
  }
  for (const char* name : {":fan_rpm", ":edac_uncorrected", "net/eth0:speed_mbps", "net/eth0:rx_errors"}) {
    EXPECT_FALSE(values.contains(name)) << name;
  }
}

}  // namespace
}  // namespace ms::health
