// Logs of jobs with the lines of PyTorch's watchdog, and what is no trace.
#include "tracepp/read/watchdog_log.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "foreign_files.h"
#include "tracepp/hang/hang.h"

namespace ms::tracepp {
namespace {

// The lines of a rank that gave up an operation.
std::string gave_up(const std::string& prefix, int rank, int at, int enqueued, const std::string& group,
                    const std::string& operation = "ALLREDUCE") {
  return fmt::format(
             "{0}[Rank {1}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={2}, OpType={3}, NumelIn=8, "
             "NumelOut=8, Timeout(ms)=600000) ran for 600073 milliseconds before timing out.\n",
             prefix, rank, at, operation) +
         fmt::format(
             "{0}[PG {4} Rank {1}] Exception (either an error or timeout) detected by watchdog at work: {2}, "
             "last enqueued NCCL work: {3}, last completed NCCL work: {5}.\n",
             prefix, rank, at, enqueued, group, at - 1);
}

class WatchdogLog : public testing::Test {
 protected:
  // Returns how many noted lines are no timeouts.
  std::ptrdiff_t others(const std::string& log) const {
    const RunTrace trace = read_run({files_.put("job.out", log)}, {.witnesses_suffice = true});
    return std::ranges::count_if(trace.witnesses.lines,
                                 [](const NotedLine& it) { return it.text.find("atchdog") == std::string::npos; });
  }
  Hang found(const std::string& log) const {
    files_.put("job.out", "step 1\n" + log + "srun: error: task 3: Exited\n");
    return find_hang(read_run({files_.path()}));
  }
  ForeignFiles files_;
};

TEST_F(WatchdogLog, NamesTheRankThatNeverIssued) {
  std::string log;
  for (int rank = 1; rank < 4; ++rank)
    log += gave_up(fmt::format("[rank{}]:[E419 x.cpp:6] ", rank), rank, 17, 19, "ID 2 PG GUID 9");
  const std::string last =
      "[rank0]:[E419 x.cpp:7] [PG ID 2 PG GUID 9 Rank 0] Received a dump signal due to a collective "
      "timeout from rank 3. Last enqueued NCCL work: 16, last completed NCCL work: 16.\n";
  const Hang hang = found(log + last);
  EXPECT_EQ(hang.state, RunState::hang);
  ASSERT_EQ(hang.suspects.size(), 1U);
  EXPECT_EQ(hang.suspects[0].rank, 0);
  EXPECT_EQ(hang.suspects[0].reason, Reason::not_issuing);
  EXPECT_GE(hang.suspects[0].confidence, 0.8);
  EXPECT_EQ(hang.ops.at(0).sequence, 17U);
  EXPECT_NEAR(hang.since_s, 600.073, 0.001);
}

TEST_F(WatchdogLog, LinesWithoutACauseAreQuotedAndAccuseNoRank) {
  for (const char* line :
       {"[rank2]: socketProgress: Connection closed by remote peer node07<51000>", "srun: error: n4: task 9: Killed",
        "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***"}) {
    const std::string path = files_.put("job.out", fmt::format("step 5\n{}\n", line));
    const Hang hang = find_hang(read_run({path}, {.witnesses_suffice = true}));
    EXPECT_TRUE(hang.suspects.empty()) << line;
    EXPECT_EQ(hang.state, RunState::unknown) << line;
    EXPECT_THAT(hang.sentence, testing::HasSubstr(std::string(line).substr(14, 20))) << line;
  }
}

// The rank that wrote nothing is a member of the group of all ranks.
TEST_F(WatchdogLog, ARankWithoutLinesIsMissing) {
  std::string log;
  for (const int rank : {0, 1, 3}) log += gave_up(fmt::format("{}: ", rank), rank, 5, 5, "ID 0 PG GUID 0(default_pg)");
  const Hang hang = found(log);
  EXPECT_EQ(hang.missing_ranks, std::vector<int>{2});
  EXPECT_EQ(hang.suspects.at(0).rank, 2);
  EXPECT_EQ(hang.suspects.at(0).reason, Reason::no_trace);
}

// The places in a group tell which of its members wrote nothing; whether more follow, nothing does.
TEST_F(WatchdogLog, AGroupOfSomeRanksMayLackMembers) {
  const auto log_of = [](const std::vector<int>& places) {
    std::string log;
    for (const int place : places)
      log += gave_up(fmt::format("[rank{}]:[E419 x.cpp:6] ", 4 + place), place, 49, 51, "ID 1 PG GUID 2(shard)");
    return log;
  };
  const Hang gap = found(log_of({0, 1, 3}));
  ASSERT_EQ(gap.suspects.size(), 1U);
  EXPECT_EQ(gap.suspects[0].rank, 6);
  EXPECT_EQ(gap.suspects[0].reason, Reason::no_trace);
  for (const HangSuspect& suspect : found(log_of({0, 1, 2})).suspects) EXPECT_LE(suspect.confidence, 0.1);
  const std::string uneven = gave_up("[rank40]: ", 5, 49, 51, "ID 1 PG GUID 2(shard)");
  for (const HangSuspect& suspect : found(log_of({0, 1, 3}) + uneven).suspects) EXPECT_LE(suspect.confidence, 0.1);
}

TEST_F(WatchdogLog, TheNewestOfTwoAttemptsCounts) {
  const auto log_of = [](int missing, int at, std::string_view time) {
    std::string log;
    for (int rank = 0; rank < 4; ++rank)
      if (rank != missing)
        log += gave_up(fmt::format("[rank{}]:[E{}.8 x.cpp:6] ", rank, time), rank, at, at, "0 (default_pg)");
    return log;
  };
  const auto has_earlier = [&](const std::string& log) {
    return read_run({files_.put("y.out", log)}).problems.contains("earlier attempt in a log, left out");
  };
  const std::string error = "[rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n";
  const Hang hang = found(log_of(2, 88, "1127 10:42:28") + error + log_of(1, 188, "1127 12:10:00"));
  ASSERT_EQ(hang.suspects.size(), 1U);
  EXPECT_EQ(hang.suspects[0].rank, 1);
  EXPECT_EQ(hang.ops.at(0).sequence, 188U);
  EXPECT_EQ(read_run({files_.path()}).problems.at("earlier attempt in a log, left out"), 1U);
  // An operation that began before the first timeout is of the same attempt.
  EXPECT_FALSE(has_earlier(log_of(2, 88, "1127 10:42:28") + log_of(2, 89, "1127 10:42:29")));
  // Nothing tells how long a month is.
  EXPECT_FALSE(has_earlier(log_of(2, 88, "1130 23:59:00") + log_of(2, 89, "1201 00:01:00")));
  EXPECT_FALSE(has_earlier(log_of(2, 88, "0228 23:59:00") + log_of(2, 89, "0301 00:01:00")));
  EXPECT_TRUE(has_earlier(log_of(2, 88, "1130 23:59:00") + log_of(2, 89, "1206 00:01:00")));
}

TEST_F(WatchdogLog, WhatTheNewestAttemptSaysBeforeItsTimeoutsCounts) {
  const auto log_of = [](int missing, std::string_view time) {
    std::string log;
    for (int rank = 0; rank < 4; ++rank)
      if (rank != missing)
        log += gave_up(fmt::format("[rank{}]:[E1127 {}.8 x.cpp:6] ", rank, time), rank, 88, 88, "0 (default_pg)");
    return log;
  };
  const std::string error = "[rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n";
  const auto lines = [&](const std::string& before, const std::string& between) {
    return others(before + log_of(2, "10:42:28") + between + log_of(3, "12:10:00"));
  };
  EXPECT_EQ(lines("", error), 1);
  EXPECT_EQ(find_hang(read_run({files_.path()})).suspects.at(0).rank, 3);
  EXPECT_EQ(find_hang(read_run({files_.path()})).suspects.at(0).reason, Reason::failed);
  EXPECT_EQ(lines(error, ""), 0);
  EXPECT_EQ(lines("", "[rank3]: torch.distributed.DistBackendError: timeout\n"), 0);  // as the first attempt ended
  EXPECT_EQ(lines("", "[rank2]: ValueError: bad sample\n"), 0);                       // it ran on
}

TEST_F(WatchdogLog, AnExceptionThatWasCaughtIsNoFailure) {
  const auto lines = [&](const std::string& behind) { return others("[rank5]: ValueError: bad sample\n" + behind); };
  EXPECT_EQ(lines("srun: Job step aborted\n"), 1);
  EXPECT_EQ(lines("[rank4]: WARNING: sample 17 skipped\n"), 1);
  EXPECT_EQ(lines("[rank5]: WARNING:torch.distributed.elastic: Sending process 17 closing signal\n"), 1);
  files_.put("other.out", "");
  const std::string logged = "[rank5]: WARNING: sample 17 skipped\n";
  EXPECT_EQ(lines(logged + "[rank5]: KeyError: 'y'\n"), 1);
  EXPECT_EQ(lines(logged), 1);  // it may have logged that as it ended
  EXPECT_EQ(lines(logged + gave_up("[rank5]: ", 5, 17, 19, "0 (default_pg)")), 0);
  // Labels of srun count tasks.
  EXPECT_EQ(others("5: ValueError: bad sample\n5: wandb: WARNING: no network\n" +
                   gave_up("5: ", 5, 17, 19, "0 (default_pg)")),
            1);
}

TEST_F(WatchdogLog, RanksThatCalledDifferentThings) {
  std::string log;
  for (int rank = 0; rank < 4; ++rank)
    log += gave_up("", rank, 5, 5, "0 (default_pg)", rank == 2 ? "BROADCAST" : "ALLREDUCE");
  EXPECT_EQ(found(log).suspects.at(0).rank, 2);
  EXPECT_EQ(found(log).suspects.at(0).reason, Reason::wrong_kind);
}

// "Rank 1" of a group of some ranks is another rank of the run, which only the prefix tells.
TEST_F(WatchdogLog, ARankOfAGroupIsNoRankOfTheRun) {
  std::string log;
  for (int rank = 0; rank < 4; ++rank) log += gave_up("", rank, rank == 1 ? 4 : 5, 5, "ID 3 PG GUID 12(tp)");
  EXPECT_THROW(found(log), Error);
}

TEST_F(WatchdogLog, NewerVersionsSayItInOtherWords) {
  std::string log;
  for (int rank = 0; rank < 3; ++rank)
    log += fmt::format(
        "[rank{0}]:[E1 x] [PG ID 1 PG GUID 3(tp) Rank {0}] failure detected by watchdog at work sequence "
        "id: {1} PG status: last enqueued work: {2}, last completed work: {3}\n",
        rank, rank == 1 ? 8 : 9, rank == 1 ? 7 : 9, rank == 1 ? 7 : 8);
  EXPECT_EQ(found(log).suspects.at(0).rank, 1);
}

TEST_F(WatchdogLog, IsASourceBesideDumps) {
  files_.put("rank_0", R"({"pg_config":{},"pg_status":{},"entries":[{"process_group":["0","tp"],"state":"completed",)"
                       R"("collective_seq_id":1,"profiling_name":"nccl:all_reduce","time_created_ns":5}]})");
  const Hang hang = found(gave_up("", 7, 5, 5, "0"));
  ASSERT_EQ(hang.sources.size(), 2U);
  EXPECT_EQ(hang.sources[0].name, kFlightRecorder.name);
  EXPECT_EQ(hang.sources[1].name, kWatchdogLog.name);
  for (const HangSuspect& suspect : hang.suspects) EXPECT_LE(suspect.confidence, 0.5);
}

TEST_F(WatchdogLog, WhatAFileIsIsSaid) {
  const auto why = [&](const std::string& text) {
    try {
      read_run({files_.put("x", text)});
    } catch (const Error& error) { return error.message(); }
    return std::string();
  };
  EXPECT_THAT(why(R"({"nccl_version": "2.28.7", "communicators_count": 1})"), testing::HasSubstr("NCCL's RAS"));
  EXPECT_THAT(why("n0:1:1 [0] NCCL INFO Bootstrap\n"), testing::HasSubstr("ms-netcheck nccl-log"));
}

}  // namespace
}  // namespace ms::tracepp
