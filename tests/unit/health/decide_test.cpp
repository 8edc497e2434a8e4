// The rules of what may drain, with which words, and what becomes of the job.
#include "health/act/decide.h"

#include <gtest/gtest.h>

#include "fake_world.h"
#include "health/checks/registry.h"

namespace ms::health {
namespace {

Policy observing() { return {}; }

struct DrainingRow {
  const char* name;
  Finding finding;
  std::optional<std::vector<int>> job_gpus;
  bool drains;
};

Finding with(Finding finding, Severity severity, Blame blame) {
  finding.severity = severity;
  finding.blame = blame;
  return finding;
}

TEST(Draining, FollowsTheRules) {
  const std::vector<int> two_three{2, 3};
  const DrainingRow rows[] = {
      {"a critical finding of a GPU", critical("gpu.ecc", "gpu 3"), {}, true},
      {"of the node", with(critical("disk.mounts", "/data"), Severity::critical, Blame::node), {}, true},
      {"a warning", with(critical("gpu.ecc", "gpu 3"), Severity::warning, Blame::gpu), {}, false},
      {"a note", with(critical("gpu.ecc", "gpu 3"), Severity::note, Blame::gpu), {}, false},
      {"of the node, whoever is called",
       with(critical("net.link", "eth0"), Severity::critical, Blame::fabric),
       {},
       true},
      {"not on the list", critical("gpu.thermal", "gpu 3"), {}, false},
      {"a code that nobody knows", critical("gpu.made_up", "gpu 3"), {}, false},
      {"the job's GPU", critical("gpu.ecc", "gpu 3"), two_three, true},
      {"another job's GPU", critical("gpu.ecc", "gpu 1"), two_three, false},
      {"no prefix of a number", critical("gpu.ecc", "gpu 30"), two_three, false},
      {"with its address", critical("gpu.xid", "gpu 3 (0000:17:00.0)"), two_three, true},
      {"another's, with its address", critical("gpu.xid", "gpu 1 (0000:17:00.0)"), two_three, false},
      {"off the bus, only an address is left", critical("gpu.xid", "gpu 0000:10:00.0"), two_three, true},
      {"an address that begins as another's number", critical("gpu.xid", "gpu 1:17:00.0"), two_three, true},
      {"an absurd number is none", critical("gpu.xid", "gpu 99999999999999999999"), two_three, true},
      {"no number", critical("gpu.xid", "gpu "), two_three, true},
      {"a sign is no number", critical("gpu.xid", "gpu -1"), two_three, true},
      {"off the bus, of a job without GPUs", critical("gpu.xid", "gpu 0000:10:00.0"), std::vector<int>{}, true},
      {"off the bus, but a warning", with(critical("gpu.xid", "gpu 0000:10:00.0"), Severity::warning, Blame::gpu),
       two_three, false},
      {"the whole node's", critical("gpu.count", "node"), two_three, true},
      {"of a job without GPUs", critical("gpu.ecc", "gpu 3"), std::vector<int>{}, false},
      {"off the bus, the whole node is the job's", critical("gpu.xid", "gpu 0000:17:00.0"), {}, true},
  };
  for (const DrainingRow& row : rows) {
    slurm::JobEnv job;
    job.gpus = row.job_gpus;
    EXPECT_EQ(draining({row.finding}, observing(), &job).size(), row.drains ? 1 : 0) << row.name;
    job.gpus.reset();
    EXPECT_EQ(draining({row.finding}, observing(), nullptr).size(), draining({row.finding}, observing(), &job).size())
        << row.name;
  }
}

TEST(Draining, WhatAUserCanCauseNeverDrains) {
  Policy policy;
  for (const Check& check : passive_checks())
    policy.act.allow.emplace_back(check.code);  // a policy that would be refused
  int num_user = 0;
  for (const Check& check : passive_checks()) {
    if (!check.user_can_cause) continue;
    ++num_user;
    EXPECT_TRUE(draining({critical(std::string(check.code), "gpu 0")}, policy, nullptr).empty()) << check.code;
  }
  EXPECT_GT(num_user, 0);
}

TEST(Draining, IsInTheOrderOfTheAllowList) {
  Policy policy;
  policy.act.allow = {"gpu.lost", "gpu.ecc"};
  const auto found = draining(
      {critical("gpu.ecc", "gpu 1"), critical("gpu.lost", "gpu 2"), critical("gpu.ecc", "gpu 3")}, policy, nullptr);
  ASSERT_EQ(found.size(), 3);
  EXPECT_EQ(found[0].code, "gpu.lost");
  EXPECT_EQ(found[1].entity, "gpu 1");
  EXPECT_EQ(found[2].entity, "gpu 3");
}

TEST(DrainReason, TellsTheCodeFirst) {
  EXPECT_EQ(drain_reason({critical("gpu.ecc", "gpu 3", "4 uncorrectable errors")}),
            "ms-diag:gpu.ecc gpu 3: 4 uncorrectable errors");
  EXPECT_EQ(drain_reason({critical("gpu.ecc", "gpu 3", "4 errors"), critical("gpu.lost", "gpu 5", "gone")}),
            "ms-diag:gpu.ecc gpu 3: 4 errors; also gpu.lost gpu 5");
  EXPECT_EQ(drain_reason({critical("gpu.count", "", "7 of 8")}), "ms-diag:gpu.count: 7 of 8");
  EXPECT_EQ(drain_reason({critical("gpu.count", "node", "")}), "ms-diag:gpu.count node");
}

TEST(DrainReason, IsOneShortLineOfHarmlessCharactersWhateverADeviceSays) {
  std::string every_byte;
  for (int c = 0; c < 256; ++c) every_byte += static_cast<char>(c);
  const std::string hostile[] = {every_byte,
                                 every_byte + every_byte,
                                 std::string(5000, 'x'),
                                 "a\nState=RESUME Reason=fine",
                                 "x [root@2026-01-01T00:00:00]",
                                 "'; reboot; '\"`reboot`$(reboot)|\\",
                                 "\x1b[2J\xff\xfe",
                                 std::string("nul\0byte", 8),
                                 "   many     blanks\t\t\n  "};
  for (const std::string& message : hostile) {
    for (const std::string& entity : {std::string("gpu 3"), message}) {
      const std::string reason = drain_reason({critical("gpu.ecc", entity, message), critical("gpu.lost", message)});
      EXPECT_LE(reason.size(), kMaxReason);
      EXPECT_TRUE(reason.starts_with("ms-diag:gpu.ecc")) << reason;
      EXPECT_EQ(reason.find("  "), std::string::npos) << reason;  // as Slurm gives it back
      EXPECT_FALSE(reason.ends_with(' ')) << reason;
      for (const char c : reason) {
        EXPECT_TRUE(c >= ' ' && c <= '~') << static_cast<int>(c);
        EXPECT_EQ(std::string_view("\"'`\\=|[]{}$").find(c), std::string_view::npos) << c;
      }
    }
  }
  EXPECT_EQ(drain_reason({critical("gpu.ecc", "gpu 3", "a\nState=RESUME")}), "ms-diag:gpu.ecc gpu 3: a State:RESUME");
}

TEST(DrainReason, OfManyFindingsIsCut) {
  std::vector<Finding> many;
  for (int i = 0; i < 64; ++i) many.push_back(critical("gpu.lost", fmt::format("gpu {}", i), std::string(150, 'm')));
  const std::string reason = drain_reason(many);
  EXPECT_LE(reason.size(), kMaxReason);
  EXPECT_NE(reason.find("; also gpu.lost gpu 1, "), std::string::npos) << reason;
  EXPECT_TRUE(reason.ends_with("...")) << reason;
}

struct StepRow {
  const char* name;
  std::vector<std::string> states;
  std::string reason;
  DrainStep step;
  bool ours;
  int slurm_year = 22;
};

TEST(DrainStepRules, ReasonsAreNeverReplaced) {
  const StepRow rows[] = {
      {"idle", {"IDLE"}, "", DrainStep::drain, false},
      {"running", {"MIXED"}, "", DrainStep::drain, false},
      {"idle, with our reason of an earlier life", {"IDLE"}, "ms-diag:gpu.ecc gpu 1", DrainStep::drain, false},
      {"idle, with somebody's remark", {"IDLE"}, "watch the fan", DrainStep::somebody_elses, false},
      {"drained by us", {"IDLE", "DRAIN"}, "ms-diag:gpu.ecc gpu 1", DrainStep::stands_already, true},
      {"draining, by us", {"MIXED", "DRAIN"}, "ms-diag:x", DrainStep::stands_already, true},
      {"drained by somebody", {"IDLE", "DRAIN"}, "rack is moved", DrainStep::somebody_elses, false},
      {"drained without a reason", {"DRAINED"}, "", DrainStep::somebody_elses, false},
      {"our prefix in the middle", {"DRAINED"}, "see ms-diag:gpu.ecc", DrainStep::somebody_elses, false},
      {"down", {"DOWN"}, "Not responding", DrainStep::somebody_elses, false},
      {"back in service, on a Slurm that leaves reasons", {"IDLE"}, "disk is new", DrainStep::drain, false, 24},
      {"it answers again", {"MIXED"}, "Not responding", DrainStep::drain, false, 24},
      {"it answers again", {"IDLE"}, "Not responding", DrainStep::drain, false},
      {"drained by somebody, there", {"IDLE", "DRAIN"}, "rack is moved", DrainStep::somebody_elses, false, 24},
      {"down, there", {"DOWN"}, "Not responding", DrainStep::somebody_elses, false, 24},
      {"failing, there", {"ALLOCATED", "FAIL"}, "fan", DrainStep::somebody_elses, false, 24},
  };
  for (const StepRow& row : rows) {
    slurm::Node node = make_node("n1", row.reason);
    node.states = row.states;
    node.slurm_year = row.slurm_year;
    EXPECT_EQ(drain_step(node), row.step) << row.name;
    EXPECT_EQ(is_ours(node), row.ours) << row.name;
    EXPECT_EQ(count_ours({node, node}), row.ours ? 2 : 0) << row.name;
  }
}

TEST(JobStepRules, OnlyWhatStartsAgainOrInsistsIsFailed) {
  using slurm::Preflight;
  struct Row {
    const char* name;
    bool batch, requeue;
    int restarts;
    Preflight preflight;
    bool fail;
  };
  const Row rows[] = {
      {"a batch job", true, true, 0, Preflight::by_default, true},
      {"said on", true, true, 0, Preflight::on, true},
      {"said off, but that is not allowed", true, true, 0, Preflight::off, true},
      {"the last start that Slurm grants", true, true, 4, Preflight::by_default, true},
      {"one more would be held", true, true, 5, Preflight::by_default, false},
      {"srun or salloc", false, true, 0, Preflight::by_default, false},
      {"--no-requeue", true, false, 0, Preflight::on, false},
      {"srun that insists", false, false, 0, Preflight::require, true},
      {"--no-requeue that insists", true, false, 0, Preflight::require, true},
      {"would be held, and insists", true, true, 5, Preflight::require, true},
  };
  for (const Row& row : rows) {
    slurm::Job job = make_job();
    job.batch = row.batch;
    job.requeue = row.requeue;
    job.restarts = row.restarts;
    const JobStep step = job_step(job, row.preflight, 5);
    EXPECT_EQ(step.fail, row.fail) << row.name;
    EXPECT_FALSE(step.why.empty()) << row.name;
  }
}

TEST(MaxRequeues, IsReadOrSlurmsDefault) {
  EXPECT_EQ(max_batch_requeues({{"MaxBatchRequeue", "2"}}), 2);
  for (const char* odd : {"", "many", "3x", "99999999999999"}) {
    EXPECT_EQ(max_batch_requeues({{"MaxBatchRequeue", odd}}), 5) << odd;
  }
  EXPECT_EQ(max_batch_requeues({}), 5);
}

TEST(AdminComment, IsAppendedToAndReadBack) {
  const std::string note = drain_note("node02", true, 0, "ms-diag:gpu.ecc gpu 3: 4 uncorrectable errors");
  EXPECT_EQ(note, "ms-diag: node02 was drained before start 1: gpu.ecc gpu 3: 4 uncorrectable errors");
  EXPECT_EQ(drain_note("node02", false, 2, "ms-diag:x"), "ms-diag: node02 was drained after start 3: x");
  EXPECT_EQ(appended_comment("", note), note);
  const std::string other = drain_note("node03", true, 1, "ms-diag:gpu.lost gpu 0: gone; also gpu.ecc gpu 1");
  const std::string both = "ticket 5; see wiki; " + note + "; " + other;
  EXPECT_EQ(appended_comment("ticket 5; see wiki; " + note, other), both);
  EXPECT_EQ(notes_in(both), (std::vector<std::string>{note, other}));
  EXPECT_EQ(appended_comment(both, note), std::nullopt);                           // there already
  EXPECT_EQ(appended_comment(std::string(kMaxComment, 'x'), note), std::nullopt);  // no room: theirs is not cut
  EXPECT_TRUE(notes_in("").empty());
  EXPECT_TRUE(notes_in("ticket 5").empty());
  EXPECT_TRUE(notes_in("see ms-diag: docs").empty());
  EXPECT_EQ(notes_in("x; ms-diag: "), (std::vector<std::string>{"ms-diag:"}));
  for (const std::string& line : notes_in(note + "\n\x1b[31m; ms-diag: two\nlines")) {
    EXPECT_EQ(line.find('\n'), std::string::npos);
    EXPECT_EQ(line.find('\x1b'), std::string::npos);
  }
}

}  // namespace
}  // namespace ms::health
