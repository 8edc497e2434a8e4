// The joint verdict of ms-tracepp hang in the driver's decision: whom it accuses, and where it accuses no one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "driver/flight.h"
#include "driver/judge.h"
#include "support/files.h"

namespace ms::driver {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

NodeTask seen(const std::string& node, int rank, char state = 'S') {
  return {
      .node = node, .task = {.rank = rank, .pid = 1, .state = state, .cpu = 0, .waits_in = "", .stack = ""}, .step = 7};
}

// Four ranks on as many nodes hang.
AttemptEvidence hung(std::optional<HangVerdict> joint, int stopped = -1) {
  AttemptEvidence evidence;
  evidence.alarm = Alarm{.kind = AlarmKind::hang, .nodes = {}, .ranks = {}, .fault_s = 0, .why = "why"};
  for (int rank = 0; rank < 4; ++rank) {
    evidence.nodes.push_back(fmt::format("n{}", rank));
    evidence.tasks.push_back(seen(evidence.nodes.back(), rank, rank == stopped ? 'T' : 'S'));
  }
  evidence.joint = std::move(joint);
  return evidence;
}
HangVerdict verdict_of(HangFault fault, double confidence = 0.95, const std::string& node = "n2") {
  return {.rank = 2, .host = node, .node = node, .confidence = confidence, .fault = fault, .why = "so it is"};
}

TEST(JudgeJoint, ANodeIsAccusedOfWhatLiesThere) {
  const Judgement judgement = judge(hung(verdict_of(HangFault::node)));
  EXPECT_EQ(judgement.next, Next::again);
  EXPECT_EQ(judgement.cause, "hang");
  EXPECT_THAT(judgement.suspects, ElementsAre("n2"));
  EXPECT_TRUE(judgement.accuses);
  EXPECT_FALSE(judgement.certain) << "ms-diag looks at it before it is left out";
}

TEST(JudgeJoint, AProgramsErrorAccusesNoNodeWhateverStandsOut) {
  for (const int stopped : {-1, 1, 2}) {
    const Judgement judgement = judge(hung(verdict_of(HangFault::program), stopped));
    EXPECT_EQ(judgement.next, Next::again) << stopped;
    EXPECT_THAT(judgement.suspects, IsEmpty()) << stopped;
    EXPECT_FALSE(judgement.accuses) << stopped;
  }
  EXPECT_THAT(judge(hung(verdict_of(HangFault::program, 0.95, ""))).suspects, IsEmpty()) << "whose node is not known";
  const Judgement mismatch = judge(hung(verdict_of(HangFault::mismatch, 0.5), 2));
  EXPECT_EQ(mismatch.cause, kMismatchCause);
  EXPECT_THAT(mismatch.suspects, IsEmpty());
}

TEST(JudgeJoint, WhatMayBeTheProgramOrTheNodeHasTheNodeLookedAt) {
  const Judgement judgement = judge(hung(verdict_of(HangFault::unknown)));
  EXPECT_THAT(judgement.suspects, ElementsAre("n2"));
  EXPECT_FALSE(judgement.accuses);
}

TEST(JudgeJoint, AVerdictThatIsNotSureAccusesNoNode) {
  for (const HangFault fault : {HangFault::node, HangFault::program, HangFault::unknown}) {
    const Judgement judgement = judge(hung(verdict_of(fault, 0.79)));
    EXPECT_EQ(judgement.suspects.size(), 4U) << "all are looked at";
    EXPECT_THAT(judge(hung(verdict_of(fault, 0.79), 1)).suspects, ElementsAre("n1")) << "the stopped one stands out";
  }
  EXPECT_EQ(judge(hung(verdict_of(HangFault::node, 0.95, ""))).suspects.size(), 4U) << "whose node is not known";
}

TEST(JudgeJoint, TasksThatContradictItAccuseNoOne) {
  EXPECT_THAT(judge(hung(verdict_of(HangFault::node), 2)).suspects, ElementsAre("n2"));
  EXPECT_EQ(judge(hung(verdict_of(HangFault::node), 1)).suspects.size(), 4U);
  AttemptEvidence lossy = hung(verdict_of(HangFault::node), 1);
  lossy.lossy = LossyNode{.node = "n3", .why = "lost packets"};
  EXPECT_THAT(judge(lossy).suspects, ElementsAre("n3")) << "who waits for lost packets differs from the others";
}

TEST(JudgeJoint, AWatchdogThatEndedTheRanksLeavesItTheDecision) {
  const auto ended = [](const HangVerdict& joint) {
    AttemptEvidence evidence;
    evidence.exit_status = 134;
    evidence.nodes = {"n1", "n2"};
    const std::string text = "[E] [Rank 1] Watchdog caught collective operation timeout";
    evidence.lines = {{.known = known_line(text), .node = "n1", .rank = 0, .text = text}};
    evidence.joint = joint;
    return judge(evidence);
  };
  EXPECT_THAT(ended(verdict_of(HangFault::node)).suspects, ElementsAre("n2"));
  EXPECT_TRUE(ended(verdict_of(HangFault::node)).accuses);
  EXPECT_THAT(ended(verdict_of(HangFault::program)).suspects, IsEmpty());
  EXPECT_FALSE(ended(verdict_of(HangFault::unknown)).accuses);
  EXPECT_THAT(ended(verdict_of(HangFault::node, 0.7)).suspects, IsEmpty());
}

TEST(JudgeJoint, FaultsAreReadFromWhatMsTraceppPrints) {
  const auto fault = [](const std::string& reason, const std::string& domain, double confidence) {
    const auto verdict = read_hang_verdict(fmt::format(
        "{{\n  \"sentence\": \"s\", \"suspects\": [{{\"rank\": 1, \"host\": \"\", \"reason\": \"{}\", \"fault\": "
        "\"{}\", \"confidence\": {}, \"group\": null}}]\n}}\n",
        reason, domain, confidence));
    return verdict ? verdict->fault : HangFault::unknown;
  };
  for (const char* word : {"host", "network", "device"}) EXPECT_EQ(fault("failed", word, 0.9), HangFault::node) << word;
  EXPECT_EQ(fault("failed", "program", 0.9), HangFault::program);
  for (const char* word : {"unknown", "", "a later one"})
    EXPECT_EQ(fault("failed", word, 0.9), HangFault::unknown) << word;
  EXPECT_EQ(fault("wrong_kind", "program", 0.9), HangFault::mismatch) << "sources without a group agree";
  EXPECT_EQ(fault("wrong_kind", "program", 0.7), HangFault::program);
}

TEST(JudgeJoint, ItIsMadeFromAllThatTheAgentsLeftOfTheAttempt) {
  const test::TempDir dir;
  for (const char* name :
       {"attempt-3.n1.stacks", "attempt-3.ras.n1.1", "attempt-3.heartbeats.json", "attempt-3.log", "attempt-3.status",
        "attempt-3.n1.devices", "attempt-33.n1.stacks", "attempt-2.ras.n1.1", "attempt-3.evidence.json"})
    test::spill(dir / name, "x");
  EXPECT_THAT(evidence_files(dir.path(), 3, 0),
              ElementsAre(dir / "attempt-3.heartbeats.json", dir / "attempt-3.n1.stacks", dir / "attempt-3.ras.n1.1"));
  EXPECT_THAT(evidence_files(dir.path(), 3, 4e9), IsEmpty()) << "of an earlier run";
}

TEST(JudgeJoint, TheLogIsThatOfBeforeTheAlarmAndItsEndIfItIsLong) {
  const test::TempDir dir;
  test::spill(dir / "log", "hangs\nkilled\n");
  copy_log(dir / "log", dir / "copy", 6);
  EXPECT_EQ(read_file(dir / "copy"), "hangs\n");
  test::spill(dir / "log",
              "I driver: attempt 1 on n[1-2]\nold\nI driver: attempt 12 on n1\nnew\nI driver: attempt 12 trains\n");
  copy_log(dir / "log", dir / "copy");
  EXPECT_EQ(read_file(dir / "copy"), " driver: attempt 12 on n1\nnew\nI driver: attempt 12 trains\n");
  std::string text;
  while (text.size() <= std::size_t{16} << 20) text += std::string(1 << 16, 'x') + "\n";
  test::spill(dir / "log", text + "hangs\n");
  copy_log(dir / "log", dir / "copy");
  const std::string end = read_file(dir / "copy");
  EXPECT_LT(end.size(), std::size_t{16} << 20);
  EXPECT_TRUE(end.starts_with("x") && end.ends_with("x\nhangs\n"));
  EXPECT_EQ((end.size() - 6) % ((1 << 16) + 1), 0U) << "whole lines";
}

}  // namespace
}  // namespace ms::driver
