// A hang of one attempt of a job is judged without the files of earlier ones; RAS that two nodes asked.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "foreign_files.h"
#include "tracepp/hang/hang.h"

namespace ms::tracepp {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kRanks = 8, kHour_s = 3600;

// Counts of the ranks, of which one is behind, and of which some are lost.
std::string ras(int behind, const std::vector<int>& lost = {}) {
  std::vector<std::string> ranks, missing;
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string process = fmt::format(R"("rank":{0},"host":"10.0.0.{1}","pid":{2},"cuda_dev":{3},"nvml_dev":{3})",
                                            rank, 1 + rank / 4, 4000 + rank, rank % 4);
    if (std::ranges::find(lost, rank) != lost.end()) {
      missing.push_back(fmt::format(R"({{{},"status":{{"unresponsive":true,"considered_dead":true}}}})", process));
      continue;
    }
    ranks.push_back(
        fmt::format(R"({{{},"status":{{"init_state":0,"async_error":0,"finalize_called":false,"destroy_flag":false,)"
                    R"("abort_flag":false}},"collective_counts":{{"AllReduce":{}}}}})",
                    process, rank == behind ? 7 : 9));
  }
  return fmt::format(
      R"({{"nccl_version":"2.28.7","communicators_count":1,"communicators":[{{"hash":"0xfa","size":{},"ranks":[{}],)"
      R"("missing_ranks":[{}]}}],"ras":{{"timeouts_count":0}}}})",
      kRanks, fmt::join(ranks, ","), fmt::join(missing, ","));
}

std::string dump(int calls) {
  std::string entries;
  for (int call = 1; call <= calls; ++call)
    entries += fmt::format(
        R"({}{{"record_id":{},"pg_id":0,"process_group":["0","default_pg"],"collective_seq_id":{},)"
        R"("profiling_name":"nccl:all_reduce","input_sizes":[[8]],"input_dtypes":["Float"],"time_created_ns":{},)"
        R"("time_discovered_started_ns":{},"time_discovered_completed_ns":{},"state":"{}"}})",
        call > 1 ? "," : "", call - 1, call, call * 1000, call * 1000 + 10, call < 5 ? call * 1000 + 90 : 0,
        call < 5 ? "completed" : "started");
  return R"({"version":"2.10","pg_config":{"0":{"name":"0","desc":"default_pg","ranks":"[0, 1, 2, 3, 4, 5, 6, 7]"}},)"
         R"("pg_status":{},"entries":[)" +
         entries + "]}";
}

std::string stack(int rank, std::string_view frame) {
  return fmt::format("process {}, rank {}, state S, 0.00 processors, waits in poll: python train.py\n    {}\n",
                     4000 + rank, rank, frame);
}

class Attempts : public testing::Test {
 protected:
  Hang found(const std::vector<std::string>& names = {}) const {
    std::vector<std::string> paths;
    for (const std::string& name : names) paths.push_back(files_ / name);
    if (paths.empty()) paths.push_back(files_.path());
    trace_ = read_run(paths, {.witnesses_suffice = true});
    return find_hang(trace_);
  }
  std::vector<int> suspects(const std::vector<std::string>& names = {}) const {
    std::vector<int> ranks;
    for (const HangSuspect& it : found(names).suspects) ranks.push_back(it.rank);
    return ranks;
  }
  void put(const std::string& name, std::string_view text, int ago_s = 0) const {
    fs::last_write_time(files_.put(name, text), now_ - std::chrono::seconds(ago_s));
  }
  // Dumps of all ranks, of which one did not issue the last call.
  void put_dumps(const std::string& directory, int behind, int ago_s = 0) const {
    for (int rank = 0; rank < kRanks; ++rank)
      put(fmt::format("{}rank_{}", directory, rank), dump(rank == behind ? 4 : 5), ago_s);
  }

  ForeignFiles files_;
  const fs::file_time_type now_ = fs::file_time_type::clock::now();
  mutable RunTrace trace_;
};

TEST_F(Attempts, OnlyTheNewestIsJudged) {
  for (int sample = 1; sample <= 2; ++sample) {
    put(fmt::format("attempt-9.ras.node1.{}", sample), ras(3));
    put(fmt::format("attempt-10.ras.node1.{}", sample), ras(5));
  }
  EXPECT_THAT(suspects(), ElementsAre(5));
  EXPECT_THAT(suspects({"attempt-9.ras.node1.1", "attempt-9.ras.node1.2"}), ElementsAre(3)) << "which was asked for";
  EXPECT_THAT(
      suspects({"attempt-9.ras.node1.1", "attempt-9.ras.node1.2", "attempt-10.ras.node1.1", "attempt-10.ras.node1.2"}),
      ElementsAre(5));
}

TEST_F(Attempts, ThatOfAnEarlierAttemptIsNoCulpritOfANewerOneWithoutEvidence) {
  put("attempt-1.ras.node1.1", ras(3));
  put("attempt-2.log", "Epoch 1\n");
  EXPECT_THROW(found(), Error);
}

TEST_F(Attempts, DirectoriesOfAttempts) {
  put_dumps("attempt_0/", 3);
  put_dumps("attempt_1/", 6);
  EXPECT_THAT(suspects(), ElementsAre(6));
  EXPECT_THAT(suspects({"attempt_0"}), ElementsAre(3));
}

TEST_F(Attempts, DumpsThatWereWrittenBeforeAnEarlierAttemptEndedAreOfThat) {
  put_dumps("", 3, 2 * kHour_s);
  put("attempt-1.log", "Epoch 1\n", kHour_s);
  put("attempt-2.ras.node1.1", ras(5));
  put("attempt-2.ras.node1.2", ras(5));
  EXPECT_THAT(suspects(), ElementsAre(5));
  EXPECT_THAT(trace_.ranks, IsEmpty());
  put_dumps("", 5, kHour_s - 60);
  EXPECT_THAT(suspects(), ElementsAre(5));
  EXPECT_EQ(trace_.ranks.size(), static_cast<std::size_t>(kRanks)) << "of the newest attempt";
}

TEST_F(Attempts, TimesOfCopiesTellNothing) {
  put_dumps("", 5, 3);
  put("attempt-1.log", "Epoch 1\n", 2);
  put("attempt-2.node1.stacks", stack(0, "wait (train.py:1)"), 1);
  static_cast<void>(found());
  EXPECT_EQ(trace_.ranks.size(), static_cast<std::size_t>(kRanks));
}

TEST_F(Attempts, OtherNamesAreNoAttempts) {
  put_dumps("attempts/", 3);
  put("attempt-x.log", "Epoch 1\n");
  EXPECT_THAT(suspects(), ElementsAre(3));
}

TEST_F(Attempts, TwoNodesOnWhichRasAgrees) {
  for (const char* node : {"node1", "node2"})
    for (int sample = 1; sample <= 2; ++sample) put(fmt::format("attempt-1.ras.{}.{}", node, sample), ras(5));
  const Hang hang = found();
  ASSERT_EQ(hang.suspects.size(), 1U);
  EXPECT_EQ(hang.suspects[0].rank, 5);
  EXPECT_GE(hang.suspects[0].confidence, 0.8);
}

// Each side of a network that is cut loses the other one.
TEST_F(Attempts, TwoNodesOnWhichRasIsContradictoryAccuseNoRank) {
  struct Answers {
    std::string one, other;
  };
  for (const Answers& answers :
       {Answers{ras(-1, {6, 7}), ras(-1, {0, 1})}, Answers{ras(3), ras(5)}, Answers{ras(-1, {7}), ras(-1)}}) {
    put("attempt-1.ras.node1.1", answers.one);
    put("attempt-1.ras.node2.1", answers.other);
    const Hang hang = found();
    EXPECT_THAT(hang.suspects, IsEmpty());
    EXPECT_EQ(hang.state, RunState::unknown);
    EXPECT_THAT(hang.sentence, HasSubstr("contradictory"));
  }
}

TEST_F(Attempts, ARankThatTwoNodesLoseIsLost) {
  put("attempt-1.ras.node1.1", ras(-1, {7}));
  put("attempt-1.ras.node2.1", ras(-1, {7}));
  EXPECT_THAT(suspects(), ElementsAre(7));
}

}  // namespace
}  // namespace ms::tracepp
