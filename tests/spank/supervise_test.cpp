// What can become of a program that root starts: it always comes back in time, with a true account, and nothing stays.
#include "supervise.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

#include "support.h"
#include "support/fork.h"

namespace ms::spank {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr double kPlentyS = 30;  // a time-out that a test does not meet
constexpr double kShortS = 0.3;  // one that it does

double seconds_of(const std::function<void()>& act) {
  const auto begin = std::chrono::steady_clock::now();
  act();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

bool is_gone(pid_t pid) {
  for (int i = 0; i < 200; ++i) {
    if (kill(pid, 0) != 0 && errno == ESRCH) return true;
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string number, name, state;
    if (!(stat >> number >> name >> state) || state == "Z") return true;  // dead, not yet waited for by its new parent
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

class SuperviseTest : public SpankTest {
 protected:
  Outcome run(const std::string& commands, double deadline_s = kPlentyS,
              std::vector<std::string> environment = {}) const {
    return supervise(
        {.argv = {script(commands), "prolog"}, .environment = std::move(environment), .deadline_s = deadline_s});
  }
  pid_t pid_in(const std::string& name) const { return static_cast<pid_t>(std::atoi(text_of(name).c_str())); }
};

TEST_F(SuperviseTest, TellsHowItEnded) {
  struct Row {
    const char* commands;
    Ending ending;
    int code;
    const char* says;
  };
  for (const Row& row :
       {Row{"exit 0", Ending::exited, 0, "exit status 0"}, Row{"exit 69", Ending::exited, 69, "exit status 69"},
        Row{"exit 255", Ending::exited, 255, "255"}, Row{"kill -SEGV $$", Ending::signalled, SIGSEGV, "signal 11"},
        Row{"kill -KILL $$", Ending::signalled, SIGKILL, "signal 9"},
        Row{"exec /nonexistent/program", Ending::exited, 127, "127"}}) {
    const Outcome outcome = run(row.commands);
    EXPECT_EQ(outcome.ending, row.ending) << row.commands;
    EXPECT_EQ(outcome.code, row.code) << row.commands;
    EXPECT_THAT(outcome.describe(), HasSubstr(row.says)) << row.commands;
  }
}

TEST_F(SuperviseTest, WhatCannotBeStartedSaysWhy) {
  const auto start = [](const std::string& path) {
    return supervise({.argv = {path}, .environment = {}, .deadline_s = kPlentyS});
  };
  Outcome outcome = start(folder + "/missing");
  EXPECT_EQ(outcome.ending, Ending::not_started);
  EXPECT_EQ(outcome.code, ENOENT);
  outcome = start(file("plain", "#!/bin/sh\nexit 69\n", 0644));
  EXPECT_EQ(outcome.ending, Ending::not_started);
  EXPECT_EQ(outcome.code, EACCES);
  outcome = start(file("no_interpreter", "#!/nonexistent/sh\nexit 69\n", 0755));
  EXPECT_EQ(outcome.ending, Ending::not_started);
  outcome = start(file("garbage",
                       "\x7f"
                       "ELF garbage",
                       0755));
  EXPECT_EQ(outcome.code, ENOEXEC);
  EXPECT_THAT(outcome.describe(), HasSubstr("could not be started"));
}

TEST_F(SuperviseTest, HangingIsCutAtTheDeadline) {
  Outcome outcome;
  const double taken_s = seconds_of([&] { outcome = run("echo $$ > " + folder + "/pid; exec sleep 100", kShortS); });
  EXPECT_EQ(outcome.ending, Ending::late);
  EXPECT_GE(taken_s, kShortS);
  EXPECT_LT(taken_s, kPlentyS);
  EXPECT_TRUE(is_gone(pid_in("pid")));
}

TEST_F(SuperviseTest, StoppedIsCutToo) { EXPECT_EQ(run("kill -STOP $$", kShortS).ending, Ending::late); }

TEST_F(SuperviseTest, ForksThatIgnoreSigtermAreKilled) {
  const Outcome outcome =
      run("trap '' TERM HUP INT; for i in 1 2 3 4 5; do (while :; do sleep 100; done) & done; sleep 100 & echo $! > " +
              folder + "/pid; while :; do sleep 0.05 & wait $!; done",
          kShortS);
  EXPECT_EQ(outcome.ending, Ending::late);
  EXPECT_TRUE(is_gone(pid_in("pid")));
}

TEST_F(SuperviseTest, WhatItLeavesBehindIsKilledAndNotWaitedFor) {
  Outcome outcome;
  const double taken_s = seconds_of(
      [&] { outcome = run("sleep 100 & echo $! > " + folder + "/pid; echo said; exit 69"); });  // holds the pipe
  EXPECT_EQ(outcome.ending, Ending::exited);
  EXPECT_EQ(outcome.code, 69);
  EXPECT_EQ(outcome.output, "said\n");
  EXPECT_LT(taken_s, kPlentyS / 2);
  EXPECT_TRUE(is_gone(pid_in("pid")));
}

TEST_F(SuperviseTest, OutputIsTakenTogetherAndItsBeginningKept) {
  EXPECT_EQ(run("echo one; echo two >&2").output, "one\ntwo\n");
  Outcome flood = run("yes ms", kShortS);
  EXPECT_EQ(flood.ending, Ending::late);
  EXPECT_EQ(flood.output.size(), ms::spank::Run{}.keep_output_bytes);
  flood = run("head -c 3000000 /dev/zero; exit 3");  // does not block on a full pipe
  EXPECT_EQ(flood.code, 3);
  EXPECT_EQ(flood.output.size(), ms::spank::Run{}.keep_output_bytes);
}

TEST_F(SuperviseTest, ClosingItsOutputIsNotItsEnd) {
  const Outcome outcome = run("exec >&- 2>&-; sleep 0.2; exit 5");
  EXPECT_EQ(outcome.ending, Ending::exited);
  EXPECT_EQ(outcome.code, 5);
}

TEST_F(SuperviseTest, SeesTheEnvironmentItIsGivenAndNothingElse) {
  setenv("LD_PRELOAD", "", 1);
  setenv("MS_SECRET", "of the host", 1);
  const Outcome outcome =
      supervise({.argv = {"/usr/bin/env"}, .environment = {"A=1", "B=two words"}, .deadline_s = kPlentyS});
  unsetenv("LD_PRELOAD");
  unsetenv("MS_SECRET");
  EXPECT_EQ(outcome.output, "A=1\nB=two words\n");
}

TEST_F(SuperviseTest, HasNoFileOfOurs) {
  const int low = open("/dev/null", O_RDONLY);  // without O_CLOEXEC, as libraries of a host leave them
  const int high = fcntl(low, F_DUPFD, 200);
  const Outcome files = supervise({.argv = {"/bin/ls", "/proc/self/fd"}, .environment = {}, .deadline_s = kPlentyS});
  close(low);
  close(high);
  EXPECT_EQ(files.output, "0\n1\n2\n3\n");  // 3 is the folder that ls reads
  EXPECT_EQ(run("readlink /proc/self/fd/0").output, "/dev/null\n");
}

TEST_F(SuperviseTest, WorksWhereTheHostHasClosedItsOwnFirstFiles) {
  const pid_t host = test::fork_or_throw();
  if (host == 0) {
    for (int fd = 0; fd < 3; ++fd) close(fd);
    const Outcome outcome = supervise({.argv = {script("readlink /proc/self/fd/0; echo out; echo err >&2; exit 7")},
                                       .environment = {},
                                       .deadline_s = kPlentyS});
    _exit(outcome.code == 7 && outcome.output == "/dev/null\nout\nerr\n" ? 0 : 1);
  }
  int how = 0;
  ASSERT_EQ(waitpid(host, &how, 0), host);
  EXPECT_EQ(how, 0);
}

TEST_F(SuperviseTest, SignalsLimitsFolderAndGroupAreOfItsOwn) {
  struct sigaction ignore {
  }, before{}, chld_before{};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGTERM, &ignore, &before);
  sigaction(SIGCHLD, &ignore, &chld_before);  // then the kernel itself would take the status of a child
  sigset_t all, mask_before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &mask_before);
  const Outcome outcome =
      run("grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status; pwd; ulimit -Sc; ulimit -Sn; umask; ps -o pgid= -p $$ | tr "
          "-d ' '; echo $$; exit 9");
  sigprocmask(SIG_SETMASK, &mask_before, nullptr);
  struct sigaction chld_after {};
  sigaction(SIGCHLD, &chld_before, &chld_after);
  sigaction(SIGTERM, &before, nullptr);
  EXPECT_EQ(chld_after.sa_handler, SIG_IGN) << "the host's own is back";
  EXPECT_EQ(outcome.code, 9);
  std::istringstream lines(outcome.output);
  std::string blocked, ignored, caught, folder_line, core, files, mask, group, pid;
  for (std::string* line : {&blocked, &ignored, &caught, &folder_line, &core, &files, &mask, &group, &pid}) {
    ASSERT_TRUE(std::getline(lines, *line)) << outcome.output;
  }
  EXPECT_THAT(blocked, HasSubstr("0000000000000000"));
  EXPECT_THAT(ignored, HasSubstr("0000000000000000"));
  EXPECT_EQ(folder_line, "/");
  EXPECT_EQ(core, "0");
  EXPECT_LE(std::stoi(files), 1024);
  EXPECT_EQ(mask, "0022");
  EXPECT_EQ(group, pid);
}

TEST_F(SuperviseTest, DiesWithItsSupervisor) {
  const pid_t host = test::fork_or_throw();
  if (host == 0) {
    run("echo $$ > " + folder + "/pid; exec sleep 100");
    _exit(0);
  }
  for (int i = 0; i < 500 && text_of("pid").empty(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_NE(pid_in("pid"), 0);
  kill(host, SIGKILL);
  waitpid(host, nullptr, 0);
  EXPECT_TRUE(is_gone(pid_in("pid")));
}

}  // namespace
}  // namespace ms::spank
