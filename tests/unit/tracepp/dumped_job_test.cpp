// Verdicts on the dumps of whole jobs at real times: of healthy ones, too, and beside dumps that are of no use.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/json.h"
#include "foreign_files.h"
#include "tracepp/hang/hang.h"

namespace ms::tracepp {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr int kRanks = 4;
constexpr double kHour_s = 3600;

struct JobCall {
  double ago_s = 0;  // issued so long before the dumps were written
  bool has_ended = true;
  double took_s = 0.001;
  std::string operation = "all_reduce";
  int elements = 100;
  std::string type = "Float";
  int timeout_ms = 0;
};

struct JobGroup {
  std::string name = "0", description = "default_pg", ranks = "[0, 1, 2, 3]";
};

class DumpedJob : public testing::Test {
 protected:
  // Writes a dump, whose file was last changed `file_ago_s` before the others were written.
  void put(const std::string& name, const std::vector<JobCall>& calls, double file_ago_s = 0,
           const std::vector<JobGroup>& groups = {{}}) {
    std::string config, entries;
    for (std::size_t i = 0; i < groups.size(); ++i)
      config += fmt::format(R"({}"{}":{{"name":"{}","desc":"{}","ranks":"{}"}})", i > 0 ? "," : "", groups[i].name,
                            groups[i].name, groups[i].description, groups[i].ranks);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const JobCall& call = calls[i];
      const std::size_t group = i % groups.size();  // in turn
      const std::int64_t at_ns = ns(call.ago_s);
      entries += fmt::format(
          R"({}{{"record_id":{},"pg_id":{},"process_group":["{}","{}"],"collective_seq_id":{},"p2p_seq_id":0,)",
          i > 0 ? "," : "", i, group, groups[group].name, groups[group].description, i / groups.size() + 1);
      entries += fmt::format(R"("profiling_name":"nccl:{}","state":"{}","retired":{},"time_created_ns":{},)",
                             call.operation, call.has_ended ? "completed" : "started", call.has_ended, at_ns);
      entries += fmt::format(R"("timeout_ms":{},"input_sizes":[[{}]],"input_dtypes":["{}"],)", call.timeout_ms,
                             call.elements, call.type);
      entries += fmt::format(R"("time_discovered_started_ns":{},)", at_ns);
      entries += fmt::format(R"("time_discovered_completed_ns":{}}})",
                             call.has_ended ? at_ns + static_cast<std::int64_t>(call.took_s * 1e9) : 0);
    }
    const std::string path =
        files_.put(name, fmt::format(R"({{"pg_config":{{{}}},"pg_status":{{}},"entries":[{}]}})", config, entries));
    const std::int64_t changed_ns = ns(file_ago_s);
    const timespec time{.tv_sec = changed_ns / 1'000'000'000, .tv_nsec = changed_ns % 1'000'000'000};
    const timespec times[2] = {time, time};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }

  // The calls of a rank that ended `count` of them, `every_s` apart until 606 s before the dump, and waits in the next.
  static std::vector<JobCall> calls(int count, bool waits, double every_s = 1) {
    std::vector<JobCall> calls;
    for (int i = count; i > 0; --i) calls.push_back({.ago_s = 605 + every_s * i});
    if (waits) calls.push_back({.ago_s = 605, .has_ended = false});
    return calls;
  }
  static std::vector<JobCall> earlier(std::vector<JobCall> calls, double by_s) {
    for (JobCall& call : calls) call.ago_s += by_s;
    return calls;
  }
  static std::string name_of(int rank) { return fmt::format("rank_{}", rank); }

  RunTrace read() const { return read_run({files_.path()}); }
  Hang found() const { return find_hang(read()); }
  std::string text() const {
    const RunTrace trace = read();
    return hang_text(find_hang(trace), trace);
  }
  std::string path() const { return files_.path(); }

 private:
  static std::int64_t ns(double ago_s) {
    constexpr std::int64_t kNow_ns = 1'760'000'000'000'000'000;
    return kNow_ns - static_cast<std::int64_t>(ago_s * 1e9);
  }
  ForeignFiles files_;
};

TEST_F(DumpedJob, ADumpOfAnEarlierAttemptIsLeftOut) {
  struct Row {
    const char* what;
    int ended;   // of the earlier attempt
    bool waits;  // so did the earlier attempt
    double file_ago_s;
    int culprit;
    double confidence;  // in it
  };
  for (const Row& row :
       {Row{"went further", 200, false, 2 * kHour_s, 1, 0.5}, Row{"was stopped sooner", 20, true, 2 * kHour_s, 1, 0.5},
        Row{"waited in the same operation", 50, true, 2 * kHour_s, 1, 0.5},
        Row{"went further, another rank is at fault", 200, false, 2 * kHour_s, 2, 0.85},
        Row{"the same, and its file was copied", 200, false, 0, 2, 0.85}}) {
    SCOPED_TRACE(row.what);
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == 1) {
        put(name_of(rank), earlier(calls(row.ended, row.waits), 2 * kHour_s), row.file_ago_s);
      } else {
        put(name_of(rank), calls(50, rank != row.culprit));
      }
    }
    const Hang hang = found();
    EXPECT_EQ(hang.state, RunState::hang);
    ASSERT_FALSE(hang.suspects.empty());
    EXPECT_EQ(hang.suspects.front().rank, row.culprit) << hang.sentence;
    EXPECT_EQ(hang.suspects.front().confidence, row.confidence);
    EXPECT_THAT(hang.sentence, AllOf(HasSubstr("the dump of rank 1 is of 2h00m earlier"), HasSubstr("left out")));
  }
}

TEST_F(DumpedJob, RanksThatIssueNothingForLongAreNotCalledWell) {
  for (const double every_s : {1.0, 2000.0}) {  // such a pause is usual where calls are as far apart
    for (int rank = 0; rank < kRanks; ++rank) put(name_of(rank), calls(10, false, every_s));
    EXPECT_EQ(found().state, every_s < 2 ? RunState::unknown : RunState::cut_off);
    if (every_s < 2) { EXPECT_THAT(found().sentence, HasSubstr("issued nothing for 60")); }
  }
}

TEST_F(DumpedJob, AWrongClockIsNoEarlierAttempt) {
  for (int rank = 0; rank < kRanks; ++rank) put(name_of(rank), earlier(calls(50, rank != 3), rank < 2 ? 0 : kHour_s));
  const Hang hang = found();
  EXPECT_EQ(hang.suspects.at(0).rank, 3);
  EXPECT_EQ(hang.suspects.at(0).confidence, 0.85);
}

// The others went on for long, and their dumps no longer hold what it took part in.
TEST_F(DumpedJob, ARankThatStoppedLongAgoIsNoEarlierAttempt) {
  for (int rank = 0; rank < 3; ++rank) put(name_of(rank), calls(40, true), 0, {{.name = "1", .description = "others"}});
  put(name_of(3), earlier(calls(40, false), 500));
  EXPECT_EQ(read().rank(3)->earlier_s, 0);
  put(name_of(3), earlier(calls(40, false), 500), 500);
  EXPECT_GT(read().rank(3)->earlier_s, 0);
}

TEST_F(DumpedJob, NumbersThatCountTheRanksOfANodeAreNotBelieved) {
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<JobCall> all = earlier(calls(50, rank != 3), 0.001 * rank);  // no two ranks issue at the same time
    put(fmt::format("node{}/rank_{}", rank / 2, rank % 2), all);
  }
  const RunTrace trace = read();
  const Hang hang = find_hang(trace);
  EXPECT_EQ(hang.suspects.at(0).confidence, 0.5);
  EXPECT_THAT(hang.sentence, StartsWith("the rank of node1/rank_1 never issued"));
  EXPECT_THAT(hang_text(hang, trace),
              AllOf(HasSubstr("suspect 50 %: the rank of node1/rank_1"), Not(HasSubstr("rank 3")),
                    HasSubstr("nothing tells the ranks of these dumps")));
  const Json suspect = Json::parse(hang_json(hang, trace)).at("suspects")[0];
  EXPECT_TRUE(suspect.at("rank").is_null());
  EXPECT_EQ(suspect.get<std::string>("file"), path() + "/node1/rank_1");
}

TEST_F(DumpedJob, FilesWithoutANumberAreNamedThemselves) {
  for (int rank = 0; rank < kRanks; ++rank)
    put(fmt::format("dump-{}.pkl", static_cast<char>('d' - rank)), calls(50, rank != 3));
  EXPECT_THAT(text(), AllOf(HasSubstr("dump-a.pkl never issued"), HasSubstr("suspect 50 %")));
}

// Ranks 0, 1 and 2, 3 are tensor-parallel, 0, 2 and 1, 3 data-parallel: one rank is in both groups of a dump.
TEST_F(DumpedJob, GroupsTellTheRankOfAFile) {
  for (int rank = 0; rank < kRanks; ++rank) {
    const JobGroup tp{"1", "tp", rank < 2 ? "[0, 1]" : "[2, 3]"}, dp{"2", "dp", rank % 2 == 0 ? "[0, 2]" : "[1, 3]"};
    put(fmt::format("node{}/rank_{}", rank / 2, rank % 2), calls(20, rank == 2), 0, {tp, dp});
  }
  const RunTrace trace = read();
  ASSERT_EQ(trace.ranks.size(), 4U);
  EXPECT_THAT(trace.rank(3)->file, HasSubstr("node1/rank_1"));
  EXPECT_EQ(find_hang(trace).suspects.at(0).rank, 3);
}

TEST_F(DumpedJob, AHealthyJobWaitsAsLongAsBefore) {
  struct Row {
    const char* what;
    double every_s, spread_s, took_s, since_s;  // of steps, among ranks, of an operation; the wait when dumped
    bool all_wait;
    RunState state;
    double most;  // confidence
  };
  for (const Row& row : {Row{"ranks issue at different times", 120, 8, 0.001, 7, false, RunState::unknown, 0},
                         Row{"others are late each time", 200, 0, 90, 40, false, RunState::unknown, 0},
                         Row{"the host is ahead of the device", 30, 0, 28, 20, true, RunState::unknown, 0},
                         Row{"longer than before, but short against a step", 120, 0, 1, 30, false, RunState::hang, 0.5},
                         Row{"far longer than before", 1, 0.1, 0.01, 605, false, RunState::hang, 0.85}}) {
    SCOPED_TRACE(row.what);
    for (int rank = 0; rank < kRanks; ++rank) {
      std::vector<JobCall> all;
      for (int i = 12; i > 0; --i) {
        const double late_s = row.spread_s * ((rank + i) % kRanks) / (kRanks - 1);  // in turn
        all.push_back({.ago_s = row.since_s + row.every_s * i - late_s, .took_s = row.took_s});
      }
      if (row.all_wait || rank != 3) all.push_back({.ago_s = row.since_s, .has_ended = false});
      put(name_of(rank), all);
    }
    const Hang hang = found();
    EXPECT_EQ(hang.state, row.state) << hang.sentence;
    if (row.state == RunState::unknown) {
      EXPECT_THAT(hang.sentence, AllOf(StartsWith("nothing tells a hang from a healthy wait"),
                                       HasSubstr("12 such calls before took about as long or longer")));
      EXPECT_TRUE(hang.suspects.empty());
    } else {
      EXPECT_EQ(hang.suspects.at(0).rank, 3);
      EXPECT_EQ(hang.suspects.at(0).confidence, row.most);
    }
  }
}

// A lone long wait, as one at the start, does not excuse a later one, nor do several excuse a rank without a dump.
TEST_F(DumpedJob, WaitsAreNotExcusedLightly) {
  struct Row {
    const char* what;
    int long_waits;
    bool has_dump;  // the rank at fault
    int timeout_s;
    RunState state;
    double most;  // confidence in it
  };
  for (const Row& row : {Row{"several were as long", 3, true, 600, RunState::unknown, 0},
                         Row{"several were as long, and it is given up", 3, true, 100, RunState::hang, 0.85},
                         Row{"several were as long, and a rank left no dump", 3, false, 600, RunState::hang, 0.5},
                         Row{"only two were as long", 2, true, 600, RunState::hang, 0.5},
                         Row{"only the first was as long", 1, true, 600, RunState::hang, 0.5}}) {
    SCOPED_TRACE(row.what);
    for (int rank = 0; rank < kRanks; ++rank) {
      std::vector<JobCall> all;
      for (int i = row.long_waits; i > 0; --i) all.push_back({.ago_s = 200.0 + 160 * i, .took_s = 150});
      for (int i = 60; i > 0; --i) all.push_back({.ago_s = 101.0 + i});
      if (rank != 3) all.push_back({.ago_s = 101, .has_ended = false, .timeout_ms = 1000 * row.timeout_s});
      if (rank != 3 || row.has_dump) {
        put(name_of(rank), all);
      } else {
        std::filesystem::remove(path() + "/" + name_of(rank));
      }
    }
    const Hang hang = found();
    EXPECT_EQ(hang.state, row.state) << hang.sentence;
    if (row.state == RunState::unknown) continue;
    EXPECT_EQ(hang.suspects.at(0).rank, 3);
    EXPECT_EQ(hang.suspects.at(0).confidence, row.most);
  }
}

// Ranks compile and load before their first calls, for minutes.
TEST_F(DumpedJob, AJobAtItsBeginningIsDoubted) {
  for (const double since_s : {121.0, 605.0}) {
    for (int rank = 0; rank < kRanks; ++rank) {
      std::vector<JobCall> all{{.ago_s = since_s + 9, .operation = "broadcast"}};
      if (rank != 0) all.push_back({.ago_s = since_s, .has_ended = false});
      put(name_of(rank), all);
    }
    EXPECT_EQ(found().suspects.at(0).rank, 0);
    EXPECT_EQ(found().suspects.at(0).confidence, since_s > 600 ? 0.85 : 0.5);
    EXPECT_EQ(text().find("the job has only begun") == std::string::npos, since_s > 600);
  }
}

// A rank that is as far as the others was dumped with them, whatever its clock says.
TEST_F(DumpedJob, AClockFarBehindIsNoEarlierAttempt) {
  for (const double behind_s : {0.3 * kHour_s, 3 * kHour_s}) {
    SCOPED_TRACE(behind_s);
    for (int rank = 0; rank < kRanks; ++rank) {
      std::vector<JobCall> all = calls(50, true);
      if (rank == 2) all.back().elements = 64;
      put(name_of(rank), earlier(all, rank == 2 ? behind_s : 0));
    }
    const Hang hang = found();
    ASSERT_FALSE(hang.suspects.empty());
    EXPECT_EQ(hang.suspects.front().rank, 2);
    EXPECT_EQ(hang.suspects.front().reason, Reason::wrong_size);
    EXPECT_THAT(hang.sentence, HasSubstr("4 members in it for 605 s"));
    EXPECT_THAT(text(), HasSubstr("clock far behind those of others"));
  }
}

TEST_F(DumpedJob, ANewerDumpBesideOldOnesMakesNothingCertain) {
  const std::vector<JobCall> hung = calls(50, true), before = earlier(calls(80, true), 2 * kHour_s);
  std::vector<JobCall> restarted;
  for (int i = 5; i > 0; --i) restarted.push_back({.ago_s = 95.0 + i});
  struct Row {
    const char* what;
    std::vector<JobCall> newer, others;
    int newers;
    double file_ago_s;  // of the others
    std::string names;
  };
  for (const Row& row : {Row{"all others are left from before", hung, before, 1, 2 * kHour_s, "the dump of rank 0 is"},
                         Row{"half are, and were copied", hung, before, 2, 0, "the dumps of rank 0 and rank 1 are"},
                         Row{"a rank restarted", restarted, hung, 1, 0, "the dump of rank 0 is"}}) {
    SCOPED_TRACE(row.what);
    for (int rank = 0; rank < kRanks; ++rank)
      put(name_of(rank), rank < row.newers ? row.newer : row.others, rank < row.newers ? 0 : row.file_ago_s);
    const Hang hang = found();
    EXPECT_EQ(hang.state, RunState::unknown);
    EXPECT_TRUE(hang.suspects.empty());
    EXPECT_THAT(hang.sentence, AllOf(StartsWith("nothing is certain: " + row.names + " newer than the others"),
                                     HasSubstr("rank 0: finished nccl:all_reduce"), Not(HasSubstr("older"))));
  }
}

TEST_F(DumpedJob, DumpsLeftOutAreNamedInOneSentence) {
  for (int rank = 0; rank < kRanks; ++rank) {
    const bool is_old = rank % 2 == 1;
    put(name_of(rank), earlier(calls(is_old ? 80 : 50, rank == 0), is_old ? 2 * kHour_s : 0), is_old ? 2 * kHour_s : 0);
  }
  EXPECT_EQ(found().suspects.at(0).rank, 2);
  EXPECT_THAT(found().sentence, HasSubstr("; the dumps of rank 1 and rank 3 are of up to 2h00m earlier"));
  put(name_of(2), calls(50, true));  // one of those that were left out is at fault
  EXPECT_EQ(found().suspects.at(0).confidence, 0.5);
  EXPECT_THAT(found().sentence, AllOf(StartsWith("the dump of rank 1 is of 2h00m earlier"),
                                      HasSubstr("the same holds for 1 further rank: nothing tells them apart")));
}

// A call that does not match is a fault however short the wait is.
TEST_F(DumpedJob, AWrongCallIsNotExcusedByEarlierWaits) {
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<JobCall> all;
    for (int i = 12; i > 0; --i) all.push_back({.ago_s = 20.0 + 30 * i, .took_s = 28});
    all.push_back({.ago_s = 20, .has_ended = false, .elements = rank == 2 ? 64 : 100});
    put(name_of(rank), all);
  }
  EXPECT_EQ(found().state, RunState::hang);
  EXPECT_EQ(found().suspects.at(0).rank, 2);
  EXPECT_EQ(found().suspects.at(0).reason, Reason::wrong_size);
}

TEST_F(DumpedJob, ADumpWithoutEntriesIsAsGoodAsNone) {
  for (int rank = 0; rank < kRanks; ++rank) put(name_of(rank), rank == 2 ? std::vector<JobCall>{} : calls(50, true));
  const Hang hang = found();
  EXPECT_EQ(hang.state, RunState::hang);
  EXPECT_EQ(hang.suspects.at(0).rank, 2);
  EXPECT_EQ(hang.suspects.at(0).reason, Reason::no_trace);
  EXPECT_EQ(hang.suspects.at(0).confidence, 0.5);
  EXPECT_THAT(hang.sentence, AllOf(StartsWith("the dump of rank 2 has no entries"), Not(HasSubstr("further rank"))));
  // So is an older one.
  put(name_of(2), earlier(calls(30, false), 30), 30);
  EXPECT_EQ(found().state, RunState::hang);
  EXPECT_EQ(found().suspects.at(0).confidence, 0.5);
}

TEST_F(DumpedJob, DumpsWithoutEntriesTellNothing) {
  for (int rank = 0; rank < kRanks; ++rank) put(name_of(rank), {});
  EXPECT_EQ(found().state, RunState::unknown);
  EXPECT_THAT(found().sentence, AllOf(StartsWith("nothing tells whether the run is well: the dumps of 4 ranks"),
                                      HasSubstr("TORCH_FR_BUFFER_SIZE")));
}

// Where nothing tells which of two is right, both differ in the same way.
TEST_F(DumpedJob, BothSidesOfAMismatchHaveItsReason) {
  struct Row {
    JobCall other;
    Reason reason;
  };
  for (const Row& row : {Row{{.elements = 200}, Reason::wrong_size}, Row{{.type = "Int"}, Reason::wrong_dtype},
                         Row{{.operation = "broadcast"}, Reason::wrong_kind}}) {
    for (int rank = 0; rank < kRanks; ++rank) {
      std::vector<JobCall> all = calls(10, true);
      if (rank >= 2) all.back() = row.other;
      all.back().ago_s = 605;
      all.back().has_ended = false;
      put(name_of(rank), all);
    }
    const Hang hang = found();
    ASSERT_EQ(hang.suspects.size(), 4U);
    for (const HangSuspect& suspect : hang.suspects) EXPECT_EQ(suspect.reason, row.reason) << suspect.rank;
  }
}

}  // namespace
}  // namespace ms::tracepp
