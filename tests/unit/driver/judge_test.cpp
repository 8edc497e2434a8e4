#include "driver/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace ms::driver {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

AttemptEvidence ended(std::optional<int> status, std::optional<VerdictRead> verdict = {}, bool ms_train = true) {
  AttemptEvidence evidence;
  evidence.exit_status = status;
  evidence.verdict = std::move(verdict);
  evidence.writes_verdicts = ms_train;
  evidence.nodes = {"n1", "n2"};
  return evidence;
}
VerdictRead verdict(int code, const std::string& blame = "", const std::string& node = "n2",
                    const std::string& kind = "") {
  return {.code = code, .kind = kind, .blame = blame, .message = "so it was", .node = node, .rank = 1};
}
NodeTask task(const std::string& node, int rank, char state, double cpu, std::int64_t step = 7) {
  return {.node = node,
          .task = {.rank = rank, .pid = 1, .state = state, .cpu = cpu, .waits_in = "", .stack = ""},
          .step = step};
}
SaidLine said(std::string_view text, const std::string& node = "n2") {
  return {.known = known_line(text), .node = node, .rank = node == "n1" ? 0 : 1, .text = std::string(text)};
}

struct Case {
  std::string name;
  AttemptEvidence evidence;
  Next next;
  std::string cause;
  int code;
  std::vector<std::string> suspects;
  bool certain;
};

TEST(Judge, ByTheTable) {
  const auto with = [](AttemptEvidence evidence, const std::function<void(AttemptEvidence&)>& change) {
    change(evidence);
    return evidence;
  };
  const auto alarmed = [](AlarmKind kind, std::vector<std::string> nodes = {}) {
    return Alarm{.kind = kind, .nodes = std::move(nodes), .ranks = {}, .fault_s = 0, .why = "why"};
  };
  const std::vector<Case> cases{
      {"done", ended(0, verdict(0)), Next::done, "done", 0, {}, false},
      {"its verdict found no place either", ended(74), Next::again, "storage", 74, {}, false},
      {"74 of a program that may mean anything by it", ended(74, {}, false), Next::again, "failed", 74, {}, false},
      {"stopped on purpose", ended(75, verdict(75)), Next::stop, "stopped", 75, {}, false},
      {"rolled back by its guard",
       ended(75, verdict(75, "", "", "run.rolled_back")),
       Next::again,
       "rollback",
       75,
       {},
       false},
      {"refused configuration", ended(143, verdict(2, "user", "", "config")), Next::stop, "config", 2, {}, false},
      {"a run that diverged, whichever rank said so: no other node helps",
       with(ended(2, verdict(2, "user", "n2", "train.diverged")), [](AttemptEvidence& e) { e.died_on = {"n1"}; }),
       Next::stop,
       "train.diverged",
       2,
       {},
       false},
      {"refused arguments, told by srun only",
       with(ended(143),
            [](AttemptEvidence& e) {
              e.first_exit = TaskExit{"n1", 2};
            }),
       Next::stop,
       "usage",
       2,
       {},
       false},
      {"a program that is not there: the user's mistake, or a node without a mount",
       with(ended(143),
            [](AttemptEvidence& e) {
              e.first_exit = TaskExit{"n1", 127};
            }),
       Next::again,
       "rank_died",
       127,
       {"n1"},
       false},
      {"our bug", ended(70, verdict(70, "bug", "n2", "bug")), Next::stop, "bug", 70, {}, false},
      {"a bad node", ended(69, verdict(69, "node")), Next::again, "node_fault", 69, {"n2"}, true},
      {"a bad GPU", ended(69, verdict(69, "gpu")), Next::again, "gpu_fault", 69, {"n2"}, true},
      {"a CUDA error that nobody knows",
       ended(69, verdict(69, "gpu", "n2", "cuda.error")),
       Next::again,
       "gpu_fault",
       69,
       {"n2"},
       false},
      {"storage", ended(74, verdict(74, "storage")), Next::again, "storage", 74, {}, false},
      {"a peer that was waited for",
       ended(76, verdict(76, "peer", "n2", "comm.deadline")),
       Next::again,
       "hang",
       76,
       {"n2"},
       false},
      {"ranks that wait for each other: all are looked at",
       ended(76, verdict(76, "peer", "", "comm.deadline")),
       Next::again,
       "hang",
       76,
       {"n1", "n2"},
       false},
      {"of two dp ranks one computes wrongly",
       ended(76, verdict(76, "peer", "n2", "replay.tie")),
       Next::again,
       "replay.tie",
       76,
       {"n1", "n2"},
       false},
      {"who died is more to the point than who noticed",
       with(ended(76, verdict(76, "peer", "n1")), [](AttemptEvidence& e) { e.died_on = {"n2"}; }),
       Next::again,
       "rank_died",
       76,
       {"n2"},
       false},
      {"a node did not start its ranks", ended(0), Next::again, "failed", 76, {}, false},
      {"a lost node, whatever else was said",
       with(ended(137, verdict(76, "peer", "n1")), [](AttemptEvidence& e) { e.lost = {"n2"}; }),
       Next::again,
       "node_lost",
       76,
       {"n2"},
       true},
      {"drained by an administrator",
       with(ended({}), [&](AttemptEvidence& e) { e.alarm = alarmed(AlarmKind::drained, {"n1"}); }),
       Next::again,
       "drained",
       76,
       {},
       false},
      {"slow",
       with(ended({}), [&](AttemptEvidence& e) { e.alarm = alarmed(AlarmKind::slow, {"n1"}); }),
       Next::again,
       "slow_node",
       76,
       {},
       false},
      {"evicted",
       with(ended({}), [&](AttemptEvidence& e) { e.alarm = alarmed(AlarmKind::evicted, {"n1"}); }),
       Next::again,
       "evicted",
       76,
       {"n1"},
       true},
      {"what ms-diag finds while the run trains",
       with(ended({}), [&](AttemptEvidence& e) { e.alarm = alarmed(AlarmKind::finding, {"n1"}); }),
       Next::again,
       "finding",
       76,
       {"n1"},
       true},
      {"packets that are lost, which may be mended",
       with(ended({}), [&](AttemptEvidence& e) { e.alarm = alarmed(AlarmKind::packet_loss, {"n1"}); }),
       Next::again,
       "packet_loss",
       76,
       {"n1"},
       false},
      {"a hang of which nothing is known",
       with(ended({}), [&](AttemptEvidence& e) { e.alarm = alarmed(AlarmKind::hang); }),
       Next::again,
       "hang",
       76,
       {"n1", "n2"},
       false},
      {"a hang in which one node lost packets",
       with(ended({}),
            [&](AttemptEvidence& e) {
              e.alarm = alarmed(AlarmKind::hang);
              e.tasks = {task("n1", 0, 'S', 0), task("n1", 1, 'S', 0), task("n2", 2, 'S', 0, 6)};
              e.lossy = LossyNode{.node = "n1", .why = "lost"};
            }),
       Next::again,
       "packet_loss",
       76,
       {"n1"},
       false},
      {"a hang with a stopped task",
       with(ended({}),
            [&](AttemptEvidence& e) {
              e.alarm = alarmed(AlarmKind::hang);
              e.tasks = {task("n1", 0, 'S', 0), task("n1", 1, 'S', 0), task("n2", 2, 'T', 0)};
            }),
       Next::again,
       "hang",
       76,
       {"n2"},
       false},
      {"a hang of which PyTorch's flight recorders know",
       with(ended({}, {}, false),
            [&](AttemptEvidence& e) {
              e.alarm = alarmed(AlarmKind::hang);
              e.joint =
                  HangVerdict{.node = "n1", .confidence = 0.9, .fault = HangFault::node, .why = "rank 0 never came"};
            }),
       Next::again,
       "hang",
       76,
       {"n1"},
       false},
      {"a hang of ranks that called different things: the program's, wherever one of them stands",
       with(ended({}, {}, false),
            [&](AttemptEvidence& e) {
              e.alarm = alarmed(AlarmKind::hang);
              e.tasks = {task("n1", 0, 'S', 0), task("n2", 1, 'S', 0, 6)};
              e.joint =
                  HangVerdict{.node = "n1", .confidence = 0.5, .fault = HangFault::mismatch, .why = "a broadcast"};
            }),
       Next::again,
       "collective_mismatch",
       76,
       {},
       false},
      {"who was killed, and who noticed it",
       with(ended(137, {}, false),
            [&](AttemptEvidence& e) {
              e.first_exit = TaskExit{"n2", 137};
              e.lines = {said("RuntimeError: [gloo] Connection closed by peer [10.0.0.2]:4000", "n1")};
            }),
       Next::again,
       "rank_died",
       137,
       {"n2"},
       false},
      {"PyTorch's watchdog ended it",
       with(ended(134, {}, false),
            [&](AttemptEvidence& e) {
              e.lines = {said("[E] [Rank 1] Watchdog caught collective operation timeout")};
              e.joint =
                  HangVerdict{.node = "n1", .confidence = 0.9, .fault = HangFault::node, .why = "rank 0 never came"};
            }),
       Next::again,
       "collective_timeout",
       134,
       {"n1"},
       false},
      {"PyTorch's watchdog ended ranks that called different things",
       with(ended(134, {}, false),
            [&](AttemptEvidence& e) {
              e.lines = {said("[E] [Rank 1] Watchdog caught collective operation timeout")};
              e.joint =
                  HangVerdict{.node = "n1", .confidence = 0.9, .fault = HangFault::mismatch, .why = "a broadcast"};
            }),
       Next::again,
       "collective_mismatch",
       134,
       {},
       false},
      {"asked to stop, and failed on the way",
       with(ended(76, verdict(76, "peer")), [](AttemptEvidence& e) { e.asked_to_stop = true; }),
       Next::stop,
       "peer_lost",
       76,
       {"n2"},
       false},
      {"somebody's program that is done", ended(0, {}, false), Next::done, "done", 0, {}, false},
      {"somebody's program that failed", ended(1, {}, false), Next::again, "failed", 1, {}, false},
      {"the hardware said so",
       with(ended(1, {}, false),
            [](AttemptEvidence& e) {
              e.lines = {said("Connection reset by peer", "n1"),
                         said("CUDA error: uncorrectable ECC error encountered")};
            }),
       Next::again,
       "gpu_ecc",
       69,
       {"n2"},
       false},
      {"a GPU error that may be ours accuses nobody",
       with(ended(1, {}, false),
            [](AttemptEvidence& e) { e.lines = {said("CUDA error: an illegal memory access was encountered")}; }),
       Next::again,
       "gpu_illegal_address",
       1,
       {},
       false},
      {"a GPU error that may be the hardware's makes a suspect",
       with(ended(1, {}, false),
            [](AttemptEvidence& e) { e.lines = {said("CUDA error: unspecified launch failure")}; }),
       Next::again,
       "gpu_launch",
       1,
       {"n2"},
       false},
      {"a module that one node lacks",
       with(ended(1, {}, false), [](AttemptEvidence& e) { e.lines = {said("ModuleNotFoundError: No module 'x'")}; }),
       Next::again,
       "python_module",
       1,
       {"n2"},
       false},
      {"the job is over",
       with(ended(1, {}, false),
            [](AttemptEvidence& e) {
              e.lines = {
                  said("srun: error: Unable to create step for job 2: Job/step already completing or completed")};
            }),
       Next::stop,
       "job_ends",
       1,
       {},
       false},
      {"killed by the kernel, told by srun",
       with(ended(137, {}, false),
            [](AttemptEvidence& e) {
              e.first_exit = TaskExit{"n2", 137};
            }),
       Next::again,
       "rank_died",
       137,
       {"n2"},
       false},
  };
  for (const Case& c : cases) {
    const Judgement judgement = judge(c.evidence);
    EXPECT_EQ(judgement.next, c.next) << c.name;
    EXPECT_EQ(judgement.cause, c.cause) << c.name;
    EXPECT_EQ(judgement.code, c.code) << c.name;
    EXPECT_EQ(judgement.suspects, c.suspects) << c.name;
    EXPECT_EQ(judgement.certain, c.certain) << c.name;
    const bool can_be_the_networks =
        std::set<std::string>{"hang", "packet_loss", "node_lost", "peer_lost"}.contains(c.cause) ||
        (c.cause == kCollectiveTimeout && !c.suspects.empty());
    EXPECT_EQ(judgement.network, can_be_the_networks) << c.name;
    EXPECT_FALSE(judgement.why.empty()) << c.name;
  }
}

TEST(Outliers, DoWhatNobodyElseDoes) {
  std::string why;
  const auto of = [&](std::vector<NodeTask> tasks) { return outliers(tasks, why); };
  const std::vector<NodeTask> waiting{task("n1", 0, 'S', 0.01), task("n1", 1, 'S', 0), task("n2", 2, 'S', 0.02)};
  EXPECT_THAT(of(waiting), IsEmpty());
  const auto and_one = [&](char state, double cpu) {
    std::vector<NodeTask> tasks = waiting;
    tasks.push_back(task("n3", 3, state, cpu));
    return tasks;
  };
  EXPECT_THAT(of(and_one('T', 0)), ElementsAre("n3"));
  EXPECT_THAT(of(and_one('Z', 0)), ElementsAre("n3"));
  EXPECT_THAT(of(and_one('D', 0)), ElementsAre("n3"));
  EXPECT_THAT(of(and_one('R', 1)), ElementsAre("n3"));
  EXPECT_EQ(why, "rank 3 on n3 computes while all others wait");
  EXPECT_THAT(of(and_one('S', 0.3)), IsEmpty()) << "neither busy nor idle: not sure";
  std::vector<NodeTask> starved = and_one('R', 1);
  starved[0].task.cpu = -1;
  EXPECT_THAT(of(starved), IsEmpty()) << "one of them had no processor, and may compute, too";
  EXPECT_THAT(of({task("n1", 0, 'R', 1), task("n1", 1, 'R', 0.9), task("n2", 2, 'R', -1)}), IsEmpty());
  EXPECT_THAT(of({task("n1", 0, 'R', 1), task("n1", 1, 'R', 0.9), task("n2", 2, 'S', 0)}), ElementsAre("n2"));
  EXPECT_THAT(of({task("n1", 0, 'R', 1), task("n2", 1, 'S', 0)}), IsEmpty()) << "one of two is no outlier";
  EXPECT_THAT(of({task("n1", 0, 'S', 0, 8), task("n2", 1, 'S', 0, 7)}), ElementsAre("n2"));
  EXPECT_EQ(why, "rank 1 on n2 is a step behind all others");
  EXPECT_THAT(of({task("n1", 0, 'S', 0, 8), task("n2", 1, 'S', 0, -1)}), IsEmpty());
  EXPECT_THAT(of({}), IsEmpty());
}

TEST(VerdictRead, TakesWhatIsThere) {
  const std::optional<VerdictRead> read =
      parse_verdict(R"({"schema": 1, "code": 76, "kind": "comm.deadline", "rank": 3})");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->code, 76);
  EXPECT_EQ(read->rank, 3);
  EXPECT_EQ(read->node, "");
  EXPECT_EQ(parse_verdict(R"({"code": 0, "step": 60})")->steps_done, 60);
  EXPECT_EQ(parse_verdict(R"({"code": 75, "step": 7})")->steps_done, 7);
  EXPECT_EQ(parse_verdict(R"({"code": 76, "step": 60})")->steps_done, -1) << "the step that failed";
  for (const char* text : {"", "{}", "[]", "{\"code\": \"76\"}", "{\"code\": 76", "{\"code\": 76, \"rank\": \"x\"}"}) {
    EXPECT_FALSE(parse_verdict(text)) << text;
  }
}

}  // namespace
}  // namespace ms::driver
