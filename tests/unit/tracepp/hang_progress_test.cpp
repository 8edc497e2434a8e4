// Sources of a hang that see progress: heartbeats in ms-driver's status, and files of NCCL's Inspector, alone and
// beside others.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "foreign_files.h"
#include "tracepp/hang/hang.h"

namespace ms::tracepp {
namespace {

constexpr double kNow_s = 1'790'000'000;

struct BeatOf {
  std::int64_t step = 7;
  std::string section = "grad_sync";
  bool alive = true;
};

std::string status_of(const std::vector<BeatOf>& ranks, double age_s, double deadline_s, const std::string& more = "") {
  std::string rows;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    rows += fmt::format(R"({}{{"rank":{},"node":"n{}","step":{},"section":"{}","section_s":{},"alive":{}}})",
                        i > 0 ? "," : "", i, i / 2, ranks[i].step, ranks[i].section, age_s, ranks[i].alive);
  return fmt::format(
      R"({{"schema":1,"phase":"trains","job":"7.0","job_id":7,"written_s":{},{}"steps":7,"deadline_s":{},)"
      R"("progress_age_s":{},"ranks":[{}]}})",
      kNow_s, more, deadline_s, age_s, rows);
}

std::string inspector_of(int rank, double last_ago_s, double every_s = 1) {
  std::string text;
  for (int i = 0; i < 20; ++i)
    text += fmt::format(
        R"({{"header":{{"id":"0x1","rank":{},"n_ranks":4,"nnodes":2}},"metadata":{{"inspector_output_format_version":)"
        R"("v4.0","dump_timestamp_us":{:.0f},"hostname":"n{}","pid":{}}},"coll_perf":{{"coll":"AllReduce","coll_sn":{}}}}})"
        "\n",
        rank, 1e6 * (kNow_s - last_ago_s - every_s * (19 - i)), rank / 2, 100 + rank, i);
  return text;
}

class HangProgress : public testing::Test {
 protected:
  Hang found() const { return find_hang(read_run({files_.path()}, {.witnesses_suffice = true})); }
  ForeignFiles files_;
};

TEST_F(HangProgress, HeartbeatsTellAHangFromASlowRun) {
  struct Row {
    const char* what;
    std::vector<BeatOf> ranks;
    double age_s;
    RunState state;
    int rank = -1;
    Reason reason = Reason::not_issuing;
  };
  const std::vector<BeatOf> all(8);
  const auto with = [&](const BeatOf& odd) {
    std::vector<BeatOf> ranks = all;
    ranks[5] = odd;
    return ranks;
  };
  for (const Row& row : {
           Row{"a pause within the deadline", all, 20, RunState::cut_off},
           Row{"the same, with a rank in another section", with({.section = "data"}), 20, RunState::cut_off},
           Row{"all wait in one section", all, 90, RunState::hang},
           Row{"a rank waits for data", with({.section = "data"}), 90, RunState::hang, 5, Reason::data_wait},
           Row{"a rank saves", with({.section = "save"}), 90, RunState::hang, 5, Reason::save},
           Row{"a rank is a step behind", with({.step = 6}), 90, RunState::hang, 5},
           Row{"a rank ended", with({.alive = false}), 20, RunState::failed, 5, Reason::silent},
           Row{"half of the ranks are elsewhere", {{}, {}, {.step = 6}, {.step = 6}}, 90, RunState::hang},
           Row{"all ended", {{.alive = false}, {.alive = false}}, 20, RunState::cut_off},
       }) {
    files_.put("status.json", status_of(row.ranks, row.age_s, 60));
    const Hang hang = found();
    EXPECT_EQ(hang.state, row.state) << row.what << ": " << hang.sentence;
    ASSERT_EQ(hang.suspects.empty(), row.rank < 0) << row.what;
    if (row.rank < 0) continue;
    EXPECT_EQ(hang.suspects[0].rank, row.rank) << row.what;
    EXPECT_EQ(hang.suspects[0].reason, row.reason) << row.what;
    EXPECT_EQ(hang.suspects[0].host, "n2") << row.what;
  }
}

// Whoever names a rank while the run makes progress may have looked at a moment of a run that is well.
TEST_F(HangProgress, ProgressDoubtsThoseWhoNameARank) {
  for (int rank = 0; rank < 8; ++rank)
    files_.put(
        fmt::format("stack_rank{}", rank),
        fmt::format("Process {0}: python train.py\nPython v3.12.4\n\nThread {0} (idle): \"MainThread\"\n    {1}\n",
                    4000 + rank,
                    rank == 3 ? "poll (selectors.py:415)\n    _get_data (torch/utils/data/dataloader.py:1133)"
                              : "wait (torch/distributed/distributed_c10d.py:2501)"));
  const Hang alone = found();
  ASSERT_FALSE(alone.suspects.empty());
  EXPECT_GT(alone.suspects[0].confidence, 0.5);
  files_.put("status.json",
             status_of(std::vector<BeatOf>(8), 2, 60, R"("slow":{"text":"steps take 3 times as long"},)"));
  const Hang hang = found();
  EXPECT_EQ(hang.state, RunState::unknown);
  EXPECT_LE(hang.suspects.at(0).confidence, 0.5);
  EXPECT_THAT(hang.sentence, testing::HasSubstr("steps take 3 times as long"));
  files_.put("status.json", status_of(std::vector<BeatOf>(8), 90, 60));
  EXPECT_EQ(found().suspects.at(0).rank, 3);
  EXPECT_EQ(found().suspects.at(0).confidence, alone.suspects[0].confidence);
}

TEST_F(HangProgress, TheInspectorTellsWhenCollectivesEndedLast) {
  struct Row {
    const char* what;
    double last_ago_s, every_s;
    bool has_status;
    RunState state;
  };
  for (const Row& row : {
           Row{"alone: nothing tells when that was", 5, 1, false, RunState::unknown},
           Row{"a moment ago", 5, 1, true, RunState::cut_off},
           Row{"long ago", 60, 1, true, RunState::hang},
           Row{"such pauses are usual", 60, 20, true, RunState::cut_off},
           Row{"on another day", 1e5, 1, true, RunState::unknown},
       }) {
    const ForeignFiles files;
    for (int rank = 0; rank < 4; ++rank)
      files.put(fmt::format("n{}-pid{}.log", rank / 2, 100 + rank), inspector_of(rank, row.last_ago_s, row.every_s));
    // The driver only says what time it is: it trains nothing.
    if (row.has_status)
      files.put("status.json", fmt::format(R"({{"phase":"recovers","job_id":7,"written_s":{}}})", kNow_s));
    const RunTrace trace = read_run({files.path()}, {.witnesses_suffice = true});
    const Hang hang = find_hang(trace);
    EXPECT_TRUE(trace.problems.empty()) << row.what;
    EXPECT_EQ(trace.witnesses.progress.size(), row.has_status ? 5U : 4U) << row.what;
    const auto source = std::ranges::find(hang.sources, "NCCL's Inspector", &HangSource::name);
    ASSERT_NE(source, hang.sources.end()) << row.what;
    EXPECT_EQ(source->state, row.state) << row.what << ": " << source->sentence;
    EXPECT_TRUE(hang.suspects.empty()) << row.what;
  }
}

// Files that are cut or made up are counted, and accuse no rank.
TEST_F(HangProgress, WhatIsNotUnderstoodIsCounted) {
  const std::string whole = inspector_of(0, 5);
  files_.put("status.json", status_of(std::vector<BeatOf>(4), 2, 60));
  for (
      const std::string& text :
      {whole.substr(0, whole.size() - 20), whole + "{\"metadata\":{}}\n", whole + "\x01\x02\n",
       whole +
           R"({"header":{"rank":-5,"n_ranks":1},"metadata":{"dump_timestamp_us":-1e300,"hostname":"x","pid":1},"coll_perf":{}})" +
           "\n"}) {
    files_.put("a.log", text);
    const RunTrace trace = read_run({files_.path()}, {.witnesses_suffice = true});
    EXPECT_EQ(problem(trace, "record of NCCL's Inspector that is not understood"), 1U);
    EXPECT_TRUE(find_hang(trace).suspects.empty());
  }
  std::filesystem::remove(files_ / "a.log");
  const std::string status = status_of(std::vector<BeatOf>(4), 2, 60);
  for (const std::string& text :
       {status.substr(0, status.size() - 9), status_of({{}, {}}, -1, 60), status_of({{}, {}}, 1e300, 60)}) {
    files_.put("status.json", text);
    EXPECT_THROW(read_run({files_.path()}, {.witnesses_suffice = true}), Error);
  }
}

}  // namespace
}  // namespace ms::tracepp
