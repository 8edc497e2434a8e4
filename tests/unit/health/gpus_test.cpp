// What is made of NVML's answers: the fake library (tests/cluster/fake_nvml.cpp) is really opened, a copy of it in a
// directory with its own description.
#include "health/evidence/gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "../base/fake_root.h"
#include "health/checks/registry.h"

namespace ms::health {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

// Every path is its own library to the loader, so no test sees another's.
class FakeNvml {
 public:
  explicit FakeNvml(const std::string& description) {
    const fs::path built = fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib/libfake_nvml.so";
    fs::copy_file(built, path());
    fake_.write("/gpus.txt", description);
  }
  std::string directory() const { return fake_.directory(); }
  std::string path() const { return directory() + "/libnvidia-ml.so.1"; }

 private:
  FakeRoot fake_;
};

GpuSnapshot answer(const std::string& description) { return read_gpus(FakeNvml(description).path()); }

TEST(ReadGpus, HealthyOnes) {
  const GpuSnapshot snapshot = answer("driver 575.57.08\ngpus 8\n");
  EXPECT_EQ(snapshot.error, "");
  EXPECT_TRUE(snapshot.library_found);
  EXPECT_EQ(snapshot.driver_version, "575.57.08");
  ASSERT_EQ(snapshot.gpus.size(), 8u);
  const Gpu& gpu = snapshot.gpus[3];
  EXPECT_EQ(gpu.index, 3);
  EXPECT_EQ(gpu.uuid, "GPU-00000000-0000-0000-0000-000000000003");
  EXPECT_EQ(gpu.name, "Fake_H100");
  EXPECT_EQ(gpu.pci, "0000:13:00.0");
  EXPECT_FALSE(gpu.lost);
  EXPECT_EQ(gpu.error, "");
  EXPECT_EQ(gpu.ecc_uncorrectable, 0u);
  EXPECT_EQ(gpu.ecc_correctable, 0u);
  EXPECT_EQ(gpu.remap_pending, false);
  EXPECT_EQ(gpu.remap_failed, false);
  EXPECT_EQ(gpu.retired_pages_pending, std::nullopt);
  EXPECT_EQ(gpu.recovery_action, RecoveryAction::none);
  EXPECT_EQ(gpu.pcie_width, 16);
  EXPECT_EQ(gpu.pcie_width_max, 16);
  EXPECT_EQ(gpu.nvlinks_active, 18);
  EXPECT_EQ(gpu.nvlinks_total, 18);
  EXPECT_EQ(gpu.clocks_event_reasons, 1u);
  EXPECT_EQ(gpu.temperature_c, 34);
  EXPECT_EQ(gpu.memory_used_bytes, 0u);
  EXPECT_EQ(gpu.memory_total_bytes, 85899345920u);
  EXPECT_EQ(gpu.persistent, true);
  EXPECT_EQ(gpu.nvlink_errors, 0u);
  EXPECT_EQ(gpu.vbios, "96.00.89.00.01");
  EXPECT_EQ(gpu.inforom, "G520.0200.00.05");
  EXPECT_EQ(gpu.inforom_valid, true);
  EXPECT_EQ(gpu.fabric_ready, true);
  EXPECT_EQ(gpu.clock_mhz, 345);
  EXPECT_EQ(gpu.clock_max_mhz, 1980);
  EXPECT_EQ(gpu.power_w, 71);
  EXPECT_EQ(gpu.power_limit_w, 700);
}

TEST(ReadGpus, WhatIsWrongWithThemArrives) {
  const GpuSnapshot snapshot = answer(
      "gpus 3\ngpu 0 persistent=0 inforom_valid=0 fabric_state=2 nvlink_errors=7\n"
      "gpu 1 fabric_state=0\ngpu 2 persistent=- inforom_valid=- vbios=- power_mw=- clock_mhz=-\n");
  ASSERT_EQ(snapshot.gpus.size(), 3u);
  EXPECT_EQ(snapshot.gpus[0].persistent, false);
  EXPECT_EQ(snapshot.gpus[0].inforom_valid, false);
  EXPECT_EQ(snapshot.gpus[0].fabric_ready, false);
  EXPECT_EQ(snapshot.gpus[0].nvlink_errors, 7u * 18);
  EXPECT_EQ(snapshot.gpus[1].fabric_ready, std::nullopt);  // it needs none
  EXPECT_EQ(snapshot.gpus[2].persistent, std::nullopt);
  EXPECT_EQ(snapshot.gpus[2].inforom_valid, std::nullopt);
  EXPECT_EQ(snapshot.gpus[2].vbios, "");
  EXPECT_EQ(snapshot.gpus[2].power_w, std::nullopt);
  EXPECT_EQ(snapshot.gpus[2].clock_mhz, std::nullopt);
}

TEST(ReadGpus, EveryValueArrives) {
  const GpuSnapshot snapshot = answer(
      "gpus 2\n"
      "gpu 1 pci=0001:AB:1C.0 ecc_uncorrectable=4 ecc_correctable=5000000000 remapped_correctable=1\n"
      "gpu 1 remapped_uncorrectable=2 remap_pending=1 remap_failed=1 retired_pages_pending=1 recovery_action=4\n"
      "gpu 1 pcie_width=8 pcie_width_max=16 nvlinks_active=17 nvlinks_total=18 clocks_event_reasons=0x48\n"
      "gpu 1 temperature_c=91 memory_used_bytes=3000000000 memory_total_bytes=4000000000  # hot\n");
  ASSERT_EQ(snapshot.gpus.size(), 2u) << snapshot.error;
  const Gpu& gpu = snapshot.gpus[1];
  EXPECT_EQ(gpu.pci, "0001:ab:1c.0");
  EXPECT_EQ(gpu.ecc_uncorrectable, 4u);
  EXPECT_EQ(gpu.ecc_correctable, 5000000000u);
  EXPECT_EQ(gpu.remapped_correctable, 1);
  EXPECT_EQ(gpu.remapped_uncorrectable, 2);
  EXPECT_EQ(gpu.remap_pending, true);
  EXPECT_EQ(gpu.remap_failed, true);
  EXPECT_EQ(gpu.retired_pages_pending, 1);
  EXPECT_EQ(gpu.recovery_action, RecoveryAction::drain_and_reset);
  EXPECT_EQ(gpu.pcie_width, 8);
  EXPECT_EQ(gpu.nvlinks_active, 17);
  EXPECT_EQ(gpu.clocks_event_reasons, 0x48u);
  EXPECT_EQ(gpu.temperature_c, 91);
  EXPECT_EQ(gpu.memory_used_bytes, 3000000000u);
  EXPECT_EQ(gpu.memory_total_bytes, 4000000000u);
}

TEST(ReadGpus, SensorsOnlyWhereTheyAreAskedFor) {
  const std::string description =
      "gpus 1\n"
      "gpu 0 memory_temperature_c=91 power_mw=612500 clock_mhz=1755 memory_clock_mhz=2619 busy_percent=98\n"
      "gpu 0 memory_busy_percent=40 life_uncorrectable=2 life_correctable=5000000000 retired_correctable=-\n"
      "gpu 0 retired_uncorrectable=3 pcie_replays=7\n";
  const FakeNvml library(description);
  const GpuSnapshot snapshot = read_gpus(library.path(), kNvmlDirectories, Ask::sensors_too);
  ASSERT_EQ(snapshot.gpus.size(), 1U) << snapshot.error;
  const GpuSensors& sensors = snapshot.gpus[0].sensors;
  EXPECT_EQ(sensors.memory_temperature_c, 91);
  EXPECT_EQ(snapshot.gpus[0].power_w, 612.5);
  EXPECT_EQ(snapshot.gpus[0].clock_mhz, 1755);
  EXPECT_EQ(sensors.memory_clock_mhz, 2619);
  EXPECT_EQ(sensors.busy_percent, 98);
  EXPECT_EQ(sensors.memory_busy_percent, 40);
  EXPECT_EQ(sensors.ecc_uncorrectable, 2U);
  EXPECT_EQ(sensors.ecc_correctable, 5000000000U);
  EXPECT_EQ(sensors.retired_pages_correctable, std::nullopt);
  EXPECT_EQ(sensors.retired_pages_uncorrectable, 3);
  EXPECT_EQ(sensors.pcie_replays, 7);
  EXPECT_EQ(answer(description).gpus[0].sensors.busy_percent, std::nullopt);
}

TEST(ReadGpus, WhatIsNotSupportedIsLeftEmpty) {
  const GpuSnapshot snapshot = answer(
      "gpus 1\n"
      "gpu 0 ecc_uncorrectable=- ecc_correctable=- remap_failed=- recovery_action=- pcie_width=- nvlinks_total=-\n"
      "gpu 0 clocks_event_reasons=- temperature_c=- memory_used_bytes=- pci=- uuid=-\n");
  ASSERT_EQ(snapshot.gpus.size(), 1u);
  const Gpu& gpu = snapshot.gpus[0];
  EXPECT_EQ(gpu.error, "");
  EXPECT_FALSE(gpu.lost);
  EXPECT_EQ(gpu.ecc_uncorrectable, std::nullopt);
  EXPECT_EQ(gpu.ecc_correctable, std::nullopt);
  EXPECT_EQ(gpu.remap_failed, std::nullopt);
  EXPECT_EQ(gpu.recovery_action, std::nullopt);
  EXPECT_EQ(gpu.pcie_width, std::nullopt);
  EXPECT_EQ(gpu.pcie_width_max, 16);
  EXPECT_EQ(gpu.nvlinks_active, std::nullopt);
  EXPECT_EQ(gpu.clocks_event_reasons, std::nullopt);
  EXPECT_EQ(gpu.temperature_c, std::nullopt);
  EXPECT_EQ(gpu.memory_used_bytes, std::nullopt);
  EXPECT_EQ(gpu.pci, "");
}

TEST(ReadGpus, ALostOneIsMarkedAndTheOthersAnswer) {
  const GpuSnapshot snapshot = answer("gpus 3\ngpu 1 lost\n");
  ASSERT_EQ(snapshot.gpus.size(), 3u);
  EXPECT_EQ(snapshot.error, "");
  EXPECT_FALSE(snapshot.gpus[0].lost);
  EXPECT_TRUE(snapshot.gpus[1].lost);
  EXPECT_EQ(snapshot.gpus[1].ecc_uncorrectable, std::nullopt) << "it is not asked any further";
  EXPECT_EQ(snapshot.gpus[2].ecc_uncorrectable, 0u);
}

TEST(ReadGpus, OneWithoutAHandleSaysWhy) {
  const GpuSnapshot snapshot = answer("gpus 4\ngpu 0 error 8\ngpu 1 error 4\ngpu 2 error 17\ngpu 3 error 15\n");
  ASSERT_EQ(snapshot.gpus.size(), 4u);
  EXPECT_EQ(snapshot.gpus[0].error, "Insufficient External Power (error 8)");
  EXPECT_FALSE(snapshot.gpus[0].denied);
  EXPECT_TRUE(snapshot.gpus[1].denied);
  EXPECT_TRUE(snapshot.gpus[2].denied);
  EXPECT_TRUE(snapshot.gpus[3].lost);
}

TEST(ReadGpus, SaysWhyNobodyAnswers) {
  struct Row {
    const char* description;
    const char* error;
  };
  const Row rows[] = {
      {"init error 9\n", "nvmlInit_v2: Driver Not Loaded (error 9)"},
      {"gpus 8\ninit error 18\n", "nvmlInit_v2: Driver/library version mismatch (error 18)"},
      {"gpus many\n", "nvmlInit_v2: Unknown Error (error 999)"},
  };
  for (const Row& row : rows) {
    const GpuSnapshot snapshot = answer(row.description);
    EXPECT_TRUE(snapshot.library_found);
    EXPECT_EQ(snapshot.error, row.error);
    EXPECT_TRUE(snapshot.gpus.empty());
  }
}

TEST(ReadGpus, OnlyALibraryByItsAbsolutePath) {
  FakeRoot fake;
  fake.write("/text.so", "no library at all");
  const GpuSnapshot relative = read_gpus("libnvidia-ml.so.1");
  EXPECT_FALSE(relative.library_found);
  EXPECT_THAT(relative.error, HasSubstr("absolute"));
  const GpuSnapshot none = read_gpus(fake.directory() + "/none.so");
  EXPECT_FALSE(none.library_found);
  EXPECT_THAT(none.error, HasSubstr("none.so"));
  const GpuSnapshot text = read_gpus(fake.directory() + "/text.so");
  EXPECT_TRUE(text.library_found);
  EXPECT_THAT(text.error, HasSubstr("text.so"));
}

TEST(ReadGpus, WithoutAPathTheFirstOfThePlacesThatHasIt) {
  const FakeNvml two("gpus 2\n"), three("gpus 3\n");
  const FakeRoot bare;
  const std::string names[] = {bare.directory(), two.directory(), three.directory()};
  const std::string_view places[] = {names[0], names[1], names[2]};
  EXPECT_EQ(read_gpus("", places).gpus.size(), 2u);
  EXPECT_EQ(read_gpus(three.path(), places).gpus.size(), 3u) << "a path that is named comes first";
  EXPECT_FALSE(read_gpus(bare.directory() + "/none.so", places).library_found) << "and is the only one then";

  const std::string_view nowhere[] = {names[0], "/no/such/place"};
  const GpuSnapshot none = read_gpus("", nowhere);
  EXPECT_FALSE(none.library_found);
  EXPECT_EQ(none.error, "there is no libnvidia-ml.so.1 in " + names[0] + ", /no/such/place");
}

TEST(ReadGpus, TheTextsNameEveryPlaceThatIsLookedAt) {
  const Check* check = find_check(passive_checks(), "gpu.driver");
  ASSERT_NE(check, nullptr);
  Policy policy;
  ConfigSchema schema;
  bind(schema, policy);
  std::string doc;
  for (const ConfigRow& row : schema.reference()) {
    if (row.section + "." + row.key == "paths.nvml") doc = row.doc;
  }
  for (const std::string_view place : kNvmlDirectories) {
    EXPECT_THAT(std::string(check->explain), HasSubstr(std::string(place)));
    EXPECT_THAT(doc, HasSubstr(std::string(place)));
  }
}

TEST(ReadGpus, AnotherLibraryIsNoNvml) {
  const std::string other = [] {
    for (const char* path :
         {"/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6", "/lib/aarch64-linux-gnu/libm.so.6"}) {
      if (fs::exists(path)) return path;
    }
    return "";
  }();
  if (other.empty()) GTEST_SKIP() << "no libm.so.6 where it usually is";
  EXPECT_THAT(read_gpus(other).error, HasSubstr("has no nvmlInit_v2"));
}

// The runner cuts them; here they must really hang and crash, or the tests of that would prove nothing.
TEST(FakeNvml, HangsAndCrashesWhenItIsTold) {
  struct Row {
    const char* description;
    int signal;
  };
  const Row rows[] = {{"init hang\n", SIGALRM},
                      {"init crash\n", SIGSEGV},
                      {"gpus 2\ngpu 1 hang\n", SIGALRM},
                      {"gpus 2\ngpu 1 crash\n", SIGSEGV}};
  for (const Row& row : rows) {
    const FakeNvml library(row.description);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::prctl(PR_SET_DUMPABLE, 0);  // no core file
      std::signal(SIGSEGV, SIG_DFL);
      ::ualarm(200000, 0);
      read_gpus(library.path());
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == row.signal) << row.description;
  }
}

}  // namespace
}  // namespace ms::health
