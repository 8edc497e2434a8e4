// A site that is ready, and each way in which it is not.
#include "slurm/site.h"

#include <gtest/gtest.h>

namespace ms::slurm {
namespace {

SiteFacts ready() {
  SiteFacts facts;
  facts.config = {{"SLURM_VERSION", "22.05.8"},
                  {"PrologFlags", "Alloc,DeferBatch"},
                  {"SchedulerParameters", "bf_interval=1,nohold_on_prolog_fail"},
                  {"PrologEpilogTimeout", "30"},
                  {"BatchStartTimeout", "10 sec"},
                  {"MessageTimeout", "10 sec"},
                  {"AuthInfo", "socket=/run/munge/sock,cred_expire=30"},
                  {"JobRequeue", "1"},
                  {"Prolog", ""},
                  {"ReturnToService", "1"}};
  facts.checks_s = 4;
  facts.longest_prolog_s = 8.9;
  facts.plugin = PluginLine{.required = false, .path = "/usr/lib/ms_spank.so", .program = {}};
  facts.plugin_version = 0x160508;
  facts.ms_version = "0.1";
  return facts;
}

// "critical site.alloc PrologFlags", one a line
std::string problems(const SiteFacts& facts) {
  std::string text;
  for (const Finding& finding : site_problems(facts)) {
    EXPECT_EQ(finding.blame, Blame::slurm);
    EXPECT_NE(finding.message, "");
    EXPECT_NE(finding.remedy, "");
    EXPECT_LE(finding.code.size(), std::string("site.").size() + 12);
    text += std::string(text.empty() ? "" : ", ") + std::string(to_string(finding.severity)) + ' ' + finding.code +
            ' ' + finding.entity;
  }
  return text;
}

TEST(Site, AReadySiteHasNoProblems) {
  EXPECT_EQ(problems(ready()), "");
  SiteFacts prolog = ready();
  prolog.plugin_version = 0;
  prolog.plugin.reset();
  prolog.config["Prolog"] = "/usr/libexec/ms/ms-prolog";
  EXPECT_EQ(problems(prolog), "");
}

TEST(Site, TheHealthCheckProgramIsOursAndRuns) {
  SiteFacts facts = ready();
  facts.config["HealthCheckProgram"] = "/opt/site/nhc";  // another program is not judged
  facts.has_health_program = false;
  EXPECT_EQ(problems(facts), "");
  facts.config["HealthCheckProgram"] = "/usr/bin/ms-diag health";
  EXPECT_EQ(problems(facts), "warning site.health HealthCheckProgram");
  EXPECT_NE(site_fix_text(facts).find("HealthCheckProgram=/usr/libexec/ms/ms-health\n"), std::string::npos);
  const std::string ours = "/usr/local/libexec/ms/ms-health";
  facts.config["HealthCheckProgram"] = ours;
  facts.config["HealthCheckInterval"] = "300 sec";
  EXPECT_EQ(problems(facts), "warning site.health " + ours);
  facts.has_health_program = true;
  EXPECT_EQ(problems(facts), "");
  facts.config["HealthCheckInterval"] = "0 sec";
  EXPECT_EQ(problems(facts), "warning site.health HealthCheckInterval");
  facts.config["HealthCheckNodeState"] = "REBOOT_ONLY";
  EXPECT_EQ(problems(facts), "");
  facts.config["HealthCheckTimeout"] = "8 sec";  // longest_prolog_s is 8.9
  EXPECT_EQ(problems(facts), "warning site.health HealthCheckTimeout");
  facts.config["HealthCheckTimeout"] = "0 sec";
  EXPECT_EQ(problems(facts), "");
  facts.config["HealthCheckTimeout"] = "9 sec";
  EXPECT_EQ(problems(facts), "");
}

TEST(Site, EveryKeyOfTheConfigurationMatters) {
  struct Row {
    const char* key;
    const char* value;
    const char* problems;
  };
  const std::vector<Row> rows = {
      {"SLURM_VERSION", "", "critical site.version SLURM_VERSION"},
      {"SLURM_VERSION", "22.05.2", "critical site.version SLURM_VERSION"},
      {"SLURM_VERSION", "22.05.3", ""},
      {"SLURM_VERSION", "23.02.1", "critical site.abi /usr/lib/ms_spank.so"},
      {"SLURM_VERSION", "21.08.8", "critical site.version SLURM_VERSION, critical site.abi /usr/lib/ms_spank.so"},
      {"PrologFlags", "", "critical site.alloc PrologFlags, warning site.deferbatch PrologFlags"},
      {"PrologFlags", "DeferBatch", "critical site.alloc PrologFlags"},
      {"PrologFlags", "Allocate,DeferBatch", "critical site.alloc PrologFlags"},
      {"PrologFlags", "alloc,deferbatch,X11", ""},
      {"PrologFlags", "Contain,DeferBatch", ""},
      {"PrologFlags", "Alloc", "warning site.deferbatch PrologFlags"},
      {"SchedulerParameters", "", "critical site.hold SchedulerParameters"},
      {"SchedulerParameters", "no_nohold_on_prolog_fail", "critical site.hold SchedulerParameters"},
      {"PrologEpilogTimeout", "8", "critical site.timeout PrologEpilogTimeout"},
      {"PrologEpilogTimeout", "9", "critical site.timeout PrologEpilogTimeout"},
      {"PrologEpilogTimeout", "10", ""},
      {"PrologEpilogTimeout", "0", ""},
      {"PrologEpilogTimeout", "65534", ""},
      {"PrologTimeout", "9 sec", "critical site.timeout PrologTimeout"},
      {"PrologTimeout", "10 sec", ""},
      {"EpilogTimeout", "9 sec", "critical site.timeout EpilogTimeout"},
      {"BatchStartTimeout", "9 sec", "critical site.timeout BatchStartTimeout"},
      {"BatchStartTimeout", "", ""},  // it comes as 10 s
      {"MessageTimeout", "6 sec", "warning site.hung MessageTimeout"},
      {"MessageTimeout", "7 sec", ""},
      {"MessageTimeout", "2 sec", "warning site.hung MessageTimeout"},
      {"AuthInfo", "", "warning site.delay AuthInfo"},
      {"AuthInfo", "cred_expire=120", "warning site.delay AuthInfo"},
      {"AuthInfo", "cred_expire=4", "warning site.delay AuthInfo"},  // too small: Slurm takes 120
      {"AuthInfo", "cred_expire=59", ""},
      {"AuthInfo", "cred_expire=5", ""},
      {"JobRequeue", "0", "warning site.requeue JobRequeue"},
      {"ReturnToService", "2", "warning site.return ReturnToService"},
      {"ReturnToService", "0", ""},
      {"Prolog", "/usr/libexec/ms/ms-prolog", "warning site.twice Prolog"},
      {"Prolog[1]", "/usr/libexec/ms/ms-prolog", "warning site.twice Prolog"},
      {"Prolog", "/etc/slurm/prolog.sh", ""},
  };
  for (const Row& row : rows) {
    SiteFacts facts = ready();
    facts.config[row.key] = row.value;
    EXPECT_EQ(problems(facts), row.problems) << row.key << '=' << row.value;
  }
}

TEST(Site, ThePlugin) {
  struct Row {
    bool there;
    unsigned version;
    const char* prolog;
    const char* problems;
  };
  constexpr unsigned kGood = 0x160500;  // another patch release of the same Slurm
  const std::vector<Row> rows = {
      {true, kGood, "", ""},
      {true, 0x170200, "", "critical site.abi /usr/lib/ms_spank.so"},
      {true, 0x150508, "", "critical site.abi /usr/lib/ms_spank.so"},
      {true, 0, "", "critical site.abi /usr/lib/ms_spank.so"},
      {false, 0, "", "critical site.none plugstack.conf"},
      {false, 0, "/etc/slurm/prolog.sh", "warning site.none Prolog"},
      {false, 0, "/usr/libexec/ms/ms-prolog", ""},
      {true, kGood, "/usr/libexec/ms/ms-prolog", "warning site.twice Prolog"},
  };
  for (const Row& row : rows) {
    SiteFacts facts = ready();
    if (!row.there) facts.plugin.reset();
    facts.plugin_version = row.version;
    facts.config["Prolog"] = row.prolog;
    EXPECT_EQ(problems(facts), row.problems) << row.there << ' ' << row.version << ' ' << row.prolog;
  }
  SiteFacts facts = ready();
  facts.plugin->required = true;
  EXPECT_EQ(problems(facts), "warning site.required /usr/lib/ms_spank.so");
  facts = ready();
  facts.plugin->program = "/opt/ms/bin/ms-diag";
  EXPECT_EQ(problems(facts), "");
  facts.has_program = false;
  EXPECT_EQ(problems(facts), "critical site.program /opt/ms/bin/ms-diag");
}

TEST(Site, WithoutAPolicyNothingIsCheckedAndThatIsNotReady) {
  SiteFacts facts = ready();
  facts.policy = "/etc/ms/ms-diag.toml";
  EXPECT_EQ(problems(facts), "");
  facts.policy_problem = "it is not there";
  EXPECT_EQ(problems(facts), "critical site.policy /etc/ms/ms-diag.toml");
  EXPECT_NE(site_fix_text(facts).find("--sample-policy >/etc/ms/ms-diag.toml"), std::string::npos);
  facts.policy_problem = "others may write it";
  facts.has_policy = true;
  EXPECT_EQ(problems(facts), "critical site.policy /etc/ms/ms-diag.toml");
  for (const Finding& finding : site_problems(facts))
    EXPECT_EQ(finding.remedy.find('>'), std::string::npos) << "the site's own settings are kept: " << finding.remedy;
}

TEST(Site, ASlurmdThatIsOlderThanPlugstackConfRunsNoPlugin) {
  SiteFacts facts = ready();
  facts.is_slurmd_older = true;
  EXPECT_NE(problems(facts).find("critical site.restart"), std::string::npos);
  facts.plugin.reset();
  EXPECT_EQ(problems(facts).find("site.restart"), std::string::npos);
}

TEST(Site, TheRemedyIsTheWholeLineToWrite) {
  SiteFacts facts = ready();
  facts.config["PrologFlags"] = "X11,DeferBatch";
  facts.config["SchedulerParameters"] = "bf_interval=1";
  facts.config["AuthInfo"] = "socket=/run/munge/sock,cred_expire=300";
  facts.config["PrologEpilogTimeout"] = "6 sec";
  const std::vector<Finding> findings = site_problems(facts);
  ASSERT_EQ(findings.size(), 4U);
  EXPECT_EQ(findings[0].remedy, "write PrologFlags=X11,DeferBatch,Alloc in slurm.conf");
  EXPECT_EQ(findings[1].remedy, "write SchedulerParameters=bf_interval=1,nohold_on_prolog_fail in slurm.conf");
  EXPECT_EQ(findings[2].message, "ms-diag is ended after 9 s, but after 6 s Slurm kills it and drains the node");
  EXPECT_EQ(findings[2].measured, 6);
  EXPECT_EQ(findings[2].limit, 9);
  EXPECT_EQ(findings[3].remedy, "write AuthInfo=socket=/run/munge/sock,cred_expire=30 in slurm.conf");
  EXPECT_EQ(findings[3].measured, 301);
}

TEST(Site, TheLinesThatMendIt) {
  EXPECT_EQ(site_fix_text(ready()), "# nothing is missing\n");
  SiteFacts facts = ready();
  facts.config["PrologFlags"] = "X11";
  facts.config["GresTypes"] = "craynetwork";
  facts.config["SLURM_VERSION"] = "22.05.2";
  facts.plugin.reset();
  facts.own_plugin = "/opt/ms/lib/ms/ms_spank.so";
  facts.node = "n7";
  facts.gpu_files = {"/dev/nvidia0", "/dev/nvidia1"};
  EXPECT_EQ(site_fix_text(facts), R"(# slurm.conf, in place of lines with the same key
PrologFlags=X11,Alloc,DeferBatch
GresTypes=craynetwork,gpu

# plugstack.conf
optional /opt/ms/lib/ms/ms_spank.so config=/etc/ms/ms-diag.toml

# gres.conf
NodeName=n7 Name=gpu File=/dev/nvidia[0-1]

# to do, where no line helps
# site.version SLURM_VERSION: update Slurm to 22.05.3 or newer

# then: scontrol reconfigure; after changes to PrologFlags, plugstack.conf or gres.conf restart slurmctld and slurmd
)");
  facts.gres_conf_has_gpus = true;
  facts.own_plugin.clear();  // then there is no path to write
  EXPECT_EQ(site_fix_text(facts).find("gres.conf\n"), std::string::npos);
  EXPECT_NE(site_fix_text(facts).find("# site.none plugstack.conf: install ms_spank.so"), std::string::npos);
}

// ms-diag within its starter's deadline, and that within Slurm's time-outs.
TEST(Site, TheWorstCaseFitsTheDeadlineAndThatSlurmsTimeouts) {
  struct Row {
    double longest_prolog_s;
    double deadline_s;
    const char* batch_start;
    const char* problems;
  };
  const std::vector<Row> rows = {
      {8.9, 9, "10 sec", ""},
      {9, 9, "10 sec", "critical site.deadline /usr/lib/ms_spank.so"},
      {12.9, 9, "10 sec", "critical site.deadline /usr/lib/ms_spank.so"},
      {12.9, 13, "10 sec", "critical site.timeout BatchStartTimeout"},
      {12.9, 13, "", "critical site.timeout BatchStartTimeout"},
      {12.9, 13, "13 sec", "critical site.timeout BatchStartTimeout"},
      {12.9, 13, "14 sec", ""},
      {8.9, 600, "60 sec", "critical site.timeout PrologEpilogTimeout, critical site.timeout BatchStartTimeout"},
      {8.9, 0, "10 sec", "critical site.deadline /usr/lib/ms_spank.so"},  // no such time
  };
  for (const Row& row : rows) {
    SiteFacts facts = ready();
    facts.longest_prolog_s = row.longest_prolog_s;
    facts.plugin->deadline_s = row.deadline_s;
    facts.config["BatchStartTimeout"] = row.batch_start;
    EXPECT_EQ(problems(facts), row.problems) << row.longest_prolog_s << ' ' << row.deadline_s << ' ' << row.batch_start;
  }
  SiteFacts prolog = ready();  // whose deadline cannot be set
  prolog.plugin.reset();
  prolog.config["Prolog"] = "/usr/libexec/ms/ms-prolog";
  prolog.longest_prolog_s = 9;
  EXPECT_EQ(problems(prolog), "critical site.deadline ms-prolog");
}

TEST(Site, WhatIsProposedIsEnough) {
  SiteFacts facts = ready();
  facts.longest_prolog_s = 12.9;
  EXPECT_NE(site_problems(facts)[0].remedy.find("deadline=13 "), std::string::npos);
  facts.plugin->deadline_s = 13;
  ASSERT_EQ(problems(facts), "critical site.timeout BatchStartTimeout");
  EXPECT_NE(site_problems(facts)[0].remedy.find("BatchStartTimeout=27 "), std::string::npos);
  facts.config["BatchStartTimeout"] = "27 sec";
  EXPECT_EQ(problems(facts), "");
  facts.config["MessageTimeout"] = "5 sec";
  ASSERT_EQ(problems(facts), "warning site.hung MessageTimeout");
  EXPECT_NE(site_problems(facts)[0].remedy.find("MessageTimeout=7 "), std::string::npos);
  facts.config["MessageTimeout"] = "7 sec";
  EXPECT_EQ(problems(facts), "");
}

TEST(Site, NothingIsKnown) {
  EXPECT_EQ(problems(SiteFacts{}),
            "critical site.version SLURM_VERSION, critical site.none plugstack.conf, critical site.alloc PrologFlags, "
            "warning site.deferbatch PrologFlags, critical site.hold SchedulerParameters, warning site.delay AuthInfo");
}

TEST(Site, Versions) {
  struct Row {
    const char* text;
    unsigned version;
  };
  const std::vector<Row> rows = {{"22.05.8", 0x160508},
                                 {"24.11.5", 0x180b05},
                                 {"24.11.5-1", 0x180b05},
                                 {"25.05.0-0rc1", 0x190500},
                                 {"", 0},
                                 {"22.05", 0},
                                 {"22.05.8.1", 0},
                                 {"22.05.x", 0},
                                 {"22.05.", 0},
                                 {"256.1.1", 0},
                                 {"-22.05.8", 0},
                                 {"v22.05.8", 0}};
  for (const Row& row : rows) EXPECT_EQ(version_number(row.text), row.version) << row.text;
}

}  // namespace
}  // namespace ms::slurm
