// Real processes, because that is what the runner is for: checks that hang, crash, flood or leave children behind.
#include "health/run/runner.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "base/clock.h"
#include "busy_node.h"
#include "health/evidence/busy.h"
#include "health/run/result_wire.h"
#include "support/files.h"
#include "support/fork.h"

namespace ms::health {
namespace {

using testing::HasSubstr;

Result good(Evidence&) { return passed("seen"); }
Result bad(Evidence&) {
  return judged(
      {{.severity = Severity::critical, .entity = "gpu 3", .message = "4 errors", .measured = 4, .limit = 0}});
}
Result hangs(Evidence&) {
  for (;;) ::pause();
}
Result hangs_deaf(Evidence&) {
  std::signal(SIGTERM, SIG_IGN);
  for (;;) ::pause();
}
constexpr int kToldFd = 99;
Result tells_its_process_and_hangs(Evidence& evidence) {
  const pid_t process = ::getpid();
  if (::write(kToldFd, &process, sizeof process) != sizeof process) return broken("nobody listens");
  return hangs(evidence);
}
Result crashes(Evidence&) {
  ::raise(SIGKILL);
  return passed();
}
Result exits(Evidence&) { _exit(0); }
Result throws(Evidence&) { throw std::runtime_error("no such luck"); }
Result counts(Evidence& evidence) {
  Result result = passed();
  const auto before = evidence.before("x");
  result.counters["x"] = {(before ? before->value : 0) + 1, evidence.now_wall_s()};
  return result;
}
Result huge(Evidence&) { return passed(std::string(600'000, 'x')); }

Result computes(Evidence&) {
  for (std::atomic<unsigned> spins = 0;;) ++spins;
}
Result is_too_slow(Evidence&) { throw NotMeasured("it takes an hour"); }
Result tells_what_is_left(Evidence& evidence) { return passed(std::to_string(evidence.left_s())); }

Result needs_a_busy_cpu(Evidence&) {
  move_to_busy_cpu();
  return passed();
}

// Each of two passes once it has seen the other one begin.
Result meets(const Evidence& evidence, const char* own, const char* other) {
  const std::string& directory = evidence.policy().paths.state;
  test::spill(directory + "/" + own, "");
  for (int tries = 0; tries < 6000; ++tries) {
    if (::access((directory + "/" + other).c_str(), F_OK) == 0) return passed();
    ::usleep(10'000);
  }
  return broken("nobody came");
}
Result meets_b(Evidence& evidence) { return meets(evidence, "a", "b"); }
Result meets_a(Evidence& evidence) { return meets(evidence, "b", "a"); }
Result is_alone(Evidence& evidence) {
  const std::string mark = evidence.policy().paths.state + "/alone";
  const int fd = ::open(mark.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600);
  if (fd < 0) return broken("somebody else is here");
  ::close(fd);
  ::usleep(50'000);
  ::unlink(mark.c_str());
  return passed(std::to_string(evidence.asked().soak_s));
}

Check active(std::string_view code, Result (*run)(Evidence&), Resources takes) {
  return {.code = code, .level = 2, .lane = Lane::active, .deadline_s = 100, .takes = takes, .run = run};
}

Check row(std::string_view code, Result (*run)(Evidence&), Lane lane = Lane::files) {
  return {.code = code,
          .lane = lane,
          .deadline_s = 0.25,
          .blame = Blame::gpu,
          .on_hang = Severity::critical,
          .remedy = "mend it",
          .run = run};
}

std::vector<Outcome> outcomes(const std::vector<Result>& results) {
  std::vector<Outcome> all;
  for (const Result& result : results) all.push_back(result.outcome);
  return all;
}

class Runner : public testing::Test {
 protected:
  std::vector<Result> run(const std::vector<Check>& checks, const RunOptions& options = {}) {
    return run_checks(checks, policy_, options);
  }
  Policy policy_;
};

TEST_F(Runner, CompletesFindingsFromTheRow) {
  const std::vector<Result> results = run({row("a.good", good), row("b.bad", bad)});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].outcome, Outcome::pass);
  EXPECT_EQ(results[0].note, "seen");
  ASSERT_EQ(results[1].findings.size(), 1u);
  const Finding& finding = results[1].findings[0];
  EXPECT_EQ(finding.str(), "critical b.bad gpu 3: 4 errors (remedy: mend it)");
  EXPECT_EQ(finding.blame, Blame::gpu);
  EXPECT_EQ(finding.measured, 4);
}

TEST_F(Runner, AHangIsAFindingAndTheLaneGoesOn) {
  const std::vector<Result> results =
      run({row("a", hangs), row("b", good), row("c", hangs_deaf), row("d", bad), row("e", good, Lane::gpu)});
  EXPECT_THAT(outcomes(results), testing::ElementsAre(Outcome::critical, Outcome::pass, Outcome::critical,
                                                      Outcome::critical, Outcome::pass));
  EXPECT_THAT(results[0].findings.at(0).message, HasSubstr("did not answer within 250ms"));
  EXPECT_GE(results[0].wall_s, 0.25);
}

// Checks of GPUs ask one driver: it hangs for all of them, and is accused once. Again where this node was too busy to
// tell.
TEST_F(Runner, ADriverThatHangsIsSaidOnce) {
  std::vector<Result> results;
  for (int round = 0; round < 100; ++round) {
    results = run({row("a", hangs, Lane::gpu), row("b", hangs, Lane::gpu), row("c", good, Lane::gpu)});
    if (results[0].outcome == Outcome::critical) break;
  }
  ASSERT_EQ(results[0].outcome, Outcome::critical);
  EXPECT_THAT(results[0].findings.at(0).remedy, HasSubstr("driver does not answer"));
  for (const std::size_t later : {1, 2}) {
    EXPECT_EQ(results[later].outcome, Outcome::skip);
    EXPECT_EQ(results[later].note, "the driver had not answered a");
  }
}

TEST_F(Runner, ABusyNodeIsNoHang) {
  const BusyCpu busy(200);
  int late = 0;
  for (int round = 0; round < 100 && late < 2; ++round) {  // the processes need a moment to come
    const Result result = run({row("a", needs_a_busy_cpu)})[0];
    EXPECT_TRUE(result.outcome == Outcome::pass || result.outcome == Outcome::skip) << to_string(result.outcome);
    late += result.outcome == Outcome::skip ? 1 : 0;
  }
  EXPECT_GT(late, 0) << "the CPU was not busy";
}

// The main thread of a check only waits for the threads that measure.
TEST(Busy, ThreadsCountAsTheirProcessDoes) {
  const pid_t process = test::fork_or_throw();
  if (process == 0) {
    std::thread([] {
      for (std::atomic<unsigned> spins = 0;;) ++spins;
    }).detach();
    for (;;) ::pause();
  }
  const double begin_s = monotonic_s();
  while (cpu_time(process).run_s < 0.1 && monotonic_s() < begin_s + 60) ::usleep(5000);
  EXPECT_GE(cpu_time(process).run_s, 0.1);
  ::kill(process, SIGKILL);
  ::waitpid(process, nullptr, 0);
}

// A driver that hangs may spin: that is no lack of a CPU.
TEST(Busy, WhoSpinsIsNotExcused) {
  struct Row {
    CpuTime before, now;
    bool lacked;
  };
  const Row rows[] = {
      {{}, {}, false},                                                 // it sleeps
      {{}, {.run_s = 0.95, .wait_s = 0.05, .runnable = true}, false},  // it spins
      {{}, {.run_s = 0.01, .wait_s = 0.0, .runnable = true}, true},    // it has not had its first turn
      {{}, {.run_s = 0.01, .wait_s = 0.6, .runnable = false}, true},   // it had it late
      {{.run_s = 0, .wait_s = 9}, {.run_s = 0.01, .wait_s = 9, .runnable = false}, false},  // long ago
  };
  for (const Row& row : rows) EXPECT_EQ(lacked_cpu(row.before, row.now, 1), row.lacked);
}

TEST_F(Runner, ACheckThatCrashesIsBrokenAndTheLaneGoesOn) {
  const std::vector<Result> results = run({row("a", crashes), row("b", exits), row("c", throws), row("d", good)});
  EXPECT_THAT(outcomes(results),
              testing::ElementsAre(Outcome::broken, Outcome::broken, Outcome::broken, Outcome::pass));
  EXPECT_THAT(results[0].note, HasSubstr("signal 9"));
  EXPECT_THAT(results[1].note, HasSubstr("status 0 and no result"));
  EXPECT_EQ(results[2].note, "no such luck");
}

TEST_F(Runner, TheDeadlineOfAllCutsAndSkips) {
  const std::vector<Result> results =
      run({row("a", hangs), row("b", good), row("c", good, Lane::gpu)}, {.deadline_s = 0.1});
  EXPECT_THAT(outcomes(results), testing::ElementsAre(Outcome::skip, Outcome::skip, Outcome::pass));
  EXPECT_THAT(results[0].note, HasSubstr("it was not done when 100ms were over"));
  EXPECT_THAT(results[1].note, HasSubstr("no time left"));
}

TEST_F(Runner, ActiveChecksRunSideBySideWhereTheyTakeDifferentThings) {
  const test::TempDir directory;
  policy_.paths.state = directory.path();
  const std::vector<Result> results =
      run({active("a", meets_b, kGpus), active("x", is_alone, kDisk), active("b", meets_a, kWire | kBus)},
          {.deadline_s = 100});
  EXPECT_THAT(outcomes(results), testing::ElementsAre(Outcome::pass, Outcome::pass, Outcome::pass));
}

TEST_F(Runner, ActiveChecksThatTakeTheSameNeverMeet) {
  const test::TempDir directory;
  policy_.paths.state = directory.path();
  std::vector<std::string> ended;
  const std::vector<Result> results =
      run({active("a", is_alone, kNode), active("b", is_alone, kDisk), active("c", is_alone, kDisk | kGpus),
           active("d", is_alone, kNode)},
          {.deadline_s = 100, .asked = {.soak_s = 7}, .ended = [&](const Result& r) { ended.push_back(r.code); }});
  for (const Result& result : results) EXPECT_EQ(result.outcome, Outcome::pass) << result.note;
  EXPECT_EQ(ended, (std::vector<std::string>{"a", "b", "c", "d"}));
  EXPECT_EQ(results[0].note, std::to_string(7.0));
}

TEST_F(Runner, ASoakHasItsTimeOnTopOfTheDeadline) {
  Check soak = active("a", is_alone, kNode), late = active("b", hangs, kNode);
  soak.deadline_s = 1e-3;
  soak.soaks = late.soaks = true;
  late.deadline_s = 0.1;
  const test::TempDir directory;
  policy_.paths.state = directory.path();
  EXPECT_EQ(run({soak}, {.asked = {.soak_s = 60}})[0].outcome, Outcome::pass);
  const Result cut = run({late}, {.asked = {.soak_s = 0.15}})[0];
  EXPECT_THAT(cut.findings.at(0).message, HasSubstr("did not answer within 250ms"));
}

TEST_F(Runner, CountersGoInAndOut) {
  const std::vector<Result> results = run({row("a", counts)}, {.before = {{"x", {41, 7}}}});
  EXPECT_EQ(results[0].counters.at("x").value, 42);
}

// A check that only computes is late because of itself, or of its node's load: nobody is accused.
TEST_F(Runner, BeingSlowIsNoFindingWhereTheRowSaysSo) {
  Check slow = row("a", hangs, Lane::active), itself = row("b", is_too_slow, Lane::active);
  slow.level = itself.level = 2;
  slow.on_hang = itself.on_hang = std::nullopt;
  const std::vector<Result> results = run({slow, itself, row("c", hangs)});
  EXPECT_THAT(outcomes(results), testing::ElementsAre(Outcome::skip, Outcome::skip, Outcome::critical));
  for (const std::size_t late : {0, 1}) {
    EXPECT_TRUE(results[late].findings.empty());
    EXPECT_TRUE(results[late].measured.empty());
    EXPECT_THAT(results[late].note, testing::StartsWith("not measured: "));
  }
}

// Nor is a check that computed all the time: what it looked at has answered. A driver may compute while it hangs.
TEST_F(Runner, ComputingIsNoHang) {
  EXPECT_EQ(run({row("a", computes)})[0].outcome, Outcome::skip);
  EXPECT_TRUE(computed({.user_s = 3}, {.run_s = 2, .user_s = 3.6}, 1));
  EXPECT_FALSE(computed({.user_s = 3}, {.run_s = 2, .user_s = 3.4}, 1));
}

TEST_F(Runner, TellsAnActiveCheckHowMuchTimeItHas) {
  const auto left_s = [&](const Check& check, double all_s) {
    return std::stod(run({check}, {.deadline_s = all_s, .asked = {.soak_s = 1000}})[0].note);
  };
  Check check = active("a", tells_what_is_left, kNode);  // 100 s
  EXPECT_NEAR(left_s(check, 500), 80, 20);
  EXPECT_LT(left_s(check, 30), 30);
  check.soaks = true;
  EXPECT_GT(left_s(check, 5000), 1000);
}

TEST_F(Runner, LargeResultsArriveWhole) { EXPECT_EQ(run({row("a", huge)})[0].note.size(), 600'000u); }

TEST_F(Runner, LeavesNoProcessBehind) {
  run({row("a", hangs), row("b", crashes), row("c", good)});
  // What was killed may still be ending where the machine is slow; what runs on would stay.
  pid_t left = 0;
  for (int tries = 0; left >= 0 && tries < 200; ++tries) {
    left = ::waitpid(-1, nullptr, WNOHANG);
    if (left == 0) ::usleep(10'000);
  }
  EXPECT_EQ(left, -1);
  EXPECT_EQ(errno, ECHILD);
}

// As long as the killed runner's lane is there, somebody can write into the pipe.
TEST_F(Runner, ALaneDoesNotOutliveAKilledRunner) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t runner = test::fork_or_throw();
  if (runner == 0) {
    ::dup2(ends[1], kToldFd);
    Check check = row("a", tells_its_process_and_hangs);
    check.deadline_s = 60;
    run({check});
    _exit(0);
  }
  ::close(ends[1]);
  pid_t lane = 0;
  EXPECT_EQ(::read(ends[0], &lane, sizeof lane), static_cast<ssize_t>(sizeof lane));
  pollfd polled{ends[0], POLLIN, 0};
  EXPECT_EQ(::poll(&polled, 1, 0), 0) << "the lane is not there";
  ::kill(runner, SIGKILL);
  ::waitpid(runner, nullptr, 0);
  const bool gone = ::poll(&polled, 1, 10'000) == 1 && (polled.revents & POLLHUP) != 0;
  EXPECT_TRUE(gone);
  if (!gone && lane > 0) ::kill(lane, SIGKILL);
  ::close(ends[0]);
}

TEST(ResultWire, RefusesWhatDoesNotAddUp) {
  Result result{.code = "a.b", .outcome = Outcome::warn, .note = "n"};
  result.findings = {{.code = "a.b", .severity = Severity::note, .entity = "e", .limit = 2.5, .unit = "s"}};
  result.counters["c"] = {1, 2};
  const std::string bytes = encode(result);
  const auto back = decode(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(encode(*back), bytes);
  EXPECT_EQ(back->findings[0].limit, 2.5);
  EXPECT_FALSE(back->findings[0].measured);
  for (std::size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(decode(bytes.substr(0, size))) << size;
  EXPECT_FALSE(decode(bytes + "x"));
  std::string odd = bytes;
  odd[sizeof(std::uint64_t) + 3] = 99;  // the outcome
  EXPECT_FALSE(decode(odd));
}

}  // namespace
}  // namespace ms::health
