// What an agent and the driver do on their own node: processes, heartbeats, commands, files that grow.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <list>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "driver/beats.h"
#include "driver/command.h"
#include "driver/credential.h"
#include "driver/state.h"
#include "driver/tasks.h"
#include "support/fork.h"
#include "watch/beat.h"

namespace ms::driver {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Node : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(dir_); }
  void TearDown() override {
    for (const LongCommand& command : commands_) command.signal(SIGKILL);
    fs::remove_all(dir_);
  }
  // A task of the attempt, which does what the shell is told.
  LongCommand& task(int rank, int attempt, const std::string& script) {
    const std::string name = fmt::format("{}/task{}", dir_, commands_.size());
    return commands_.emplace_back(LongCommand::start(
        {"/bin/sh", "-c", script},
        environment_with(
            {{"SLURM_JOB_ID", "77"}, {"MS_ATTEMPT", std::to_string(attempt)}, {"SLURM_PROCID", std::to_string(rank)}}),
        name + ".out", name + ".status"));
  }
  template <class F>
  bool soon(F&& f) {
    for (int i = 0; i < 6000; ++i) {
      if (f()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  const std::string dir_ = fmt::format("{}/driver-{}", testing::TempDir(), getpid());
  std::list<LongCommand> commands_;
  Sysroot root_;
};

TEST_F(Node, TasksAreFoundByTheirEnvironmentAndKilled) {
  LongCommand& first = task(0, 3, "sleep 100");
  LongCommand& second = task(1, 3, "sleep 100 & wait");
  task(0, 2, "sleep 100");
  ASSERT_TRUE(soon([&] { return tasks_of(root_, 77, 3).size() >= 5; }));
  EXPECT_THAT(tasks_of(root_, 78, 3), IsEmpty());
  EXPECT_GE(kill_tasks(root_, 77, 3), 4);
  EXPECT_TRUE(soon([&] { return first.ended() && second.ended(); }));
  // What is killed may take a moment to die on a busy machine.
  EXPECT_TRUE(soon([&] { return tasks_of(root_, 77, 3).empty(); }));
  EXPECT_FALSE(tasks_of(root_, 77, 2).empty());
}

TEST_F(Node, ALookTellsWhoComputesAndWhoIsStopped) {
  task(0, 4, "exec sleep 100");
  task(1, 4, "while :; do :; done");
  LongCommand& stopped = task(2, 4, "exec sleep 100");
  // A shell that is stopped between fork and exec leaves its parent in state D: the stop comes when all run what they
  // should.
  ASSERT_TRUE(soon([&] {
    return std::ranges::count_if(tasks_of(root_, 77, 4), [&](const Task& one) {
             return root_.read(fmt::format("/proc/{}/comm", one.pid)) == "sleep";
           }) == 2;
  }));
  stopped.signal(SIGSTOP);
  ASSERT_TRUE(soon([&] { return process_stat(root_, stopped.place().pid).state == 'T'; }));
  const TaskLook look = look_at(root_, tasks_of(root_, 77, 4), 0.5);
  const std::vector<TaskEvidence>& tasks = look.ranks;
  ASSERT_EQ(tasks.size(), 3U);
  EXPECT_THAT(look.all, HasSubstr(fmt::format("process {}, rank 2, state T", tasks[2].pid)));
  EXPECT_EQ(tasks[2].rank, 2);
  EXPECT_EQ(tasks[2].state, 'T');
  EXPECT_FALSE(tasks[0].stack.empty());
  stopped.signal(SIGCONT);
}

// A rank that polls and one that computes, alone and where others have the processors most of the time.
TEST_F(Node, TheProcessorsThatATaskTakesDoNotDependOnWhatElseRuns) {
  constexpr std::int64_t kMs = 1'000'000;
  struct Row {
    std::int64_t ran_ms, waited_ms;
    double processors;
  };
  for (const Row& row :
       {Row{500, 0, 1}, Row{50, 450, 1}, Row{20, 0, 0.04}, Row{8, 300, 0.04}, Row{0, 0, 0}, Row{0, 490, -1}}) {
    const ThreadTimes before{{10, {700 * kMs, 900 * kMs}}},
        after{{10, {(700 + row.ran_ms) * kMs, (900 + row.waited_ms) * kMs}}};
    EXPECT_DOUBLE_EQ(processors_of(before, after, 0.5), row.processors) << row.ran_ms << " " << row.waited_ms;
  }
  EXPECT_DOUBLE_EQ(processors_of({}, {{10, {250 * kMs, 0}}, {11, {500 * kMs, 0}}}, 0.5), 1.5);
  const ThreadTimes own = thread_times(root_, getpid());
  ASSERT_TRUE(own.contains(getpid()));
  EXPECT_GT(own.at(getpid()).ran_ns, 0);
}

TEST_F(Node, WorkersOfALauncherAreTheRanksAndDumpTheirFlightRecordersWhenAsked) {
  const std::string prefix = dir_ + "/fr_";
  ASSERT_EQ(mkfifo((prefix + "5.pipe").c_str(), 0600), 0);
  const UniqueFd pipe(open((prefix + "5.pipe").c_str(), O_RDONLY | O_NONBLOCK));
  std::ofstream(prefix + "4.pipe") << "no pipe";
  task(0, 6,
       "export TORCH_FR_DUMP_TEMP_FILE=" + prefix + "; export TORCH_NCCL_DEBUG_INFO_PIPE_FILE=" + prefix +
           "; for r in 4 5 6; do RANK=$r LOCAL_RANK=0 sleep 100 & done; wait");
  // Between fork and exec a worker still has the environment of its shell, which is no rank.
  TaskLook look;
  ASSERT_TRUE(soon([&] { return (look = look_at(root_, tasks_of(root_, 77, 6), 0.1)).ranks.size() == 3; }));
  std::vector<int> ranks;
  for (const TaskEvidence& rank : look.ranks) ranks.push_back(rank.rank);
  EXPECT_THAT(ranks, ElementsAre(4, 5, 6));
  EXPECT_THAT(look.all, HasSubstr("of rank 0"));
  std::ofstream(prefix + "5") << "old";
  const std::vector<FlightFile> files = dump_flight_recorders(root_, tasks_of(root_, 77, 6));
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(files[0].path, prefix + "5");
  char byte = 0;
  EXPECT_EQ(read(pipe.get(), &byte, 1), 1);
  const double before_s = monotonic_s();
  await_dumps(files, 0.1);
  EXPECT_GE(monotonic_s() - before_s, 0.1) << "nobody writes it";
  std::ofstream(prefix + "5") << "a newer one";
  await_dumps(files, 1000);
  kill_tasks(root_, 77, 6);
}

TEST_F(Node, AProgramOverGlooAnswersAsTheExampleDoesAgainAndAgain) {
  fs::create_directories(dir_ + "/torch/_C");
  for (const char* name : {"/torch/__init__.py", "/torch/_C/__init__.py"}) std::ofstream(dir_ + name).close();
  std::ofstream(dir_ + "/torch/_C/_distributed_c10d.py")
      << "calls = 0\ndef _dump_fr_trace(includeStackTraces):\n  global calls\n  calls += 1\n  return b'%d' % calls\n";
  task(3, 8,
       fmt::format("export PYTHONPATH={0}:{1}/examples/10-driver TORCH_FR_DUMP_TEMP_FILE={0}/dump_ "
                   "TORCH_NCCL_DEBUG_INFO_PIPE_FILE={0}/ask_; exec python3 -B -c "
                   "'import heartbeat, time; heartbeat.answer_driver(); time.sleep(1000)'",
                   dir_, MS_SOURCE_DIR));
  for (const std::string wanted : {"1", "2"}) {
    std::vector<FlightFile> files;
    ASSERT_TRUE(soon([&] { return (files = dump_flight_recorders(root_, tasks_of(root_, 77, 8))).size() == 1; }));
    await_dumps(files, 60);
    EXPECT_EQ(read_file(dir_ + "/dump_3"), wanted);
  }
}

TEST_F(Node, HeartbeatsAreHeardAndDeathsSeen) {
  Beats beats(dir_ + "/socket/beat", root_);
  // The ranks are children of this process, and send by themselves.
  const auto rank = [&](int number, int attempt) {
    const pid_t child = test::fork_or_throw();
    if (child != 0) return child;
    setenv("MS_ATTEMPT", std::to_string(attempt).c_str(), 1);
    setenv("SLURM_JOB_ID", "77", 1);
    setenv("SLURM_PROCID", std::to_string(number).c_str(), 1);
    const std::string path = dir_ + "/socket/beat";
    execlp("python3", "python3", "-c",
           "import os,socket,sys,time\n"
           "s=socket.socket(socket.AF_UNIX,socket.SOCK_DGRAM)\n"
           "s.sendto(b'step=5 loss=2.5',sys.argv[1])\n"
           "time.sleep(100)",
           path.c_str(), nullptr);
    _exit(1);
  };
  const pid_t old = rank(0, 1);
  ASSERT_TRUE(soon([&] { return beats.take(0), beats.report(0).ranks.size() == 1; }));
  const pid_t first = rank(0, 2), second = rank(1, 2);
  ASSERT_TRUE(soon([&] { return beats.take(1), beats.report(1).ranks.size() == 2; }));
  Report report = beats.report(3);
  EXPECT_EQ(report.attempt, 2);
  EXPECT_EQ(report.ranks[1].rank, 1);
  EXPECT_EQ(report.ranks[1].pid, second);
  EXPECT_EQ(report.ranks[1].step, 5);
  EXPECT_EQ(report.ranks[1].section, kUnnamedSection);
  EXPECT_EQ(report.ranks[1].section_s, 2);
  EXPECT_EQ(report.ranks[1].numbers.at("loss"), 2.5);
  EXPECT_TRUE(report.ranks[1].alive);
  kill(second, SIGKILL);
  EXPECT_TRUE(soon([&] { return beats.take(4); }));
  report = beats.report(4);
  EXPECT_TRUE(report.ranks[0].alive);
  EXPECT_FALSE(report.ranks[1].alive);
  for (const pid_t pid : {old, first}) kill(pid, SIGKILL);
  for (const pid_t pid : {old, first, second}) waitpid(pid, nullptr, 0);
}

TEST_F(Node, HeartbeatsAreHeardInADirectoryOfOurOwnOnly) {
  const auto unheard = [&](const std::string& name) {
    Beats beats(dir_ + "/" + name + "/beat", root_);
    EXPECT_FALSE(beats.take(0)) << "all else goes on";
    EXPECT_TRUE(beats.report(1).ranks.empty());
    return !beats.unheard().empty();
  };
  EXPECT_FALSE(unheard("own"));
  EXPECT_FALSE(fs::exists(dir_ + "/own"));
  fs::create_directory(dir_ + "/open");
  fs::permissions(dir_ + "/open", fs::perms::all);
  EXPECT_TRUE(unheard("open"));
  fs::create_symlink(dir_, dir_ + "/link");
  EXPECT_TRUE(unheard("link"));
  std::ofstream(dir_ + "/file") << "precious";
  EXPECT_TRUE(unheard("file"));
  EXPECT_TRUE(unheard("missing/parent"));
  EXPECT_TRUE(unheard(std::string(120, 'x')));
  if (geteuid() != 0) GTEST_SKIP() << "a second user takes root";
  fs::create_directory(dir_ + "/another's");
  fs::permissions(dir_ + "/another's", fs::perms::owner_all);
  ASSERT_EQ(chown((dir_ + "/another's").c_str(), 65534, 65534), 0);
  EXPECT_TRUE(unheard("another's"));
  EXPECT_TRUE(fs::exists(dir_ + "/another's"));
}

TEST_F(Node, AnAgentRemovesNoFileThatIsNoSocket) {
  fs::create_directory(dir_ + "/own");
  fs::permissions(dir_ + "/own", fs::perms::owner_all);
  std::ofstream(dir_ + "/own/beat") << "precious";
  EXPECT_FALSE(Beats(dir_ + "/own/beat", root_).unheard().empty());
  EXPECT_EQ(read_file(dir_ + "/own/beat"), "precious");
}

// Others can guess runs/JOBID, and in a directory that others may write it may be another user's.
TEST_F(Node, ADriversDirectoryIsMadeInARunOfThisUserOnly) {
  const auto refused = [](const std::string& run) {
    try {
      open_driver_directory(run);
      return false;
    } catch (const Error& error) { return error.kind() == "driver.run_dir" && error.blame() == Blame::user; }
  };
  const std::string run = dir_ + "/run";
  EXPECT_TRUE(refused(run)) << "it is not there";
  fs::create_directory(run);
  EXPECT_TRUE(open_driver_directory(run));
  EXPECT_TRUE(open_driver_directory(run)) << "a driver that comes back";
  fs::create_directory_symlink(run, dir_ + "/own-link");
  EXPECT_TRUE(open_driver_directory(dir_ + "/own-link"));
  fs::permissions(run + "/driver", fs::perms::others_write, fs::perm_options::add);
  EXPECT_TRUE(refused(run));
  fs::remove(run + "/driver");
  fs::create_directory_symlink(dir_, run + "/driver");
  EXPECT_TRUE(refused(run)) << "a link in place of the driver's directory";
  fs::remove(run + "/driver");
  if (geteuid() != 0) GTEST_SKIP() << "a second user takes root";
  constexpr uid_t kOther = 65534;
  ASSERT_EQ(lchown((dir_ + "/own-link").c_str(), kOther, kOther), 0);
  EXPECT_TRUE(refused(dir_ + "/own-link")) << "a link of another user";
  ASSERT_EQ(chown(run.c_str(), kOther, kOther), 0);
  EXPECT_TRUE(refused(run)) << "a directory of another user";
  EXPECT_FALSE(fs::exists(run + "/driver"));
}

TEST_F(Node, ACommandsStatusOutlivesTheOneWhoStartedIt) {
  LongCommand& well = task(0, 1, "exit 7");
  ASSERT_TRUE(soon([&] { return well.ended(); }));
  EXPECT_EQ(well.status(), 7);
  LongCommand& kept = task(0, 1, "trap 'exit 3' TERM; while :; do sleep 0.05; done");
  LongCommand adopted = LongCommand::adopt(kept.place());
  EXPECT_FALSE(adopted.ended());
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  adopted.signal(SIGTERM);
  ASSERT_TRUE(soon([&] { return adopted.ended(); }));
  EXPECT_EQ(adopted.status(), 3);
  LongCommand& killed = task(0, 1, "sleep 100");
  killed.signal(SIGKILL);
  ASSERT_TRUE(soon([&] { return killed.ended(); }));
  EXPECT_FALSE(killed.status());
  // A state file that is broken does not name this process's group.
  LongCommand::adopt({.pid = 0, .started = 0, .status_file = ""}).signal(SIGKILL);
  // Another process with its number is not it.
  LongCommand::Place other = task(0, 1, "sleep 100").place();
  --other.started;
  EXPECT_TRUE(LongCommand::adopt(other).ended());
}

TEST_F(Node, AFileThatGrowsIsReadByLines) {
  const std::string path = dir_ + "/log";
  Tail tail(path, 0);
  EXPECT_THAT(tail.lines(), IsEmpty());
  std::ofstream file(path);
  file << "one\ntw" << std::flush;
  EXPECT_THAT(tail.lines(), ElementsAre("one"));
  file << "o\n\nthree" << std::flush;
  EXPECT_THAT(tail.lines(), ElementsAre("two", ""));
  EXPECT_THAT(tail.lines(true), ElementsAre("three"));
  file << std::string(20000, 'x') << "\nend\n" << std::flush;
  const std::vector<std::string> lines = tail.lines();
  EXPECT_EQ(lines.back(), "end");
  for (const std::string& line : lines) EXPECT_LE(line.size(), 8192U);
}

// A command that has written much more than can be read must not keep its driver from a requeue.
TEST_F(Node, TheLastReadKeepsTheNewestOutput) {
  const std::string path = dir_ + "/log";
  std::ofstream(path) << std::string(std::size_t{30} << 20, '\n') << "cause\n";
  Tail tail(path, 0);
  EXPECT_EQ(tail.lines().size(), std::size_t{256} << 10);  // an empty line each
  std::size_t count = 0;
  std::string newest;
  for (std::vector<std::string> lines = tail.lines(true); !lines.empty(); lines = tail.lines(true)) {
    count += lines.size();
    newest = lines.back();
  }
  EXPECT_EQ(newest, "cause");
  EXPECT_LE(count, std::size_t{5} << 20);
}

TEST(Munge, ItsSocketStandsInSlurmsConfiguration) {
  EXPECT_EQ(munge_socket("socket=/run/munge/socket,cred_expire=5"), "/run/munge/socket");
  EXPECT_EQ(munge_socket("cred_expire=5,socket=/a"), "/a");
  EXPECT_EQ(munge_socket(""), "");
  EXPECT_EQ(munge_socket_in_conf("ClusterName=a\n#AuthInfo=socket=/no\n authinfo = socket=/a,ttl=5 # ours\n"), "/a");
  EXPECT_EQ(munge_socket_in_conf("AuthType=auth/munge\nAuthInfo\n"), "");
  EXPECT_EQ(munge_socket_in_conf(""), "");
}

}  // namespace
}  // namespace ms::driver
