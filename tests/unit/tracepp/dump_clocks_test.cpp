// Flight Recorder dumps of which nothing tells the ranks, whose clocks differ, or in which few wait for many.
#include "tracepp/read/flight_recorder_run.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <chrono>
#include <numeric>

#include "foreign_files.h"
#include "tracepp/hang/hang.h"

namespace ms::tracepp {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr double kInterval_s = 2;  // between two calls

struct Dump {
  int calls = 0;  // of which the last may wait
  bool waits = false;
  double began_s = 0;   // on the clock of the files
  double ahead_s = 0;   // its own clock
  double begins_s = 0;  // within an interval
  double ends_s = 0.5;  // the same
  double last_s = 0;    // the last call begins so much later
};

class DumpClocks : public testing::Test {
 protected:
  explicit DumpClocks(int world = 4) : world_(world) {}

  // Writes a dump whose file is written so long after `began_s` of now.
  void put(const std::string& name, const Dump& dump, double written_s) const {
    std::vector<int> ranks(static_cast<std::size_t>(world_));
    std::iota(ranks.begin(), ranks.end(), 0);
    std::string entries;
    for (int call = 0; call < dump.calls; ++call) {
      const bool is_open = dump.waits && call + 1 == dump.calls;
      const std::int64_t begin_ns = ns(dump.began_s + dump.ahead_s + kInterval_s * call +
                                       (call == 0 ? 0 : dump.begins_s) + (call + 1 == dump.calls ? dump.last_s : 0));
      const std::int64_t end_ns = ns(dump.began_s + dump.ahead_s + kInterval_s * call + dump.ends_s);
      entries += fmt::format(
          R"({}{{"record_id":{},"pg_id":0,"process_group":["0","default_pg"],"collective_seq_id":{},)"
          R"("profiling_name":"nccl:all_reduce","input_sizes":[[8]],"input_dtypes":["Float"],"time_created_ns":{},)"
          R"("time_discovered_started_ns":{},"time_discovered_completed_ns":{},"state":"{}","timeout_ms":600000}})",
          call > 0 ? "," : "", call, call + 1, begin_ns, begin_ns, is_open ? 0 : end_ns,
          is_open ? "started" : "completed");
    }
    const std::string path = files_.put(
        name, fmt::format(R"({{"version":"2.10","pg_config":{{"0":{{"name":"0","desc":"default_pg","ranks":"[{}]"}}}},)"
                          R"("pg_status":{{}},"entries":[{}]}})",
                          fmt::join(ranks, ", "), entries));
    fs::last_write_time(path, now_ + std::chrono::milliseconds(static_cast<int>(written_s * 1e3)));
  }
  RunTrace read() const { return read_run({files_.path()}); }
  Hang found() const { return find_hang(read()); }
  std::string refusal() const {
    try {
      read();
    } catch (const Error& error) { return std::string(error.kind()); }
    return "";
  }

  int world_;
  ForeignFiles files_;

 private:
  std::int64_t ns(double after_s) const {
    const auto since = std::chrono::file_clock::to_sys(now_).time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count() +
           static_cast<std::int64_t>(after_s * 1e9);
  }
  const fs::file_time_type now_ = fs::file_time_type::clock::now() - std::chrono::hours(1);
};

// Each node numbers its files from 0; the first call of all may begin at the same time.
TEST_F(DumpClocks, LocalNumbersInNamesAreNoRanks) {
  for (int node = 0; node < 2; ++node)
    for (int local = 0; local < 2; ++local)
      put(fmt::format("node{}_local_{}", node, local),
          {.calls = node + local == 2 ? 9 : 10, .waits = node + local < 2, .begins_s = 0.1 * node + 0.01 * local},
          620 + node);
  const RunTrace trace = read();
  ASSERT_EQ(trace.ranks.size(), 4U);
  for (const RankTrace& rank : trace.ranks) EXPECT_EQ(rank.numbered, Numbered::made_up);
  const Hang hang = find_hang(trace);
  ASSERT_EQ(hang.suspects.size(), 1U);
  EXPECT_TRUE(trace.rank(hang.suspects[0].rank)->file.ends_with("node1_local_1"));
  EXPECT_LE(hang.suspects[0].confidence, 0.5);
}

TEST_F(DumpClocks, TwoReplicasInADirectoryAreRefused) {
  for (int rank = 0; rank < 4; ++rank) {
    put(fmt::format("a_rank_{}", rank), {.calls = rank == 1 ? 9 : 10, .waits = rank != 1}, 620);
    put(fmt::format("b_rank_{}", rank), {.calls = 30}, 62);  // the same calls at the same times, and more
  }
  EXPECT_EQ(refusal(), "trace.run");
  for (int rank = 0; rank < 4; ++rank) put(fmt::format("b_rank_{}", rank), {.calls = 30, .began_s = 40}, 101);
  EXPECT_EQ(refusal(), "trace.run");  // it begins later, but was written before the other
}

TEST_F(DumpClocks, TwoFilesOfARankAreNoTwoRanks) {
  for (int rank = 0; rank < 4; ++rank) {
    put(fmt::format("rank_{}", rank), {.calls = rank == 1 ? 9 : 10, .waits = rank != 1}, 620);
    put(fmt::format("rank_{}.json", rank), {.calls = rank == 1 ? 9 : 10, .waits = rank != 1}, 621);
  }
  EXPECT_THAT(found().suspects, ElementsAre(testing::Field(&HangSuspect::rank, 1)));
  EXPECT_GE(found().suspects.at(0).confidence, 0.8);
  // One of an earlier attempt, which ended before.
  for (int rank = 0; rank < 4; ++rank) put(fmt::format("rank_{}.json", rank), {.calls = 5, .began_s = -90}, -20);
  EXPECT_THAT(found().suspects, ElementsAre(testing::Field(&HangSuspect::rank, 1)));
}

TEST_F(DumpClocks, ACutFileBesideAWholeOneIsNoOtherRank) {
  for (int rank = 0; rank < 4; ++rank)
    put(fmt::format("rank_{}", rank), {.calls = rank == 1 ? 9 : 10, .waits = rank != 1}, 620);
  for (const double cut_s : {619.0, 621.0, 720.0}) {
    put("rank_2.json", {.calls = 10, .waits = true}, cut_s);
    const std::string path = files_ / "rank_2.json";
    const fs::file_time_type time = fs::last_write_time(path);
    fs::resize_file(path, fs::file_size(path) / 2);
    fs::last_write_time(path, time);
    EXPECT_EQ(refusal(), "") << cut_s;
    const std::vector<HangSuspect> suspects = found().suspects;
    ASSERT_FALSE(suspects.empty());
    if (cut_s > 700) continue;  // the newest file counts
    EXPECT_EQ(suspects[0].rank, 1) << cut_s;
    EXPECT_GE(suspects[0].confidence, 0.8) << cut_s;
  }
}

// Dumps of two times have the time of the copy.
TEST_F(DumpClocks, CopiedFilesOfARankAreNoTwoRanks) {
  for (int rank = 0; rank < 4; ++rank) {
    put(fmt::format("rank_{}", rank), {.calls = rank == 1 ? 9 : 10, .waits = rank != 1}, 3000);
    put(fmt::format("rank_{}.json", rank), {.calls = 5}, 3001);
  }
  EXPECT_EQ(refusal(), "");
  EXPECT_THAT(found().suspects, ElementsAre(testing::Field(&HangSuspect::rank, 1)));
}

TEST_F(DumpClocks, AnUnknownFileTimeMakesNoDoubt) {
  const auto confidence = [&](double written_s) {
    for (int rank = 0; rank < 4; ++rank)
      put(fmt::format("rank_{}", rank),
          {.calls = rank == 3 ? 9 : 10, .waits = rank != 3, .last_s = rank == 1 ? 30.0 : 0}, written_s);
    EXPECT_EQ(found().suspects.at(0).rank, 3);
    return found().suspects.at(0).confidence;
  };
  EXPECT_LE(confidence(49), 0.5);  // the clock of the files may be ahead
  EXPECT_GE(confidence(4 * 3600), 0.8);
}

TEST_F(DumpClocks, WaitsAreTakenOnOneClock) {
  const auto put_all = [&](double waited_s, double behind_s, bool all) {
    for (int rank = 0; rank < 4; ++rank)
      put(fmt::format("rank_{}", rank),
          {.calls = rank == 3 ? 9 : 10, .waits = rank != 3, .ahead_s = all || rank == 1 ? -behind_s : 0},
          kInterval_s * 9 + waited_s);
  };
  put_all(1.2, 15, false);
  const RunTrace trace = read();
  EXPECT_EQ(trace.problems.at("clock apart from those of others, set by the ends of collectives"), 1U);
  EXPECT_LT(find_hang(trace).since_s, 2);
  for (const HangSuspect& suspect : found().suspects) EXPECT_LE(suspect.confidence, 0.5);
  put_all(1.2, 30, true);  // nothing tells this from a wait
  for (const HangSuspect& suspect : found().suspects) EXPECT_LE(suspect.confidence, 0.5);
  put_all(610, 30, true);
  EXPECT_EQ(found().suspects.at(0).rank, 3);
  EXPECT_GE(found().suspects.at(0).confidence, 0.8);
}

class FewWait : public DumpClocks {
 protected:
  FewWait() : DumpClocks(8) {}
  Hang of_waiting(int waiting) const {
    for (int rank = 0; rank < world_; ++rank)
      put(fmt::format("rank_{}", rank), {.calls = rank < waiting ? 10 : 9, .waits = rank < waiting}, 630);
    return found();
  }
};

TEST_F(FewWait, AMinorityThatWaitsIsOdd) {
  const Hang one = of_waiting(1);
  EXPECT_EQ(one.state, RunState::hang);
  ASSERT_EQ(one.suspects.size(), 8U);  // those that lack the call may be at fault, too
  EXPECT_EQ(one.suspects[0].rank, 0);
  EXPECT_EQ(one.suspects[0].reason, Reason::waits_alone);
  EXPECT_LE(one.suspects[0].confidence, 0.4);
  for (std::size_t i = 1; i < 8; ++i) {
    EXPECT_EQ(one.suspects[i].reason, Reason::not_issuing);
    EXPECT_LE(one.suspects[i].confidence, 0.06);
  }
  EXPECT_THAT(one.sentence, testing::Not(testing::HasSubstr("left no trace")));
  const Hang two = of_waiting(2);
  ASSERT_EQ(two.suspects.size(), 8U);
  for (const HangSuspect& suspect : two.suspects) EXPECT_LE(suspect.confidence, 0.2);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(two.suspects[i].reason, Reason::waits_alone);
}

TEST_F(FewWait, TheFirstInAHealthyCallAreNoHang) {
  for (const int first : {1, 2, 3}) {
    for (int rank = 0; rank < world_; ++rank) {
      const bool waits = rank < first;
      put(fmt::format("rank_{}", rank),
          {.calls = waits ? 10 : 9, .waits = waits, .begins_s = waits ? 0 : 1.8, .ends_s = 1.9}, kInterval_s * 9 + 2);
    }
    EXPECT_EQ(found().state, RunState::unknown) << first;
    EXPECT_THAT(found().suspects, IsEmpty()) << first;
    EXPECT_THAT(found().sentence, testing::HasSubstr("nothing tells a hang from a healthy wait")) << first;
  }
}

TEST_F(FewWait, SeveralThatLackACallShareTheConfidence) {
  for (const int waiting : {4, 5, 6}) {
    const Hang hang = of_waiting(waiting);
    ASSERT_EQ(hang.suspects.size(), static_cast<std::size_t>(8 - waiting));
    double sum = 0;
    for (const HangSuspect& suspect : hang.suspects) {
      EXPECT_EQ(suspect.reason, Reason::not_issuing);
      sum += suspect.confidence;
    }
    EXPECT_LE(sum, 1.001);
  }
  EXPECT_GE(of_waiting(7).suspects.at(0).confidence, 0.8);
}

TEST_F(DumpClocks, ALogOfAnEarlierRunIsNoWitness) {
  for (int rank = 0; rank < 4; ++rank)
    put(fmt::format("rank_{}", rank), {.calls = rank == 1 ? 9 : 10, .waits = rank != 1}, 620);
  const std::string log =
      files_.put("job.out", "[rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n");
  EXPECT_FALSE(read().witnesses.lines.empty());
  fs::last_write_time(log, fs::file_time_type::clock::now() - std::chrono::hours(5));
  EXPECT_THAT(read().witnesses.lines, IsEmpty());
  EXPECT_GE(found().suspects.at(0).confidence, 0.8);
  fs::last_write_time(log, fs::file_time_type::clock::now() - std::chrono::minutes(70));  // the others loaded
  EXPECT_EQ(read().witnesses.lines.size(), 1U);
}

// It died before all others made their first call.
TEST_F(DumpClocks, TheLogOfARankWithoutADumpCounts) {
  for (const int rank : {0, 1, 2}) put(fmt::format("rank_{}", rank), {.calls = 1, .waits = true}, 620);
  const std::string log =
      files_.put("rank3.out", "[rank3]: FileNotFoundError: [Errno 2] No such file or directory: '/data/shard-17'\n");
  fs::last_write_time(log, fs::file_time_type::clock::now() - std::chrono::hours(5));
  EXPECT_EQ(read().witnesses.lines.size(), 1U);
  EXPECT_EQ(found().suspects.at(0).rank, 3);
}

TEST_F(DumpClocks, ARankThatLogsAndDumpsHasCaughtItsException) {
  for (const int rank : {0, 1, 2}) put(fmt::format("rank_{}", rank), {.calls = 10, .waits = rank != 1}, 620);
  for (const int rank : {2, 3}) {
    files_.put("job.out", fmt::format("[rank{0}]: ValueError: bad sample\n[rank{0}]: WARNING: skipped\n", rank));
    EXPECT_EQ(read().witnesses.lines.size(), rank == 3 ? 1U : 0U);  // nothing shows that rank 3 ran on
  }
}

}  // namespace
}  // namespace ms::tracepp
