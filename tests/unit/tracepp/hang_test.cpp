// Faults of simulated runs are named, the rank at fault first; healthy runs raise no alarm wherever they are cut off.
#include "tracepp/hang/hang.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "tracepp/simulated_run.h"
#include "tracepp/synthetic.h"

namespace ms::tracepp {
namespace {

using testing::Contains;
using testing::HasSubstr;

constexpr mesh::Mesh kSmall{.dp = 2, .pp = 2, .tp = 2}, kMiddle{.dp = 4, .pp = 4, .tp = 4},
    kLarge{.dp = 64, .pp = 8, .tp = 8};

struct Row {
  const char* name;
  FaultKind fault;
  Kind call;
  Purpose purpose;
  std::vector<Reason> reasons;      // any of them is right
  std::vector<Match> matches = {};  // of the operation that the suspect is named for; empty: any
};

const std::vector<Row>& rows() {
  static const std::vector<Row> kRows{
      {"gather left out", FaultKind::missing_call, Kind::all_gather, Purpose::params, {Reason::missing_call}},
      {"gradients left out", FaultKind::missing_call, Kind::reduce_scatter, Purpose::grads, {Reason::missing_call}},
      {"clip left out", FaultKind::missing_call, Kind::all_reduce, Purpose::clip, {Reason::missing_call}},
      {"tp left out", FaultKind::missing_call, Kind::all_reduce, Purpose::forward, {Reason::missing_call}},
      {"host stops before gather", FaultKind::host_stops, Kind::all_gather, Purpose::params, {Reason::not_issuing}},
      {"host stops before forward", FaultKind::host_stops, Kind::forward, Purpose::none, {Reason::not_issuing}},
      {"host stops before backward", FaultKind::host_stops, Kind::backward, Purpose::none, {Reason::not_issuing}},
      {"host stops before clip", FaultKind::host_stops, Kind::all_reduce, Purpose::clip, {Reason::not_issuing}},
      {"gather too many", FaultKind::extra_call, Kind::all_gather, Purpose::params, {Reason::extra_call}},
      {"clip too many", FaultKind::extra_call, Kind::all_reduce, Purpose::clip, {Reason::extra_call}},
      {"another call in dp",
       FaultKind::foreign_call,
       Kind::reduce_scatter,
       Purpose::grads,
       {Reason::extra_call},
       {Match::size_mismatch}},
      {"another call in tp",
       FaultKind::foreign_call,
       Kind::all_reduce,
       Purpose::backward,
       {Reason::extra_call},
       {Match::size_mismatch}},
      {"size in dp",
       FaultKind::wrong_size,
       Kind::reduce_scatter,
       Purpose::grads,
       {Reason::wrong_size},
       {Match::size_mismatch}},
      {"size in tp",
       FaultKind::wrong_size,
       Kind::all_reduce,
       Purpose::forward,
       {Reason::wrong_size},
       {Match::size_mismatch}},
      {"size in world",
       FaultKind::wrong_size,
       Kind::all_reduce,
       Purpose::clip,
       {Reason::wrong_size},
       {Match::size_mismatch}},
      {"dtype in dp",
       FaultKind::wrong_dtype,
       Kind::all_gather,
       Purpose::params,
       {Reason::wrong_dtype},
       {Match::dtype_mismatch}},
      {"dtype in world",
       FaultKind::wrong_dtype,
       Kind::all_reduce,
       Purpose::clip,
       {Reason::wrong_dtype},
       {Match::dtype_mismatch}},
      {"kind in dp",
       FaultKind::wrong_kind,
       Kind::reduce_scatter,
       Purpose::grads,
       {Reason::wrong_kind},
       {Match::type_mismatch}},
      {"kind in tp",
       FaultKind::wrong_kind,
       Kind::all_reduce,
       Purpose::backward,
       {Reason::wrong_kind},
       {Match::type_mismatch}},
      {"order of dp and world", FaultKind::wrong_order, Kind::other, Purpose::none, {Reason::wrong_order}},
      {"order of a pair", FaultKind::crossed_pair, Kind::other, Purpose::none, {Reason::wrong_order}},
      {"stuck in forward", FaultKind::never_ends, Kind::forward, Purpose::none, {Reason::compute}},
      {"stuck in backward", FaultKind::never_ends, Kind::backward, Purpose::none, {Reason::compute}},
      {"stuck in optimizer", FaultKind::never_ends, Kind::optimizer, Purpose::none, {Reason::compute}},
      {"stuck in data", FaultKind::never_ends, Kind::data_wait, Purpose::none, {Reason::data_wait}},
      {"dies in forward", FaultKind::dies, Kind::forward, Purpose::none, {Reason::silent}},
      {"dies in gather", FaultKind::dies, Kind::all_gather, Purpose::params, {Reason::silent}},
      {"dies in clip", FaultKind::dies, Kind::all_reduce, Purpose::clip, {Reason::silent}},
      {"dies in tp", FaultKind::dies, Kind::all_reduce, Purpose::backward, {Reason::silent}},
      {"dies waiting for data", FaultKind::dies, Kind::data_wait, Purpose::none, {Reason::silent}},
  };
  return kRows;
}

// A rank that the fault can befall: of a crossed pair there must be a stage behind it.
int victim(const mesh::Mesh& mesh, const Row& row, unsigned seed) {
  const int last = row.fault == FaultKind::crossed_pair ? mesh.pp - 2 : mesh.pp - 1;
  return mesh.rank({.dp = static_cast<int>(seed * 7 + 1) % mesh.dp,
                    .pp = static_cast<int>(seed * 5) % (last + 1),
                    .tp = static_cast<int>(seed * 3 + 1) % mesh.tp});
}

InjectedFault fault_of(const Row& row, int rank, int step = 3) {
  return {row.fault, rank, row.call, row.purpose, step};
}

void expect_named(const Row& row, const SimulatedRun& run, int rank, const RunTrace& trace) {
  const Hang hang = find_hang(trace);
  SCOPED_TRACE(std::string(row.name) + ", mesh " + std::to_string(run.mesh.dp) + "x" + std::to_string(run.mesh.pp) +
               "x" + std::to_string(run.mesh.tp) + ", rank " + std::to_string(rank) + "\n" + hang_text(hang, trace));
  ASSERT_EQ(hang.state, RunState::hang);
  ASSERT_FALSE(hang.suspects.empty());
  EXPECT_EQ(hang.suspects.front().rank, rank);
  EXPECT_THAT(row.reasons, Contains(hang.suspects.front().reason)) << to_string(hang.suspects.front().reason);
  EXPECT_THAT(hang.sentence, HasSubstr("rank " + std::to_string(rank) + " "));
  if (!row.matches.empty()) {
    ASSERT_GE(hang.suspects.front().op, 0);
    EXPECT_THAT(row.matches, Contains(hang.ops[static_cast<std::size_t>(hang.suspects.front().op)].match));
  }
  EXPECT_GT(hang.since_s, 200);
}

TEST(Hang, NamesTheFaultyRankFirst) {
  for (const mesh::Mesh& mesh : {kSmall, kMiddle}) {
    for (const Row& row : rows()) {
      for (unsigned seed = 0; seed < 6; ++seed) {
        const int rank = victim(mesh, row, seed);
        const SimulatedRun run{.mesh = mesh, .steps = 6, .faults = {fault_of(row, rank)}, .seed = seed};
        Simulation simulation(run);
        expect_named(row, run, rank, simulation.traces_at_rest());
      }
    }
  }
}

TEST(Hang, NamesTheFaultyRankAmongThousands) {
  for (const char* name : {"gradients left out", "order of dp and world", "stuck in forward"}) {
    const Row& row = *std::ranges::find(rows(), std::string_view(name), &Row::name);
    const int rank = victim(kLarge, row, 5);
    const SimulatedRun run{.mesh = kLarge, .microbatches = 8, .steps = 3, .faults = {fault_of(row, rank, 1)}};
    Simulation simulation(run);
    const RunTrace trace = simulation.traces_at_rest();
    expect_named(row, run, rank, trace);
    const std::string text = hang_text(find_hang(trace), trace);
    EXPECT_LE(std::ranges::count(text, '\n'), 25) << text;
  }
}

TEST(Hang, ReportsNoHangInCutOffHealthyRuns) {
  std::mt19937 random(7);
  for (const mesh::Mesh& mesh : {kSmall, kMiddle}) {
    Simulation simulation({.mesh = mesh, .steps = 100, .faults = {}});
    ASSERT_TRUE(simulation.came_to_an_end());
    for (int i = 0; i < 200; ++i) {
      const RunTrace trace = simulation.traces(std::uniform_real_distribution<>(0.001, simulation.rest_s())(random));
      const Hang hang = find_hang(trace);
      ASSERT_EQ(hang.state, RunState::cut_off) << hang_text(hang, trace);
      ASSERT_TRUE(hang.suspects.empty());
    }
  }
}

TEST(Hang, RecognisesARunThatEndedWell) {
  Simulation simulation({});
  const RunTrace trace = simulation.traces_at_rest();
  const Hang hang = find_hang(trace);
  EXPECT_EQ(hang.state, RunState::ended);
  EXPECT_EQ(hang.sentence, "the run ended well on 8 ranks");
}

TEST(Hang, NamesBothOfTwoFaults) {
  // Neither keeps the other from being reached.
  const int one = kMiddle.rank({.dp = 0, .pp = 0, .tp = 1}), other = kMiddle.rank({.dp = 3, .pp = 0, .tp = 2});
  const InjectedFault second{FaultKind::never_ends, other, Kind::data_wait, Purpose::none, 3};
  for (const auto& [fault, reason] :
       {std::pair(InjectedFault{FaultKind::host_stops, one, Kind::all_gather, Purpose::params, 3}, Reason::not_issuing),
        std::pair(InjectedFault{FaultKind::dies, one, Kind::all_gather, Purpose::params, 3}, Reason::silent),
        std::pair(InjectedFault{FaultKind::wrong_dtype, one, Kind::all_gather, Purpose::params, 3},
                  Reason::wrong_dtype),
        std::pair(InjectedFault{FaultKind::never_ends, one, Kind::optimizer, Purpose::none, 2}, Reason::compute)}) {
    Simulation simulation({.mesh = kMiddle, .steps = 6, .faults = {fault, second}});
    const RunTrace trace = simulation.traces_at_rest();
    const Hang hang = find_hang(trace);
    SCOPED_TRACE(hang_text(hang, trace));
    ASSERT_EQ(hang.suspects.size(), 2U);
    const bool in_order = hang.suspects[0].rank == one;
    EXPECT_EQ(hang.suspects[in_order ? 0 : 1].rank, one);
    EXPECT_EQ(hang.suspects[in_order ? 0 : 1].reason, reason);
    EXPECT_EQ(hang.suspects[in_order ? 1 : 0].rank, other);
    EXPECT_EQ(hang.suspects[in_order ? 1 : 0].reason, Reason::data_wait);
    EXPECT_THAT(hang.sentence, HasSubstr("; besides, rank "));
  }
}

TEST(Hang, NamesARankWithoutATraceOnlyAsTheLastExplanation) {
  for (const mesh::Mesh& mesh : {kSmall, kMiddle}) {
    for (const Row& row : rows()) {
      for (unsigned seed = 0; seed < 4; ++seed) {
        const int rank = victim(mesh, row, seed);
        Simulation simulation({.mesh = mesh, .steps = 6, .faults = {fault_of(row, rank)}, .seed = seed});
        const RunTrace culprit_lost = without_rank(simulation.traces_at_rest(), rank);
        const Hang without_culprit = find_hang(culprit_lost);
        ASSERT_EQ(without_culprit.state, RunState::hang);
        EXPECT_EQ(without_culprit.suspects.front().rank, rank) << row.name << "\n"
                                                               << hang_text(without_culprit, culprit_lost);
        EXPECT_EQ(without_culprit.missing_ranks, std::vector{rank});
        // Of an innocent one's loss only the kind of fault may suffer.
        const int innocent = (rank + mesh.size() / 2 + 1) % mesh.size();
        const RunTrace innocent_lost = without_rank(simulation.traces_at_rest(), innocent);
        const Hang without_innocent = find_hang(innocent_lost);
        EXPECT_EQ(without_innocent.suspects.front().rank, rank) << row.name << "\n"
                                                                << hang_text(without_innocent, innocent_lost);
      }
    }
  }
}

TEST(Hang, NamesBothRanksIfTheyCannotBeDistinguished) {
  Simulation simulation({.mesh = {.dp = 2, .pp = 1, .tp = 1},
                         .faults = {{FaultKind::wrong_size, 1, Kind::all_gather, Purpose::params, 2}}});
  const RunTrace trace = simulation.traces_at_rest();
  const Hang hang = find_hang(trace);
  ASSERT_EQ(hang.suspects.size(), 2U) << hang_text(hang, trace);
  EXPECT_DOUBLE_EQ(hang.suspects[0].confidence, 0.5);
  EXPECT_DOUBLE_EQ(hang.suspects[1].confidence, 0.5);
  EXPECT_THAT(hang.sentence, HasSubstr("nothing tells which of them is right"));
  EXPECT_THAT(hang.sentence, testing::AllOf(HasSubstr("8576 bytes"), HasSubstr("4288 bytes")));
}

TEST(Hang, ToleratesClockOffsets) {
  const Row& row = *std::ranges::find(rows(), std::string_view("stuck in forward"), &Row::name);
  const SimulatedRun run{.mesh = kMiddle, .steps = 6, .faults = {fault_of(row, 21)}};
  Simulation simulation(run);
  RunTrace trace = simulation.traces_at_rest();
  for (RankTrace& rank : trace.ranks)  // the wall clock of one node is an hour behind, none knows it of another
    rank.realtime_ns = rank.host == "n03"   ? rank.realtime_ns - 3600LL * 1000000000
                       : rank.host == "n05" ? 0
                                            : rank.realtime_ns;
  expect_named(row, run, 21, trace);
}

TEST(Hang, Json) {
  const Row& row = *std::ranges::find(rows(), std::string_view("size in dp"), &Row::name);
  Simulation simulation({.mesh = kSmall, .faults = {fault_of(row, 5, 2)}});
  RunTrace trace = simulation.traces_at_rest();
  trace.ranks[5].host = "n\xff<b>";
  const Hang hang = find_hang(trace);
  const nlohmann::json json = nlohmann::json::parse(hang_json(hang, trace));
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["state"], "hang");
  EXPECT_EQ(json["suspects"][0]["rank"], 5);
  EXPECT_EQ(json["suspects"][0]["dp"], 0);
  EXPECT_EQ(json["suspects"][0]["pp"], 1);
  EXPECT_EQ(json["suspects"][0]["tp"], 1);
  EXPECT_EQ(json["suspects"][0]["reason"], "wrong_size");
  EXPECT_EQ(json["groups"][0]["group"], "dp[pp 1 tp 1]");
  EXPECT_EQ(json["groups"][0]["match"], "size_or_syntax_mismatch");
  EXPECT_EQ(json["groups"][0]["members"].size(), 2U);
  EXPECT_EQ(json["missing_ranks"].size(), 0U);
  EXPECT_FALSE(json["waits"].empty());
}

}  // namespace
}  // namespace ms::tracepp
