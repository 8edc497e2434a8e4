// The stacks of this process and of another one.
#include "watch/stacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "base/file.h"
#include "base/json.h"
#include "support/files.h"
#include "watch/devices.h"
#include "watch/evidence.h"
#include "watch/verdict.h"

namespace ms::watch {
namespace {

using testing::HasSubstr;

// A thread that waits until it is let go.
class Waits {
 public:
  explicit Waits(const char* name) {
    thread_ = std::jthread([this, name](const std::stop_token& stop) {
      pthread_setname_np(pthread_self(), name);
      std::unique_lock lock(mutex_);
      waits_ = true;
      wake_.notify_all();
      wake_.wait(lock, stop, [] { return false; });
    });
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return waits_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable_any wake_;
  bool waits_ = false;
  std::jthread thread_;
};

TEST(Stacks, ThisProcessTellsWhereItsThreadsAre) {
  const Waits first("first"), second("second");
  const std::string text = own_stacks();
  for (const char* name : {"first", "second"}) {
    const std::size_t begin = text.find(name);
    ASSERT_NE(begin, std::string::npos) << text;
    // On a machine that is busy a thread may not get to it in time, and that is said.
    const std::string rest = text.substr(begin, text.find("thread ", begin) - begin);
    EXPECT_TRUE(rest.find("#0 ") != std::string::npos || rest.find("did not answer") != std::string::npos) << text;
  }
  EXPECT_THAT(text, HasSubstr(fmt::format("thread {} ", getpid())));
  EXPECT_THAT(text, HasSubstr("+0x"));
}

TEST(Stacks, TheKernelTellsOfOtherProcesses) {
  const Waits waits("waits");
  EXPECT_THAT(kernel_stacks(Sysroot(), getpid()), HasSubstr(" waits "));
  EXPECT_EQ(kernel_stacks(Sysroot(), 0), "");
  EXPECT_EQ(process_stat(Sysroot(), 0).state, 'X');
}

TEST(Evidence, IsWrittenForItsStartOnly) {
  const test::TempDir directory;
  const std::string run = directory.path();
  begin_start(run, "one");
  Evidence evidence;
  EXPECT_EQ(evidence.write(run, "one", "rank-0.txt"), "") << "nothing was taken";
  evidence.take("rank 0 waited for rank 1", getppid());
  EXPECT_EQ(evidence.write(run, "two", "rank-0.txt"), "");
  const std::string path = evidence.write(run, "one", "rank-0.txt");
  ASSERT_EQ(path, run + "/evidence/one/rank-0.txt");
  const std::string text = read_file(path);
  EXPECT_THAT(text, HasSubstr("rank 0 waited for rank 1\n"));
  EXPECT_THAT(text, HasSubstr("#0 "));
  EXPECT_THAT(text, HasSubstr(fmt::format("process {}, which is blamed", getppid())));
  EXPECT_THAT(text, HasSubstr("MemAvailable"));
}

// A program that stands in for ms-diag.
std::string program(const std::string& directory, const std::string& script) {
  const std::string path = directory + "/ms-diag";
  std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}
constexpr const char* kSample = R"({"schema": 1, "devices": [
  {"device": "", "facts": {}, "values": {"load": 1.5}},
  {"device": "gpu0", "facts": {}, "values": {"temperature_c": 91, "power_w": null, "ecc_uncorrected": 4}}],
 "missing": ["log: no \u001b[1m permission"]})";

TEST(Devices, AreALineEachAndWhatWasNotReadIsOneToo) {
  EXPECT_EQ(devices_text(kSample),
            "host: load 1.5\ngpu0: temperature_c 91, ecc_uncorrected 4\nnot read: log: no ?[1m permission\n");
  EXPECT_THROW(devices_text("{}"), JsonError);
  EXPECT_THROW(devices_text("words"), JsonError);
}

TEST(Devices, AreInTheEvidenceOfWhoLooksAtThem) {
  const test::TempDir directory;
  const std::string run = directory.path();
  begin_start(run, "one");
  Evidence looks, does_not;
  does_not.take("why", 0);
  does_not.write_devices(run, "one", "n2");
  looks.take("why", 0, program(run, "echo \"$@\" >\"$0.args\"; cat <<'E'\n" + std::string(kSample) + "\nE"));
  looks.write_devices(run, "two", "n1");
  EXPECT_FALSE(std::filesystem::exists(run + "/evidence")) << "another start has the directory";
  looks.take("why", 0, run + "/ms-diag");
  looks.write_devices(run, "one", "n1");
  EXPECT_THAT(read_file(run + "/evidence/one/devices-n1.txt"), HasSubstr("gpu0: temperature_c 91, ecc_uncorrected 4"));
  EXPECT_FALSE(std::filesystem::exists(run + "/evidence/one/devices-n2.txt"));
  EXPECT_EQ(read_file(run + "/ms-diag.args"), "collect --json --deadline 2.7s\n");
}

TEST(Devices, ThatHangAreGivenUp) {
  const test::TempDir directory;
  const std::string said = device_state(program(directory.path(), "trap '' TERM; echo begins; exec sleep 1000"));
  EXPECT_THAT(said, HasSubstr("not read: "));
  EXPECT_THAT(device_state(program(directory.path(), "echo no policy >&2; exit 2")), HasSubstr("no policy"));
  EXPECT_THAT(device_state(program(directory.path(), "echo words")), HasSubstr("not read: "));
  EXPECT_THAT(device_state(directory.path() + "/none"), HasSubstr("not read: "));
}

TEST(Evidence, OfOldStartsGoes) {
  const test::TempDir directory;
  for (int start = 0; start < 20; ++start) {
    begin_start(directory.path(), std::to_string(start));
    Evidence evidence;
    evidence.take("why", 0);
    ASSERT_NE(evidence.write(directory.path(), std::to_string(start), "rank-0.txt"), "");
  }
  std::size_t kept = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory.path() + "/evidence")) ++kept;
  EXPECT_EQ(kept, 9U);
  EXPECT_TRUE(std::filesystem::exists(directory.path() + "/evidence/19/rank-0.txt"));
}

}  // namespace
}  // namespace ms::watch
