// The commands as they are really called: shell scripts stand for scontrol and squeue.
#include "slurm/commands.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/error.h"
#include "support/files.h"

namespace ms::slurm {
namespace {

namespace fs = std::filesystem;

class CommandsTest : public testing::Test {
 protected:
  CommandsTest() {
    write("scontrol", "");
    write("squeue", "");
  }

  // A script that notes its arguments, one a line, and its environment, and does what `body` says.
  void write(const std::string& program, const std::string& body) {
    const fs::path path = dir_ / program;
    std::ofstream(path) << "#!/bin/sh\nprintf '<%s>' " << program << " \"$@\" >> " << dir_.string() << "/calls\n"
                        << "echo >> " << dir_.string() << "/calls\n"
                        << "/usr/bin/env > " << dir_.string() << "/env\n"
                        << body << "\n";
    fs::permissions(path, fs::perms::owner_all);
  }
  std::string read(const std::string& name) const { return test::slurp(dir_ / name); }
  CommandOptions options() const { return {.scontrol = (dir_ / "scontrol").string(), .conf = "", .deadline_s = 5}; }
  // What squeue answers of one job.
  void write_job(const std::string& array, const std::string& task) {
    std::string row = "7," + array + "," + task + ",1000,0,PENDING,,node01,held,";
    std::string long_row = "7,1,1,2,N/A,(null),";
    for (std::string* text : {&row, &long_row}) {
      std::string octal;
      for (char c : *text) octal += c == ',' ? std::string("\\037") : std::string(1, c);
      *text = octal + "\\036\\n";
    }
    write("squeue", "case \"$*\" in *--Format=*) printf '" + long_row + "';; *) printf '" + row + "';; esac");
  }
  std::string failure(const std::function<void(const Commands&)>& call) const {
    try {
      call(Commands(options()));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), "slurm.command");
      EXPECT_EQ(error.blame(), Blame::slurm);
      return error.message();
    }
    return "no error";
  }

  const test::TempDir temporary_;
  const fs::path dir_ = temporary_.path();
};

TEST_F(CommandsTest, JobsOnANodeAreThoseThatSqueueNames) {
  EXPECT_THAT(Commands(options()).jobs_on("node02"), testing::IsEmpty());
  write("squeue", "echo 7; echo 12");
  EXPECT_THAT(Commands(options()).jobs_on("node02"), testing::ElementsAre(7U, 12U));
  EXPECT_NE(read("calls").find("<--nodelist=node02>"), std::string::npos);
  EXPECT_EQ(failure([](const Commands& slurm) { slurm.jobs_on("node[01-02]"); }),
            "node: 'node[01-02]' is not one node");
  write("squeue", "echo slurm_load_jobs error");
  EXPECT_NE(failure([](const Commands& slurm) { slurm.jobs_on("node02"); }), "no error");
}

TEST_F(CommandsTest, ArgumentsAreWordsAndReachScontrolWhole) {
  write_job("7", "N/A");
  const Commands slurm(options());
  slurm.drain("node02", "ms-diag:gpu.ecc gpu 3: $(reboot) 'x'");
  slurm.resume("node02");
  slurm.set_weight("node02", 1'000'007);
  slurm.set_admin_comment(7, "two words; rm -rf");
  slurm.set_comment(7, "attempt 2 trains");
  slurm.requeue_hold(7);
  slurm.set_excluded_nodes(7, "node[01-02]");
  slurm.release(7);
  slurm.start_now(7);
  std::string calls = read("calls");
  EXPECT_EQ(calls.substr(0, calls.find("<squeue>")),
            "<scontrol><update><NodeName=node02><State=DRAIN><Reason=ms-diag:gpu.ecc gpu 3: $(reboot) 'x'>\n"
            "<scontrol><update><NodeName=node02><State=UNDRAIN>\n"
            "<scontrol><update><NodeName=node02><Weight=1000007>\n");
  EXPECT_EQ(calls.substr(calls.rfind("squeue")).substr(calls.substr(calls.rfind("squeue")).find('\n') + 1),
            "<scontrol><update><JobId=7><AdminComment=two words; rm -rf>\n"
            "<scontrol><update><JobId=7><Comment=attempt 2 trains>\n<scontrol><requeuehold><7>\n"
            "<scontrol><update><JobId=7><ExcNodeList=node[01-02]>\n<scontrol><release><7>\n"
            "<scontrol><update><JobId=7><StartTime=now+3>\n");
}

TEST_F(CommandsTest, AnExpeditedJobIsKnownByAWordOfItsOwn) {
  write_job("7", "N/A");
  const Commands slurm(options());
  for (const auto& [line, expedited] :
       std::map<std::string, bool>{{"JobId=7 Requeue=1 ExpeditedRequeue=Yes Restarts=0", true},
                                   {"JobId=7 Comment=ExpeditedRequeue=Yes", false},
                                   {"JobId=7 Requeue=1 Restarts=0", false}}) {
    write("scontrol", "echo '" + line + "'");
    EXPECT_EQ(slurm.is_expedited(7), expedited) << line;
  }
  slurm.forbid_requeue(7);
  EXPECT_THAT(read("calls"), testing::EndsWith("<scontrol><update><JobId=7><Requeue=0>\n"));
}

TEST_F(CommandsTest, PartitionsAndTheirJobs) {
  write_job("12", "3");
  write("scancel", "");
  write("scontrol", "echo 'PartitionName=loan MinNodes=1 Nodes=node[01-02] State=UP'");
  const Commands slurm(options());
  EXPECT_EQ(slurm.partition("loan").nodes, "node[01-02]");
  slurm.set_partition_nodes("loan", "");
  EXPECT_EQ(slurm.jobs_of("loan").at(0).id, 7U);
  slurm.signal_batch(7, "USR1");
  slurm.requeue(7);
  const std::string calls = read("calls");
  EXPECT_NE(calls.find("<scontrol><update><PartitionName=loan><Nodes=>\n"), std::string::npos) << calls;
  EXPECT_NE(calls.find("<scancel><--batch><--signal=USR1><12_3>\n<scontrol><requeue><12_3>\n"), std::string::npos)
      << calls;
  EXPECT_NE(failure([](const Commands& other) { other.partition("infer"); }).find("does not name"), std::string::npos);
  for (const char* name : {"", "-x", "a,b", "a b", "a=b"}) {
    EXPECT_NE(failure([&](const Commands& other) { other.set_partition_nodes(name, "n"); }).find("not one partition"),
              std::string::npos);
  }
}

TEST_F(CommandsTest, OneTaskOfAnArrayIsNotTheArray) {
  write_job("7", "3");
  const Commands slurm(options());
  slurm.requeue_hold(7);
  EXPECT_NE(read("calls").find("<requeuehold><7_3>\n"), std::string::npos) << read("calls");
}

TEST_F(CommandsTest, TheEnvironmentIsClean) {
  ::setenv("MS_TEST_SECRET", "x", 1);
  ::setenv("SQUEUE_STATES", "RUNNING", 1);
  CommandOptions with_conf = options();
  with_conf.conf = "/etc/slurm/other.conf";
  Commands(with_conf).resume("node01");
  std::string env = read("env");
  EXPECT_NE(env.find("SLURM_CONF=/etc/slurm/other.conf\n"), std::string::npos);
  EXPECT_EQ(env.find("MS_TEST_SECRET"), std::string::npos);
  EXPECT_EQ(env.find("SQUEUE_"), std::string::npos);
  Commands(options()).resume("node01");
  EXPECT_EQ(read("env").find("SLURM_CONF"), std::string::npos);
  ::unsetenv("MS_TEST_SECRET");
  ::unsetenv("SQUEUE_STATES");
}

TEST_F(CommandsTest, ReadsAJob) {
  write_job("7", "N/A");
  const Job job = Commands(options()).job(7);
  EXPECT_EQ(job.state, "PENDING");
  EXPECT_TRUE(job.held());
  EXPECT_EQ(job.excluded_nodes, "node01");
  EXPECT_EQ(job.restarts, 2);
  EXPECT_EQ(failure([](const Commands& slurm) { slurm.job(8); }), "squeue: there is no job 8");
}

TEST_F(CommandsTest, FailuresSayScontrolsOwnWords) {
  write("scontrol", "echo 'slurm_update error: Invalid user id' >&2; exit 1");
  const std::string words = failure([](const Commands& slurm) { slurm.resume("node01"); });
  EXPECT_NE(
      words.find("scontrol update NodeName=node01 State=UNDRAIN: slurm_update error: Invalid user id (exit status"),
      std::string::npos)
      << words;
  write("scontrol", "echo 'Node zz not found'; exit 1");
  EXPECT_NE(failure([](const Commands& slurm) { slurm.node("zz"); }).find("Node zz not found"), std::string::npos);
  write("scontrol", "kill -SEGV $$");
  EXPECT_NE(failure([](const Commands& slurm) { slurm.nodes(); }).find("signal 11"), std::string::npos);
  write("scontrol", "printf 'a\\033[2Jb\\n' >&2; exit 1");
  EXPECT_NE(failure([](const Commands& slurm) { slurm.config(); }).find("a?[2Jb"), std::string::npos);
  write("scontrol", "echo 'NodeName=other State=IDLE'");
  EXPECT_NE(failure([](const Commands& slurm) { slurm.node("zz"); }).find("does not name"), std::string::npos);
}

TEST_F(CommandsTest, WhatCannotBeRunIsAFailureOfSlurm) {
  fs::remove(dir_ / "scontrol");
  EXPECT_NE(failure([](const Commands& slurm) { slurm.config(); }).find("No such file"), std::string::npos);
  try {
    Commands({.scontrol = "scontrol", .conf = "", .deadline_s = 5}).config();
    FAIL();
  } catch (const Error& error) { EXPECT_EQ(error.message(), "scontrol show config: it is not an absolute path"); }
}

TEST_F(CommandsTest, ALateAnswerIsKilledEvenWhereItIgnoresSigterm) {
  write("scontrol", "trap '' TERM; while :; do :; done");
  CommandOptions hurried = options();
  hurried.deadline_s = 0.1;
  try {
    Commands(hurried).config();
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("no answer within 0.1 s"), std::string::npos) << error.message();
  }
}

TEST_F(CommandsTest, OnlyOneNodeAtATime) {
  for (const char* node : {"", "ALL", "All", "node[01-02]", "a,b", "a b", "-x"}) {
    EXPECT_NE(failure([&](const Commands& slurm) { slurm.drain(node, "r"); }).find("is not one node"),
              std::string::npos);
    EXPECT_NE(failure([&](const Commands& slurm) { slurm.resume(node); }).find("is not one node"), std::string::npos);
  }
  EXPECT_EQ(read("calls"), "");
}

// A job that requeues itself gets SIGTERM, and so do the commands that it has started.
TEST_F(CommandsTest, CommandsIgnoreSigtermWhereWeDo) {
  write("scontrol", "kill -TERM $$; echo 'NodeName=n State=IDLE'");
  EXPECT_NE(failure([](const Commands& slurm) { slurm.node("n"); }).find("signal 15"), std::string::npos);
  const auto before = ::signal(SIGTERM, SIG_IGN);
  EXPECT_EQ(failure([](const Commands& slurm) { slurm.node("n"); }), "no error");
  ::signal(SIGTERM, before);
}

// A prolog's commands end together, however many there are.
TEST_F(CommandsTest, NoCommandGetsMoreThanIsLeftForAll) {
  double left_s = 0.2;
  CommandOptions bounded = options();
  bounded.left_s = [&] { return left_s; };
  const Commands slurm(bounded);
  EXPECT_EQ(slurm.left_s(), 0.2);
  write("scontrol", "exec /usr/bin/sleep 1000");
  const auto kind = [&] {
    try {
      slurm.resume("node01");
    } catch (const Error& error) { return error.kind(); }
    return std::string();
  };
  EXPECT_EQ(kind(), kNoAnswer);
  left_s = 0;
  std::filesystem::remove(dir_ / "calls");
  EXPECT_EQ(kind(), "slurm.command");
  EXPECT_FALSE(std::filesystem::exists(dir_ / "calls")) << "nothing is started";
  EXPECT_GT(Commands(options()).left_s(), 1e9);
}

}  // namespace
}  // namespace ms::slurm
