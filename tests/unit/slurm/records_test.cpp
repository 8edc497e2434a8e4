// What Slurm's commands really print (22.05.8, and the fields that newer versions add), and what users and
// administrators can write into it.
#include "slurm/records.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

namespace ms::slurm {
namespace {

// scontrol show config, 22.05.8, shortened
constexpr const char* kConfig = R"(Configuration data as of 2026-11-21T11:57:15
AccountingStorageHost   = localhost
AuthInfo                = socket=/run/munge/sock,cred_expire=5
BatchStartTimeout       = 10 sec
InteractiveStepOptions  = --interactive --preserve-env --pty $SHELL
PowerPlugin             = 
Prolog                  = (null)
PrologEpilogTimeout     = 30
PrologFlags             = Alloc,DeferBatch
SlurmctldHost[0]        = ctl(10.77.0.1)
SLURM_VERSION           = 22.05.8
TaskPluginParam         = (null type)

MPI Plugins Configuration:
PMIxCliTmpDirBase       = (null)
PrologFlags             = of something else

Slurmctld(primary) at ctl is UP
)";

TEST(Records, Config) {
  const Config config = parse_config(kConfig);
  EXPECT_EQ(config.at("AuthInfo"), "socket=/run/munge/sock,cred_expire=5");
  EXPECT_EQ(config.at("BatchStartTimeout"), "10 sec");
  EXPECT_EQ(config.at("InteractiveStepOptions"), "--interactive --preserve-env --pty $SHELL");
  EXPECT_EQ(config.at("PowerPlugin"), "");
  EXPECT_EQ(config.at("Prolog"), "");
  EXPECT_EQ(config.at("PrologFlags"), "Alloc,DeferBatch");  // the first counts
  EXPECT_EQ(config.at("SlurmctldHost[0]"), "ctl(10.77.0.1)");
  EXPECT_EQ(config.at("SLURM_VERSION"), "22.05.8");
  EXPECT_EQ(config.size(), 12U);
  EXPECT_TRUE(parse_config("").empty());
  EXPECT_TRUE(parse_config("slurm_load_ctl_conf error: Unable to contact slurm controller\n").empty());
}

constexpr const char* kNodes2205 =
    "NodeName=node01 Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUEfctv=4 CPUTot=4 CPULoad=0.28 "
    "AvailableFeatures=(null) ActiveFeatures=(null) Gres=gpu:h100:8(S:0-1) NodeAddr=10.77.0.11 NodeHostName=node01 "
    "Version=22.05.8 OS=Linux 6.1.0 #1 SMP PREEMPT_DYNAMIC @0  RealMemory=2000 AllocMem=0 FreeMem=23133 Sockets=4 "
    "Boards=1 State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=train  "
    "BootTime=2026-11-21T08:29:53 SlurmdStartTime=2026-11-21T11:56:53 LastBusyTime=2026-11-21T11:56:53 "
    "CfgTRES=cpu=4,mem=2000M,billing=4 AllocTRES= CapWatts=n/a CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s "
    "ExtSensorsWatts=0 ExtSensorsTemp=n/s\n"
    "NodeName=node03 Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUEfctv=4 CPUTot=4 CPULoad=0.28 "
    "AvailableFeatures=(null) ActiveFeatures=(null) Gres=(null) NodeAddr=10.77.0.13 NodeHostName=node03 "
    "Version=22.05.8 OS=Linux 6.1.0 #1 SMP PREEMPT_DYNAMIC @0  RealMemory=2000 AllocMem=0 FreeMem=23134 Sockets=4 "
    "Boards=1 State=IDLE+DRAIN ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=train  "
    "BootTime=2026-11-21T08:29:53 SlurmdStartTime=2026-11-21T11:56:53 LastBusyTime=2026-11-21T11:56:53 "
    "CfgTRES=cpu=4,mem=2000M,billing=4 AllocTRES= CapWatts=n/a CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s "
    "ExtSensorsWatts=0 ExtSensorsTemp=n/s Reason=ms-diag: gpu.ecc gpu 3: 4 errors Gres=gpu:9 "
    "[x@2020-01-01T00:00:00] [root@2026-11-21T11:57:15]\n";

TEST(Records, Nodes2205) {
  const std::vector<Node> nodes = parse_nodes(kNodes2205);
  ASSERT_EQ(nodes.size(), 2U);
  EXPECT_EQ(nodes[0].name, "node01");
  EXPECT_EQ(nodes[0].host, "node01");
  EXPECT_EQ(nodes[0].slurm_year, 22);
  EXPECT_EQ(nodes[0].states, std::vector<std::string>{"IDLE"});
  EXPECT_FALSE(nodes[0].is_drained_or_draining());
  EXPECT_EQ(nodes[0].reason, "");
  EXPECT_EQ(nodes[0].reason_user, "");

  EXPECT_TRUE(nodes[1].is_drained_or_draining());
  EXPECT_EQ(nodes[1].reason, "ms-diag: gpu.ecc gpu 3: 4 errors Gres=gpu:9 [x@2020-01-01T00:00:00]");
  EXPECT_EQ(nodes[1].reason_user, "root");
}

// 24.11: more fields in front, and behind the reason.
TEST(Records, Nodes2411) {
  const std::vector<Node> nodes = parse_nodes(
      "NodeName=node02 Arch=x86_64 CoresPerSocket=48  CPUAlloc=96 CPUEfctv=94 CPUTot=96 CPULoad=0.10 "
      "AvailableFeatures=h100 ActiveFeatures=h100 Gres=gpu:h100:8(S:0,1),nic:2 NodeAddr=n2 NodeHostName=n2 Port=0 "
      "Version=24.11.5 OS=Linux 6.12 #1 SMP Debian 6.12  RealMemory=2063000 AllocMem=0 FreeMem=1 Sockets=2 Boards=1 "
      "CoreSpecCount=2 CPUSpecList=0-1 RestrictedCoresPerGPU=8(gpu0:0-7) State=MIXED+CLOUD+DRAIN*+NOT_RESPONDING "
      "ThreadsPerCore=1 TmpDisk=0 Weight=1000050 Owner=N/A MCS_label=N/A NextState=POWERED_DOWN Partitions=train,long  "
      "BootTime=2026-01-01T00:00:00 SlurmdStartTime=2026-01-01T00:00:00 LastBusyTime=2026-01-01T00:00:00 "
      "ResumeAfterTime=None CfgTRES=cpu=94 AllocTRES=cpu=96 CurrentWatts=0 AveWatts=0  "
      "Reason=ms-diag:gpu.count 7 of 8 [slurm@2026-01-01T00:00:00] Comment=State=IDLE Reason=none at all "
      "[bob@2026-01-01T00:00:00] Extra={\"a\": 1} InstanceId=i-1 InstanceType=x ReservationName=r\n");
  ASSERT_EQ(nodes.size(), 1U);
  EXPECT_EQ(nodes[0].host, "n2");
  EXPECT_EQ(nodes[0].weight, 1'000'050U);
  EXPECT_EQ(nodes[0].states, (std::vector<std::string>{"MIXED", "CLOUD", "DRAIN", "NOT_RESPONDING"}));
  EXPECT_EQ(nodes[0].reason, "ms-diag:gpu.count 7 of 8");
  EXPECT_EQ(nodes[0].reason_user, "slurm");
}

TEST(Records, OddNodes) {
  struct Row {
    std::string tail;
    std::string reason;
    std::string user;
  };
  const std::vector<Row> rows = {
      {"", "", ""},
      {" Reason=Not responding [slurm@Unknown]", "Not responding", "slurm"},
      {" Reason=prolog instance=i-0123 job=42: fabricmanager down [root@2026-11-21T11:45:00] Comment=rack 7 State=DOWN "
       "on "
       "Monday Extra={\"lastProbe\":\"2026-11-21 23:24:35 +0000 UTC\"}",
       "prolog instance=i-0123 job=42: fabricmanager down", "root"},
      {" Reason=gres/gpu count reported lower than configured (0 < 8) [slurm@2026-11-21T11:03:34]",
       "gres/gpu count reported lower than configured (0 < 8)", "slurm"},
      {" Reason=no signature", "no signature", ""},
      {" Reason=[root@2026-11-21T11:57:15]", "", "root"},
      {" Reason=kept [gpu 3] [root@2026-11-21T11:57:15]", "kept [gpu 3]", "root"},
      {" Reason=kept [gpu 3]", "kept [gpu 3]", ""},
      {" Reason=kept [not@atime]", "kept [not@atime]", ""},
      {" Reason=", "", ""},
      {" Comment=x", "", ""},
  };
  for (const Row& row : rows) {
    const std::vector<Node> nodes = parse_nodes("NodeName=n State=DOWN$ Partitions=p" + row.tail);
    ASSERT_EQ(nodes.size(), 1U) << row.tail;
    EXPECT_EQ(nodes[0].reason, row.reason) << row.tail;
    EXPECT_EQ(nodes[0].reason_user, row.user) << row.tail;
    EXPECT_TRUE(nodes[0].has_state("DOWN"));
    EXPECT_EQ(nodes[0].reason_wall_s > 0, row.tail.find("T11:") != std::string::npos) << row.tail;
  }
  EXPECT_TRUE(parse_nodes("").empty());
  EXPECT_TRUE(parse_nodes("Node zz not found\n").empty());
  EXPECT_TRUE(parse_nodes("NodeName= State=IDLE\n").empty());
}

// squeue's answers, with the control characters written as '|' and '$'.
std::string answer(std::string text) {
  for (char& c : text) {
    if (c == '|') c = '\x1f';
    if (c == '$') c = '\x1e';
  }
  return text;
}

std::optional<Job> job_of(const std::string& text, const std::string& long_text, std::uint32_t id) {
  return parse_job(answer(text), answer(long_text), id);
}

TEST(Records, WaitsOfJobs) {
  const std::vector<Wait> waits = parse_waits(answer("7|0|12|1:30|$\n9|2|0|UNLIMITED|$\n")).value();
  ASSERT_EQ(waits.size(), 2U);
  EXPECT_EQ(waits[0].id, 7U);
  EXPECT_EQ(waits[1].restarts, 2);
  EXPECT_EQ(waits[0].seconds, 12);
  EXPECT_EQ(waits[0].left_s, 90);
  EXPECT_TRUE(std::isinf(waits[1].left_s));
  EXPECT_EQ(parse_waits("").value().size(), 0U);
  for (const char* text : {"7|0|12|1:00|", "7|0|12|$", "error", "7|0|1|2|3|$"})
    EXPECT_FALSE(parse_waits(answer(text))) << text;
}

TEST(Records, RequestsOfPendingJobs) {
  const std::vector<Request> requests =
      parse_requests(answer("7|2048|1-00:00:10|||N/A|$\n8|1|NOT_SET|(null)|(null)|0|$\n9|2|5:00|node01||N/A|$\n"
                            "10|2|5:00||gpu&ib|N/A|$\n11|1|5:00|||10|$\n"))
          .value();
  ASSERT_EQ(requests.size(), 5U);
  EXPECT_EQ(requests[0].nodes, 2048);
  EXPECT_EQ(requests[0].limit_s, 86'410);
  EXPECT_TRUE(requests[0].any_nodes && requests[1].any_nodes);
  EXPECT_TRUE(std::isinf(requests[1].limit_s));
  EXPECT_FALSE(requests[2].any_nodes || requests[3].any_nodes || requests[4].any_nodes);
  EXPECT_FALSE(parse_requests(answer("7|2|1:00||$")));
}

TEST(Records, TimesAsSlurmWritesThem) {
  EXPECT_EQ(parse_time_s("1-02:03:04"), 93'784);
  EXPECT_EQ(parse_time_s("2:03:04"), 7384);
  EXPECT_EQ(parse_time_s("3:04"), 184);
  for (const char* text : {"UNLIMITED", "NOT_SET", "INVALID", "", "-", "1-", "1:x"}) EXPECT_FALSE(parse_time_s(text));
}

TEST(Records, TheQuestion) {
  EXPECT_EQ(job_format(), answer("%A|%F|%K|%U|%Q|%T|%N|%x|%r|$"));
  EXPECT_EQ(job_long_format(), answer("JobID:|,BatchFlag:|,Requeue:|,RestartCnt:|,HetJobID:|,admin_comment:|$"));
}

// What a user writes is not asked for: %j name, %k comment, %a account, %o command, %Z directory, %w wckey, %f
// features.
TEST(Records, NothingThatUsersWriteIsAskedFor) {
  for (const char* field : {"%j", "%k", "%a", "%o", "%Z", "%w", "%f", "%E", "%W"}) {
    EXPECT_EQ(job_format().find(field), std::string::npos) << field;
  }
}

TEST(Records, RunningJob) {
  const auto job =
      job_of("12|12|N/A|1000|4294901758|RUNNING|node[02-03]|node01|None|$\n", "12|1|1|0|N/A|(null)|$\n", 12);
  ASSERT_TRUE(job.has_value());
  EXPECT_EQ(job->id, 12U);
  EXPECT_EQ(job->user_id, 1000U);
  EXPECT_EQ(job->state, "RUNNING");
  EXPECT_TRUE(job->runs());
  EXPECT_FALSE(job->pending());
  EXPECT_FALSE(job->held());
  EXPECT_EQ(job->nodes, "node[02-03]");
  EXPECT_EQ(job->excluded_nodes, "node01");
  EXPECT_EQ(job->reason, "");
  EXPECT_TRUE(job->batch);
  EXPECT_TRUE(job->requeue);
  EXPECT_EQ(job->restarts, 0);
  EXPECT_EQ(job->admin_comment, "");
  EXPECT_EQ(job->reference(), "12");
}

TEST(Records, BatchFlagCountsLaunches) {
  for (const auto& [flag, batch] : {std::pair("0", false), {"1", true}, {"2", true}, {"", false}, {"x", false}}) {
    const auto job =
        job_of("12|12|N/A|1000|1|RUNNING|node02||None|$\n", fmt::format("12|{}|1|0|N/A|(null)|$\n", flag), 12);
    ASSERT_TRUE(job.has_value()) << flag;
    EXPECT_EQ(job->batch, batch) << flag;
  }
}

TEST(Records, HeldJobWithAComment) {
  const auto job = job_of("12|12|N/A|1000|0|PENDING|||job requeued in held state|$\n",
                          "12|1|0|3|N/A|ms-diag: node02 was drained, Requeue=1\nand more|$\n", 12);
  ASSERT_TRUE(job.has_value());
  EXPECT_TRUE(job->pending());
  EXPECT_TRUE(job->held());
  EXPECT_FALSE(job->runs());
  EXPECT_EQ(job->nodes, "");
  EXPECT_EQ(job->reason, "job requeued in held state");
  EXPECT_FALSE(job->requeue);
  EXPECT_EQ(job->restarts, 3);
  EXPECT_EQ(job->admin_comment, "ms-diag: node02 was drained, Requeue=1\nand more");
}

TEST(Records, AComponentKnowsWhoHasTheScript) {
  const std::string row = "13|13|N/A|1000|1|RUNNING|node02||Prolog|$\n";
  EXPECT_EQ(job_of(row, "13|1|1|0|12|(null)|$\n", 13)->het_leader, 12U);
  EXPECT_EQ(job_of(row, "13|1|1|0|N/A|(null)|$\n", 13)->het_leader, 0U);
}

TEST(Records, ATaskIsFoundAmongItsArray) {
  const std::string text =
      "4|4|3|0|9|RUNNING|node04||None|$\n6|4|2|0|9|COMPLETING|node04|node[01-02]|None|$\n"
      "5|4|1|0|9|RUNNING|node04||None|$\n";
  const std::string long_text = "4|1|1|0|N/A|(null)|$\n6|1|0|2|N/A|(null)|$\n5|1|1|0|N/A|(null)|$\n";
  const auto last = job_of(text, long_text, 4);
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->reference(), "4_3");  // "4" would be all of them
  const auto second = job_of(text, long_text, 6);
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->reference(), "4_2");
  EXPECT_EQ(second->restarts, 2);
  EXPECT_FALSE(second->runs());
  EXPECT_FALSE(second->pending());
  EXPECT_FALSE(job_of(text, long_text, 7));
}

TEST(Records, AnArrayThatHasNotStartedIsOneJob) {
  const auto job = job_of("7|7|1-3,9|0|9|PENDING|||BeginTime|$\n", "7|1|1|0|N/A|(null)|$\n", 7);
  ASSERT_TRUE(job.has_value());
  EXPECT_EQ(job->reference(), "7");
}

TEST(Records, AllJobsOfAnAnswer) {
  const std::string two = answer("12|12|N/A|0|9|RUNNING|node[01-02]||None|$\n14|12|3|0|9|PENDING|||Priority|$\n");
  const auto jobs = parse_jobs(two);
  ASSERT_TRUE(jobs.has_value());
  ASSERT_EQ(jobs->size(), 2U);
  EXPECT_EQ(jobs->at(0).nodes, "node[01-02]");
  EXPECT_TRUE(jobs->at(0).runs());
  EXPECT_EQ(jobs->at(1).reference(), "12_3");
  EXPECT_TRUE(parse_jobs("")->empty());
  // Cut off, another number than Slurm's, another shape: these are not fewer jobs.
  EXPECT_FALSE(parse_jobs(std::string_view(two).substr(0, 20)).has_value());
  EXPECT_FALSE(parse_jobs(std::string_view(two).substr(0, two.size() - 10)).has_value());
  EXPECT_FALSE(parse_jobs(answer("013|13|N/A|0|9|RUNNING|n||None|$\n")).has_value());
  EXPECT_FALSE(parse_jobs("garbage\n").has_value());
}

TEST(Records, APartitionAndItsNodes) {
  const std::string text =
      "PartitionName=infer AllocNodes=ALL MaxNodes=UNLIMITED MinNodes=1 Nodes=node[01-03] State=UP TotalNodes=3\n"
      "PartitionName=loan AllocNodes=ALL MaxNodes=UNLIMITED MinNodes=1 Nodes=(null) State=UP TotalNodes=0\n";
  EXPECT_EQ(parse_partition(text, "infer")->nodes, "node[01-03]");
  EXPECT_EQ(parse_partition(text, "loan")->nodes, "");
  EXPECT_FALSE(parse_partition(text, "loa").has_value());
  EXPECT_FALSE(parse_partition("", "loan").has_value());
}

TEST(Records, OutputsOfAJobAreWhereItsScriptWrites) {
  const auto of = [](const std::string& end) {
    return parse_outputs("JobId=7 JobName=StdOut=x\n   Command=/w/StdOut=/etc/shadow\n   StdErr=" + end +
                         "\n   Power=\n");
  };
  EXPECT_EQ(of("/w/my job.out\n   StdIn=/dev/null\n   StdOut=/w/my job.out"),
            std::vector<std::string>{"/w/my job.out"});
  EXPECT_EQ(of("/w/7.err\n   StdOut=/w/7.out"), (std::vector<std::string>{"/w/7.out", "/w/7.err"}));
  EXPECT_TRUE(of("").empty());
  EXPECT_TRUE(parse_outputs("").empty());
}

TEST(Records, WhatIsNotInBothAnswersIsNoJob) {
  const std::string row = "12|12|N/A|0|9|RUNNING|n||None|$\n";
  const std::string long_row = "12|1|1|0|N/A|(null)|$\n";
  ASSERT_TRUE(job_of(row, long_row, 12).has_value());
  struct Case {
    std::string text;
    std::string long_text;
  };
  const std::vector<Case> cases = {
      {"", ""},
      {row, ""},
      {"", long_row},
      {row.substr(0, row.size() - 2), long_row},
      {row, long_row.substr(0, long_row.size() - 2)},
      {"12|12|N/A|0|9|RUNNING|n||None|x|$\n", long_row},
      {"12|12|N/A|0|9|RUNNING|n||$\n", long_row},
      {row, "12|1|1|0|N/A|forged|row|$\n"},
      {"012|12|N/A|0|9|RUNNING|n||None|$\n", long_row},
      {"JOBID|ARRAY\n", long_row},
  };
  for (const Case& one : cases) EXPECT_FALSE(job_of(one.text, one.long_text, 12)) << one.text << one.long_text;
}

}  // namespace
}  // namespace ms::slurm
