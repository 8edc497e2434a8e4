// ms-diag import-nhc: what each line of NHC becomes, and that no line is lost without a word.
#include "health/commands/import_nhc.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "health/act/load_policy.h"
#include "support/files.h"

namespace ms::health {
namespace {

using Fate = NhcLine::Fate;

Policy policy_of(const NhcImport& made) {
  const test::TempDir directory;
  test::spill(directory / "ms-diag.toml", made.policy);
  return load_policy(directory / "ms-diag.toml");
}

Fate fate_of(const std::string& line, const std::string& node = "") {
  const NhcImport made = import_nhc(line, node);
  EXPECT_EQ(made.lines.size(), 1) << line;
  EXPECT_NO_THROW(policy_of(made)) << line << "\n" << made.policy;
  return made.lines.at(0).fate;
}

// A site's file: forms of the README of NHC 1.4.
constexpr const char* kSite = R"(# Site configuration
   # a comment behind blanks
   * || export NHC_RM=slurm
   * || export MARK_OFFLINE=0

   * || check_hw_cpuinfo 2 64 128   # no SMT
   * || check_hw_physmem 528000000 528000000 3%
   * || check_hw_ib 400 mlx5_0:1
{gpu[01-16]} || check_hw_ib 400 mlx5_1:1
   * || check_hw_mcelog
   * || check_fs_mount_rw -f /
   * || check_fs_mount_rw -t lustre -s '*@o2ib:/scratch' -f /scratch
   * || check_fs_mount -f /home
   * || check_fs_mount_ro -f /images
   * || check_fs_free / 3%
   * || check_fs_used /tmp 97%
   * || check_ps_service -u root -S sshd
   * || check_ps_service -d rpc.statd -r nfslock
 gpu* || check_nv_healthmon
!gpu* || check_ps_daemon wulfd
   * || check_cmd_status -t 1 -r 1 selinuxenabled
   * || check_file_test -r -w -x -d -k /tmp /var/tmp
   * || check_ps_loadavg $((2*HW_CORES))
   * || check_dmi_data_match "BIOS Information: Version: 2.0.1"
   * || check_our_own thing
)";

TEST(ImportNhc, ASitesFileBecomesAPolicy) {
  const NhcImport made = import_nhc(kSite, "gpu07");
  const Policy policy = policy_of(made);
  EXPECT_EQ(policy.act.mode, "observe");
  EXPECT_EQ(policy.expect.cpus, 128);
  EXPECT_EQ(policy.expect.memory_mib, 515625);
  EXPECT_EQ(policy.limits.memory_missing_percent, 3);
  EXPECT_EQ(policy.expect.links, (std::vector<std::string>{"mlx5_0/1", "mlx5_1/1"}));
  EXPECT_EQ(policy.expect.link_gbps, 400);
  EXPECT_EQ(policy.expect.mounts, (std::vector<std::string>{"/:rw", "/scratch:rw", "/home", "/images:ro"}));
  EXPECT_EQ(policy.limits.space_free_percent, 3);
  EXPECT_EQ(policy.expect.processes, (std::vector<std::string>{"sshd", "rpc.statd"}));
  EXPECT_EQ(policy.expect.bios, "2.0.1");

  std::vector<std::size_t> partly, lost, others;
  for (const NhcLine& line : made.lines) {
    EXPECT_NE(made.policy.find(plain_text(line.text, 1000)), std::string::npos) << line.text;
    if (line.fate == Fate::partly) partly.push_back(line.number);
    if (line.fate == Fate::not_translated) lost.push_back(line.number);
    if (line.fate == Fate::other_node) others.push_back(line.number);
    EXPECT_TRUE(!line.why.empty() || line.fate == Fate::translated || line.fate == Fate::other_node) << line.text;
  }
  EXPECT_EQ(made.lines.size(), 22);
  EXPECT_EQ(partly, (std::vector<std::size_t>{6, 7, 12, 17, 18}));
  EXPECT_EQ(lost, (std::vector<std::size_t>{21, 22, 23, 25}));
  EXPECT_EQ(others, (std::vector<std::size_t>{20}));
  EXPECT_EQ(made.lost, 9);
}

TEST(ImportNhc, WithoutANodeOnlyLinesForAllAreTranslated) {
  const NhcImport made = import_nhc(kSite, "");
  EXPECT_EQ(policy_of(made).expect.links, (std::vector<std::string>{"mlx5_0/1"}));
  EXPECT_EQ(made.lost, 12);
}

TEST(ImportNhc, TargetsAreMatchedAsNhcDoes) {
  const auto is_for = [](const std::string& target, const std::string& node) {
    const Fate fate = fate_of(target + " || check_hw_mcelog", node);
    EXPECT_TRUE(fate == Fate::translated || fate == Fate::other_node) << target;
    return fate == Fate::translated;
  };
  EXPECT_TRUE(is_for("*", "n1"));
  EXPECT_TRUE(is_for("n*.viz", "n7.viz"));
  EXPECT_FALSE(is_for("n*.viz", "n7.gpu"));
  EXPECT_TRUE(is_for("n0[1-3]", "n02"));
  EXPECT_FALSE(is_for("!ln*", "ln1"));
  EXPECT_TRUE(is_for("!ln*", "n1"));
  EXPECT_TRUE(is_for("/n000[0-9]/", "n0007.cc2"));
  EXPECT_FALSE(is_for("/^n000[0-9]$/", "n0007.cc2"));
  EXPECT_TRUE(is_for("!/[.](gpu|htc)/", "n1.viz"));
  EXPECT_FALSE(is_for("!/[.](gpu|htc)/", "n1.htc"));
  EXPECT_TRUE(is_for("/n\\.x/", "nax"));  // the shell's read takes the backslash away
  for (const char* node : {"n0030.phys", "n0099.phys", "n0001.bio"})
    EXPECT_TRUE(is_for("{n00[00-99].phys,n000[0-4].bio}", node));
  for (const char* node : {"n0100.phys", "n0005.bio", "n00x1.phys", "n001.phys"}) {
    EXPECT_FALSE(is_for("{n00[00-99].phys,n000[0-4].bio}", node)) << node;
  }
  EXPECT_FALSE(is_for("!{n03,n05,n0[7-9]}", "n08"));
  EXPECT_TRUE(is_for("!{n03,n05,n0[7-9]}", "n04"));
  for (const char* target : {"{n00[10-21,23]}", "{n[1-10]}", "{n[0-3]0[00-49]}", "@netgroup@", "/(/", "!/(/", "!"}) {
    EXPECT_EQ(fate_of(std::string(target) + " || check_hw_mcelog", "n0010"), Fate::not_translated) << target;
  }
}

TEST(ImportNhc, EachLineIsTranslatedOrNamed) {
  struct Row {
    const char* check;
    Fate fate;
  };
  const Row rows[] = {
      {"check_hw_physmem 32gb 32gb 5%", Fate::partly},
      {"check_hw_physmem 32gb", Fate::translated},
      {"check_hw_physmem '' 32gb", Fate::not_translated},
      {"check_hw_physmem 32xb 32gb", Fate::not_translated},
      {"check_hw_physmem 99999999999999999999", Fate::not_translated},
      {"check_hw_mem 40g 40g", Fate::not_translated},
      {"check_hw_swap 0 2097152", Fate::not_translated},
      {"check_hw_cpuinfo 2 8", Fate::not_translated},
      {"check_hw_ib 40", Fate::not_translated},
      {"check_hw_ib 40 mlx4_0", Fate::partly},
      {"check_hw_eth eth1", Fate::partly},
      {"check_hw_gm myri0", Fate::not_translated},
      {"check_fs_mount /home bluearc:/home nfs", Fate::partly},
      {"check_fs_mount -r -s bluearc1:/global/home -t nfs -o *hard* -f /home", Fate::partly},
      {"check_fs_mount -0 -f /home", Fate::not_translated},
      {"check_fs_mount -F /home", Fate::not_translated},
      {"check_fs_mount -Z -f /home", Fate::not_translated},
      {"check_fs_mount -f", Fate::not_translated},
      {"check_fs_mount_rw -f home", Fate::not_translated},
      {"check_fs_mount_rw -f/home", Fate::translated},
      {"check_fs_mount_rw -f /a /b", Fate::translated},
      {"check_fs_free /tmp 128MB", Fate::not_translated},
      {"check_fs_free /scratch 3%", Fate::not_translated},
      {"check_fs_size /tmp 512m 4g", Fate::not_translated},
      {"check_fs_ifree / 1k", Fate::not_translated},
      {"check_ps_service crond", Fate::translated},
      {"check_ps_service -0 crond", Fate::translated},
      {"check_ps_service -k telnetd", Fate::not_translated},
      {"check_ps_service -m '/x/' crond", Fate::not_translated},
      {"check_ps_service -uroot -r crond", Fate::partly},
      {"check_ps_daemon sshd root", Fate::partly},
      {"check_ps_blacklist sshd !root", Fate::not_translated},
      {"check_ps_unauth_users log syslog kill", Fate::partly},
      {"check_ps_cpu -u !root -r 20 99%", Fate::not_translated},
      {"check_dmi_data_match \"BIOS Information: Version: 2.*\"", Fate::not_translated},
      {"check_dmi_data_match -! \"BIOS Information: Version: 2.1\"", Fate::not_translated},
      {"check_net_ping -W 3 master", Fate::not_translated},
      {"check_moab_rm -t 45", Fate::not_translated},
      {"check_nv_healthmon", Fate::translated},
      {"check_hw_mcelog && true", Fate::not_translated},
      {"check_hw_mcelog $X", Fate::not_translated},
      {"check_hw_mcelog \"$X\"", Fate::not_translated},
      {"check_hw_mcelog '$X'", Fate::translated},
      {"check_hw_mcelog 'open", Fate::not_translated},
      {"export TIMEOUT=15", Fate::translated},
      {"TIMEOUT=15 check_hw_mcelog", Fate::not_translated},
      {"MARK_OFFLINE=1", Fate::not_translated},
      {"MAX_SYS_UID=499", Fate::not_translated},
      {"SITE_THING=1", Fate::not_translated},
      {"true", Fate::not_translated},
      {"# nothing", Fate::not_translated},
      {"", Fate::not_translated},
  };
  for (const Row& row : rows) EXPECT_EQ(fate_of(std::string("* || ") + row.check), row.fate) << row.check;
  EXPECT_EQ(fate_of("check_hw_mcelog"), Fate::not_translated);
  EXPECT_EQ(fate_of("|| check_hw_mcelog"), Fate::not_translated);
}

TEST(ImportNhc, AKeyHasOneValueAndAConflictIsNamed) {
  const NhcImport space =
      import_nhc("* || check_fs_free / 5%\n* || check_fs_free /tmp 3%\n* || check_fs_used /var 95%", "");
  EXPECT_EQ(policy_of(space).limits.space_free_percent, 5);
  EXPECT_EQ(space.lines[1].fate, Fate::partly);
  EXPECT_EQ(space.lines[2].fate, Fate::translated);
  const NhcImport strict = import_nhc("* || check_fs_free /tmp 3%\n* || check_fs_used / 95%", "");
  EXPECT_EQ(policy_of(strict).limits.space_free_percent, 5);
  EXPECT_EQ(strict.lines[0].fate, Fate::partly);

  const NhcImport rates = import_nhc("* || check_hw_ib 200 mlx5_0:1\n* || check_hw_ib 100 mlx5_2:1", "");
  EXPECT_EQ(policy_of(rates).expect.link_gbps, 100);
  EXPECT_EQ(rates.lines[0].fate, Fate::partly);
  EXPECT_EQ(rates.lines[1].fate, Fate::translated);

  // eth0 has 1 Gb/s, and is well.
  const NhcImport mixed = import_nhc("* || check_hw_ib 200 mlx5_0:1\n* || check_hw_eth eth0", "");
  EXPECT_EQ(policy_of(mixed).expect.link_gbps, -1);
  EXPECT_EQ(mixed.lines[0].fate, Fate::partly);
}

TEST(ImportNhc, LinesAreJoinedAndNumbered) {
  const NhcImport made = import_nhc("\r\n# x\n* || check_fs_mount \\\n  -f /home\n\n* || check_hw_mcelog\r\n", "");
  ASSERT_EQ(made.lines.size(), 2);
  EXPECT_EQ(made.lines[0].number, 3);
  EXPECT_EQ(made.lines[1].number, 6);
  EXPECT_EQ(policy_of(made).expect.mounts, (std::vector<std::string>{"/home"}));
  EXPECT_TRUE(import_nhc("# nothing\n\n", "").lines.empty());
}

TEST(ImportNhc, TextOfTheFileCannotBecomeKeys) {
  const NhcImport made = import_nhc("* || check_fs_mount -f '/a\"]\\r[act]'\n* || echo \x1b[31m\n", "");
  EXPECT_EQ(policy_of(made).expect.mounts.size(), 1);
  EXPECT_EQ(made.policy.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace ms::health
