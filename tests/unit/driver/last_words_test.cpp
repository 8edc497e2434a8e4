// Last words of jobs, at three places each: on one node in every attempt, on all nodes, and on another node in each
// attempt. A healthy node is neither left out nor struck, and errors of programs are named as such.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/text.h"
#include "driver/attempt.h"
#include "driver/recovery.h"

namespace ms::driver {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

struct LastWords {
  std::string name, kind, cause, word;
  int status = 0;
  std::vector<std::string> lines;
};

std::vector<LastWords> last_words() {
  std::vector<LastWords> all;
  for (const std::string& line : split(read_file(MS_SOURCE_DIR "/tests/unit/driver/last_words.txt"), '\n')) {
    if (line.starts_with("== ")) {
      const std::vector<std::string> fields = split(line.substr(3), '|');
      EXPECT_EQ(fields.size(), 6U) << line;
      const auto field = [&](std::size_t i) { return std::string(trim(fields.at(i))); };
      all.push_back(
          {.name = field(0), .kind = field(1), .cause = field(2), .word = field(4), .status = 0, .lines = {}});
      all.back().status = std::stoi(field(3));
    } else if (!all.empty()) {
      all.back().lines.push_back(line);
    }
  }
  return all;
}

std::string with(std::string text, const std::string& name, const std::string& value) {
  for (std::size_t at = 0; (at = text.find(name)) != text.npos;) text.replace(at, name.size(), value);
  return text;
}

enum class Place { one_node, all_nodes, moving };

// What the driver makes of a run of four nodes whose attempts all end with these words, and do a step in the first one
// only, if `steps`; as Driver::finish_attempt() and decide() do.
struct Played {
  Ledger ledger = {};
  std::vector<Judgement> judgements = {};
  std::vector<std::string> left_out = {}, struck = {};
  std::optional<Recovery> end = {};

  Played(const LastWords& words, Place place, int attempts = 2, std::int64_t steps_each = 0) {
    for (int number = 1; number <= attempts && !end; ++number) {
      AttemptEvidence evidence = evidence_of(words, place, number);
      AttemptEntry& entry = ledger.attempts.emplace_back();
      entry.from_step = 0;
      entry.to_step = steps_each == 0 ? 25 : number * steps_each;
      evidence.trained = false;
      Judgement judgement = judge(evidence);
      entry.cause = judgement.cause;
      entry.why = judgement.why;
      entry.error = judgement.error;
      entry.rank = judgement.rank;
      entry.said_on = judgement.said_on;
      if (ledger.same_error().nodes.size() > 1) judgement.suspects = {};
      if (judgement.next == Next::again) {
        for (const std::string& node : judgement.suspects) {
          if (judgement.certain) left_out.push_back(node);
          if (judgement.accuses && judgement.suspects.size() < evidence.nodes.size()) struck.push_back(node);
        }
      }
      judgements.push_back(judgement);
      if (Recovery next = recovery_after(judgement, {.ledger = ledger, .attempts = number}); next.code) end = next;
    }
  }

  static AttemptEvidence evidence_of(const LastWords& words, Place place, int number) {
    Attempt attempt;
    attempt.nodes = {"node01", place == Place::moving && number > 1 ? fmt::format("node{:02}", number + 2) : "node02",
                     "node10", "node11"};
    if (place == Place::moving) std::ranges::sort(attempt.nodes);
    for (const std::string& line : words.lines) {
      for (int rank = 0; rank < 4; ++rank) {
        const bool fails = rank == 1 || place == Place::all_nodes;
        const std::string node = attempt.nodes[static_cast<std::size_t>(rank)];
        std::string text = with(with(line, "{node}", node), "{rank}", std::to_string(rank));
        int from = rank;
        if (text.starts_with("@others ")) {
          if (fails) continue;
          text = text.substr(8);
        } else if (!fails) {
          continue;
        } else if (text.starts_with("@srun ")) {
          text = text.substr(6);
          from = -1;
        }
        attempt.take_line(text, from, 1, 0);
      }
    }
    AttemptEvidence evidence;
    evidence.exit_status = words.status;
    evidence.first_exit = attempt.words.first_exit();
    if (!evidence.first_exit && words.status != 0)
      evidence.first_exit = TaskExit{.node = place == Place::all_nodes ? "" : attempt.nodes[1], .code = words.status};
    evidence.nodes = attempt.nodes;
    evidence.lines = attempt.lines();
    return evidence;
  }
};

TEST(LastWords, NeverHurtAHealthyNodeAndNameTheProgram) {
  const std::vector<LastWords> all = last_words();
  EXPECT_GE(all.size(), 60U);
  for (const LastWords& words : all) {
    for (const Place place : {Place::one_node, Place::all_nodes, Place::moving}) {
      SCOPED_TRACE(fmt::format("{}, {}", words.name,
                               place == Place::one_node    ? "one node"
                               : place == Place::all_nodes ? "all nodes"
                                                           : "moving"));
      const Played run(words, place);
      const Judgement& first = run.judgements.front();
      const bool one = place == Place::one_node, everywhere = place == Place::all_nodes;
      EXPECT_EQ(first.cause, words.cause);
      const std::string said = run.end ? run.end->why : "";
      const bool named = run.end && run.end->code != 0;
      if (words.kind == "hardware" && !everywhere) {
        EXPECT_EQ(first.suspects, std::vector<std::string>{"node02"});
        EXPECT_FALSE(first.certain) << "a program can print all of it: ms-diag looks";
        EXPECT_FALSE(run.end);
        continue;
      }
      EXPECT_THAT(run.left_out, IsEmpty());
      EXPECT_THAT(run.struck, IsEmpty());
      if (words.kind == "program") {
        EXPECT_TRUE(named);
        EXPECT_THAT(said, HasSubstr(words.word));
        if (first.next != Next::stop) { EXPECT_THAT(said, HasSubstr("the program")); }
      } else if (words.kind == "setup") {
        EXPECT_EQ(named, !one);  // one node may be set up in another way: its spare's turn
        if (named) { EXPECT_THAT(said, HasSubstr(words.word)); }
        if (one) { EXPECT_THAT(first.suspects, ElementsAre("node02")); }
        if (everywhere) { EXPECT_EQ(first.next, Next::stop); }
      } else if (words.kind == "gpu") {
        EXPECT_EQ(named, !one);
        if (named) { EXPECT_THAT(said, HasSubstr(words.word)); }
        EXPECT_EQ(first.suspects, everywhere ? std::vector<std::string>{} : std::vector<std::string>{"node02"});
      } else if (words.kind == "done") {
        EXPECT_EQ(first.next, Next::done);
      } else {
        EXPECT_FALSE(run.end) << said;
        if (words.kind == "outside" || words.kind == "effect") { EXPECT_THAT(first.suspects, IsEmpty()); }
        if (words.kind == "mount") {
          EXPECT_EQ(first.suspects, everywhere ? std::vector<std::string>{} : std::vector<std::string>{"node02"});
        }
      }
    }
  }
}

// A leak: each attempt comes further.
TEST(LastWords, OfTheSameErrorEndAfterSomeAttemptsWithProgress) {
  for (const LastWords& words : last_words()) {
    SCOPED_TRACE(words.name);
    const Played run(words, Place::moving, 2 * watch::RetryPolicy{}.max_same, 30);
    if (words.kind == "program" && run.judgements.front().next == Next::again) {
      EXPECT_EQ(run.judgements.size(), static_cast<std::size_t>(watch::RetryPolicy{}.max_same));
      ASSERT_TRUE(run.end);
      EXPECT_EQ(run.end->code, static_cast<int>(ExitCode::no_progress));
    } else if (words.kind == "outside" || words.kind == "effect" || words.kind == "mount" || words.kind == "silent") {
      EXPECT_FALSE(run.end) << "no error of the program: " << run.end->why;
    }
    EXPECT_TRUE(words.kind == "hardware" || run.left_out.empty());
  }
}

TEST(LastWords, NameRankStepAndNodes) {
  const std::vector<LastWords> all = last_words();
  EXPECT_THAT(Played(all.front(), Place::moving).end->why,
              HasSubstr("rank 1: ValueError: tensor shapes differ: (3, 4) and (4, 3), step 25, on node02 and node04: "
                        "the program"));
  EXPECT_THAT(Played(all.front(), Place::one_node).end->why, HasSubstr("on node02: the program, or that node"));
}

TEST(LastWords, OfAnotherErrorAreNotTheSame) {
  const std::vector<LastWords> all = last_words();
  Ledger ledger = Played(all[0], Place::moving, 1).ledger;
  ledger.attempts.push_back(Played(all[1], Place::moving, 1).ledger.attempts.front());
  EXPECT_EQ(ledger.same_error().attempts, 1);
  ledger.attempts.push_back(ledger.attempts.back());
  ledger.attempts.back().error = with(ledger.attempts.back().error, "input_ids", "labels");
  EXPECT_EQ(ledger.same_error().attempts, 1) << "of one class, with another message";
  AttemptEntry wordless;
  wordless.cause = kWordless;
  AttemptEntry cut = ledger.attempts.back();
  cut.error = "KeyError";
  ledger.attempts.insert(ledger.attempts.end(), {wordless, cut, wordless, ledger.attempts.back()});
  EXPECT_EQ(ledger.same_error().attempts, 3) << "whose words were lost say nothing";
  ledger.attempts.back().error = "";
  EXPECT_EQ(ledger.same_error().attempts, 0);
}

TEST(LastWords, OfTheSameHangAreTheSame) {
  AttemptEntry hang;
  hang.cause = kHang;
  hang.error = "ValueError: 3 rows";
  Ledger ledger;
  ledger.attempts = {hang, hang};
  ledger.attempts.back().error = "ValueError: 4 rows";
  EXPECT_EQ(ledger.same_error().attempts, 2);
  ledger.attempts.back().error = "ValueError: no columns";
  EXPECT_EQ(ledger.same_error().attempts, 1);
  ledger.attempts.back().error = "";
  EXPECT_EQ(ledger.same_error().attempts, 0) << "hangs without words are not";
}

TEST(LastWords, EndARunAfterAsManyAttemptsAsAsked) {
  const LastWords words = last_words().front();
  const Ledger ledger = Played(words, Place::moving, 3, 30).ledger;
  const Judgement last = Played(words, Place::moving, 3, 30).judgements.back();
  EXPECT_FALSE(recovery_after(last, {.ledger = ledger, .attempts = 3, .retry = {.max_same = 4}}).code);
  EXPECT_EQ(recovery_after(last, {.ledger = ledger, .attempts = 3, .retry = {.max_same = 3}}).code, 93);
}

TEST(LastWords, AreFoundBehindAnyNoise) {
  const auto last_of = [](std::vector<std::string> lines) {
    LastWords words{.name = "", .kind = "", .cause = "", .word = "", .status = 1, .lines = {}};
    for (int i = 0; i < 1000; ++i)
      words.lines.emplace_back("WARN retrying: Connection reset by peer, Stale file handle");
    words.lines.insert(words.lines.end(), lines.begin(), lines.end());
    return Played(words, Place::one_node, 1).judgements.front();
  };
  const Judgement ecc = last_of({"RuntimeError: CUDA error: uncorrectable ECC error encountered"});
  EXPECT_EQ(ecc.cause, "gpu_ecc");
  EXPECT_THAT(ecc.suspects, ElementsAre("node02"));
  EXPECT_EQ(last_of({"step 3 loss 2", "step 4 loss 2", "ValueError: x"}).cause, kException)
      << "its rank outlived what it warned of";
  const Judgement survived =
      last_of({"RuntimeError: CUDA error: uncorrectable ECC error encountered", "step 3 loss 2", "step 4 loss 2"});
  EXPECT_FALSE(survived.certain) << "no GPU goes on after that";
  EXPECT_THAT(survived.suspects, ElementsAre("node02"));
}

AttemptEvidence said_by(const std::vector<std::string>& nodes, std::string_view text) {
  AttemptEvidence evidence;
  evidence.exit_status = 1;
  evidence.nodes = {"n1", "n2"};
  for (const std::string& node : nodes)
    evidence.lines.push_back({.known = known_line(text), .node = node, .rank = 0, .text = std::string(text)});
  return evidence;
}

TEST(LastWords, OfACommandThatIsDoneAreNoReason) {
  AttemptEvidence evidence = said_by({"n1"}, "CUDA error: uncorrectable ECC error encountered");
  evidence.exit_status = 0;
  EXPECT_EQ(judge(evidence).next, Next::done);
  evidence.writes_verdicts = true;
  evidence.verdict.emplace();
  EXPECT_EQ(judge(evidence).next, Next::done);
  evidence.verdict.reset();
  EXPECT_EQ(judge(evidence).next, Next::again) << "ms-train says itself that it is done";
}

TEST(LastWords, OnSeveralNodesAccuseNoNode) {
  const Judgement ecc = judge(said_by({"n1", "n2"}, "uncorrectable ECC error encountered"));
  EXPECT_FALSE(ecc.certain || ecc.accuses) << "one of them may only repeat what the other says";
  EXPECT_THAT(ecc.suspects, ElementsAre("n1", "n2")) << "both are looked at";
  AttemptEvidence files = said_by({"n1", "n2"}, "FileNotFoundError: 'x'");
  EXPECT_EQ(judge(files).next, Next::stop);
  files.trained = true;
  EXPECT_EQ(judge(files).next, Next::again) << "the files were there, and may be so again";
}

TEST(LastWords, AskForNoOtherAttempt) {
  const LastWords words{.name = "",
                        .kind = "",
                        .cause = "",
                        .word = "",
                        .status = 1,
                        .lines = {"@srun srun: error: node10: task 2: Exited with exit code 1",
                                  "@srun srun: error: {node}: task {rank}: Exited with exit code 93",
                                  "@srun srun: error: node11: task 3: Exited with exit code 1"}};
  const Played run(words, Place::one_node);
  ASSERT_TRUE(run.end);
  EXPECT_EQ(run.end->code, 93);
  EXPECT_EQ(run.judgements.size(), 1U);
  EXPECT_THAT(run.judgements.front().suspects, IsEmpty());
}

AttemptEvidence hung(const std::vector<std::pair<std::string, std::string>>& said_on) {
  AttemptEvidence evidence;
  evidence.nodes = {"n1", "n2", "n3"};
  evidence.alarm = Alarm{.kind = AlarmKind::hang, .nodes = {}, .ranks = {}, .fault_s = 0, .why = "why"};
  for (const auto& [node, text] : said_on)
    evidence.lines.push_back({.known = known_line(text), .node = node, .rank = 1, .text = text});
  return evidence;
}
NodeTask hung_task(const std::string& node, int rank, char state, std::int64_t step) {
  return {.node = node,
          .task = {.rank = rank, .pid = 1, .state = state, .cpu = 0, .waits_in = "", .stack = ""},
          .step = step};
}

TEST(Hangs, OfARankThatPrintedAnErrorAreOfThatError) {
  Judgement hang = judge(hung({{"n2", "ValueError: x"}}));
  EXPECT_EQ(hang.cause, kHang);
  EXPECT_EQ(hang.error, "ValueError: x");
  EXPECT_EQ(hang.rank, 1);
  EXPECT_THAT(hang.said_on, ElementsAre("n2"));
  EXPECT_FALSE(hang.accuses || hang.network);
  EXPECT_THAT(hang.suspects, ElementsAre("n1", "n2", "n3")) << "which are looked at";
  AttemptEvidence behind = hung({{"n2", "ValueError: x"}});
  behind.tasks = {hung_task("n1", 0, 'S', 8), hung_task("n2", 1, 'S', 7), hung_task("n3", 2, 'S', 8)};
  EXPECT_EQ(judge(behind).error, "ValueError: x");
  EXPECT_THAT(judge(behind).suspects, ElementsAre("n2"));
  EXPECT_FALSE(judge(behind).accuses);
}

TEST(Hangs, HaveNoErrorThatExplainsThemElsewhere) {
  const std::string text = "ValueError: x";
  EXPECT_EQ(judge(hung({{"n1", text}, {"n2", text}, {"n3", text}})).error, "") << "which all printed";
  EXPECT_EQ(judge(hung({{"n2", "NCCL WARN Connection closed by remote peer"}})).error, "");
  AttemptEvidence other = hung({{"n2", text}});
  other.tasks = {hung_task("n1", 0, 'S', 8), hung_task("n2", 1, 'S', 8), hung_task("n3", 2, 'T', 7)};
  EXPECT_EQ(judge(other).error, "");
  EXPECT_THAT(judge(other).suspects, ElementsAre("n3"));
  EXPECT_FALSE(judge(other).accuses) << "somebody may have stopped it";
  AttemptEvidence outlived = hung({{"n2", text}});
  outlived.lines[0].outlived = true;
  EXPECT_EQ(judge(outlived).error, "");
  AttemptEvidence lossy = hung({{"n2", text}});
  lossy.lossy = LossyNode{.node = "n2", .why = "it loses packets"};
  EXPECT_EQ(judge(lossy).error, "");
}

}  // namespace
}  // namespace ms::driver
