#include "driver/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/error.h"
#include "driver/clock_jumps.h"
#include "driver/launch.h"
#include "driver/pool.h"
#include "driver/state.h"
#include "driver/status.h"
#include "driver/time_spent.h"

namespace ms::driver {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

AttemptEntry attempt(std::int64_t from, std::int64_t to, double began_s, double first_step_s, double ended_s) {
  AttemptEntry entry;
  entry.nodes = {"n1", "n2"};
  entry.from_step = from;
  entry.to_step = to;
  entry.began_s = began_s;
  entry.first_step_s = first_step_s;
  entry.ended_s = ended_s;
  return entry;
}

TEST(Ledger, LongAttemptsOfACommandWithoutHeartbeatsAreProgress) {
  Ledger ledger;
  ledger.attempts = {attempt(-1, -1, 0, 0, 20), attempt(-1, -1, 20, 0, 40)};
  EXPECT_EQ(ledger.idle_attempts(), 2);
  ledger.attempts.push_back(attempt(-1, -1, 40, 0, 40 + 1.5 * Ledger::kWorksUnheard_s));
  EXPECT_EQ(ledger.idle_attempts(), 0);
  ledger.attempts.back().cause = kHang;
  EXPECT_EQ(ledger.idle_attempts(), 3) << "how long it hung is no progress";
  ledger.attempts.push_back(attempt(0, 5, 2000, 2010, 2020));
  ledger.attempts.push_back(attempt(-1, -1, 2020, 0, 2020 + 1.5 * Ledger::kWorksUnheard_s));
  EXPECT_EQ(ledger.idle_attempts(), 1) << "this command tells its steps";
}

TEST(Ledger, SaysWhichShareOfTheTimeWasOfUse) {
  Ledger ledger;
  ledger.began_s = 1000;
  EXPECT_EQ(time_spent(ledger, 1100).effective(), 0);
  // 10 s of start, 40 s for steps 0 to 40, of which 30 are kept; again 10 s and 40 s for 30 to 70.
  ledger.attempts = {attempt(0, 40, 1000, 1010, 1050), attempt(30, 70, 1050, 1060, 1100)};
  EXPECT_DOUBLE_EQ(time_spent(ledger, 1100).effective(), (30 + 40) / 100.0);
  // One that came to nothing and went back further takes more.
  ledger.attempts.push_back(attempt(50, 50, 1100, 0, 1110));
  EXPECT_DOUBLE_EQ(time_spent(ledger, 1110).effective(), (30 + 20) / 110.0);
}

TEST(Ledger, CountsAttemptsThatCameNoFurther) {
  Ledger ledger;
  EXPECT_EQ(ledger.idle_attempts(), 0);
  ledger.attempts = {attempt(0, 10, 0, 0, 0)};
  EXPECT_EQ(ledger.idle_attempts(), 0);
  ledger.attempts.push_back(attempt(5, 10, 0, 0, 0));
  ledger.attempts.push_back(attempt(-1, -1, 0, 0, 0));
  EXPECT_EQ(ledger.idle_attempts(), 2);
  ledger.attempts.push_back(attempt(5, 11, 0, 0, 0));
  EXPECT_EQ(ledger.idle_attempts(), 0);
  EXPECT_EQ(ledger.best_step(), 11);
  ledger.attempts = {attempt(-1, -1, 0, 0, 0)};  // a command without heartbeats
  EXPECT_EQ(ledger.idle_attempts(), 1);
}

TEST(Ledger, SaysThatAnAttemptEndedAsTheOneBeforeItAndNoStepLater) {
  const auto after = [](std::vector<AttemptEntry> attempts, const std::vector<std::string>& causes) {
    Ledger ledger;
    for (std::size_t i = 0; i < causes.size(); ++i) attempts[i].cause = causes[i];
    ledger.attempts = std::move(attempts);
    return ledger.ends_again_for("mistake");
  };
  const AttemptEntry to_40 = attempt(0, 40, 0, 0, 0), again_to_40 = attempt(35, 40, 0, 0, 0);
  EXPECT_FALSE(after({to_40}, {"mistake"}));
  EXPECT_TRUE(after({to_40, again_to_40}, {"mistake", "mistake"}));
  EXPECT_FALSE(after({to_40, again_to_40}, {"node_lost", "mistake"})) << "the first of its kind";
  EXPECT_FALSE(after({to_40, again_to_40}, {"mistake", "node_lost"}));
  EXPECT_FALSE(after({to_40, attempt(35, 41, 0, 0, 0)}, {"mistake", "mistake"})) << "it came further";
}

TEST(Ledger, CountsAttemptsThatWaitForStorage) {
  Ledger ledger;
  const auto add = [&](const char* cause, std::int64_t to) {
    ledger.attempts.push_back(attempt(0, to, 0, 0, 0));
    ledger.attempts.back().cause = cause;
    return std::pair(ledger.waiting_attempts(), ledger.idle_attempts());
  };
  EXPECT_EQ(add("rank_died", 10), std::pair(0, 0));
  EXPECT_EQ(add("storage", -1), std::pair(1, 0));
  EXPECT_EQ(add("storage_full", 10), std::pair(2, 0)) << "which is not the run's fault";
  EXPECT_EQ(add("slurm_busy", -1), std::pair(3, 0));
  EXPECT_EQ(add("storage", 20), std::pair(1, 0)) << "it came further";
  EXPECT_EQ(add("hang", 20), std::pair(0, 1));
}

TEST(Ledger, KeepsTheNewestNotes) {
  Ledger ledger;
  for (std::size_t i = 0; i <= Ledger::kMostNotes; ++i)
    ledger.add({.at_s = static_cast<double>(i), .code = "clock", .nodes = {}, .text = ""});
  EXPECT_EQ(ledger.notes.size(), Ledger::kMostNotes);
  EXPECT_EQ(ledger.notes.front().at_s, 1);
}

TEST(Ledger, ComesBackAsItWasWritten) {
  Ledger ledger;
  ledger.began_s = 1.5;
  ledger.command = {"ms-train", "run", "a b"};
  ledger.strikes = {{"n1", 2}};
  ledger.excluded = {{"n2", "critical gpu.ecc"}};
  ledger.unheard = {{"n1", "another's"}};
  AttemptEntry entry = attempt(0, 40, 1000, 1010, 1050);
  entry.number = 3;
  entry.job = "7.1";
  entry.cause = "hang";
  entry.code = 76;
  entry.suspects = {"n2"};
  entry.excluded = {"n2"};
  entry.detect_s = 1.25;
  ledger.attempts = {entry};
  ledger.notes = {{.at_s = 1040, .code = "clock", .nodes = {"n1"}, .text = "the clock of n1 jumped"}};
  const std::string text = to_json(ledger, 1100);
  EXPECT_EQ(to_json(read_ledger(text, "ledger.json"), 1100), text);
  EXPECT_THAT(text, HasSubstr("\"steps\": 40"));
  for (const char* broken : {"", "[]", "{\"schema\": 2}", "{\"schema\": 1}"}) {
    try {
      read_ledger(broken, "there/ledger.json");
      FAIL() << broken;
    } catch (const Error& error) { EXPECT_THAT(error.message(), HasSubstr("there/ledger.json")); }
  }
}

TEST(Ledger, IsTruncatedAtNoPlaceWithoutAnError) {
  Ledger ledger;
  ledger.attempts = {attempt(0, 40, 1000, 1010, 1050)};
  const std::string text = to_json(ledger, 1100);
  for (std::size_t size = 0; size + 2 < text.size(); ++size)
    EXPECT_THROW(read_ledger(text.substr(0, size), "x"), Error);
}

TEST(Pool, TakesSparesInPlaceOfWhoIsOut) {
  Pool pool({"n1", "n2", "n3", "n4"});
  EXPECT_THAT(*pool.choose(3, 3), ElementsAre("n1", "n2", "n3"));
  EXPECT_THAT(pool.with(NodeRole::spare), ElementsAre("n4"));
  pool.exclude("n2", "ecc");
  EXPECT_THAT(*pool.choose(3, 3), ElementsAre("n1", "n3", "n4"));
  pool.lose("n1", "silent");
  EXPECT_FALSE(pool.choose(3, 3));
  EXPECT_THAT(pool.left_out(), ElementsAre("n1 is lost (silent)", "n2 is excluded (ecc)"));
  EXPECT_THAT(*pool.choose(3, 2), ElementsAre("n3", "n4"));
  pool.found("n1");
  EXPECT_THAT(*pool.choose(3, 3), ElementsAre("n1", "n3", "n4"));
}

TEST(Pool, SparesThatAreSilentAreChosenAfterAllOthers) {
  Pool pool({"n1", "n2", "n3", "n4"});
  pool.choose(2, 2);
  pool.lose("n2", "gone");
  pool.doubt({"n1", "n3"});
  EXPECT_THAT(*pool.choose(2, 2), ElementsAre("n1", "n4")) << "who works is known to be there";
  pool.doubt({"n2", "n3"});
  pool.suspect("n1", "hang");
  EXPECT_THAT(*pool.choose(2, 2), ElementsAre("n1", "n4")) << "a suspect that answers comes before";
  EXPECT_THAT(*pool.choose(3, 3), ElementsAre("n1", "n3", "n4"));
}

TEST(Pool, NodesThatSlurmKeepsForLastAreTheSpares) {
  Pool pool({"n1", "n2", "n3", "n4"}, {"n1", "n3"});
  EXPECT_THAT(*pool.choose(3, 3), ElementsAre("n1", "n2", "n4"));
  EXPECT_THAT(pool.with(NodeRole::spare), ElementsAre("n3"));
  pool.exclude("n4", "ecc");
  EXPECT_THAT(*pool.choose(3, 3), ElementsAre("n1", "n2", "n3")) << "whoever works keeps its place";
}

TEST(Pool, NodesWithStrikesOfAnEarlierStartWorkLast) {
  Pool pool({"n1", "n2", "n3"});
  pool.remember("n1", 1);
  pool.remember("elsewhere", 1);
  EXPECT_THAT(*pool.choose(2, 2), ElementsAre("n2", "n3"));
  EXPECT_THAT(*pool.choose(3, 3), ElementsAre("n1", "n2", "n3"));
}

// Two racks of four, of which segments of three work, so that each has a spare, and a node that is in none.
Pool racks() {
  return Pool({"a1", "a2", "a3", "a4", "b1", "b2", "b3", "b4", "c1"}, {},
              {.nodes = 3,
               .block_of = {{"a1", 1}, {"a2", 1}, {"a3", 1}, {"a4", 1}, {"b1", 2}, {"b2", 2}, {"b3", 2}, {"b4", 2}}});
}

TEST(Pool, SparesOfASegmentComeFromItsBlock) {
  Pool pool = racks();
  EXPECT_THAT(*pool.choose(6, 6), ElementsAre("a1", "a2", "a3", "b1", "b2", "b3"));
  EXPECT_TRUE(pool.can_replace({"b2"}));
  EXPECT_TRUE(pool.can_replace({"a1", "b2"}));
  EXPECT_FALSE(pool.can_replace({"b1", "b2"})) << "there are two spares, but one in the block";
  pool.exclude("b2", "ecc");
  EXPECT_THAT(*pool.choose(6, 6), ElementsAre("a1", "a2", "a3", "b1", "b3", "b4"));
  EXPECT_FALSE(pool.can_replace({"b1"}));
  EXPECT_TRUE(pool.can_replace({"a1"}));
  pool.lose("b1", "silent");
  EXPECT_FALSE(pool.choose(6, 6));
  EXPECT_THAT(*pool.choose(6, 2), ElementsAre("a1", "a2", "a3"));
}

TEST(Pool, TheSegmentThatMissesTheFewestNodesStays) {
  Pool pool = racks();
  pool.choose(3, 3);
  pool.work({"b1", "b2"});
  pool.exclude("a1", "ecc");
  pool.exclude("a2", "ecc");
  EXPECT_THAT(*pool.choose(3, 3), ElementsAre("b1", "b2", "b3"));
  EXPECT_EQ(pool.nodes().at("a3").role, NodeRole::spare);
}

TEST(Pool, WithoutSegmentsEverySpareReplacesEveryNode) {
  Pool pool({"n1", "n2", "n3", "n4"});
  pool.choose(3, 3);
  EXPECT_TRUE(pool.can_replace({"n1"}));
  EXPECT_FALSE(pool.can_replace({"n1", "n2"}));
  pool.suspect("n4", "hang");
  EXPECT_FALSE(pool.can_replace({"n1"}));
}

TEST(Pool, SuspectsWorkOnlyWhereNobodyElseIsLeft) {
  Pool pool({"n1", "n2", "n3"});
  pool.choose(2, 2);
  pool.suspect("n1", "hang");
  EXPECT_THAT(*pool.choose(2, 2), ElementsAre("n2", "n3"));
  pool.suspect("n3", "hang");
  pool.suspect("n3", "again");
  EXPECT_THAT(*pool.choose(2, 2), ElementsAre("n1", "n2")) << "the less struck of two suspects";
}

TEST(Pool, AClearedSuspectIsASpareAndTheOthersStay) {
  Pool pool({"n1", "n2", "n3"});
  pool.choose(2, 2);
  pool.suspect("n1", "hang");
  pool.choose(2, 2);
  pool.clear("n1");
  EXPECT_THAT(pool.with(NodeRole::spare), ElementsAre("n1"));
  EXPECT_THAT(*pool.choose(2, 2), ElementsAre("n2", "n3"));
  EXPECT_EQ(pool.nodes().at("n1").strikes, 1);
  pool.exclude("n2", "x");
  pool.clear("n2");
  EXPECT_THAT(pool.with(NodeRole::excluded), ElementsAre("n2")) << "for good";
}

// Three nodes, two at work: n1 is suspected in one attempt after the other, and nothing accuses or clears it.
TEST(Pool, ASecondStrikeWithoutEvidenceIsTheLast) {
  Pool pool({"n1", "n2", "n3"});
  Ledger ledger;
  const auto suspected = [&](const std::string& node) {  // as the driver does
    pool.suspect(node, "hang");
    const int strikes = ++ledger.strikes[node];
    const bool is_out = is_out_without_evidence(strikes, pool.usable(), 2);
    is_out ? pool.exclude(node, "hang") : pool.clear(node);
    return is_out;
  };
  EXPECT_THAT(*pool.choose(2, 2), ElementsAre("n1", "n2"));
  EXPECT_FALSE(suspected("n1")) << "the first strike";
  EXPECT_THAT(*pool.choose(2, 2), ElementsAre("n2", "n3")) << "the last spare to be taken";
  EXPECT_FALSE(suspected("n2"));
  EXPECT_THAT(*pool.choose(2, 2), ElementsAre("n1", "n3"));
  EXPECT_TRUE(suspected("n1")) << "the second, while two others can work";
  EXPECT_THAT(*pool.choose(2, 2), ElementsAre("n2", "n3"));
  EXPECT_FALSE(suspected("n2")) << "nobody else is left";
  EXPECT_THAT(pool.with(NodeRole::excluded), ElementsAre("n1"));
}

TEST(Launch, WordsForSrun) {
  const LaunchSpec spec{
      .command = {"/usr/bin/ms-train", "run", "c.toml"}, .tasks_per_node = 2, .srun_options = {"--mem=0"}};
  EXPECT_THAT(srun_command(spec, {"n1", "n2"}),
              ElementsAre("srun", "--overlap", "--label", "--unbuffered", "--kill-on-bad-exit=0", "--nodes=2",
                          "--ntasks=4", "--ntasks-per-node=2", "--nodelist=n[1-2]", "--mpi=pmix", "--mem=0",
                          "/usr/bin/ms-train", "run", "c.toml"));
  EXPECT_TRUE(ends_with_bad_task(spec));
  EXPECT_FALSE(ends_with_bad_task({.command = spec.command, .srun_options = {"--mem=0", "--kill-on-bad-exit=0"}}));
  EXPECT_FALSE(ends_with_bad_task({.command = spec.command, .srun_options = {"-K0"}}));
  EXPECT_FALSE(is_ms_train({"torchrun", "run"}));
  EXPECT_EQ(tasks_per_node("4(x2),3", nullptr), 4);
  EXPECT_EQ(tasks_per_node("4(x2)", "8"), 8);
  EXPECT_EQ(tasks_per_node(nullptr, nullptr), 1);
  EXPECT_EQ(tasks_per_node("", "x"), 1);
}

TEST(State, ComesBackAsItWasWritten) {
  DriverState state{.job = "7.0",
                    .heartbeat = "/tmp/a/beat",
                    .addresses = {"10.0.0.1:4000"},
                    .port = 4000,
                    .attempt = 3,
                    .nodes = {"n1"},
                    .command = LongCommand::Place{.pid = 17, .started = 12345678901, .status_file = "a/b"},
                    .output_offset = 99};
  const std::string text = to_json(state);
  const std::optional<DriverState> read = read_state(text);
  ASSERT_TRUE(read);
  EXPECT_EQ(to_json(*read), text);
  EXPECT_FALSE(read_state("{}"));
  EXPECT_FALSE(read_state("x"));
  state.port = 70000;
  EXPECT_FALSE(read_state(to_json(state))) << "no port";
}

TEST(Status, IsReadByPeopleAndPrometheus) {
  Pool pool({"n1", "n2"});
  pool.choose(1, 1);
  Ledger ledger;
  ledger.began_s = 1000;
  ledger.attempts = {attempt(0, 40, 1000, 1010, 0)};
  ledger.attempts[0].number = 1;
  watch::Deadlines deadlines(600);
  Watcher watcher(1, {"n1"}, {}, deadlines, 0);
  RankState rank;
  rank.rank = 0;
  rank.step = 40;
  rank.section = "step";
  rank.numbers = {{"loss", 2.5}};
  watcher.report("n1", {.number = 0, .attempt = 1, .ranks = {rank}}, 1);
  const Status status{
      .phase = "trains", .job = "7.2", .job_id = 7, .pool = pool, .ledger = ledger, .watcher = &watcher};
  const std::string text = status_text(status_json(status, 1100, 3), 1, std::nullopt);
  EXPECT_THAT(text,
              HasSubstr("job 7.2, attempt 1: trains, 40 steps, 2.0s since a rank made progress; 90.0 % of the time"));
  EXPECT_THAT(text, HasSubstr("loss 2.5"));
  EXPECT_THAT(text, HasSubstr("n1    works        0  0 step"));
  const std::string json = status_json(status, 1100, 3);
  EXPECT_THAT(status_text(json, 60, std::nullopt), HasSubstr("the driver may be gone"));
  EXPECT_THAT(status_text(json, 60, false), HasSubstr("the job runs no longer"));
  ASSERT_TRUE(unended_job(json));
  EXPECT_EQ(unended_job(json)->job, 7U);
  EXPECT_EQ(unended_job(json)->restarts, 2);
  const std::string metrics = status_metrics(status, 1100, 3);
  EXPECT_THAT(metrics, HasSubstr("\nms_driver_steps 40\n"));
  EXPECT_THAT(metrics, HasSubstr("\nms_run_loss 2.5\n"));
  EXPECT_THAT(metrics, HasSubstr("\nms_driver_nodes{role=\"spare\"} 1\n"));
  pool.suspect("n2", "of all");
  ledger.strikes = {{"n1", 3}};
  ledger.unheard = {{"n1", "another's"}};
  EXPECT_THAT(status_text(status_json(status, 1100, 3), 1, true),
              AllOf(HasSubstr("n1    works          3  0 step  no heartbeats: another's"),
                    HasSubstr("n2    suspect        0 ")));
  EXPECT_THAT(report_text(ledger, 1100), HasSubstr("no heartbeats of n1: another's"));
  EXPECT_THROW(status_text("{}", 0, std::nullopt), Error);
  EXPECT_FALSE(unended_job("{}"));
  EXPECT_EQ(written_s(json), 1100);
  EXPECT_THAT(report_text(ledger, 1130), AllOf(HasSubstr("0 to 40"), HasSubstr("(runs)")));
  ledger.close(1100);
  EXPECT_THAT(report_text(ledger, 1300), AllOf(HasSubstr("driver_killed"), HasSubstr("1 attempt in 1m40s")));
  EXPECT_FALSE(unended_job(status_json(
      {.phase = "ended", .job = "7.2", .job_id = 7, .pool = pool, .ledger = ledger, .watcher = nullptr}, 1100, 3)));
  const std::string queued = status_json(
      {.phase = kQueuedAgain, .job = "7.2", .job_id = 7, .pool = pool, .ledger = ledger, .watcher = nullptr}, 1100, 3);
  EXPECT_FALSE(unended_job(queued)) << "Slurm has the next start of this job, of which nothing is known here";
  EXPECT_THAT(status_text(queued, 3000, std::nullopt), AllOf(HasSubstr(kQueuedAgain), Not(HasSubstr("may be gone"))));
}

// Shifted by a wall clock that is set, ahead or back.
class SetClock final : public Clock {
 public:
  double now_s() const override { return now_s_; }
  double wall_s() const override { return 1.8e9 + set_s_ + now_s_; }
  void sleep_s(double seconds) override { now_s_ += seconds; }
  double now_s_ = 0, set_s_ = 0;
};

TEST(Clocks, ThatJumpMakeNoTimesNegative) {
  SetClock clock;
  ClockJumps jumps;
  EXPECT_EQ(jumps.take(clock), 0) << "the first time";
  clock.sleep_s(100);
  EXPECT_EQ(jumps.take(clock), 0);
  clock.set_s_ = 0.9;
  EXPECT_EQ(jumps.take(clock), 0) << "slewed";
  clock.set_s_ = -3599.1;
  EXPECT_NEAR(jumps.take(clock), -3600, 1e-6);
  EXPECT_EQ(jumps.take(clock), 0) << "once";
  Ledger ledger;
  ledger.began_s = 5000;
  ledger.attempts = {attempt(0, 40, 5000, 5010, 0)};
  const double before = time_spent(ledger, 5100).effective();
  ledger.shift(-3600);
  EXPECT_EQ(ledger.attempts[0].ended_s, 0) << "it runs";
  EXPECT_EQ(time_spent(ledger, 1500).effective(), before);
  EXPECT_THAT(report_text(ledger, 1500), HasSubstr("1 attempt in 1m40s"));
  EXPECT_THAT(report_text(ledger, 100), Not(HasSubstr("in -"))) << "read where the clock is behind";
}

}  // namespace
}  // namespace ms::driver
