#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/finding.h"

namespace {
// Counts how often it is formatted.
struct Counted {
  int* count;
};
}  // namespace

template <>
struct fmt::formatter<Counted> {
  constexpr auto parse(format_parse_context& context) { return context.begin(); }
  auto format(const Counted& counted, format_context& context) const {
    ++*counted.count;
    return fmt::format_to(context.out(), "counted");
  }
};

namespace ms {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;

class Log : public ::testing::Test {
 protected:
  void SetUp() override { log::set_filter("info"); }
  void TearDown() override { log::set_filter("info"); }
  template <class Action>
  static std::string stderr_of(Action action) {
    ::testing::internal::CaptureStderr();
    action();
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(Log, OneStampedLineAnEvent) {
  const std::string text = stderr_of([] {
    const log::RankScope rank(7);
    log::warn("ckpt", "shard {} differs\nreally", 3);
  });
  EXPECT_THAT(text,
              MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3} W rank 7 [^ ]+ ckpt: "
                           "shard 3 differs\\\\nreally\n"));
}

TEST_F(Log, InfoSpeaksForRankZeroAndThoseWithoutRank) {
  const std::string text = stderr_of([] {
    log::info("comm", "no rank");
    const log::RankScope zero(0);
    log::info("comm", "rank zero");
    {
      const log::RankScope one(1);
      log::info("comm", "hidden one");
      log::error("comm", "error one");
    }
    log::info("comm", "zero again");
  });
  EXPECT_THAT(text, HasSubstr("comm: no rank\n"));
  EXPECT_THAT(text, HasSubstr("rank 0 "));
  EXPECT_THAT(text, Not(HasSubstr("hidden one")));
  EXPECT_THAT(text, HasSubstr("error one"));
  EXPECT_THAT(text, HasSubstr("zero again"));
  EXPECT_THAT(log::recent_lines(), ::testing::Contains(HasSubstr("hidden one"))) << "but the ring has it";
}

TEST_F(Log, LabelsAreOfTheThread) {
  const std::string text = stderr_of([] {
    const log::RankScope mine(3);
    std::jthread([] {
      const log::RankScope other(4);
      log::warn("comm", "from four");
    }).join();
    log::warn("comm", "from three");
  });
  EXPECT_THAT(text, ::testing::ContainsRegex("rank 4 [^ ]+ comm: from four"));
  EXPECT_THAT(text, ::testing::ContainsRegex("rank 3 [^ ]+ comm: from three"));
}

TEST_F(Log, FilterByRoom) {
  const struct {
    const char* filter;
    bool comm_debug, ckpt_debug, ckpt_info, ckpt_warn;  // written
  } rows[] = {
      {"", false, false, true, true},
      {"info,comm:debug", true, false, true, true},
      {"debug", true, true, true, true},
      {"error", false, false, false, false},
      {"warn, comm : debug", true, false, false, true},
      {"debug,ckpt:error", true, false, false, false},
      {"ring", false, false, true, true},
  };
  for (const auto& row : rows) {
    log::set_filter(row.filter);
    const std::string text = stderr_of([] {
      log::debug("comm", "comm debug");
      log::debug("ckpt", "ckpt debug");
      log::info("ckpt", "ckpt info");
      log::warn("ckpt", "ckpt warn");
      log::error("ckpt", "ckpt error");
    });
    const auto written = [&](const char* line) { return text.find(line) != std::string::npos; };
    EXPECT_EQ(written("comm debug"), row.comm_debug) << row.filter;
    EXPECT_EQ(written("ckpt debug"), row.ckpt_debug) << row.filter;
    EXPECT_EQ(written("ckpt info"), row.ckpt_info) << row.filter;
    EXPECT_EQ(written("ckpt warn"), row.ckpt_warn) << row.filter;
    EXPECT_TRUE(written("ckpt error")) << row.filter;
  }
}

TEST_F(Log, RefusesUnknownLevels) {
  for (const char* filter : {"infos", "comm:loud", "info,comm:", "debug,,info"}) {
    EXPECT_THROW(log::set_filter(filter), Error) << filter;
  }
  try {
    log::set_filter("comm:debgu");
    FAIL() << "nothing thrown";
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.blame()), ExitCode::usage);
    EXPECT_EQ(error.hint(), "did you mean 'debug'?");
  }
  EXPECT_TRUE(log::enabled(log::Level::info, "comm")) << "the old filter stays";
}

TEST_F(Log, WhatIsOffIsNotFormatted) {
  int formatted = 0;
  const std::string text = stderr_of([&] {
    log::debug("comm", "{}", Counted{&formatted});
    EXPECT_EQ(formatted, 0);
    log::info("comm", "{}", Counted{&formatted});
  });
  EXPECT_EQ(formatted, 1);
  EXPECT_THAT(text, HasSubstr("comm: counted"));
}

TEST_F(Log, TheRingKeepsTheNewestLines) {
  log::set_filter("ring");
  const std::string text = stderr_of([] {
    for (int i = 0; i < 1000; ++i) log::debug("sched", "row {};", i);
  });
  EXPECT_THAT(text, IsEmpty());
  const std::vector<std::string> lines = log::recent_lines();
  ASSERT_EQ(lines.size(), 500);
  EXPECT_THAT(lines.front(), HasSubstr("sched: row 500;"));
  EXPECT_THAT(lines.back(), HasSubstr("sched: row 999;"));
}

TEST_F(Log, ABarIsWipedBeforeALine) {
  const std::string text = stderr_of([] {
    log::set_bar_on_terminal(true);
    log::warn("data", "x");
    log::set_bar_on_terminal(false);
    log::warn("data", "y");
  });
  EXPECT_THAT(text, ::testing::StartsWith("\r\033[K"));
  EXPECT_EQ(text.rfind('\r'), 0);
}

TEST_F(Log, ManyThreadsKeepLinesWhole) {
  const std::string text = stderr_of([] {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([t] {
        const log::RankScope rank(t);
        for (int i = 0; i < 50; ++i) log::warn("comm", "line of {} end", t);
      });
    }
  });
  std::size_t lines = 0;
  for (std::size_t at = 0; (at = text.find(" end\n", at)) != std::string::npos; ++at) ++lines;
  EXPECT_EQ(lines, 400);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 400);
}

using LogDeathTest = Log;

TEST_F(LogDeathTest, AFailedAssertionPrintsTheRing) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        log::set_filter("ring");
        log::debug("comm", "the last thing we did");
        MS_ASSERT(1 + 1 == 3, "sums are {}", "wrong");
      },
      "bug: sums are wrong \\(1 \\+ 1 == 3, at .*log_test.cpp.*the last 1 lines of the log:.*the last thing we did");
}

TEST_F(LogDeathTest, AssertionsOfManyThreadsEndInOneDump) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        log::set_filter("ring");
        log::debug("comm", "evidence");
        std::vector<std::jthread> threads;
        for (int i = 0; i < 8; ++i) threads.emplace_back([i] { MS_ASSERT(i < 0, "thread {} failed", i); });
      },
      "evidence");
}

TEST(Clock, FakeTimePassesWhenTold) {
  FakeClock clock(1000);
  EXPECT_EQ(clock.now_s(), 0);
  clock.sleep_s(2.5);
  clock.advance_s(0.5);
  clock.sleep_s(-1);
  EXPECT_EQ(clock.now_s(), 3);
  EXPECT_EQ(clock.wall_s(), 1003);
}

TEST(Finding, IsOneLine) {
  const Finding finding{.code = "gpu.ecc",
                        .severity = Severity::warning,
                        .blame = Blame::gpu,
                        .entity = "n12 gpu 3",
                        .message = "4 errors",
                        .remedy = "reset it"};
  EXPECT_EQ(finding.str(), "warning gpu.ecc n12 gpu 3: 4 errors (remedy: reset it)");
}

TEST(Error, BlameSelectsTheExitCode) {
  const struct {
    Blame blame;
    ExitCode code;
    const char* name;
  } rows[] = {{Blame::user, ExitCode::usage, "user"},         {Blame::node, ExitCode::node_fault, "node"},
              {Blame::gpu, ExitCode::node_fault, "gpu"},      {Blame::fabric, ExitCode::peer_lost, "fabric"},
              {Blame::storage, ExitCode::storage, "storage"}, {Blame::slurm, ExitCode::peer_lost, "slurm"},
              {Blame::peer, ExitCode::peer_lost, "peer"},     {Blame::bug, ExitCode::bug, "bug"}};
  for (const auto& row : rows) {
    EXPECT_EQ(exit_code(row.blame), row.code) << row.name;
    EXPECT_EQ(to_string(row.blame), row.name);
  }
  const Error error = Error("a.b", Blame::storage, "disk full", "delete").with_context("while writing shard 3");
  EXPECT_STREQ(error.what(), "while writing shard 3: disk full");
  EXPECT_EQ(error.hint(), "delete");
  EXPECT_EQ(error.kind(), "a.b");
}

}  // namespace
}  // namespace ms
