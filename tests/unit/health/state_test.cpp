// What a node remembers, on disks that are full, damaged or prepared by an attacker.
#include "health/act/state.h"
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "health/act/spool.h"

#include <fstream>
#include <thread>

#include "base/lock_file.h"
#include "base/safe_file.h"
#include "health/act/state_json.h"
#include "health/commands/history.h"
#include "support/files.h"
#include "test_files.h"

namespace ms::health {
namespace {

namespace fs = std::filesystem;

State some_state() {
  State state;
  state.counters["net.flaps eth0"] = {17, 1.8e9};
  state.last_undrain_wall_s = 1.8e9 + 0.25;
  state.last_undrain_s = 7.5;
  state.undrain_boot = "one";
  state.last_epilog_wall_s = 1.8e9 + 10;
  state.strikes = 2;
  return state;
}

void save(const StateDirectory& directory, const State& wanted) {
  directory.update([&](State& state) { state = wanted; });
}

class StateTest : public testing::Test {
 protected:
  std::string path() const { return directory_ / "state"; }
  test::TempDir directory_;
};

TEST_F(StateTest, IsMadeForItsOwnerAloneAndKeepsWhatItIsGiven) {
  ::umask(0777);
  const StateDirectory directory(path());
  ::umask(022);
  EXPECT_EQ(mode_of(path()), 0700);
  EXPECT_EQ(directory.load().strikes, 0);
  EXPECT_TRUE(directory.history().empty());
  save(directory, some_state());
  EXPECT_EQ(mode_of(path() + "/state.json"), 0600);
  const State state = StateDirectory(path()).load();
  EXPECT_EQ(state.counters.at("net.flaps eth0").value, 17);
  EXPECT_EQ(state.counters.at("net.flaps eth0").wall_s, 1.8e9);
  EXPECT_EQ(state.last_undrain_wall_s, 1.8e9 + 0.25);
  EXPECT_EQ(state.last_undrain_s, 7.5);
  EXPECT_EQ(state.undrain_boot, "one");
  EXPECT_EQ(state.last_epilog_wall_s, 1.8e9 + 10);
  EXPECT_EQ(state.strikes, 2);
}

TEST_F(StateTest, RefusesADirectoryThatOthersMayEnterAndMendsNothing) {
  for (const mode_t mode : {0755, 0750, 0701, 0777, 01777}) {
    fs::create_directory(path());
    ::chmod(path().c_str(), mode);
    expect_error("state.directory", [&] { StateDirectory{path()}; });
    EXPECT_EQ(mode_of(path()), mode);
    fs::remove(path());
  }
}

TEST_F(StateTest, RefusesLinksFilesAndWhatIsSomebodyElses) {
  fs::create_directory(directory_ / "target");
  ::chmod((directory_ / "target").c_str(), 0700);
  fs::create_directory_symlink(directory_ / "target", path());
  expect_error("state.directory", [&] { StateDirectory{path()}; });
  fs::remove(path());
  std::ofstream(path()) << "x";
  expect_error("state.directory", [&] { StateDirectory{path()}; });
  fs::remove(path());
  expect_error("state.directory", [&] { StateDirectory{directory_ / "not/there"}; });
  expect_error("state.directory", [&] { StateDirectory{"relative"}; });
  expect_error("state.directory", [&] { StateDirectory{""}; });
  if (::geteuid() != 0) return;
  fs::create_directory(path());
  ::chmod(path().c_str(), 0700);
  ASSERT_EQ(::chown(path().c_str(), 65534, 65534), 0);
  expect_error("state.directory", [&] { StateDirectory{path()}; });
}

TEST_F(StateTest, LinksInPlaceOfItsFilesLeadNowhere) {
  const std::string victim = directory_ / "victim";
  std::ofstream(victim) << "precious";
  const StateDirectory directory(path());
  for (const char* name : {"state.json", ".state.json.tmp", "history.jsonl", "lock"}) {
    fs::remove_all(path() + "/" + name);
    fs::create_symlink(victim, path() + "/" + name);
    try {
      save(directory, some_state());
      directory.append_history({.wall_s = 1, .event = "drain", .code = "gpu.ecc", .message = "x"});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), std::string(name) == "state.json" ? "state.read" : "state.write");
    }
    EXPECT_EQ(read(victim), "precious") << name;
    fs::remove_all(path() + "/" + name);
  }
  fs::remove(path() + "/state.json");
  fs::remove(path() + "/history.jsonl");
  fs::create_symlink(victim, path() + "/state.json");
  expect_error("state.read", [&] { directory.load(); });
  expect_error("state.read", [&] { save(directory, some_state()); });
  EXPECT_EQ(read(victim), "precious");
  ASSERT_EQ(::mkfifo((path() + "/history.jsonl").c_str(), 0600), 0);
  expect_error("state.read", [&] { directory.history(); });  // and does not wait for a writer
  expect_error("state.write", [&] { directory.append_history({.event = "drain", .code = {}, .message = {}}); });
}

TEST_F(StateTest, WhatIsDamagedCountsAsEmpty) {
  const StateDirectory directory(path());
  const std::string good = state_to_json(some_state());
  std::vector<std::string> damaged = {"",
                                      "\n",
                                      "null",
                                      "[]",
                                      "{}",
                                      "{\"schema\":2,\"strikes\":5}",
                                      "{\"schema\":\"1\",\"strikes\":5}",
                                      std::string("\0\0\0\0", 4),
                                      std::string(60000, '['),
                                      good.substr(0, good.size() / 2)};
  for (const std::string& text : damaged) {
    std::ofstream(path() + "/state.json") << text;
    const State state = directory.load();
    EXPECT_EQ(state.strikes, 0) << text.substr(0, 40);
    EXPECT_TRUE(state.counters.empty());
  }
  std::ofstream(path() + "/state.json")
      << "{\"schema\":1,\"strikes\":-4,\"last_undrain_wall_s\":\"x\",\"last_epilog_wall_s\":1e999,\"counters\":"
         "{\"a\":7,\"b\":{\"value\":\"x\"},\"c\":{\"value\":3,\"wall_s\":null}}}";
  const State state = directory.load();
  EXPECT_EQ(state.strikes, 0);
  EXPECT_EQ(state.last_undrain_wall_s, 0);
  EXPECT_EQ(state.counters.count("a"), 0);
  std::ofstream(path() + "/state.json") << std::string((64 << 10) + 1, ' ');
  expect_error("state.read", [&] { directory.load(); });
}

TEST_F(StateTest, StaysBounded) {
  const StateDirectory directory(path());
  State state = some_state();
  for (int i = 0; i < 3000; ++i) state.counters[fmt::format("net.flaps interface{}", i)] = {1, 2};
  save(directory, state);
  EXPECT_LE(fs::file_size(path() + "/state.json"), 64 << 10);
  EXPECT_EQ(directory.load().strikes, 2);
}

TEST_F(StateTest, UpdatesOfManyProcessesAreAllKept) {
  const StateDirectory directory(path());
  std::vector<std::jthread> writers;  // a lock belongs to the open file, so threads meet as processes do
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([&] {
      for (int k = 0; k < 10; ++k) StateDirectory(path()).update([](State& state) { ++state.strikes; });
    });
  }
  writers.clear();
  EXPECT_EQ(directory.load().strikes, 40);
}

TEST_F(StateTest, ALockThatSomebodyHoldsIsNotWaitedForForEver) {
  const StateDirectory directory(path());
  save(directory, some_state());
  const UniqueFd dir(::open(path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const UniqueFd held = try_lock_at(dir, "lock", {.kind = "x"});
  ASSERT_TRUE(held);
  EXPECT_FALSE(try_lock_at(dir, "lock", {.kind = "x"}));
  expect_error("x", [&] { lock_at(dir, "lock", 0, {.kind = "x"}); });
  EXPECT_EQ(directory.load().strikes, 2);  // reading needs none
}

TEST_F(StateTest, HistoryKeepsTheNewestAndForgetsTheOldest) {
  const StateDirectory directory(path());
  const std::string message(900, 'm');
  for (int i = 0; i < 1500; ++i) {
    directory.append_history(
        {.wall_s = static_cast<double>(i), .event = "finding", .code = "gpu.ecc", .message = message});
    ASSERT_LE(fs::file_size(path() + "/history.jsonl"), 1 << 20);
  }
  const std::vector<HistoryEntry> entries = directory.history();
  EXPECT_GT(entries.size(), 400);
  EXPECT_LT(entries.size(), 1200);
  EXPECT_EQ(entries.back().wall_s, 1499);
  for (std::size_t i = 1; i < entries.size(); ++i) EXPECT_EQ(entries[i].wall_s, entries[i - 1].wall_s + 1);
  expect_error("state.write",
               [&] { directory.append_history({.event = "finding", .code = {}, .message = std::string(5000, 'x')}); });
}

TEST_F(StateTest, HistoryOutlivesDamage) {
  const StateDirectory directory(path());
  directory.append_history(
      {.wall_s = 1, .event = "drain", .code = "gpu.ecc", .message = "odd \xff \n bytes", .job_id = 7});
  std::ofstream(path() + "/history.jsonl", std::ios::app) << "{\"event\":\"half a li";
  directory.append_history({.wall_s = 2, .event = "undrain", .code = "gpu.ecc", .message = "m", .strikes = 3});
  const std::vector<HistoryEntry> entries = directory.history();
  ASSERT_EQ(entries.size(), 2);
  EXPECT_EQ(entries[0].job_id, 7);
  EXPECT_EQ(entries[1].event, "undrain");
  EXPECT_EQ(entries[1].strikes, 3);
  // Larger than it can be: somebody's mistake, and it goes.
  std::ofstream(path() + "/history.jsonl", std::ios::app) << std::string(2 << 20, 'x');
  expect_error("state.read", [&] { directory.history(); });
  directory.append_history({.wall_s = 3, .event = "drain", .code = "gpu.ecc", .message = "m"});
  ASSERT_EQ(directory.history().size(), 1);
}

// Runs it in a process of its own, where limits and mounts may be changed; what it returns is its status.
int in_child(const std::function<int()>& action) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(action());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

bool throws(const std::string& kind, const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) { return error.kind() == kind; }
  return false;
}

TEST_F(StateTest, AWriteThatIsCutShortLeavesWhatWasThere) {
  const StateDirectory directory(path());
  save(directory, some_state());
  directory.append_history({.wall_s = 1, .event = "drain", .code = "gpu.ecc", .message = "m"});
  const std::string state_before = read(path() + "/state.json");
  const std::string history_before = read(path() + "/history.jsonl");
  // A limit on the size of files does what a quota does: part of it is written, then an error.
  EXPECT_EQ(in_child([&] {
              ::signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{history_before.size() + 20, RLIM_INFINITY};
              ::setrlimit(RLIMIT_FSIZE, &limit);
              State state = some_state();
              for (int i = 0; i < 100; ++i) state.counters[fmt::format("c{}", i)] = {1, 2};
              if (!throws("state.write", [&] { save(directory, state); })) return 1;
              if (!throws("state.write", [&] {
                    directory.append_history({.event = "drain", .code = "gpu.ecc", .message = std::string(500, 'x')});
                  })) {
                return 2;
              }
              return 0;
            }),
            0);
  EXPECT_EQ(read(path() + "/state.json"), state_before);
  EXPECT_EQ(read(path() + "/history.jsonl"), history_before);
  EXPECT_FALSE(fs::exists(path() + "/.state.json.tmp"));
}

TEST_F(StateTest, AFullDiskLeavesWhatWasThere) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can mount a small disk";
  const int status = in_child([&] {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", directory_.path().c_str(), "tmpfs", 0, "size=256k,mode=755") != 0) {
      return 77;
    }
    const StateDirectory directory(path());
    save(directory, some_state());
    directory.append_history({.wall_s = 1, .event = "drain", .code = "gpu.ecc", .message = "m"});
    const std::string spool = directory_ / "spool";
    spool_event(spool, {.wall_s = 1, .kind = "drain", .node = {}, .code = {}, .message = {}});
    const int filler = ::open((directory_ / "filler").c_str(), O_WRONLY | O_CREAT, 0600);
    const std::string block(4096, 'x');
    while (::write(filler, block.data(), block.size()) > 0) {}
    if (errno != ENOSPC) return 1;
    State state = some_state();
    for (int i = 0; i < 300; ++i) state.counters[fmt::format("c{}", i)] = {1, 2};
    if (!throws("state.write", [&] { save(directory, state); })) return 2;
    const auto append = [&] {
      directory.append_history({.event = "drain", .code = "gpu.ecc", .message = std::string(3900, 'x')});
    };
    if (!throws("state.write", [&] { append(), append(); })) return 3;
    if (!throws("spool.write",
                [&] { spool_event(spool, {.wall_s = 2, .kind = "drain", .node = {}, .code = {}, .message = "m"}); })) {
      return 4;
    }
    if (directory.load().strikes != 2 || directory.load().counters.size() != 1) return 5;
    if (directory.history().empty() || directory.history()[0].wall_s != 1) return 6;
    if (spooled_events(spool).size() != 1) return 7;
    if (fs::exists(path() + "/.state.json.tmp")) return 8;
    return 0;
  });
  if (status == 77) GTEST_SKIP() << "no mount of our own can be made";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace ms::health
