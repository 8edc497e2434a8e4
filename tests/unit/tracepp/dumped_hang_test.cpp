// What sets of Flight Recorder dumps show, and what they do not.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "foreign_files.h"
#include "tracepp/hang/hang.h"

namespace ms::tracepp {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

struct DumpedCall {
  std::string operation = "all_reduce";
  std::string state = "completed";  // "scheduled", "started"
  int elements = 100;
  std::string type = "Float";  // of the inputs; empty: there are none
  std::string frames = "[]";
};

constexpr std::string_view kConfig =
    R"("pg_config":{"0":{"name":"0","desc":"default_pg","ranks":"[0, 1, 2, 3]"}},"pg_status":{})";

std::string entries_of(const std::vector<DumpedCall>& calls) {
  std::string text;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const DumpedCall& call = calls[i];
    text += fmt::format(R"({}{{"record_id":{},"pg_id":0,"process_group":["0","default_pg"],"collective_seq_id":{},)",
                        i > 0 ? "," : "", i, i + 1);
    text += fmt::format(R"("profiling_name":"nccl:{}","state":"{}","time_created_ns":{},)", call.operation, call.state,
                        10 * i + 1);
    text += call.type.empty() ? R"("input_sizes":[],"input_dtypes":[],)"
                              : fmt::format(R"("input_sizes":[[{}]],"input_dtypes":["{}"],)", call.elements, call.type);
    text += "\"frames\":" + call.frames + ",";
    text += R"("output_sizes":[[100]],"output_dtypes":["Float"],)";
    text += fmt::format(R"("time_discovered_started_ns":{},"time_discovered_completed_ns":{}}})",
                        call.state == "scheduled" ? 0 : 10 * i + 2, call.state == "completed" ? 10 * i + 3 : 0);
  }
  return "\"entries\":[" + text + "]";
}

class DumpedHang : public testing::Test {
 protected:
  void put(int rank, const std::vector<DumpedCall>& calls) {
    put(rank, "{" + std::string(kConfig) + "," + entries_of(calls) + "}");
  }
  void put(int rank, const std::string& text) { files_.put(fmt::format("nccl_trace_rank_{}", rank), text); }
  Hang found() const { return find_hang(read_run({files_.path()})); }
  std::filesystem::path path_of(int rank) const { return files_ / fmt::format("nccl_trace_rank_{}", rank); }

 private:
  ForeignFiles files_;
};

// Members of an all-to-all send what they have to each other, as tokens to experts, whatever the operation is called.
TEST_F(DumpedHang, UnevenAllToAllsAreNoMistake) {
  for (int rank = 0; rank < 4; ++rank) {
    std::vector<DumpedCall> calls(4);
    calls[2] = {.operation = "all_to_all", .elements = rank == 0 ? 120 : 100};
    if (rank == 2) {
      calls.pop_back();
    } else {
      calls.back().state = "started";
    }
    put(rank, calls);
  }
  const Hang hang = found();
  EXPECT_EQ(hang.state, RunState::hang);
  EXPECT_EQ(hang.suspects.at(0).rank, 2);
  EXPECT_EQ(hang.suspects.at(0).reason, Reason::not_issuing);
}

// Only the root of a scatter has inputs.
TEST_F(DumpedHang, ARootOfAScatterIsNotOdd) {
  for (int rank = 0; rank < 4; ++rank) {
    std::vector<DumpedCall> calls(3);
    calls[1] = {.operation = "scatter", .type = rank == 0 ? "Float" : ""};
    if (rank == 2) {
      calls.pop_back();
    } else {
      calls.back().state = "started";
    }
    put(rank, calls);
  }
  EXPECT_EQ(found().suspects.at(0).rank, 2);
  EXPECT_EQ(found().suspects.at(0).reason, Reason::not_issuing);
}

TEST_F(DumpedHang, WhatHasBegunNowhereProvesNothing) {
  for (int rank = 0; rank < 4; ++rank) put(rank, {{}, {}, {.state = "scheduled"}});
  const Hang hang = found();
  EXPECT_EQ(hang.state, RunState::unknown);
  EXPECT_THAT(hang.sentence, StartsWith("4 ranks issued nccl:all_reduce 3 of group default_pg 0"));
  EXPECT_THAT(hang.sentence, HasSubstr("do not show which"));
  EXPECT_TRUE(hang.suspects.empty());
  for (int rank = 0; rank < 4; ++rank) put(rank, {{}, {}, {.state = "timeout"}});
  EXPECT_EQ(found().state, RunState::unknown);
}

TEST_F(DumpedHang, DumpsOfWhichNoneIsWholeTellNothing) {
  for (int rank = 0; rank < 4; ++rank) {
    const std::string text = "{" + std::string(kConfig) + "," + entries_of(std::vector<DumpedCall>(8));
    put(rank, text.substr(0, text.size() / 2));
  }
  EXPECT_EQ(found().state, RunState::unknown);
  EXPECT_THAT(found().sentence,
              StartsWith("nothing tells whether the run is well: none of the dumps of 4 ranks is whole"));
}

// Writers that sort their keys put the entries first: a dump that is cut has no groups then.
TEST_F(DumpedHang, ACutDumpWithoutGroupsBelongsToThoseOfOthers) {
  for (int rank = 0; rank < 4; ++rank) {
    std::vector<DumpedCall> calls(8);
    calls.back().state = "started";
    if (rank == 1) calls.pop_back();
    const std::string text = "{" + entries_of(calls) + "," + std::string(kConfig) + "}";
    put(rank, rank == 2 ? text.substr(0, text.size() / 2) : text);
  }
  const Hang hang = found();
  EXPECT_EQ(hang.suspects.at(0).rank, 1);
  for (const HangSuspect& suspect : hang.suspects) EXPECT_THAT(suspect.rank, testing::AnyOf(1, 2));
}

TEST_F(DumpedHang, OfSeveralMissingDumpsNoneIsLikelierThanTheOthers) {
  put(0, {{}, {.state = "started"}});
  const Hang hang = found();
  ASSERT_EQ(hang.suspects.size(), 3U);
  for (const HangSuspect& suspect : hang.suspects) EXPECT_LE(suspect.confidence, 0.34);
  EXPECT_THAT(hang.sentence, HasSubstr("the same holds for 2 further ranks: nothing tells them apart"));
}

// Ranks issue calls ahead: the one that is open first may wait for nobody, and a later one is where they part.
TEST_F(DumpedHang, ADifferenceBehindTheOpenCallIsFound) {
  const DumpedCall a{.elements = 100}, b{.elements = 200}, c{.elements = 300}, d{.elements = 400};
  struct Row {
    const char* what;
    std::vector<DumpedCall> odd, others;  // behind call 1, which has ended on rank 0 only
    Reason reason;
    std::string part;
  };
  for (const Row& row :
       {Row{"swapped", {b, a, c}, {a, b, c}, Reason::wrong_order, "has swapped"},
        Row{"one left out", {b, c, d}, {a, b, c, d}, Reason::missing_call, "left out a call"},
        Row{"two left out", {c, d, a}, {a, b, c, d, a}, Reason::missing_call, "left out 2 calls"},
        Row{"two too many", {c, d, a, b, a}, {a, b, a}, Reason::extra_call, "made 2 calls too many"},
        Row{"another size", {c, b, a}, {d, b, a}, Reason::wrong_size, " bytes"},
        Row{"one later call agrees, as it may by chance", {b}, {a, b}, Reason::wrong_size, " bytes"}}) {
    SCOPED_TRACE(row.what);
    for (int rank = 0; rank < 4; ++rank) {
      std::vector<DumpedCall> calls(1, {.state = rank == 0 ? "completed" : "scheduled"});
      for (DumpedCall call : rank == 2 ? row.odd : row.others) {
        call.state = "scheduled";
        calls.push_back(call);
      }
      put(rank, calls);
    }
    const Hang hang = found();
    EXPECT_EQ(hang.state, RunState::hang);
    ASSERT_EQ(hang.suspects.size(), 1U);  // the call before is no matter of the network
    EXPECT_EQ(hang.suspects[0].rank, 2);
    EXPECT_EQ(hang.suspects[0].reason, row.reason);
    EXPECT_EQ(hang.suspects[0].confidence, 0.95);
    EXPECT_THAT(hang.sentence, AllOf(HasSubstr(row.part), HasSubstr("all_reduce 2 of")));
    std::filesystem::remove(path_of(1));  // which could agree with the odd one
    EXPECT_EQ(found().suspects.at(0).rank, 2);
    EXPECT_EQ(found().suspects.at(0).confidence, 0.7);
  }
}

// A rank that never issued the open call holds all up, whatever others issued behind it.
TEST_F(DumpedHang, ADifferenceBehindAMissingCallComesLater) {
  for (int rank = 0; rank < 4; ++rank) {
    std::vector<DumpedCall> calls(1);
    if (rank != 3) calls.insert(calls.end(), {{.state = "started"}, {.state = "scheduled", .elements = 10 + rank}});
    put(rank, calls);
  }
  EXPECT_EQ(found().suspects.at(0).rank, 3);
  EXPECT_EQ(found().suspects.at(0).reason, Reason::not_issuing);
}

TEST_F(DumpedHang, WhatWasLeftOutMayHang) {
  for (int rank = 0; rank < 4; ++rank) put(rank, std::vector<DumpedCall>(3));
  EXPECT_EQ(found().state, RunState::cut_off);
  put(3, "\x80\x04no dump.");
  EXPECT_EQ(found().state, RunState::unknown);
  std::filesystem::remove(path_of(3));
  EXPECT_EQ(found().state, RunState::unknown);
}

// Where a rank stands is what an engineer looks at first.
TEST_F(DumpedHang, ShowsTheStacksOfTheStuckCall) {
  constexpr std::string_view kFrames =
      R"([{{"name":"all_reduce","filename":"/venv/site-packages/torch/c10d.py","line":4}},)"
      R"({{"name":"{}","filename":"/job/train.py","line":{}}},{{"name":"main","filename":"/job/train.py","line":9}}])";
  for (int rank = 0; rank < 4; ++rank) {
    std::vector<DumpedCall> calls(3);
    calls[1].frames = fmt::format(kFrames, "load", 7);  // the last one of rank 3
    calls[2].frames = fmt::format(kFrames, "step", 8);
    calls[2].state = "started";
    if (rank == 3) calls.pop_back();
    put(rank, calls);
  }
  EXPECT_THAT(found().evidence,
              testing::IsSupersetOf({"rank 3: issued its last call at load (train.py:7) < main (train.py:9)",
                                     "rank 0, rank 1 and 1 more: issued it at step (train.py:8) < main (train.py:9)"}));
}

// Each replica group has ranks 0 to 3 and its own world.
TEST_F(DumpedHang, TwoWorldsAreNotOneRun) {
  for (int rank = 0; rank < 4; ++rank) put(rank, std::vector<DumpedCall>(3));
  const std::string healthy = path_of(0).parent_path();
  const ForeignFiles both;
  for (const char* world : {"a", "b"}) std::filesystem::copy(healthy, both / world);
  try {
    read_run({both.path()});
    FAIL() << "read as one run";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), "trace.run");
    EXPECT_THAT(error.message(), AllOf(HasSubstr(both / "a"), HasSubstr(both / "b")));
  }
}

// The first versions of the format had entries and nothing else.
TEST_F(DumpedHang, ReadsAListOfEntries) {
  for (int rank = 0; rank < 4; ++rank) {
    std::vector<DumpedCall> calls(3);
    calls.back().state = "started";
    if (rank == 3) calls.pop_back();
    const std::string text = entries_of(calls);
    put(rank, text.substr(text.find('[')));
  }
  const Hang hang = found();
  EXPECT_EQ(hang.state, RunState::hang);
  EXPECT_EQ(hang.suspects.at(0).rank, 3);
}

}  // namespace
}  // namespace ms::tracepp
