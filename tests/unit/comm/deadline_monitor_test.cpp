// Passed deadlines and dead peers, with made-up exchanges and clocks.
#include "comm/deadline_monitor.h"

#include <gtest/gtest.h>

#include <cstring>

#include "comm/peer_watch.h"

namespace ms::comm {
namespace {

using namespace std::chrono_literals;

const DeadlineMonitor::Time kStart = DeadlineMonitor::Time() + 1h;

std::shared_ptr<Exchange> awaits(const std::vector<int>& peers, DeadlineMonitor::Time posted = kStart) {
  auto exchange = std::make_shared<Exchange>();
  exchange->request.kind = OpKind::barrier;
  exchange->request.sequence = 5;
  auto group = std::make_shared<Group>();
  group->name = "dp";
  group->id = 7;
  exchange->group = std::move(group);
  for (const int peer : peers) exchange->transfers.push_back({TransferKind::recv, peer, nullptr, 0});
  exchange->done.assign(peers.size(), false);
  exchange->notify = [] {};
  exchange->posted = posted;
  return exchange;
}

class DeadlineMonitorTest : public ::testing::Test {
 protected:
  // As the service does on an idle machine.
  void look(std::chrono::milliseconds from, std::chrono::milliseconds to) {
    for (auto at = from; at <= to; at += 10ms) monitor_.check(0, kStart + at);
  }
  Exchanges active_, watched_;
  IssueCounts issued_;
  std::vector<int> asked_;
  Patience patience_{10s};
  DeadlineMonitor monitor_{patience_, active_, watched_, issued_,
                           [this](int peer, const Question&) { asked_.push_back(peer); }};
};

TEST_F(DeadlineMonitorTest, AsksNoRankBeforeTheDeadline) {
  monitor_.check(0, kStart + 1h);
  active_ = {awaits({1, 2})};
  monitor_.check(0, kStart + 9s);
  EXPECT_TRUE(asked_.empty());
}

TEST_F(DeadlineMonitorTest, FailsWhenAllHaveAnswered) {
  active_ = {awaits({2, 1})};
  monitor_.check(0, kStart + 10s);
  EXPECT_EQ(asked_, (std::vector<int>{1, 2}));
  monitor_.add_answer(2, {{7, 5}, {.issued = true, .waits = {{1, 7, 5, "a barrier"}}}});
  monitor_.check(0, kStart + 11s);
  monitor_.add_answer(1, {{7, 5}, {.issued = false, .waits = {}}});
  try {
    monitor_.check(0, kStart + 11s);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), "comm.deadline");
    EXPECT_EQ(error.rank(), 1);
  }
}

TEST_F(DeadlineMonitorTest, WaitsTwoSecondsForAnswers) {
  active_ = {awaits({1})};
  look(10s, 12s);
  EXPECT_THROW(monitor_.check(0, kStart + 12s + 1ns), Error);
}

// Who looks late at its own clock has no processor, and so may those that it has asked.
TEST_F(DeadlineMonitorTest, WaitsLongerForAnswersWhereProcessorsAreShort) {
  active_ = {awaits({1})};
  look(10s, 10500ms);
  monitor_.check(0, kStart + 11s);  // half a second late
  look(11s, 15s);
  EXPECT_THROW(monitor_.check(0, kStart + 15s + 1ns), Error);
}

// A peer that was busy begins anew when it is done: data that came late are still to be computed with.
TEST_F(DeadlineMonitorTest, WhoWasBusyHasItsWholeTimeAgain) {
  Patience patience{100s};
  patience.set(10s);
  DeadlineMonitor monitor(patience, active_, watched_, issued_, [](int, const Question&) {});
  active_ = {awaits({1})};
  const auto answers = [&](std::chrono::seconds at, const char* busy) {
    monitor.check(0, kStart + at);
    monitor.add_answer(1, {{7, 5}, {.issued = false, .waits = {}, .busy = busy}});
    monitor.check(0, kStart + at);
  };
  for (auto at = 10s; at < 15s; ++at) EXPECT_NO_THROW(answers(at, "waits for data"));
  for (auto at = 15s; at < 25s; ++at) EXPECT_NO_THROW(answers(at, ""));
  EXPECT_THROW(answers(25s, ""), Error);
}

// Three nodes: that of this rank, 4, and two others, of ranks 0, 1 and 2, 3.
TEST_F(DeadlineMonitorTest, ANodeThatHasLostMostOthersAccusesItself) {
  struct Row {
    std::vector<int> answer;
    const char* kind;
    int rank;
  };
  for (const Row& row : {Row{{}, "comm.cut_off", 4}, Row{{2}, "comm.deadline", 0}, Row{{3}, "comm.deadline", 0},
                         Row{{1, 2}, "comm.deadline", 0}}) {
    asked_.clear();
    DeadlineMonitor monitor(patience_, active_, watched_, issued_,
                            [this](int peer, const Question&) { asked_.push_back(peer); });
    monitor.set_other_nodes({{0, 1}, {2, 3}});
    active_ = {awaits({0})};
    monitor.check(4, kStart + 10s);
    EXPECT_EQ(asked_, (std::vector<int>{0, 1, 2, 3, 0}));
    for (const int peer : row.answer) monitor.add_answer(peer, {{kAnyGroup, 0}, {}});
    try {
      for (auto at = 10s + 0ms; at < 13s; at += 10ms) monitor.check(4, kStart + at);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), row.kind) << row.answer.size();
      EXPECT_EQ(error.rank(), row.rank) << row.answer.size();
    }
  }
}

TEST_F(DeadlineMonitorTest, EveryRankAnswersThatItCanBeReached) {
  EXPECT_TRUE(monitor_.report_for({kAnyGroup, 0}, kStart).waits.empty());
}

TEST(PeerWatch, KnowsTwoRanksOfEveryOtherNode) {
  std::vector<ProcessId> processes(7);
  const char* const hosts[] = {"a", "a", "a", "b", "b", "c", "own"};
  for (std::size_t i = 0; i < processes.size(); ++i) std::strcpy(processes[i].host, hosts[i]);
  PeerWatch watch;
  watch.start(6, processes);
  EXPECT_EQ(watch.other_nodes(), (std::vector<std::vector<int>>{{0, 2}, {3, 4}, {5}}));
  std::vector<ProcessId> many(100);
  for (std::size_t i = 0; i < many.size(); ++i) std::strcpy(many[i].host, fmt::format("n{:03}", i).c_str());
  PeerWatch of_many;
  of_many.start(0, many);
  EXPECT_EQ(of_many.other_nodes().size(), PeerWatch::kMostNodes);
}

TEST_F(DeadlineMonitorTest, ForgetsExchangesThatCompleteLate) {
  active_ = {awaits({1})};
  monitor_.check(0, kStart + 10s);
  active_.front()->settle(Exchange::State::complete);
  active_.clear();
  monitor_.check(0, kStart + 1h);
  monitor_.add_answer(1, {{7, 5}, {}});  // late
  active_ = {awaits({2}, kStart + 1h)};
  for (int second = 1; second <= 10; ++second) monitor_.check(0, kStart + 1h + second * 1s);
  EXPECT_EQ(asked_, (std::vector<int>{1, 2}));
}

TEST_F(DeadlineMonitorTest, ReportsItsOldWaits) {
  active_ = {awaits({3}, kStart + 1s), awaits({1, 2}, kStart), awaits({4}, kStart + 8s)};
  issued_.counter(7)->store(6);
  const WaitReport report = monitor_.report_for({7, 5, 5000}, kStart + 10s);
  EXPECT_TRUE(report.issued);
  std::vector<int> peers;
  for (const Wait& wait : report.waits) peers.push_back(wait.peer);
  EXPECT_EQ(peers, (std::vector<int>{1, 2, 3, 4}));
  for (const Wait& wait : report.waits) EXPECT_EQ(wait.recent, wait.peer == 4);
  EXPECT_FALSE(monitor_.report_for({7, 6}, kStart).issued);
  EXPECT_FALSE(monitor_.report_for({kNoGroup, 0}, kStart).issued);
  active_.front()->closes_world = true;
  EXPECT_TRUE(monitor_.report_for({kNoGroup, 0}, kStart).issued);
}

// What was learned ends a wait earlier, but not one for a rank that is busy: that may take as long as was configured.
TEST_F(DeadlineMonitorTest, WaitsForBusyRanksUntilTheCeiling) {
  patience_.set(2s);
  active_ = {awaits({1})};
  monitor_.check(0, kStart + 2s);
  EXPECT_EQ(asked_.size(), 1U);
  monitor_.add_answer(1, {{7, 5}, {.issued = false, .waits = {}, .busy = "waits for data"}});
  monitor_.check(0, kStart + 2s);
  monitor_.check(0, kStart + 2900ms);
  EXPECT_EQ(asked_.size(), 1U) << "it is asked once a second";
  for (int second = 3; second < 10; ++second) {
    monitor_.check(0, kStart + second * 1s);
    monitor_.add_answer(1, {{7, 5}, {.issued = false, .waits = {}, .busy = "waits for data"}});
    EXPECT_NO_THROW(monitor_.check(0, kStart + second * 1s));
  }
  EXPECT_EQ(asked_.size(), 8U);
  monitor_.check(0, kStart + 10s);
  monitor_.add_answer(1, {{7, 5}, {.issued = false, .waits = {}, .busy = "waits for data"}});
  try {
    monitor_.check(0, kStart + 10s);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.rank(), 1);
    EXPECT_NE(error.message().find("had not issued the operation: it waits for data"), std::string::npos)
        << error.message();
  }
}

TEST_F(DeadlineMonitorTest, ARankThatDoesNotAnswerIsNotExcusedByOneThatIsBusy) {
  patience_.set(2s);
  active_ = {awaits({1, 2})};
  monitor_.check(0, kStart + 2s);
  monitor_.add_answer(1, {{7, 5}, {.issued = false, .waits = {}, .busy = "saves a checkpoint"}});
  EXPECT_NO_THROW(look(2s, 4s));
  try {
    monitor_.check(0, kStart + 4s + 1ns);
    FAIL() << "no error";
  } catch (const Error& error) { EXPECT_EQ(error.rank(), 2); }
}

TEST_F(DeadlineMonitorTest, ARankThatIsBusyWaitsUntilTheCeilingItself) {
  patience_.set(2s);
  active_ = {awaits({1})};
  {
    const Patience::Busy saves(patience_, "saves a checkpoint");
    {
      const Patience::Busy waits(patience_, "waits for data");
      EXPECT_EQ(monitor_.report_for({7, 5}, kStart).busy, "waits for data");
    }
    EXPECT_EQ(monitor_.report_for({7, 5}, kStart).busy, "saves a checkpoint");
    monitor_.check(0, kStart + 9s);
    EXPECT_TRUE(asked_.empty());
  }
  EXPECT_EQ(monitor_.report_for({7, 5}, kStart).busy, "");
  monitor_.check(0, kStart + 9s);
  EXPECT_EQ(asked_.size(), 1U);
}

TEST_F(DeadlineMonitorTest, TheCeilingIsNeverExceeded) {
  patience_.set(1h);
  active_ = {awaits({1})};
  monitor_.check(0, kStart + 10s);
  EXPECT_EQ(asked_.size(), 1U);
}

// A job that is suspended is stopped on all nodes: whoever goes on first accuses nobody.
TEST_F(DeadlineMonitorTest, TheTimeInWhichTheProcessWasStoppedDoesNotCount) {
  active_ = {awaits({1})};
  monitor_.check(0, kStart + 1s);
  monitor_.check(0, kStart + 1h);
  EXPECT_TRUE(asked_.empty());
  for (int second = 1; second <= 10; ++second) monitor_.check(0, kStart + 1h + second * 1s);
  EXPECT_EQ(asked_.size(), 1U);
  monitor_.check(0, kStart + 2h);
  EXPECT_NO_THROW(look(2h, 2h + 2s)) << "the answer may not have been read";
  EXPECT_THROW(look(2h + 2s, 2h + 20s), Error);
}

class PeerWatchTest : public ::testing::Test {
 protected:
  // Rank 1 has exited and another process has its identifier; rank 2 is on another host, which this rank cannot
  // observe.
  PeerWatchTest() {
    ProcessId dead = this_process(), elsewhere = this_process();
    dead.start_ticks += 1;
    elsewhere.start_ticks += 1;
    elsewhere.host[0] = '?';
    watch_.start(0, {this_process(), dead, elsewhere});
  }
  bool loses_one(const Exchanges& active, DeadlineMonitor::Time now, bool world_stands = true) {
    try {
      watch_.check(now, active, [&] { return world_stands; });
      return false;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), "comm.peer_lost");
      EXPECT_EQ(error.rank(), 1);
      return true;
    }
  }
  PeerWatch watch_;
};

TEST_F(PeerWatchTest, ReportsAnAwaitedDeadPeerAtOnce) {
  EXPECT_EQ(watch_.node_ranks(), (std::vector<int>{0, 1}));
  EXPECT_FALSE(loses_one({awaits({1})}, kStart, false)) << "its last message ended the world";
  EXPECT_TRUE(loses_one({awaits({2}), awaits({1})}, kStart));
}

TEST_F(PeerWatchTest, ReportsAnUnawaitedDeadPeerAfterAGracePeriod) {
  EXPECT_FALSE(loses_one({awaits({2})}, kStart));
  EXPECT_FALSE(loses_one({}, kStart + 299ms));
  EXPECT_TRUE(loses_one({}, kStart + 300ms));
}

TEST_F(PeerWatchTest, IgnoresPeersThatHaveClosedTheWorld) {
  const auto closing = awaits({2});
  closing->closes_world = true;
  EXPECT_FALSE(loses_one({closing}, kStart));
  EXPECT_FALSE(loses_one({closing}, kStart + 1h));
}

}  // namespace
}  // namespace ms::comm
