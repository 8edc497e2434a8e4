// Dumps of recorders that number all calls of their process in one sequence, made by a generator: the verdict is that
// of the same job with numbers by group.
#include "tracepp/read/flight_recorder_run.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>

#include "foreign_files.h"
#include "tracepp/hang/hang.h"
#include "tracepp/read/flight_recorder_entries.h"

namespace ms::tracepp {
namespace {

enum class NumberedBy : std::uint8_t { by_group, by_process, as_torchcomms };
enum class DumpedFault : std::uint8_t { none, never_calls, leaves_out };

struct CommOfJob {
  std::string name;
  std::vector<int> ranks;
};
const std::vector<CommOfJob> kCommsOfJob{{"world", {0, 1, 2, 3}}, {"pair", {0, 1}}, {"even", {0, 2}}};

struct MadeDumps {
  NumberedBy counts = NumberedBy::as_torchcomms;
  DumpedFault fault = DumpedFault::never_calls;
  int rank = 3;              // at fault
  std::size_t kept = 10000;  // entries of each dump: the newest
  bool is_retired_only = false;
  bool has_events = true;  // of the device: without, every state stays "scheduled"
};

constexpr int kDumpedSteps = 40, kFaultStep = 37;

struct MadeEntry {
  std::string text;
  bool has_ended = true;
};

// One rank's program: in each step two calls in the pair, sends, one among the even ranks, and one of all.
class MadeRank {
 public:
  MadeRank(const MadeDumps& dumps, int rank) : dumps_(dumps), rank_(rank) { run(); }

  std::string dump() const {
    std::string config, entries;
    for (std::size_t i = 0; i < kCommsOfJob.size(); ++i)
      config +=
          fmt::format(R"({}"{}":{{"name":"{}","desc":"{}","ranks":"[{}]"}})", i > 0 ? "," : "", kCommsOfJob[i].name,
                      kCommsOfJob[i].name, description(), fmt::join(kCommsOfJob[i].ranks, ","));
    const std::size_t first = entries_.size() - std::min(entries_.size(), dumps_.kept);
    for (std::size_t i = first; i < entries_.size(); ++i) {
      if (dumps_.is_retired_only && entries_[i].has_ended) continue;
      entries += (entries.empty() ? "" : ",") + entries_[i].text;
    }
    return fmt::format(R"({{"version":"2.10","pg_config":{{{}}},"pg_status":{{}},"entries":[{}]}})", config, entries);
  }

 private:
  bool is_member(std::size_t group) const { return std::ranges::count(kCommsOfJob[group].ranks, rank_) > 0; }
  std::string description() const { return dumps_.counts == NumberedBy::as_torchcomms ? "ncclx" : "mesh"; }

  void run() {
    for (int step = 0; step < kDumpedSteps && !waits_; ++step) {
      const bool is_at_fault = step == kFaultStep && rank_ == dumps_.rank;
      for (int layer = 0; layer < 2; ++layer) call(1, "all_reduce", step, layer);
      if (is_member(1)) call(1, rank_ == 0 ? "send" : "recv", step, 2);
      call(2, "all_gather_single", step, 3);
      if (is_at_fault && dumps_.fault == DumpedFault::never_calls) return;
      if (!is_at_fault || dumps_.fault != DumpedFault::leaves_out) call(0, "all_reduce", step, 4);
    }
  }

  // Calls behind the fault that this rank waits in: those of all, and those with a rank that waits.
  bool does_wait(std::size_t group, int step) const {
    if (dumps_.fault == DumpedFault::none || step < kFaultStep) return false;
    return group == 0 || step > kFaultStep;
  }

  void call(std::size_t group, const std::string& name, int step, int place) {
    if (waits_ || !is_member(group)) return;
    const bool is_transfer = name == "send" || name == "recv";
    const int own = group_counts_[group];
    if (!is_transfer) ++group_counts_[group];
    const int record = static_cast<int>(entries_.size());
    const bool ended = is_transfer || !does_wait(group, step);
    // Steps take different times, and no two clocks are alike.
    const std::int64_t at_ns = 1'700'000'000'000'000'000 + 400'000'000LL * rank_ + 1'000'000'000LL * step +
                               37'000'000LL * ((step * step) % 11) + 100'000'000LL * place + 700'000LL * (rank_ % 3);
    const std::string state = !dumps_.has_events                           ? "scheduled"
                              : ended                                      ? "completed"
                              : dumps_.counts == NumberedBy::as_torchcomms ? "completed"  // though it has not ended
                                                                           : "started";
    std::string text = fmt::format(
        R"({{"record_id":{},"pg_id":{},"process_group":["{}","{}"],"collective_seq_id":{},"p2p_seq_id":{},"op_id":{},)",
        record, group, kCommsOfJob[group].name, description(),
        dumps_.counts == NumberedBy::by_group ? (is_transfer ? own : own + 1) : record,
        is_transfer && dumps_.counts == NumberedBy::by_group ? step + 1 : 0, record + 3);
    text += fmt::format(R"("profiling_name":"ncclx:{}","state":"{}","retired":{},"time_created_ns":{},)", name, state,
                        ended, at_ns);
    text += R"("timeout_ms":600000,"input_sizes":[[64]],"input_dtypes":["Float"],"output_sizes":[[64]],)";
    text += fmt::format(R"("time_discovered_started_ns":{},"time_discovered_completed_ns":{},"is_p2p":false}})",
                        dumps_.has_events ? at_ns + 1000 : 0, state == "completed" ? at_ns + 50'000'000 : 0);
    entries_.push_back({.text = text, .has_ended = ended});
    waits_ = !ended;
  }

  const MadeDumps dumps_;
  const int rank_;
  std::vector<MadeEntry> entries_;
  std::map<std::size_t, int> group_counts_;
  bool waits_ = false;
};

RunTrace read_job_of(const MadeDumps& dumps) {
  const ForeignFiles files;
  for (int rank = 0; rank < 4; ++rank)
    files.put(fmt::format("comm_lib_trace_rank_{}", rank), MadeRank(dumps, rank).dump());
  return read_run({files.path()});
}

TEST(ProcessNumbers, TheVerdictIsThatOfNumbersByGroup) {
  for (const DumpedFault fault : {DumpedFault::never_calls, DumpedFault::leaves_out}) {
    for (const int rank : {0, 1, 2, 3}) {
      if (fault == DumpedFault::leaves_out && rank == 3) continue;  // it is in one group, and its next call would do
      const Reason reason =
          find_hang(read_job_of({.counts = NumberedBy::by_group, .fault = fault, .rank = rank})).suspects.at(0).reason;
      for (const std::size_t kept : {std::size_t{10000}, std::size_t{60}}) {
        for (const NumberedBy counts : {NumberedBy::by_group, NumberedBy::by_process, NumberedBy::as_torchcomms}) {
          SCOPED_TRACE(fmt::format("fault {} of rank {}, {} kept, counts {}", static_cast<int>(fault), rank, kept,
                                   static_cast<int>(counts)));
          const RunTrace trace = read_job_of({.counts = counts, .fault = fault, .rank = rank, .kept = kept});
          const Hang hang = find_hang(trace);
          ASSERT_FALSE(hang.suspects.empty());
          EXPECT_EQ(hang.state, RunState::hang);
          EXPECT_EQ(hang.suspects[0].rank, rank);
          EXPECT_EQ(hang.suspects[0].reason, reason);
          for (const RankTrace& it : trace.ranks) EXPECT_FALSE(it.is_older || it.later_s > 0 || it.is_cut_off);
        }
      }
    }
  }
}

TEST(ProcessNumbers, AHealthyJobIsWell) {
  for (const std::size_t kept : {std::size_t{10000}, std::size_t{60}}) {
    for (const NumberedBy counts : {NumberedBy::by_process, NumberedBy::as_torchcomms}) {
      const Hang hang = find_hang(read_job_of({.counts = counts, .fault = DumpedFault::none, .kept = kept}));
      EXPECT_TRUE(hang.suspects.empty()) << hang.sentence;
      EXPECT_EQ(hang.state, RunState::cut_off);
    }
  }
}

// Without events of a device only that an operation is retired tells that it ended.
TEST(ProcessNumbers, WhatIsRetiredHasEnded) {
  const RunTrace trace = read_job_of({.rank = 2, .has_events = false});
  EXPECT_EQ(find_hang(trace).suspects.at(0).rank, 2);
  for (const RankTrace& rank : trace.ranks) {
    const auto open = std::ranges::count_if(rank.events, [](const Event& it) { return it.state != State::ended; });
    EXPECT_EQ(open, rank.rank == 2 ? 0 : 1);
  }
}

// A dump of what did not end tells no place in a group.
TEST(ProcessNumbers, WithoutWhatEndedThePlaceIsAGuess) {
  const RunTrace trace = read_job_of({.is_retired_only = true});
  for (const HangSuspect& it : find_hang(trace).suspects) EXPECT_LE(it.confidence, 0.5);
}

TEST(ProcessNumbers, ACountOfTheProcessIsRecognised) {
  struct Call {
    const char* group;
    std::int64_t record, sequence, p2p = 0;
    const char* operation = "nccl:all_reduce";
  };
  struct Row {
    const char* what;
    std::vector<Call> calls;
    bool of_process;
  };
  for (const Row& row : {
           Row{"one group", {{"0", 0, 1}, {"0", 1, 2}, {"0", 2, 3}}, false},
           Row{"two groups in turn", {{"0", 0, 1}, {"1", 1, 1}, {"0", 2, 2}, {"1", 3, 2}}, false},
           Row{"two groups, one sequence", {{"0", 0, 1}, {"1", 1, 2}, {"0", 2, 3}}, true},
           Row{"from zero, and after a full buffer", {{"0", 50, 50}, {"1", 51, 51}, {"0", 52, 52}}, true},
           Row{"the same, but with what ended left out", {{"0", 50, 50}, {"0", 52, 52}}, false},
           Row{"two entries may agree by chance", {{"0", 50, 9}, {"1", 51, 10}}, false},
           Row{"a send counts, too", {{"0", 0, 0}, {"0", 1, 1, 0, "nccl:send"}, {"0", 2, 2}}, true},
           Row{"a send has its own number", {{"0", 0, 1}, {"0", 1, 1, 1, "nccl:send 0->1"}, {"0", 2, 2}}, false},
           Row{"without records", {{"0", -1, 1}, {"1", -1, 2}, {"0", -1, 3}}, false},
           Row{"nothing", {}, false},
       }) {
    std::vector<RecorderEntry> entries;
    for (const Call& call : row.calls) {
      RecorderEntry& entry = entries.emplace_back();
      entry.operation = call.operation;
      entry.group = call.group;
      entry.record = call.record;
      entry.sequence = call.sequence;
      entry.p2p_sequence = call.p2p;
    }
    EXPECT_EQ(counts_process(entries), row.of_process) << row.what;
    for (RecorderEntry& entry : entries) entry.description = "nccl";  // as only torchcomms does
    EXPECT_EQ(counts_process(entries), !entries.empty()) << row.what;
  }
}

}  // namespace
}  // namespace ms::tracepp
