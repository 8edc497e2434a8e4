// What an agent asks NCCL's RAS on its node. A program in the place of NCCL answers, or does not.
#include "driver/ras.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <list>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "driver/command.h"
#include "driver/tasks.h"
#include "driver/wire.h"

namespace ms::driver {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// Its environment names the port that it has, as that of a rank does.
constexpr const char* kServer = R"(
import os, socket, sys, time
mode, log = sys.argv[1], sys.argv[2]
if len(sys.argv) == 3:
    listener = socket.socket(socket.AF_INET6 if mode == "ipv6" else socket.AF_INET)
    listener.bind(("::1" if mode == "ipv6" else "127.0.0.1", 0))
    listener.listen()
    listener.set_inheritable(True)
    env = dict(os.environ, NCCL_RAS_ADDR="localhost:%d" % listener.getsockname()[1])
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:], str(listener.fileno())], env)
listener = socket.socket(fileno=int(sys.argv[3]))
open(log, "w").close()
def serve(client):
    lines = client.makefile("rb")
    def asked(answer):
        with open(log, "ab") as file: file.write(lines.readline())
        client.sendall(answer)
    if mode == "silent": time.sleep(1000)
    if mode == "garbage": return client.sendall(bytes(range(256)) * 4096)
    if mode == "other": return asked(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    asked(b"SERVER PROTOCOL 2\n")
    asked(b"OK\n")
    asked(b"ERROR: Unknown command\n" if mode == "text" else b"OK\r\n")
    if mode == "closes": return
    if mode == "endless": asked(b"Job summary\n")
    while mode == "endless": client.sendall(b"x" * 1000000)
    if mode == "slow": asked(b"Job summary\n")
    while mode == "slow": client.sendall(b"x"); time.sleep(0.01)
    if mode == "refuses": return asked(b"ERROR: Unknown command\n")
    if mode == "text": return asked(b"Job summary\n===========\n\x1b[31m\n")
    asked(b'{"nccl_version": "2.28.7", "communicators_count": 0,\n "communicators": []}\n')
while True:
    client, _ = listener.accept()
    try: serve(client)
    except OSError: pass
    client.close()
)";

class Ras : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(dir_);
    std::ofstream(dir_ + "/server.py") << kServer;
  }
  void TearDown() override {
    for (const LongCommand& command : commands_) command.signal(SIGKILL);
    fs::remove_all(dir_);
  }

  // Starts a rank with RAS in this mode; returns when it listens.
  void start(const std::string& mode, const std::vector<std::pair<std::string, std::string>>& more = {}) {
    std::vector<std::pair<std::string, std::string>> variables{
        {"SLURM_JOB_ID", std::to_string(job_)}, {"MS_ATTEMPT", "3"}, {"SLURM_PROCID", "0"}};
    variables.insert(variables.end(), more.begin(), more.end());
    fs::remove(log());
    commands_.push_back(LongCommand::start({"python3", "-B", dir_ + "/server.py", mode, log()},
                                           environment_with(variables), dir_ + "/out", dir_ + "/status"));
    for (int i = 0; i < 6000 && !fs::exists(log()); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_TRUE(fs::exists(log())) << read_file(dir_ + "/out");
  }
  std::optional<link::Address> address(int attempt = 3) const {
    return ras_address(root_, tasks_of(root_, job_, attempt));
  }
  RasAnswer ask(const std::string& mode, double seconds = 60) {
    start(mode);
    const std::optional<link::Address> at = address();
    return at ? ask_ras(*at, link::in_seconds(seconds)) : RasAnswer{.report = {}, .problem = "no address"};
  }
  void stop() {
    commands_.back().signal(SIGKILL);
    while (!commands_.back().ended()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    commands_.pop_back();
  }
  std::string log() const { return dir_ + "/log"; }

  const std::string dir_ = fmt::format("{}/ras-{}", testing::TempDir(), getpid());
  const int job_ = getpid();  // of another run of this test, tasks are in /proc, too
  std::list<LongCommand> commands_;
  Sysroot root_;
};

TEST_F(Ras, TheStateOfAllRanksIsAskedForAsJson) {
  const RasAnswer answer = ask("json");
  EXPECT_EQ(answer.problem, "");
  EXPECT_THAT(answer.report, HasSubstr("\"communicators_count\": 0"));
  EXPECT_EQ(read_file(log()), "client protocol 2\ntimeout 2\nset format json\nverbose status\n");
}

TEST_F(Ras, TextIsTakenWhereThereIsNoJson) {
  const RasAnswer answer = ask("text");
  EXPECT_EQ(answer.problem, "");
  EXPECT_EQ(answer.report, "Job summary\n===========\n\\x1b[31m\n");
}

TEST_F(Ras, IPv6) { EXPECT_EQ(ask("ipv6").problem, ""); }

TEST_F(Ras, WhatIsNoReportIsRefused) {
  for (const char* mode : {"garbage", "other", "closes", "refuses", "endless"}) {
    const RasAnswer answer = ask(mode);
    EXPECT_EQ(answer.report, "") << mode;
    EXPECT_NE(answer.problem, "") << mode;
    EXPECT_NE(answer.problem, "no address") << mode;
    stop();
  }
}

TEST_F(Ras, ADeadlineEndsSilenceAndAReportThatDoesNotEnd) {
  for (const char* mode : {"silent", "slow"}) {
    const double began_s = monotonic_s();
    const RasAnswer answer = ask(mode, 0.5);
    EXPECT_EQ(answer.report, "") << mode;
    EXPECT_NE(answer.problem, "") << mode;
    EXPECT_LT(monotonic_s() - began_s, 50) << mode;
    stop();
  }
}

TEST_F(Ras, AConnectionThatIsRefusedIsAProblem) {
  start("json");
  const std::optional<link::Address> at = address();
  ASSERT_TRUE(at);
  commands_.back().signal(SIGKILL);
  while (address()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const RasAnswer answer = ask_ras(*at, link::in_seconds(60));
  EXPECT_EQ(answer.report, "");
  EXPECT_NE(answer.problem, "");
}

TEST_F(Ras, OnlyAPortOfTheAttemptIsAsked) {
  start("json");
  const std::optional<link::Address> at = address();
  ASSERT_TRUE(at);
  EXPECT_THAT(at->str(), StartsWith("127.0.0.1:"));
  EXPECT_FALSE(address(4)) << "has no task here";
  // A task of another attempt that means the same port.
  commands_.push_back(LongCommand::start({"sleep", "100"},
                                         environment_with({{"SLURM_JOB_ID", std::to_string(job_)},
                                                           {"MS_ATTEMPT", "4"},
                                                           {"NCCL_RAS_ADDR", fmt::format("localhost:{}", at->port())}}),
                                         dir_ + "/out2", dir_ + "/status2"));
  while (tasks_of(root_, job_, 4).empty()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(address(4));
}

TEST_F(Ras, RanksWithoutItAreNotAsked) {
  start("json", {{"NCCL_RAS_ENABLE", "0"}});
  EXPECT_FALSE(address());
}

TEST(RasOrder, IsPartOfALook) {
  EXPECT_TRUE(read_order(to_json(Order{.what = "look", .attempt = 2, .ras = true})).ras);
  EXPECT_FALSE(read_order(to_json(Order{.what = "look", .attempt = 2})).ras);
}

}  // namespace
}  // namespace ms::driver
