// Kineto traces whose collectives have no "Seq": which are matched by their order, and which must not be.
#include <gmock/gmock.h>

#include <algorithm>

#include "foreign_files.h"
#include "tracepp/findings/last_comers.h"
#include "tracepp/report/report.h"

namespace ms::tracepp {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr int kKinetoRanks = 4, kKinetoSteps = 12, kStepCollectives = 4;

struct MadeKineto {
  int slow_rank = 2;                  // computes 1.3 times as long
  std::vector<int> late_start = {};   // ranks whose trace begins a collective later
  std::vector<int> later_steps = {};  // ranks whose steps have other numbers
  bool has_members = true;            // the collectives' group lists its ranks
  const char* kind_of_rank_3 = "allreduce";
  int cut_rank = -1;  // the file of which ends in its middle
};

std::string event_text(const char* category, const char* name, double ts, double dur, const std::string& args) {
  return fmt::format(R"({{"ph":"X","cat":"{}","name":"{}","pid":0,"tid":7,"ts":{:.3f},"dur":{:.3f},"args":{{{}}}}})",
                     category, name, ts, dur, args);
}

// The directory of a run like PyTorch 2.5's, every rank on a host whose clock has its own zero.
void write_made(const ForeignFiles& files, const MadeKineto& made) {
  for (int rank = 0; rank < kKinetoRanks; ++rank) {
    const auto is_in = [rank](const std::vector<int>& ranks) { return std::ranges::count(ranks, rank) > 0; };
    std::vector<std::string> events;
    double now = 1e9 * rank;
    for (int step = 0; step < kKinetoSteps; ++step) {
      const double begin = now;
      for (int i = 0; i < kStepCollectives; ++i) {
        const double computing = rank == made.slow_rank ? 2600 : 2000 + (rank * 7 + step * 3 + i) % 5;
        events.push_back(event_text("kernel", "ampere_bf16_s16816gemm", now, computing, ""));
        now += computing;
        const double end = begin + (made.slow_rank >= 0 ? 3000.0 : 2500.0) * (i + 1);
        const std::string args =
            fmt::format(R"("Collective name":"{}","In msg nelems":1024,"dtype":"Float","Process Group Name":"0"{})",
                        rank == 3 ? made.kind_of_rank_3 : "allreduce",
                        made.has_members ? R"(,"Process Group Ranks":"[0, 1, 2, 3]")" : "");
        if (!is_in(made.late_start) || step > 0 || i > 0)
          events.push_back(event_text("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", now, end - now, args));
        now = end;
      }
      const std::string name = fmt::format("ProfilerStep#{}", step + (is_in(made.later_steps) ? 11 : 10));
      events.push_back(event_text("gpu_user_annotation", name.c_str(), begin, now - begin, ""));
      events.push_back(event_text("user_annotation", name.c_str(), begin, now - begin, ""));
    }
    const std::string text =
        fmt::format(R"({{"schemaVersion":1,"distributedInfo":{{"rank":{},"world_size":{}}},"traceEvents":[{}]}})", rank,
                    kKinetoRanks, fmt::join(events, ","));
    files.put(fmt::format("rank{}.json", rank), text.substr(0, text.size() / (rank == made.cut_rank ? 2 : 1)));
  }
}

struct ReadKineto {
  RunTrace trace;
  Analysis analysis;
  std::string report;
};

ReadKineto read_made(const MadeKineto& made) {
  const ForeignFiles files;
  write_made(files, made);
  ReadKineto read{.trace = read_run({files.path()}), .analysis = {}, .report = {}};
  read.analysis = analyse(read.trace);
  read.report = report_text(read.trace, read.analysis, true);
  return read;
}

std::string hint_of_refusal(const RunTrace& trace) {
  try {
    find_suspects(trace);
  } catch (const Error& error) { return error.hint(); }
  return "not refused";
}

TEST(CollectiveNumbers, TheSameOrderOnAllRanksNamesTheSlowOne) {
  const ReadKineto found = read_made({});
  EXPECT_EQ(found.analysis.matches.operations.size(), std::size_t{kKinetoSteps * kStepCollectives});
  EXPECT_EQ(found.analysis.matches.members.size(), std::size_t{kKinetoRanks * kKinetoSteps * kStepCollectives});
  EXPECT_THAT(look_first(found.trace, found.analysis).at(0).sentence,
              StartsWith("rank 2 comes last to 48 of 48 collectives"));
  EXPECT_EQ(found.trace.ranks[found.analysis.paths.by_rank.at(0).rank].rank, 2);
  EXPECT_THAT(found.report, HasSubstr("ranks         4 of 4,"));
  EXPECT_THAT(hint_of_refusal(found.trace), HasSubstr("report tells which rank comes last"));
}

TEST(CollectiveNumbers, ATraceThatIsCutOffIsNoObstacleForTheOthers) {
  for (const int cut_rank : {0, 3}) {
    const ReadKineto found = read_made({.cut_rank = cut_rank});
    EXPECT_TRUE(found.trace.rank(cut_rank)->is_cut_off);
    EXPECT_EQ(found.analysis.matches.members.size(), std::size_t{(kKinetoRanks - 1) * kKinetoSteps * kStepCollectives});
    ASSERT_TRUE(found.analysis.last_comer) << cut_rank;
    EXPECT_EQ(found.analysis.last_comer->ranks, std::vector<int>{2});
    EXPECT_LE(found.analysis.last_comer->confidence, 0.5) << "the one that is cut may come later still";
    const Json json = last_comers_json(found.trace, found.analysis.breakdown, found.analysis.comms, {});
    EXPECT_EQ(json.get<std::vector<int>>("cut_off_ranks"), std::vector<int>{cut_rank});
  }
  EXPECT_FALSE(read_made({.slow_rank = -1, .cut_rank = 1}).analysis.last_comer);
  EXPECT_FALSE(read_made({.slow_rank = 2, .cut_rank = 2}).analysis.last_comer) << "only it would be named";
}

TEST(CollectiveNumbers, NamesNobodyOfAHealthyRun) {
  const ReadKineto found = read_made({.slow_rank = -1});
  EXPECT_EQ(found.analysis.matches.members.size(), std::size_t{kKinetoRanks * kKinetoSteps * kStepCollectives});
  for (const Advice& advice : look_first(found.trace, found.analysis)) EXPECT_NE(advice.is, Advice::Is::fault);
}

TEST(CollectiveNumbers, WhereRanksHoldOthersNothingIsMatchedOrNamed) {
  struct Case {
    MadeKineto made;
    const char* problem;
  };
  for (const auto& [made, problem] :
       {Case{{.late_start = {1}}, "and other ranks hold other ones or other steps"},
        Case{{.later_steps = {1}}, "and other ranks hold other ones or other steps"},
        Case{{.kind_of_rank_3 = "reduce"}, "and other ranks hold other ones or other steps"},
        Case{{.has_members = false}, "of a group whose ranks are not known"}}) {
    const ReadKineto found = read_made(made);
    EXPECT_FALSE(found.analysis.matches.tie_ranks());
    for (const Advice& advice : look_first(found.trace, found.analysis)) EXPECT_NE(advice.is, Advice::Is::fault);
    EXPECT_TRUE(found.analysis.paths.by_rank.empty());
    EXPECT_THAT(found.report, HasSubstr("no critical path: no communication of two ranks could be matched"));
    EXPECT_THAT(found.report, HasSubstr(std::string("collective without a number (Seq), ") + problem));
    EXPECT_THAT(hint_of_refusal(found.trace), HasSubstr("ms-tracepp info tells why"));
  }
}

}  // namespace
}  // namespace ms::tracepp
