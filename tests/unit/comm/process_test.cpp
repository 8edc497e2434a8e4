// Detection of dead processes, with a made-up /proc.
#include "comm/process.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "comm/first_cause.h"

namespace ms::comm {
namespace {

ProcessId process(const char* host, std::uint64_t pid_namespace, std::int64_t pid, std::uint64_t start_ticks) {
  ProcessId id{};
  std::strncpy(id.host, host, sizeof id.host - 1);
  id.pid_namespace = pid_namespace;
  id.pid = pid;
  id.start_ticks = start_ticks;
  return id;
}

struct ProcessRow {
  const char* name;
  ProcessId other;
  const char* stat;  // of process 42; empty for none
  bool died;
};
class HasDied : public ::testing::TestWithParam<ProcessRow> {};

const char* const kRunning =
    "42 (odd) name) S 1 42 42 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 3 0 777 12345 678 18446744073709551615\n";
const char* const kZombie = "42 (sh) Z 1 42 42 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 1 0 777 0 0 0\n";

TEST_P(HasDied, FromProc) {
  const ProcessRow& row = GetParam();
  const std::filesystem::path proc =
      std::filesystem::temp_directory_path() / fmt::format("ms_process_test_{}_{}", getpid(), row.name);
  std::filesystem::create_directories(proc);
  if (*row.stat != '\0') {
    std::filesystem::create_directories(proc / "42");
    std::ofstream(proc / "42" / "stat") << row.stat;
  }
  EXPECT_EQ(has_died(row.other, process("n1", 7, 1, 5), proc.string()), row.died);
  std::filesystem::remove_all(proc);
}

INSTANTIATE_TEST_SUITE_P(All, HasDied,
                         ::testing::Values(ProcessRow{"runs", process("n1", 7, 42, 777), kRunning, false},
                                           ProcessRow{"gone", process("n1", 7, 42, 777), "", true},
                                           ProcessRow{"zombie", process("n1", 7, 42, 777), kZombie, true},
                                           ProcessRow{"number_used_again", process("n1", 7, 42, 776), kRunning, true},
                                           ProcessRow{"unreadable", process("n1", 7, 42, 777), "42 (cut", true},
                                           ProcessRow{"other_host", process("n2", 7, 42, 777), "", false},
                                           ProcessRow{"other_container", process("n1", 8, 42, 777), "", false},
                                           ProcessRow{"without_start_time", process("n1", 7, 42, 0), "", false}),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(ThisProcess, Lives) {
  const ProcessId own = this_process();
  EXPECT_EQ(own.pid, getpid());
  EXPECT_GT(own.start_ticks, 0U);
  EXPECT_FALSE(has_died(own, own));
}

TEST(RankList, IsTruncated) {
  EXPECT_EQ(rank_list({3}), "rank 3");
  EXPECT_EQ(rank_list({1, 3}), "ranks 1, 3");
  EXPECT_EQ(rank_list(std::vector<int>(18, 5)), "ranks 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5 and 2 more");
}

TEST(FirstCause, IsKept) {
  FirstCause cause;
  EXPECT_FALSE(cause.stopped());
  EXPECT_TRUE(cause.set(2, Error("a", Blame::storage, "disk full", "make room")));
  EXPECT_FALSE(cause.set(3, Error("b", Blame::bug, "consequence")));
  EXPECT_EQ(cause.error_for(2).kind(), "a");
  const Error elsewhere = cause.error_for(0);
  EXPECT_EQ(elsewhere.kind(), "comm.peer_lost");
  EXPECT_EQ(elsewhere.blame(), Blame::peer);
  EXPECT_EQ(elsewhere.message(), "rank 2 stopped: disk full");
  EXPECT_EQ(elsewhere.hint(), "make room");
  EXPECT_EQ(elsewhere.rank(), 2);
  EXPECT_EQ(elsewhere.operation(), "");
}

TEST(FirstCause, KeepsBlamedRankAndOperation) {
  FirstCause cause;
  cause.set(2, deadline_error(2, std::chrono::seconds(3), {5}, "barrier, operation 1 of group dp"));
  for (const int rank : {2, 0}) {
    EXPECT_EQ(cause.error_for(rank).rank(), 5);
    EXPECT_EQ(cause.error_for(rank).operation(), "barrier, operation 1 of group dp");
  }
  EXPECT_FALSE(deadline_error(2, std::chrono::seconds(3), {5, 6}, "barrier").rank());
}

}  // namespace
}  // namespace ms::comm
