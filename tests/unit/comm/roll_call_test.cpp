// Who is missing while MPI starts, with a store in memory and a made-up clock.
#include "comm/roll_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>

namespace ms::comm {
namespace {

using namespace std::chrono_literals;

const RollCall::Time kBegin = RollCall::Time() + 1h;

// What ranks have published; they are on one node, or each on its own.
class RollCallTest : public ::testing::Test {
 protected:
  std::unique_ptr<RollCall> start(int rank, bool one_node, std::chrono::milliseconds deadline = 5s) {
    RollCall::Calls calls{
        .publish =
            [this, rank](std::string_view key, const std::string& value) {
              values_[{rank, std::string(key)}] = value;
            },
        .find = [this](int of, std::string_view key, std::chrono::milliseconds patience) -> std::optional<std::string> {
          patient_ |= patience > 0ms;
          const auto found = values_.find({of, std::string(key)});
          return found == values_.end() ? std::nullopt : std::optional(found->second);
        },
        .has_died = [this, one_node](const ProcessId&) { return one_node && died_; }};
    std::vector<int> on_node{rank};
    if (one_node) on_node = {0, 1, 2, 3};
    return std::make_unique<RollCall>(rank, 4, on_node, deadline, calls, kBegin);
  }
  static std::string failure(RollCall& roll, RollCall::Time now, std::optional<int>& rank) {
    try {
      roll.check(now);
      return "";
    } catch (const Error& error) {
      rank = error.rank();
      return error.kind() + ": " + error.message();
    }
  }

  std::map<std::pair<int, std::string>, std::string> values_;
  bool died_ = false, patient_ = false;
};

TEST_F(RollCallTest, BeforeMpiStartsTheRanksOfANodeMeet) {
  const auto zero = start(0, true), one = start(1, true), two = start(2, true);
  const auto begin = std::chrono::steady_clock::now();
  zero->meet();  // 3 does not come
  EXPECT_GE(std::chrono::steady_clock::now() - begin, RollCall::kMeeting);
  const auto three = start(3, true);
  three->meet();
  zero->check(kBegin + 6s);
  EXPECT_FALSE(patient_) << "a question that waits can keep MPI_Init from returning";
}

TEST_F(RollCallTest, SeesARankOfItsNodeDie) {
  const auto two = start(2, true), one = start(1, true);
  one->check(kBegin + 100ms);
  died_ = true;
  std::optional<int> rank;
  EXPECT_THAT(failure(*one, kBegin + 200ms, rank), testing::HasSubstr("comm.peer_lost: rank 2 (pid "));
  EXPECT_EQ(rank, 2);
}

// It says itself why, such as a configuration that it refuses.
TEST_F(RollCallTest, LeavesTimeToARankThatEndsAfterMpiHasStarted) {
  const auto two = start(2, true), one = start(1, true);
  one->check(kBegin + 100ms);
  two->leave();
  died_ = true;
  std::optional<int> rank;
  EXPECT_EQ(failure(*one, kBegin + 200ms, rank), "");
  EXPECT_EQ(failure(*one, kBegin + 2100ms, rank), "");
  EXPECT_THAT(failure(*one, kBegin + 2200ms, rank), testing::HasSubstr("ended right after MPI_Init"));
  EXPECT_EQ(rank, 2);
}

TEST_F(RollCallTest, NamesTheRankThatDoesNotSayThatItStillWaits) {
  const auto zero = start(0, false), one = start(1, false), two = start(2, false), three = start(3, false);
  for (auto* roll : {zero.get(), one.get(), three.get()}) roll->check(kBegin + 2s);  // 2 is stopped
  one->check(kBegin + 5s);
  three->check(kBegin + 5s);
  std::optional<int> rank;
  EXPECT_EQ(failure(*zero, kBegin + 6s, rank), "");  // all were here at 2 s
  EXPECT_EQ(failure(*zero, kBegin + 7s, rank),
            "comm.deadline: rank 0 waited 7.0 s in MPI_Init; rank 2 does not answer");
  EXPECT_EQ(rank, 2);
  EXPECT_THAT(failure(*three, kBegin + 8s, rank), testing::HasSubstr("rank 2 does not answer"));
}

TEST_F(RollCallTest, WaitsLongerForRanksThatWereNotStartedYet) {
  const auto zero = start(0, false), one = start(1, false), three = start(3, false);
  std::optional<int> rank;
  EXPECT_EQ(failure(*zero, kBegin + 59s, rank), "");
  EXPECT_EQ(failure(*zero, kBegin + 60s, rank), "comm.deadline: rank 0 waited 60.0 s in MPI_Init; rank 2 has not come");
  EXPECT_EQ(rank, 2);
}

TEST_F(RollCallTest, BlamesNobodyWhereAllWait) {
  const auto zero = start(0, false), one = start(1, false), two = start(2, false), three = start(3, false);
  for (auto* roll : {one.get(), two.get(), three.get(), zero.get()}) roll->check(kBegin + 5s);
  std::optional<int> rank;
  EXPECT_EQ(failure(*zero, kBegin + 10s, rank), "");  // a slow start
  EXPECT_THAT(failure(*zero, kBegin + 60s, rank), testing::HasSubstr("all ranks wait for each other"));
  EXPECT_EQ(rank, std::nullopt);
}

}  // namespace
}  // namespace ms::comm
