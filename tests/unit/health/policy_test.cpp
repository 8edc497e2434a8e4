// The policy: what is refused, all at once, and whose file root believes.
#include "health/act/load_policy.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <regex>

#include "base/safe_file.h"
#include "fake_world.h"
#include "health/checks/check.h"
#include "health/checks/registry.h"
#include "health/commands/manual.h"
#include "support/files.h"

namespace ms::health {
namespace {

class PolicyTest : public testing::Test {
 protected:
  std::string write(const std::string& text, const std::string& name = "ms-diag.toml") const {
    std::ofstream(directory_ / name) << text;
    ::chmod((directory_ / name).c_str(), 0644);
    return directory_ / name;
  }
  static std::string refusal(const std::function<void()>& action, const std::string& kind) {
    try {
      action();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.message();
      EXPECT_EQ(error.blame(), Blame::user);
      return error.message();
    }
    return "nothing was refused";
  }
  std::string invalid(const std::string& text) const {
    const std::string path = write(text);
    return refusal([&] { load_policy(path); }, "config.invalid");
  }
  test::TempDir directory_;
};

TEST_F(PolicyTest, DefaultsAreValidAndOnlyObserve) {
  const Policy policy = load_policy(write(""));
  EXPECT_FALSE(policy.may_act());
  EXPECT_EQ(policy.act.allow.size(), 12);
  for (const std::string& code : policy.act.allow) {
    const Check* check = find_check(passive_checks(), code);
    ASSERT_NE(check, nullptr) << code;
    EXPECT_TRUE(check->blame == Blame::node || check->blame == Blame::gpu) << code << " could never drain";
  }
  EXPECT_EQ(policy.file, directory_ / "ms-diag.toml");
}

TEST_F(PolicyTest, TheSampleIsTheDefaultsWithEveryKey) {
  const auto dump = [](Policy policy) {
    ConfigSchema schema;
    bind(schema, policy);
    return schema.dump(false);
  };
  const std::string sample = sample_policy();
  EXPECT_EQ(dump(load_policy(write(sample))), dump({}));
  const std::string whole = std::regex_replace(sample, std::regex("\n#(?=[a-z])"), "\n");
  EXPECT_EQ(dump(load_policy(write(whole))), dump({}));
  Policy policy;
  ConfigSchema schema;
  bind(schema, policy);
  for (const ConfigRow& row : schema.reference()) {
    EXPECT_NE(whole.find("\n" + row.key + " = "), std::string::npos) << row.key;
  }
}

TEST_F(PolicyTest, ReadsWhatIsSet) {
  const Policy policy = load_policy(
      write("[act]\nmode = \"act\"\nallow = [\"gpu.ecc\"]\n[prolog]\ndeadline = \"3s\"\n[expect]\ngpus = 8\nmounts = "
            "[\"/data\"]\n[paths]\nslurm_conf = \"/etc/slurm/slurm.conf\"\n"));
  EXPECT_TRUE(policy.may_act());
  EXPECT_EQ(policy.act.allow, std::vector<std::string>{"gpu.ecc"});
  EXPECT_EQ(policy.prolog.deadline_s, 3);
  EXPECT_EQ(policy.expect.gpus, 8);
  EXPECT_EQ(policy.paths.slurm_conf, "/etc/slurm/slurm.conf");
}

TEST_F(PolicyTest, NvmlIsLookedForUnlessItIsNamed) {
  EXPECT_EQ(Policy{}.paths.nvml, "");
  EXPECT_EQ(load_policy(write("[paths]\nnvml = \"\"")).paths.nvml, "");
  EXPECT_EQ(load_policy(write("[paths]\nnvml = \"/opt/nvml.so\"")).paths.nvml, "/opt/nvml.so");
}

TEST_F(PolicyTest, AMountMayTakeNearlyAsLongAsAProlog) {
  EXPECT_EQ(load_policy(write("[limits]\nmount_deadline = '2.75s'\n[prolog]\ndeadline = '3s'")).limits.mount_deadline_s,
            2.75);
}

TEST_F(PolicyTest, ReferenceHasASentenceForEveryKey) {
  Policy policy;
  ConfigSchema schema;
  bind(schema, policy);
  const std::vector<ConfigRow> rows = schema.reference();
  EXPECT_GE(rows.size(), 30);
  for (const ConfigRow& row : rows) {
    EXPECT_TRUE(row.doc.ends_with('.')) << row.key;
    EXPECT_TRUE(row.doc[0] >= 'A' && row.doc[0] <= 'Z') << row.key;
  }
}

TEST_F(PolicyTest, RefusesWhatCannotBe) {
  const std::pair<const char*, const char*> rows[] = {
      {"[act]\nmode = \"kill\"", "observe, act"},
      {"[act]\nallow = [\"gpu.eec\"]", "there is no check 'gpu.eec'"},
      {"[act]\nallow = [\"gpu.ecc\", \"gpu.ecc\"]", "twice"},
      {"[act]\nallow = [\"gpu.busy\"]", "a job's user can cause it"},
      {"[act]\nallow = [\"host.space\"]", "a job's user can cause it"},
      {"[act]\nallow = [\"perf.memory\"]", "of level 1"},
      {"[act]\nkill_switch = \"off\"", "act.kill_switch: must be an absolute path"},
      {"[act]\nkill_switch = \"\"", "act.kill_switch: must be an absolute path"},
      {"[act]\nmax_drained_percent = 101", "0 to 100"},
      {"[repair]\nlevel = 1", "2 to 3"},
      {"[repair]\nremedies = [\"pray\"]", "no remedy 'pray'"},
      {"[repair]\nstate = \"x\"", "absolute path"},
      {"[act]\nmax_drained = -1", "max_drained"},
      {"[prolog]\ndeadline = \"9s\"", "deadline"},
      {"[prolog]\ndeadline = 0", "deadline"},
      {"[prolog]\nepilog_interval = \"-1s\"", "epilog_interval"},
      {"[paths]\nstate = \"var/lib\"", "paths.state"},
      {"[paths]\nspool = \"\"", "paths.spool"},
      {"[paths]\nnotes = \"./x\"", "paths.notes"},
      {"[paths]\nscontrol = \"scontrol\"", "paths.scontrol"},
      {"[paths]\nslurm_conf = \"slurm.conf\"", "paths.slurm_conf"},
      {"[paths]\ngres_conf = \"gres.conf\"", "paths.gres_conf"},
      {"[paths]\nnvml = \"libnvidia-ml.so.1\"", "paths.nvml"},
      {"[paths]\nsysroot = \"\"", "paths.sysroot"},
      {"[expect]\nmounts = [\"/data\", \"scratch\"]", "expect.mounts"},
      {"[limits]\nmount_deadline = \"1h\"", "mount_deadline"},
      {"[limits]\nmount_deadline = \"3s\"\n[prolog]\ndeadline = \"3s\"",
       "ms-diag.toml:2:18: limits.mount_deadline (3 s) must be at least 0.25 s less than prolog.deadline (3 s)"},
      {"[limits]\nmount_deadline = '2.8s'\n[prolog]\ndeadline = '3s'", "never drains"},
      {"[prolog]\ndeadline = \"2s\"", "ms-diag.toml:2:12: limits.mount_deadline (2 s)"},
      {"[act]\nmodus = \"act\"", "did you mean 'act.mode'"},
      {"[act\n", "not valid TOML"},
  };
  for (const auto& [text, words] : rows) EXPECT_NE(invalid(text).find(words), std::string::npos) << text;
}

TEST_F(PolicyTest, RefusesMoreCodesThanMayDrain) {
  std::string list;
  int count = 0;
  for (const Check& check : passive_checks()) {
    if (!check.user_can_cause) list += fmt::format("{}\"{}\"", count++ == 0 ? "" : ", ", check.code);
  }
  ASSERT_GT(count, static_cast<int>(kMaxAllowed));
  EXPECT_NE(invalid("[act]\nallow = [" + list + "]").find("at most 16 codes"), std::string::npos);
}

TEST_F(PolicyTest, SaysAllProblemsAtOnce) {
  const std::string message =
      invalid("[act]\nallow = [\"gpu.eec\"]\n[paths]\nstate = \"x\"\n[prolog]\ndeadline = '99s'\n");
  EXPECT_NE(message.find("3 problems"), std::string::npos) << message;
  EXPECT_NE(message.find("ms-diag.toml:2:"), std::string::npos) << message;
}

TEST_F(PolicyTest, RootBelievesOnlyItsOwnFile) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const std::string path = write("[act]\nmode = \"act\"\n");
  EXPECT_TRUE(load_policy_as_root(path).may_act());  // the directory above it is sticky, as /tmp is
  const auto refused = [&](const std::string& of) { return refusal([&] { load_policy_as_root(of); }, "policy.owner"); };

  ::chmod(path.c_str(), 0664);
  EXPECT_NE(refused(path).find("may be written by others (mode 0664)"), std::string::npos);
  ::chmod(path.c_str(), 0646);
  EXPECT_NE(refused(path).find("may be written by others"), std::string::npos);
  ::chmod(path.c_str(), 0644);
  ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
  EXPECT_NE(refused(path).find("belongs to user 65534"), std::string::npos);
  ASSERT_EQ(::chown(path.c_str(), 0, 0), 0);
  EXPECT_TRUE(load_policy_as_root(path).may_act());

  ::chmod(directory_.path().c_str(), 0777);
  EXPECT_NE(refused(path).find("may be written by others"), std::string::npos);
  ::chmod(directory_.path().c_str(), 01777);
  EXPECT_TRUE(load_policy_as_root(path).may_act());
  ::chmod(directory_.path().c_str(), 0755);
  ASSERT_EQ(::chown(directory_.path().c_str(), 65534, 65534), 0);
  EXPECT_NE(refused(path).find("belongs to user 65534"), std::string::npos);
  ASSERT_EQ(::chown(directory_.path().c_str(), 0, 0), 0);
}

TEST_F(PolicyTest, RootFollowsNoLinkOfSomebodyElse) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const std::string path = write("");
  const auto refused = [&](const std::string& of) { return refusal([&] { load_policy_as_root(of); }, "policy.owner"); };
  // The file itself is never a link.
  ASSERT_EQ(::symlink(path.c_str(), (directory_ / "link").c_str()), 0);
  EXPECT_NE(refused(directory_ / "link").find("cannot open"), std::string::npos);
  // A link on the way is root's own, and leads through trusted directories.
  ASSERT_EQ(::symlink(directory_.path().c_str(), (directory_ / "there").c_str()), 0);
  EXPECT_NO_THROW(load_policy_as_root(directory_ / "there/ms-diag.toml"));
  ASSERT_EQ(::symlink("./..//./there", (directory_ / "relative").c_str()), 0);
  EXPECT_NE(refused(directory_ / "relative/ms-diag.toml").find("cannot open"), std::string::npos);
  ASSERT_EQ(::lchown((directory_ / "there").c_str(), 65534, 65534), 0);
  EXPECT_NE(refused(directory_ / "there/ms-diag.toml").find("a link that belongs to user 65534"), std::string::npos);
  ASSERT_EQ(::symlink("loop", (directory_ / "loop").c_str()), 0);
  EXPECT_NE(refused(directory_ / "loop/ms-diag.toml").find("cannot open"), std::string::npos);
  // Through a directory in which others may write, by a link of root's.
  std::filesystem::create_directory(directory_ / "open");
  std::filesystem::rename(path, directory_ / "open/ms-diag.toml");
  ::chmod((directory_ / "open").c_str(), 0777);
  ASSERT_EQ(::symlink((directory_ / "open").c_str(), (directory_ / "way").c_str()), 0);
  EXPECT_NE(refused(directory_ / "way/ms-diag.toml").find("may be written by others"), std::string::npos);
}

TEST_F(PolicyTest, RootReadsNothingThatIsNoFile) {
  if (::geteuid() != 0) GTEST_SKIP() << "the refusals before it differ";
  const auto refused = [&](const std::string& of) { return refusal([&] { load_policy_as_root(of); }, "policy.owner"); };
  EXPECT_NE(refused(directory_ / "none.toml").find("No such file"), std::string::npos);
  EXPECT_NE(refused(directory_.path()).find("not a regular file"), std::string::npos);
  EXPECT_NE(refused(directory_ / "a/b").find("No such file"), std::string::npos);
  EXPECT_NE(refused("ms-diag.toml").find("not an absolute path"), std::string::npos);
  EXPECT_NE(refused("/").find("names nothing"), std::string::npos);
  EXPECT_NE(refused(directory_ / "..").find("names nothing"), std::string::npos);
  ASSERT_EQ(::mkfifo((directory_ / "pipe").c_str(), 0644), 0);
  EXPECT_NE(refused(directory_ / "pipe").find("not a regular file"), std::string::npos);  // and does not wait
  const std::string path = write(std::string((1 << 20) + 1, '#'));
  EXPECT_NE(refused(path).find("larger than"), std::string::npos);
}

TEST(DrainCap, IsAPartOfTheClusterAndBounded) {
  struct Row {
    double percent;
    std::int64_t most, nodes, cap;
  };
  const Row rows[] = {{10, 16, 4, 1},    {10, 16, 8, 1},  {10, 16, 19, 1},   {10, 16, 20, 2},   {10, 16, 1000, 16},
                      {50, 16, 6, 3},    {0, 16, 100, 1}, {100, 1000, 8, 8}, {10, 0, 100, 0},   {10, 16, 0, 1},
                      {29, 99, 100, 29}, {7, 99, 100, 7}, {100, 5, 8, 5},    {0.5, 99, 1000, 5}};
  for (const Row& row : rows) {
    ActConfig act;
    act.max_drained_percent = row.percent;
    act.max_drained = row.most;
    EXPECT_EQ(drain_cap(act, row.nodes), row.cap) << row.percent << "% of " << row.nodes;
  }
}

}  // namespace
}  // namespace ms::health
