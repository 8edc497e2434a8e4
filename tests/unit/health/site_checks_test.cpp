// The check site.checks: what executables of the site may say, and whose are run. As root.
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "fake_node.h"
#include "health/act/decide.h"
#include "health/run/runner.h"
#include "support/files.h"

namespace ms::health {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SiteChecks : public FakeNode {
 protected:
  SiteChecks() { policy.paths.checks = directory_.path(); }

  std::string write(const std::string& name, const std::string& body, mode_t mode = 0755) const {
    test::spill(directory_ / name, "#!/bin/sh\n" + body + "\n");
    ::chmod((directory_ / name).c_str(), mode);
    return directory_ / name;
  }
  Result run_all() { return run_checks({*find_check(passive_checks(), "site.checks")}, policy, {})[0]; }
  // The result of one check alone.
  Result said(const std::string& body) {
    const std::string path = write("one", body);
    const Result result = run_all();
    std::filesystem::remove(path);
    return result;
  }

  test::TempDir directory_;
};

TEST_F(SiteChecks, AreNotRunWithoutADirectory) {
  policy.paths.checks = "";
  EXPECT_OUTCOME(run_all(), Outcome::skip);
  policy.paths.checks = directory_.path();
  EXPECT_OUTCOME(run_all(), Outcome::skip);  // it is empty
  policy.paths.checks = directory_ / "none";
  EXPECT_OUTCOME(run_all(), Outcome::broken);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "none"));
}

TEST_F(SiteChecks, AFindingTakesAStatusAndALine) {
  struct Row {
    const char* body;
    Outcome outcome;
    const char* message;  // of the finding
  };
  const Row rows[] = {
      {"exit 0", Outcome::pass, ""},
      {"echo CRITICAL: no; exit 0", Outcome::pass, ""},
      {"echo 'DISK WARNING - 3 GB left|/=97%'; exit 1", Outcome::warn, "DISK WARNING - 3 GB left"},
      {"echo; echo CRITICAL: no license; echo more; exit 2", Outcome::critical, "CRITICAL: no license"},
      {R"(echo '{"severity": "warning", "message": "slow"}'; exit 1)", Outcome::warn, "slow"},
      {R"(echo '{"severity": "critical", "message": "gone"}'; exit 2)", Outcome::critical, "gone"},
      {"echo no license server; exit 3", Outcome::skip, ""},
      // A script that fails by itself exits 1 or 2, too.
      {"echo checking /data; exit 2", Outcome::broken, ""},
      {"exit 1", Outcome::broken, ""},
      {"echo CRITICAL >&2; exit 2", Outcome::broken, ""},
      {"echo WARNING: full; exit 2", Outcome::broken, ""},
      {"echo CRITICAL: full; exit 1", Outcome::broken, ""},
      {"if", Outcome::broken, ""},
      {"no-such-command", Outcome::broken, ""},
      {"echo CRITICAL; exit 4", Outcome::broken, ""},
      {"echo CRITICAL; kill -SEGV $$", Outcome::broken, ""},
      {R"(echo '{"severity": "warning", "message": "gone"}'; exit 2)", Outcome::broken, ""},
      {R"(echo '{"severity": "critical"}'; exit 2)", Outcome::broken, ""},
      {R"(echo '{"severity": "critical", "message": ""}'; exit 2)", Outcome::broken, ""},
      {R"(echo '{"severity": "critical", "message": 3}'; exit 2)", Outcome::broken, ""},
      {R"(echo '{"severity": "critical", "message": "x", "part": "y"}'; exit 2)", Outcome::broken, ""},
      {R"(echo '{"severity": "critical", "message": "CRITICAL'; exit 2)", Outcome::broken, ""},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.body);
    const Result result = said(row.body);
    EXPECT_OUTCOME(result, row.outcome);
    if (*row.message == '\0') {
      EXPECT_TRUE(result.findings.empty());
    } else if (result.findings.size() == 1) {
      EXPECT_EQ(result.findings[0].message, row.message);
      EXPECT_EQ(result.findings[0].entity, "one");
    } else {
      ADD_FAILURE() << describe(result);
    }
  }
}

TEST_F(SiteChecks, JsonNamesEntityAndRemedy) {
  const Result result = said(
      R"(printf '{"severity":"critical","entity":"/data","message":"gone\\u0007","remedy":"Mount it."}\n'; exit 2)");
  ASSERT_EQ(result.findings.size(), 1) << describe(result);
  EXPECT_EQ(result.findings[0].entity, "one /data");
  EXPECT_EQ(result.findings[0].message, "gone?");
  EXPECT_EQ(result.findings[0].remedy, "Mount it.");
  EXPECT_EQ(result.findings[0].blame, Blame::node);
}

TEST_F(SiteChecks, HaveAnEnvironmentOfTheirOwn) {
  ::setenv("LD_PRELOAD_OF_A_USER", "x", 1);
  ::setenv("SLURMD_NODENAME", "node07", 1);
  const Result result = said(
      "echo WARNING $(env | cut -d= -f1 | sort | grep -v '^PWD$\\|^_$\\|^SHLVL$\\|^OLDPWD$') "
      "$SLURMD_NODENAME; cat; exit 1");
  ::unsetenv("LD_PRELOAD_OF_A_USER");
  ::unsetenv("SLURMD_NODENAME");
  ASSERT_EQ(result.findings.size(), 1) << describe(result);
  EXPECT_EQ(result.findings[0].message, "WARNING LC_ALL PATH SLURMD_NODENAME node07");
}

TEST_F(SiteChecks, OneThatCannotTellHidesWarningsButNoCriticalFinding) {
  write("a", "echo WARNING: old; exit 1");
  write("b", "exit 7");
  write(".hidden", "echo CRITICAL; exit 2");
  const Result unsure = run_all();
  EXPECT_OUTCOME(unsure, Outcome::broken);
  EXPECT_THAT(unsure.note, HasSubstr("a: WARNING: old; b: exit status 7"));
  write("c", "echo CRITICAL: gone; exit 2");
  const Result bad = run_all();
  EXPECT_OUTCOME(bad, Outcome::critical);
  EXPECT_THAT(entities(bad), ElementsAre("a", "b", "c"));
  EXPECT_EQ(bad.findings[1].severity, Severity::note);
}

TEST_F(SiteChecks, RootRunsOnlyFilesOfItsOwn) {
  const std::string ran = directory_ / ".ran";
  const std::string path = write("one", "touch " + ran);
  EXPECT_OUTCOME(run_all(), Outcome::pass);
  ASSERT_TRUE(std::filesystem::remove(ran));
  const auto refused = [&](const char* why) {
    const Result result = run_all();
    EXPECT_OUTCOME(result, Outcome::broken);
    EXPECT_THAT(result.note, HasSubstr(why));
    EXPECT_FALSE(std::filesystem::exists(ran));
  };
  ::chmod(path.c_str(), 0775);
  refused("may be written by others");
  ::chmod(path.c_str(), 0644);
  refused("not executable");
  ::chmod(path.c_str(), 0755);
  ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
  refused("belongs to user 65534");
  ASSERT_EQ(::chown(path.c_str(), 0, 0), 0);
  for (const mode_t mode : {0775, 0757, 01777}) {  // a sticky directory, too: a second name may be laid there
    ::chmod(directory_.path().c_str(), mode);
    refused("mode");
  }
  ::chmod(directory_.path().c_str(), 0755);
  ASSERT_EQ(::chown(directory_.path().c_str(), 65534, 65534), 0);
  refused("belongs to user 65534");
  ASSERT_EQ(::chown(directory_.path().c_str(), 0, 0), 0);
  std::filesystem::rename(path, directory_ / ".one");
  ASSERT_EQ(::symlink((directory_ / ".one").c_str(), path.c_str()), 0);
  refused("cannot open");
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  refused("not a regular file");
  std::filesystem::remove(path);
  for (int i = 0; i < 33; ++i) write("check" + std::to_string(i), "touch " + ran);
  refused("more than 32");
}

TEST_F(SiteChecks, OneThatHangsIsCutAndTheOthersCount) {
  write("bad", "echo CRITICAL: gone; exit 2");
  write("deaf", "trap '' TERM; while :; do sleep 100; done");
  Evidence evidence(policy, kNow_s, 0, {});
  const SystemClock clock;
  evidence.begin_check(clock, 5);
  const Result result = find_check(passive_checks(), "site.checks")->run(evidence);
  EXPECT_OUTCOME(result, Outcome::critical);
  EXPECT_THAT(entities(result), ElementsAre("bad", "deaf"));
  EXPECT_EQ(result.findings[1].severity, Severity::note);
  EXPECT_THAT(result.findings[1].message, HasSubstr("no answer in time"));
}

TEST_F(SiteChecks, DrainOnlyWhereThePolicySaysSo) {
  const Result result = said("echo CRITICAL: gone; exit 2");
  EXPECT_TRUE(draining(result.findings, policy, nullptr).empty());
  policy.act.allow = {"site.checks"};
  EXPECT_EQ(drain_reason(draining(result.findings, policy, nullptr)), "ms-diag:site.checks one: CRITICAL: gone");
}

TEST_F(SiteChecks, UsersDoNotRunThem) {
  write("one", "echo CRITICAL; exit 2");
  ASSERT_EQ(::seteuid(65534), 0);
  const Result result = run_all();
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_OUTCOME(result, Outcome::skip);
}

}  // namespace
}  // namespace ms::health
