#include "watch/fault.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <map>

#include "base/error.h"

namespace ms::watch {
namespace {

using ::testing::HasSubstr;

bool never() { return false; }

std::function<const char*(const char*)> variables(std::map<std::string, std::string> table) {
  return [table = std::move(table)](const char* name) {
    const auto row = table.find(name);
    return row == table.end() ? nullptr : row->second.c_str();
  };
}

TEST(Fault, ParsesPointTargetAndKind) {
  const struct {
    const char* text;
    Fault expected;
  } rows[] = {
      {"step=5 rank=3 node-bad", {.point = FaultPoint::step, .step = 5, .kind = FaultKind::node_bad, .rank = 3}},
      {"gpu-bad rank=0 start", {.point = FaultPoint::start, .kind = FaultKind::gpu_bad, .rank = 0}},
      {" start   node=n-12  storage ", {.kind = FaultKind::storage, .node = "n-12"}},
      {"step=0 exit", {.point = FaultPoint::step, .kind = FaultKind::exit}},
      {"step=7 restart=2 kill", {.point = FaultPoint::step, .step = 7, .kind = FaultKind::kill, .restart = 2}},
      {"start node=node02 restart=0 hang", {.kind = FaultKind::hang, .node = "node02", .restart = 0}},
      {"data=4 rank=1 pause=0.5",
       {.point = FaultPoint::data, .step = 4, .kind = FaultKind::pause, .amount = 0.5, .rank = 1}},
      {"step=3 rank=1 slow=1.2",
       {.point = FaultPoint::step, .step = 3, .kind = FaultKind::slow, .amount = 1.2, .rank = 1}},
      {"step=2 rank=1 nan", {.point = FaultPoint::step, .step = 2, .kind = FaultKind::nan, .rank = 1}},
      {"step=2 rank=1 flip", {.point = FaultPoint::step, .step = 2, .kind = FaultKind::flip, .rank = 1}},
  };
  for (const auto& row : rows) {
    const std::vector<Fault> faults = parse_faults(row.text);
    ASSERT_EQ(faults.size(), 1u) << row.text;
    EXPECT_EQ(faults[0].point, row.expected.point) << row.text;
    EXPECT_EQ(faults[0].step, row.expected.step) << row.text;
    EXPECT_EQ(faults[0].kind, row.expected.kind) << row.text;
    EXPECT_EQ(faults[0].amount, row.expected.amount) << row.text;
    EXPECT_EQ(faults[0].rank, row.expected.rank) << row.text;
    EXPECT_EQ(faults[0].node, row.expected.node) << row.text;
    EXPECT_EQ(faults[0].restart, row.expected.restart) << row.text;
  }
  const std::vector<Fault> two = parse_faults("step=1 rank=0 hang; step=2 rank=1 kill");
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[1].text, "step=2 rank=1 kill");
}

TEST(Fault, RefusesInvalidSyntax) {
  const struct {
    const char* text;
    const char* why;
  } rows[] = {
      {" ", "it is empty"},
      {"step=5 rank=3", "it has no fault"},
      {"rank=3 kill", "it has no time"},
      {"step=5 rank=3 node_bad", "unknown fault 'node_bad'"},
      {"step=5 pause=0", "expected a number above 0"},
      {"step=5 pause=1s", "got '1s'"},
      {"step=5 slow=1", "expected a number above 1"},
      {"step=5 slow=nan", "got 'nan'"},
      {"data=5 slow=2", "slow begins at a step"},
      {"start flip", "flip begins at a step"},
      {"data=5 nan", "gradients are those of a step"},
      {"start nan", "gradients are those of a step"},
      {"step=5 nan=2", "unknown key 'nan'"},
      {"step=5 data=5 pause=1", "more than one point"},
      {"step=5 kill kill", "more than one fault"},
      {"step=5 kill exit", "more than one fault"},
      {"start step=5 kill", "more than one point"},
      {"step=5 step=5 kill", "more than one point"},
      {"step=5 rank=1 rank=2 kill", "more than one rank or node"},
      {"step=5 rank=1 node=n2 kill", "more than one rank or node"},
      {"step=5 restart=1 restart=1 kill", "more than one restart"},
      {"steps=5 kill", "unknown key 'steps'"},
      {"step= kill", "expected a number from 0, got ''"},
      {"step=-1 kill", "expected a number from 0, got '-1'"},
      {"step=5x kill", "expected a number from 0, got '5x'"},
      {"step=5 rank=0x1 kill", "rank: expected a number"},
      {"step=99999999999999999999 kill", "step: expected a number"},
      {"step=5 rank=4294967296 kill", "rank: expected a number"},
      {"step=5 node= kill", "'' is not the short name of a host"},
      {"step=5 node=n2.cluster kill", "'n2.cluster' is not the short name of a host"},
      {"step=5 kill;", "it has no time"},
      {"step=5 kill; ; step=6 kill", "it has no time"},
      {"step=5 rank=3,kill", "rank: expected a number"},
  };
  for (const auto& row : rows) {
    try {
      parse_faults(row.text);
      ADD_FAILURE() << "'" << row.text << "' was understood";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), "fault.syntax") << row.text;
      EXPECT_EQ(exit_code(error.blame()), ExitCode::usage) << row.text;
      EXPECT_THAT(error.message(), HasSubstr(row.why)) << row.text;
    }
  }
}

TEST(Fault, IsArmedInItsStartOfTheJob) {
  const struct {
    std::map<std::string, std::string> environment;
    std::size_t armed;
  } rows[] = {
      {{}, 0},
      {{{"MS_FAULT", ""}}, 0},
      {{{"MS_FAULT", "step=5 kill"}}, 1},
      {{{"MS_FAULT", "step=5 kill"}, {"SLURM_RESTART_COUNT", "3"}}, 1},
      {{{"MS_FAULT", "step=5 restart=0 kill"}}, 1},
      {{{"MS_FAULT", "step=5 restart=0 kill"}, {"SLURM_RESTART_COUNT", "1"}}, 0},
      {{{"MS_FAULT", "step=5 restart=1 kill"}}, 0},
      {{{"MS_FAULT", "step=5 restart=1 kill"}, {"MS_ATTEMPT", "2"}}, 1},
      {{{"MS_FAULT", "step=5 restart=1 kill"}, {"MS_ATTEMPT", "1"}, {"SLURM_RESTART_COUNT", "1"}}, 0},
      {{{"MS_FAULT", "step=5 restart=1 kill; start restart=0 exit"}, {"SLURM_RESTART_COUNT", "1"}}, 1},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(armed_faults(variables(row.environment), 8, 10).size(), row.armed)
        << ::testing::PrintToString(row.environment);
  }
}

TEST(Fault, RefusesFaultsThatCanNeverOccur) {
  EXPECT_EQ(armed_faults(variables({{"MS_FAULT", "step=9 rank=7 kill"}}), 8, 10).size(), 1u);
  for (const char* text : {"step=9 rank=8 kill", "step=10 rank=7 kill", "start rank=8 exit"}) {
    try {
      armed_faults(variables({{"MS_FAULT", text}}), 8, 10);
      ADD_FAILURE() << "'" << text << "' is armed";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), "fault.never") << text;
      EXPECT_EQ(exit_code(error.blame()), ExitCode::usage) << text;
    }
  }
}

TEST(Fault, StrikesOnlyItsTarget) {
  const struct {
    const char* text;
    int rank;
    const char* node;
    FaultPoint point;
    std::int64_t step;
    bool strikes;
  } rows[] = {
      {"step=5 rank=3 node-bad", 3, "n1", FaultPoint::step, 5, true},
      {"step=5 rank=3 node-bad", 2, "n1", FaultPoint::step, 5, false},
      {"step=5 rank=3 node-bad", 3, "n1", FaultPoint::step, 4, false},
      {"step=5 rank=3 node-bad", 3, "n1", FaultPoint::step, 6, false},
      {"step=0 rank=3 node-bad", 3, "n1", FaultPoint::start, 0, false},
      {"start rank=3 node-bad", 3, "n1", FaultPoint::start, 0, true},
      {"start rank=3 node-bad", 3, "n1", FaultPoint::step, 0, false},
      {"step=5 node=n1 node-bad", 0, "n1", FaultPoint::step, 5, true},
      {"step=5 node=n1 node-bad", 0, "n1.example.org", FaultPoint::step, 5, true},
      {"step=5 node=n1 node-bad", 0, "n10", FaultPoint::step, 5, false},
      {"step=5 node-bad", 17, "n9", FaultPoint::step, 5, true},
      {"step=4 rank=0 node-bad; step=5 rank=1 node-bad", 1, "n1", FaultPoint::step, 5, true},
  };
  for (const auto& row : rows) {
    const Faults faults(parse_faults(row.text), row.rank, row.node, never);
    if (row.strikes) {
      EXPECT_THROW(faults.at(row.point, row.step), Error) << row.text;
    } else {
      EXPECT_NO_THROW(faults.at(row.point, row.step)) << row.text;
    }
  }
  EXPECT_NO_THROW(Faults().at(FaultPoint::step, 5)) << "nothing is armed";
}

TEST(Fault, ErrorHasTheExitCodeOfItsBlame) {
  const struct {
    const char* word;
    const char* kind;
    Blame blame;
    ExitCode code;
  } rows[] = {{"node-bad", "fault.node", Blame::node, ExitCode::node_fault},
              {"gpu-bad", "fault.gpu", Blame::gpu, ExitCode::node_fault},
              {"storage", "fault.storage", Blame::storage, ExitCode::storage}};
  for (const auto& row : rows) {
    const std::string text = fmt::format("step=5 rank=3 {}", row.word);
    try {
      Faults(parse_faults(text), 3, "n12", never).at(FaultPoint::step, 5);
      ADD_FAILURE() << text << " did nothing";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), row.kind);
      EXPECT_EQ(error.blame(), row.blame) << text;
      EXPECT_EQ(exit_code(error.blame()), row.code) << text;
      EXPECT_THAT(error.message(), HasSubstr(fmt::format("injected fault '{}'", text)));
    }
  }
}

TEST(FaultDeathTest, EndsTheProcess) {
  const Faults exits(parse_faults("start exit"), 0, "n1", never), kills(parse_faults("start kill"), 0, "n1", never);
  EXPECT_EXIT(exits.at(FaultPoint::start), ::testing::ExitedWithCode(1), "");
  EXPECT_EXIT(kills.at(FaultPoint::start), ::testing::KilledBySignal(SIGKILL), "");
}

TEST(Fault, HangLastsUntilReleased) {
  int asked = 0;
  const Faults hangs(parse_faults("start hang"), 0, "n1", [&] { return ++asked == 3; });
  EXPECT_THROW(hangs.at(FaultPoint::start), Error);  // nothing is done as if there had been no hang
  EXPECT_EQ(asked, 3);
}

TEST(Fault, ManualNamesEveryWord) {
  const std::string manual = fault_manual();
  for (const char* word : {"start", "step=N", "rank=N", "node=NAME", "restart=K", "node-bad", "gpu-bad", "storage",
                           "exit", "kill", "hang", "nan", "flip"}) {
    EXPECT_THAT(manual, HasSubstr(word));
  }
}

TEST(Fault, SlownessBeginsWithItsStep) {
  const Faults faults(parse_faults("step=3 rank=1 slow=1.5; step=5 rank=1 slow=2; step=0 rank=2 slow=9"), 1, "n1",
                      never);
  EXPECT_EQ(faults.slowness(2), 1.0);
  EXPECT_EQ(faults.slowness(3), 1.5);
  EXPECT_EQ(faults.slowness(6), 3.0);
  faults.at(FaultPoint::step, 3);  // by itself it does nothing
}

TEST(Fault, GradientsAreSpoiledInTheirStepOnly) {
  const Faults faults(parse_faults("step=3 rank=1 nan; step=4 rank=2 nan; step=5 rank=1 slow=2"), 1, "n1", never);
  faults.at(FaultPoint::step, 3);  // by itself it does nothing
  for (const std::int64_t step : {2, 3, 4, 5}) EXPECT_EQ(faults.spoils_gradients(step), step == 3) << step;
}

TEST(Fault, BitsAreFlippedOnTheirRankOnly) {
  const Faults faults(parse_faults("step=3 rank=1 flip; step=4 rank=2 flip"), 1, "n1", never);
  faults.at(FaultPoint::step, 3);  // by itself it does nothing
  for (const std::int64_t step : {2, 3, 4}) EXPECT_EQ(faults.flips_bit(step), step == 3) << step;
}

}  // namespace
}  // namespace ms::watch
