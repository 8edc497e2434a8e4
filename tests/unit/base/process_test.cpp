// Subprocesses and progress lines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

#include "base/error.h"
#include "base/progress.h"
#include "base/subprocess.h"

namespace ms {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

SubprocessResult shell(const std::string& script, SubprocessOptions options = {}) {
  return run_subprocess({"sh", "-c", script}, options);
}

TEST(Subprocess, CapturesBothOutputsAndTheStatus) {
  const SubprocessResult result = shell("echo out; echo err >&2; exit 3");
  EXPECT_EQ(result.out, "out\n");
  EXPECT_EQ(result.err, "err\n");
  EXPECT_EQ(result.exit_status, 3);
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.describe(), "exit status 3");
  EXPECT_TRUE(shell("exit 0").ok());
}

TEST(Subprocess, ArgumentsAreNotInterpreted) {
  EXPECT_EQ(run_subprocess({"printf", "%s|", "a b", "$HOME", "*"}).out, "a b|$HOME|*|");
}

TEST(Subprocess, SignalsAreValues) {
  const SubprocessResult result = shell("kill -KILL $$");
  EXPECT_EQ(result.signal, SIGKILL);
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.describe(), "killed by signal 9 (Killed)");
}

TEST(Subprocess, WhatCannotStartIsAnError) {
  try {
    run_subprocess({"/no/such/program"});
    FAIL() << "nothing thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), "subprocess.start");
    EXPECT_EQ(error.message(), "cannot start '/no/such/program': No such file or directory");
  }
}

TEST(Subprocess, TheDeadlineEndsTheWholeGroup) {
  // The shell is told to ignore SIGTERM, and its child sleeps on its own.
  const struct {
    const char* script;
    int signal;
  } rows[] = {{"echo begun; sleep 60", SIGTERM}, {"trap '' TERM; echo begun; sleep 60; sleep 60", SIGKILL}};
  for (const auto& row : rows) {
    const auto start = std::chrono::steady_clock::now();
    const SubprocessResult result = shell(row.script, {.deadline_s = 0.3, .kill_grace_s = 0.3});
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
    EXPECT_TRUE(result.timed_out);
    EXPECT_EQ(result.signal, row.signal);
    EXPECT_EQ(result.out, "begun\n") << "what came before the end is kept";
    EXPECT_THAT(result.describe(), HasSubstr("no answer in time, killed by signal"));
    EXPECT_FALSE(result.ok());
  }
}

TEST(Subprocess, AStopThatIsRequestedEndsItBeforeTheDeadline) {
  std::stop_source stop;
  stop.request_stop();
  const SubprocessResult result = run_subprocess({"sleep", "1000"}, {.deadline_s = 1000}, stop.get_token());
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.signal, SIGTERM);
}

TEST(Subprocess, ADescendantThatHoldsThePipeIsNotWaitedFor) {
  const auto start = std::chrono::steady_clock::now();
  const SubprocessResult result = shell("sleep 30 & echo $!");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_TRUE(result.ok());
  const int holder = std::atoi(result.out.c_str());
  ASSERT_GT(holder, 1);
  ::kill(holder, SIGKILL);
}

TEST(Subprocess, OutputIsBounded) {
  const SubprocessResult result = shell("head -c 1000000 /dev/zero; echo last >&2", {.max_output_bytes = 1000});
  EXPECT_EQ(result.out.size(), 1000);
  EXPECT_TRUE(result.truncated);
  EXPECT_EQ(result.err, "last\n");
  EXPECT_TRUE(result.ok()) << "the rest was read and dropped";
  EXPECT_EQ(shell("head -c 3000000 /dev/zero").out.size(), 3'000'000);
}

TEST(Subprocess, TheEnvironmentCanBeReplaced) {
  const SubprocessResult result = run_subprocess({"env"}, {.environment = std::vector<std::string>{"A=1", "B=x y"}});
  EXPECT_EQ(result.out, "A=1\nB=x y\n");
  EXPECT_THAT(run_subprocess({"env"}).out, HasSubstr("PATH="));
}

TEST(Subprocess, StandardInputIsEmptyAndSignalsAreDefault) {
  EXPECT_EQ(shell("cat; echo end").out, "end\n");
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  const auto old = std::signal(SIGPIPE, SIG_IGN);
  const SubprocessResult result = run_subprocess({"grep", "-E", "^Sig(Blk|Ign):", "/proc/self/status"});
  std::signal(SIGPIPE, old);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_THAT(result.out, HasSubstr("SigBlk:\t0000000000000000"));
  // Not all zeros: glibc has two signals of its own ignored.
  const std::string ignored = result.out.substr(result.out.find("SigIgn:") + 7);
  EXPECT_EQ(std::strtoull(ignored.c_str(), nullptr, 16) & (1U << (SIGPIPE - 1)), 0U) << result.out;
}

// What Progress wrote to its stream.
class Captured {
 public:
  Captured() : stream_(::open_memstream(&buffer_, &size_)) {}
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;
  ~Captured() {
    std::fclose(stream_);
    std::free(buffer_);
  }
  std::FILE* stream() { return stream_; }
  std::string text() {
    std::fflush(stream_);
    return {buffer_, size_};
  }

 private:
  char* buffer_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* stream_;
};

TEST(Progress, PlainLinesAtABoundedRate) {
  Captured captured;
  FakeClock clock;
  Progress progress("read", 1000, "files", clock, {.stream = captured.stream()});
  for (int i = 1; i <= 25; ++i) {
    clock.advance_s(1);
    progress.update(i * 40, "note");
  }
  progress.finish("all good");
  EXPECT_EQ(captured.text(),
            "read: 400 of 1.00k files, 40%, 40/s, 15.0s left, note\n"
            "read: 800 of 1.00k files, 80%, 40/s, 5.0s left, note\n"
            "read: 1.00k of 1.00k files, 100%, 40/s, 25.0s, all good\n");
}

TEST(Progress, UnknownTotal) {
  Captured captured;
  FakeClock clock;
  Progress progress("copy", 0, "bytes", clock, {.stream = captured.stream()});
  clock.advance_s(10);
  progress.update(5'000'000);
  progress.finish();
  EXPECT_EQ(captured.text(), "copy: 5.00M bytes, 500k/s, 10.0s\ncopy: 5.00M bytes, 500k/s, 10.0s\n");
}

TEST(Progress, ATerminalHasOneRedrawnLine) {
  Captured captured;
  FakeClock clock;
  {
    Progress progress("read", 100, "files", clock, {.stream = captured.stream(), .terminal = true, .width = 60});
    clock.advance_s(0.05);
    progress.update(10);
    EXPECT_THAT(captured.text(), IsEmpty()) << "too soon";
    clock.advance_s(0.95);
    progress.update(50);
    EXPECT_EQ(captured.text(), "\r[######       ] read: 50 of 100 files, 50%, 50/s, 1.0s left\033[K");
    clock.advance_s(1);
    progress.finish();
  }
  EXPECT_THAT(captured.text(), ::testing::EndsWith("\033[K\r\033[Kread: 100 of 100 files, 100%, 50/s, 2.0s\n"));
}

TEST(Progress, ANarrowTerminalIsNotWrappedAndWorkGivenUpIsWiped) {
  Captured captured;
  FakeClock clock;
  {
    Progress progress("read", 100, "files", clock, {.stream = captured.stream(), .terminal = true, .width = 20});
    clock.advance_s(1);
    progress.update(50);
  }
  EXPECT_EQ(captured.text(), "\rread: 50 of 100 fil\033[K\r\033[K");
}

}  // namespace
}  // namespace ms
