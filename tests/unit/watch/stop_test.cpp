// Requests to stop a run. Signals are real ones, in a process of their own.
#include "watch/stop.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "support/files.h"

namespace ms::watch {
namespace {

using namespace std::chrono_literals;

// Runs `body` in a child; returns its exit status, or 128 + the signal that ended it.
template <class F>
int in_child(F&& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// Returns 0 if asked() reports the signal within five seconds.
int heard(const StopRequest& stop, const char* name) {
  for (int i = 0; i < 5000; ++i) {
    if (const auto asked = stop.asked()) return *asked == name ? 0 : 1;
    std::this_thread::sleep_for(1ms);
  }
  return 2;
}

TEST(StopRequest, ReportsEachSignalWithoutOtherEffects) {
  for (const auto& [signal, name] :
       {std::pair{SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}, {SIGUSR2, "SIGUSR2"}, {SIGHUP, "SIGHUP"}}) {
    EXPECT_EQ(in_child([signal = signal, name = name] {
                StopRequest stop;
                stop.arm();
                if (stop.asked()) return 3;
                ::kill(::getpid(), signal);
                return heard(stop, name);
              }),
              0)
        << name;
  }
}

TEST(StopRequest, ASecondSignalOfAPersonEndsTheProcess) {
  const auto twice = [](int second) {
    return in_child([second] {
      StopRequest stop;
      stop.arm();
      ::kill(::getpid(), SIGUSR2);
      if (heard(stop, "SIGUSR2") != 0) return 1;
      ::kill(::getpid(), second);
      std::this_thread::sleep_for(300ms);
      return 7;
    });
  };
  EXPECT_EQ(twice(SIGTERM), 7);
  EXPECT_EQ(twice(SIGINT), 128 + SIGINT);
  EXPECT_EQ(twice(SIGHUP), 128 + SIGHUP);
  EXPECT_EQ(twice(SIGUSR2), 7);  // a launcher may repeat it
}

TEST(StopRequest, SignalBeforeTheFirstStepEndsTheProcess) {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR2}) {
    EXPECT_EQ(in_child([signal] {
                const StopRequest stop;
                ::kill(::getpid(), signal);
                std::this_thread::sleep_for(5s);
                return 7;
              }),
              128 + signal);
  }
}

TEST(StopRequest, IgnoredSignalsStayIgnored) {
  EXPECT_EQ(in_child([] {
              ::signal(SIGINT, SIG_IGN);
              StopRequest stop;
              stop.arm();
              ::kill(::getpid(), SIGINT);
              std::this_thread::sleep_for(100ms);
              return stop.asked() ? 1 : 0;
            }),
            0);
  EXPECT_EQ(in_child([] {  // as one does whose run is ending by itself
              StopRequest stop;
              stop.arm();
              ::kill(::getpid(), SIGTERM);
              if (heard(stop, "SIGTERM") != 0) return 1;
              ::signal(SIGTERM, SIG_IGN);
              ::kill(::getpid(), SIGTERM);
              std::this_thread::sleep_for(100ms);
              return 0;
            }),
            0);
}

TEST(StopFile, IsFoundSoonUnlessLeftByAnEarlierRun) {
  const test::TempDir temporary;
  const std::string& dir = temporary.path();
  std::ofstream(dir + "/stop").close();
  {
    StopFile file(dir);
    EXPECT_FALSE(file.asked());
    EXPECT_FALSE(std::filesystem::exists(dir + "/stop"));
    std::ofstream(dir + "/stop").close();
    for (int i = 0; i < 5000 && !file.asked(); ++i) std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(file.asked());
    file.remove();
    EXPECT_FALSE(std::filesystem::exists(dir + "/stop"));
    EXPECT_TRUE(file.asked());  // the wish stays
  }
}

}  // namespace
}  // namespace ms::watch
