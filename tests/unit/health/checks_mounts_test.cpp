// disk.mounts and disk.ro. Hangs are real: processes that wait for ever, and a FUSE mount that nobody serves.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "base/handle.h"
#include "busy_node.h"
#include "fake_node.h"
#include "health/evidence/mount_probe.h"
#include "health/evidence/mounts.h"
#include "support/fork.h"

namespace ms::health {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Mounts : public FakeNode {
 protected:
  Mounts() { policy.limits.mount_deadline_s = 1; }  // a busy machine must not make the node late
  // Mounts as the kernel lists them: "PATH TYPE SOURCE [mount options [file system options]]".
  void mounts(const std::vector<std::vector<std::string>>& rows) {
    std::string text;
    int number = 20;
    for (const auto& row : rows) {
      const std::string options = row.size() > 3 ? row[3] : "rw,relatime";
      const std::string filesystem = row.size() > 4 ? row[4] : "rw";
      text += std::to_string(number) + " 1 8:" + std::to_string(number) + " / " + row[0] + " " + options +
              " shared:1 - " + row[1] + " " + row[2] + " " + filesystem + "\n";
      ++number;
    }
    put("/proc/self/mountinfo", text);
  }
};
class DiskMounts : public Mounts {};
class DiskReadonly : public Mounts {
 protected:
  DiskReadonly() { log({"Linux version 6.1"}); }
};

TEST(Mountinfo, IsRead) {
  const auto mounts = parse_mountinfo(
      "36 35 98:0 /mnt1 /mnt/with\\040blank rw,noatime master:1 shared:2 - ext4 /dev/root ro,errors=continue\n"
      "not a mount\n"
      "37 35 0:51 / /home ro,nosuid - nfs4 server:/export\\134 rw,vers=4.2\n"
      "38 35 0:52 / /short rw - tmpfs\n");
  ASSERT_EQ(mounts.size(), 2U);
  EXPECT_EQ(mounts[0].path, "/mnt/with blank");
  EXPECT_EQ(mounts[0].type, "ext4");
  EXPECT_EQ(mounts[0].device, "98:0");
  EXPECT_FALSE(mounts[0].read_only);
  EXPECT_TRUE(mounts[0].filesystem_read_only);
  EXPECT_EQ(mounts[1].source, "server:/export\\");
  EXPECT_TRUE(mounts[1].read_only);
  EXPECT_FALSE(mounts[1].filesystem_read_only);
}

TEST(AskPaths, SilenceOfOneDelaysNobody) {
  const auto ask = [] {
    return ask_paths({"a", "hangs", "stale", "hangs too", "crashes"}, 2, [](const std::string& path) {
      if (path == "stale") return ESTALE;
      if (path == "crashes") ::raise(SIGKILL);
      while (path.starts_with("hangs")) ::pause();
      return 0;
    });
  };
  const auto began = std::chrono::steady_clock::now();
  auto answers = ask();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  for (int again = 0; again < 5 && answers.at(1).excused; ++again) answers = ask();  // the machine was busy
  ASSERT_EQ(answers.size(), 5U);
  EXPECT_TRUE(answers[0].answered);
  EXPECT_EQ(answers[0].error, 0);
  EXPECT_FALSE(answers[1].answered);
  EXPECT_EQ(answers[2].error, ESTALE);
  EXPECT_FALSE(answers[3].answered);
  EXPECT_FALSE(answers[4].answered);
  EXPECT_FALSE(answers[1].excused);
  EXPECT_TRUE(answers[4].excused);  // whatever killed it (memory ran out, say), it was not the path
  EXPECT_LT(took.count(), 3.9);     // one deadline, not one each
  // All of it could be killed: nothing is left, soon after where the machine is busy.
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  pid_t left = 0;
  while ((left = ::waitpid(-1, nullptr, WNOHANG)) >= 0 && std::chrono::steady_clock::now() < patience) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(left, -1);
}

// 200 processes of a user's, and nothing that hangs.
TEST(AskPaths, ABusyNodeIsNoReasonToBlameAPath) {
  const BusyCpu busy(200);
  int late = 0;
  for (int round = 0; round < 5 || (late == 0 && round < 50); ++round) {  // until some were late
    const auto answers = ask_paths({"a", "b", "c"}, 0.2, [](const std::string&) {
      move_to_busy_cpu();
      return 0;
    });
    for (const Answer& answer : answers) {
      EXPECT_TRUE(answer.answered || answer.excused);
      EXPECT_EQ(answer.left_behind, 0);
      late += answer.excused ? 1 : 0;
    }
  }
  EXPECT_GT(late, 0) << "the CPU was not busy";
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {}  // those who were killed late
}

TEST(AskPaths, NothingOfOursStaysOpenInAChild) {
  const auto answers = ask_paths({"x"}, 2, [](const std::string&) {
    int open = 0;
    for (int fd = 0; fd < 256; ++fd) open += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return open;
  });
  EXPECT_EQ(answers.at(0).error, 4);  // three times /dev/null, and the answer's pipe
}

TEST(AskPaths, TooManyAreNotAsked) {
  const std::vector<std::string> paths(kMaxAsked + 3, "x");
  const auto answers = ask_paths(paths, 5, [](const std::string&) { return 0; });
  EXPECT_EQ(answers[kMaxAsked - 1].error, 0);
  EXPECT_EQ(answers[kMaxAsked].error, EAGAIN);
}

TEST(AskPath, AsksDirectoriesFilesAndWhatIsNotThere) {
  EXPECT_EQ(ask_path("/"), 0);
  EXPECT_EQ(ask_path("/proc/self/status"), 0);
  EXPECT_EQ(ask_path("/no/such/path"), ENOENT);
}

TEST_F(DiskMounts, ThoseThatAnswerPass) {
  make_directory("/home");
  make_directory("/scratch");
  mounts({{"/", "ext4", "/dev/sda1"}, {"/home", "nfs4", "server:/home"}, {"/scratch", "lustre", "mgs:/scratch"}});
  policy.expect.mounts = {"/home", "/scratch/"};
  const Result result = run("disk.mounts");
  EXPECT_OUTCOME(result, Outcome::pass);
  EXPECT_EQ(result.note, "3 mounts answered");
}

TEST_F(DiskMounts, OneThatIsExpectedAndMissingIsCritical) {
  make_directory("/home");
  mounts({{"/", "ext4", "/dev/sda1"}});
  policy.expect.mounts = {"/home"};
  const Result result = run("disk.mounts");
  EXPECT_OUTCOME(result, Outcome::critical);
  EXPECT_THAT(entities(result), ElementsAre("/home"));
}

TEST_F(DiskMounts, OneThatIsHiddenIsNotComplainedOfUnlessExpected) {
  mounts({{"/gone", "nfs4", "server:/gone"}});
  EXPECT_OUTCOME(run("disk.mounts"), Outcome::pass);
  policy.expect.mounts = {"/gone"};
  EXPECT_OUTCOME(run("disk.mounts"), Outcome::critical);
}

TEST_F(DiskMounts, SkipsWhereThereIsNothingToAsk) {
  EXPECT_OUTCOME(run("disk.mounts"), Outcome::skip);
  mounts({{"/tmp", "tmpfs", "tmpfs"},
          {"/dev/fuse", "fuse.sshfs", "u@h:"},
          {"/img", "ext4", "/dev/loop0"},
          {"/auto", "autofs", "systemd-1"}});
  EXPECT_OUTCOME(run("disk.mounts"), Outcome::skip);
}

struct UsersRow {
  std::vector<std::vector<std::string>> mounts;
  std::string fstab, utab;
  Outcome outcome;
};

TEST_F(DiskMounts, OnlyWhatIsExpectedIsCriticalAndWhatUsersHaveMountedIsNotAsked) {
  const std::vector<std::string> nfs = {"/home", "nfs4", "server:/home"};
  const pid_t waits = test::fork_or_throw();
  if (waits == 0) {
    ::prctl(PR_SET_NAME, "ms-mount-ask");
    for (;;) ::pause();
  }
  while (!still_waits(waits)) ::usleep(1000);
  const Counters hangs = {{"disk.mounts waits /home", {static_cast<double>(waits), 1}}};
  const UsersRow rows[] = {
      {{nfs}, "", "", Outcome::warn},
      {{nfs}, "server:/home /home nfs4 rw,nousers 0 0", "ID=30 TARGET=/home ROOT=/ OPTS=bg", Outcome::warn},
      {{nfs}, "# server:/home /home nfs4 user 0 0", "ID=30 TARGET=/other OPTS=user=alice", Outcome::warn},
      {{nfs, {"/hom", "autofs", "auto.hom"}}, "", "", Outcome::warn},
      {{nfs}, "server:/home\t/home/\tnfs4\trw,user\t0 0", "", Outcome::skip},
      {{nfs}, "server:/home /home nfs4 users 0 0", "", Outcome::skip},
      {{nfs}, "", "ID=30 SRC=/dev/sdb1 TARGET=/home ROOT=/ OPTS=uhelper=udisks2", Outcome::skip},
      {{nfs}, "", "ID=30 TARGET=/home OPTS=bg,user=alice", Outcome::skip},
      {{{"/home", "autofs", "systemd-1"}, nfs}, "", "", Outcome::skip},
  };
  for (const UsersRow& row : rows) {
    mounts(row.mounts);
    put("/etc/fstab", row.fstab);
    put("/run/mount/utab", row.utab);
    policy.expect.mounts.clear();
    const Result result = run("disk.mounts", hangs);
    EXPECT_OUTCOME(result, row.outcome) << row.fstab << row.utab;
    policy.expect.mounts = {"/home"};
    EXPECT_OUTCOME(run("disk.mounts", hangs), Outcome::critical) << row.fstab << row.utab;
  }
  ::kill(waits, SIGKILL);
  ::waitpid(waits, nullptr, 0);
}

TEST_F(DiskMounts, WhatLiesBelowAutofsIsNotAsked) {
  mounts({{"/net", "autofs", "-hosts"}, {"/net/evil/x", "nfs4", "evil:/x"}});
  EXPECT_OUTCOME(run("disk.mounts"), Outcome::skip);
  policy.expect.mounts = {"/net/evil/x"};
  EXPECT_OUTCOME(run("disk.mounts"), Outcome::critical);  // not there, though expected
}

TEST_F(DiskMounts, WhatAnEarlierRunLeftBehindIsNotAskedAgain) {
  make_directory("/home");
  mounts({{"/home", "nfs4", "server:/home"}});
  const pid_t waits = test::fork_or_throw();
  if (waits == 0) {
    ::prctl(PR_SET_NAME, "ms-mount-ask");
    for (;;) ::pause();
  }
  const Counters before = {{"disk.mounts waits /home", {static_cast<double>(waits), 1}}};
  while (!still_waits(waits)) ::usleep(1000);
  const Result hung = run("disk.mounts", before);
  ::kill(waits, SIGKILL);
  ::waitpid(waits, nullptr, 0);
  const Result back = run("disk.mounts", before);
  EXPECT_OUTCOME(hung, Outcome::warn);  // not expected
  EXPECT_THAT(hung.findings.at(0).message, HasSubstr("since an earlier run"));
  EXPECT_EQ(hung.counters.count("disk.mounts waits /home"), 1U);
  EXPECT_OUTCOME(back, Outcome::pass);
  EXPECT_EQ(back.note, "1 mount answered");
  EXPECT_TRUE(back.counters.empty());
  EXPECT_FALSE(still_waits(::getpid()));  // another's number now
}

// A FUSE file system that nobody serves: requests wait for an INIT that never comes, as those to a dead server do.
TEST_F(DiskMounts, AMountThatHangsIsFoundWithinTheDeadline) {
  make_directory("/scratch");
  make_directory("/home");
  const UniqueFd server(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
  const std::string options = "fd=" + std::to_string(server.get()) + ",rootmode=40000,user_id=0,group_id=0";
  if (!server || !enter_own_mounts() || ::mount("hung", path("/scratch").c_str(), "fuse", 0, options.c_str()) != 0) {
    GTEST_SKIP() << "may not mount a FUSE file system";
  }
  mounts({{"/scratch", "fuse", "hung"}, {"/home", "nfs4", "server:/home"}});
  const Result unexpected = run("disk.mounts");  // a user's, for all we know
  policy.expect.mounts = {"/scratch", "/home"};
  const auto began = std::chrono::steady_clock::now();
  const Result result = run("disk.mounts");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  ::umount2(path("/scratch").c_str(), MNT_DETACH);

  EXPECT_OUTCOME(unexpected, Outcome::pass);
  EXPECT_OUTCOME(result, Outcome::critical);
  EXPECT_THAT(entities(result), ElementsAre("/scratch"));
  EXPECT_THAT(result.findings.at(0).message, HasSubstr("fuse hung did not answer within 1.0s"));
  EXPECT_LT(took.count(), 3.0);
}

TEST_F(DiskMounts, AServerThatDiedIsCriticalWhereItIsExpected) {
  make_directory("/scratch");
  UniqueFd server(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
  const std::string options = "fd=" + std::to_string(server.get()) + ",rootmode=40000,user_id=0,group_id=0";
  if (!server || !enter_own_mounts() || ::mount("dead", path("/scratch").c_str(), "fuse", 0, options.c_str()) != 0) {
    GTEST_SKIP() << "may not mount a FUSE file system";
  }
  server.reset();
  mounts({{"/scratch", "fuse", "dead"}});
  policy.expect.mounts = {"/scratch"};
  const Result result = run("disk.mounts");
  mounts({{"/scratch", "nfs4", "dead"}});
  policy.expect.mounts.clear();
  const Result unexpected = run("disk.mounts");
  ::umount2(path("/scratch").c_str(), MNT_DETACH);
  EXPECT_OUTCOME(unexpected, Outcome::warn);
  EXPECT_THAT(unexpected.findings.at(0).message, HasSubstr("not connected"));
  EXPECT_OUTCOME(result, Outcome::critical);
  EXPECT_THAT(result.findings.at(0).message, HasSubstr("not connected"));
}

TEST_F(DiskReadonly, JudgesMounts) {
  struct Row {
    std::vector<std::string> mount;
    std::string fstab;
    Outcome outcome;
  };
  const Row rows[] = {
      {{"/", "ext4", "/dev/sda1", "rw", "rw"}, "/dev/sda1 / ext4 defaults 0 1", Outcome::pass},
      {{"/", "ext4", "/dev/sda1", "ro", "ro"}, "UUID=1\t/\text4\terrors=remount-ro,rw 0 1", Outcome::critical},
      {{"/", "ext4", "/dev/sda1", "ro", "ro"}, "/dev/sda1 / ext4 ro,noatime 0 1", Outcome::pass},
      {{"/", "ext4", "/dev/sda1", "ro", "ro"}, "#/dev/sda1 / ext4 rw 0 1", Outcome::pass},
      {{"/", "ext4", "/dev/sda1", "ro", "ro"}, "", Outcome::pass},
      {{"/", "ext4", "/dev/sda1", "rw", "ro,errors=remount-ro"}, "", Outcome::critical},
      {{"/", "squashfs", "/dev/sda1", "rw", "ro"}, "", Outcome::pass},
      {{"/var", "xfs", "/dev/sda2", "ro", "ro"}, "/dev/sda2 /var/ xfs defaults 0 0", Outcome::critical},
      {{"/scratch", "nfs4", "server:/s", "ro", "ro"}, "server:/s /scratch nfs4 rw 0 0", Outcome::critical},
      {{"/scratch", "nfs4", "server:/s", "ro", "ro"}, "server:/s /scratch nfs4 ro 0 0", Outcome::pass},
      {{"/software", "nfs4", "server:/s", "ro", "ro"},
       "server:/s /software nfs4 rw 0 0",
       Outcome::pass},  // not watched
  };
  policy.expect.mounts = {"/scratch"};
  for (const Row& row : rows) {
    mounts({row.mount});
    put("/etc/fstab", row.fstab);
    const Result result = run("disk.ro");
    EXPECT_OUTCOME(result, row.outcome) << row.mount[0] << " " << row.fstab;
    const std::vector<std::string> found(row.outcome == Outcome::critical ? 1 : 0, row.mount[0]);
    EXPECT_EQ(entities(result), found);
  }
}

TEST_F(DiskReadonly, WhatTheKernelSaidCountsWhileItIsSo) {
  make_directory("/sys/block/sda");
  make_directory("/sys/block/loop0");
  put("/etc/fstab", "");
  const std::string said = "EXT4-fs (sda3): Remounting filesystem read-only";
  log({said});
  mounts({{"/local", "ext4", "/dev/sda3", "ro", "ro"}});
  EXPECT_OUTCOME(run("disk.ro"), Outcome::critical);
  mounts({{"/local", "ext4", "/dev/sda3", "rw", "rw"}});  // mended
  EXPECT_OUTCOME(run("disk.ro"), Outcome::pass);
  mounts({{"/local", "ext4", "/dev/sda4", "ro", "ro"}});  // another
  EXPECT_OUTCOME(run("disk.ro"), Outcome::pass);
  mounts({{"/local", "ext4", "/dev/sda3", "ro", "ro"}, {"/local", "ext4", "/dev/sda5"}});  // hidden by another
  EXPECT_OUTCOME(run("disk.ro"), Outcome::pass);
  log({"EXT4-fs (loop0): Remounting filesystem read-only"});  // an image of a user's
  mounts({{"/image", "ext4", "/dev/loop0", "ro", "ro"}});
  EXPECT_OUTCOME(run("disk.ro"), Outcome::pass);
  log({"EXT4-fs (sda3)[4711]: segfault at 0 in ): Remounting filesystem read-only"});
  mounts({{"/local", "ext4", "/dev/sda3", "ro", "ro"}});
  EXPECT_OUTCOME(run("disk.ro"), Outcome::pass);
}

TEST_F(DiskReadonly, DevicesAreFoundByNumberToo) {
  make_directory("/sys/block/dm-0/slaves/vda2");
  make_directory("/sys/block/vda");
  link("/sys/dev/block/8:20", "../../devices/virtual/block/dm-0");
  log({"BTRFS info (device dm-0: state E): forced readonly"});
  mounts({{"/local", "btrfs", "/dev/mapper/vg-local", "rw", "ro"}});
  EXPECT_OUTCOME(run("disk.ro"), Outcome::critical);
  remove("/sys/block/vda");  // detached
  EXPECT_OUTCOME(run("disk.ro"), Outcome::warn);
}

TEST_F(DiskReadonly, TheMountAboveTheSpoolIsWatched) {
  policy.paths.spool = "/data/spool/ms";
  mounts({{"/", "ext4", "/dev/sda1"}, {"/data", "xfs", "/dev/sda2", "rw", "ro"}});
  EXPECT_THAT(entities(run("disk.ro")), ElementsAre("/data"));
  mounts({{"/", "ext4", "/dev/sda1"}, {"/data", "xfs", "/dev/sda2", "rw", "ro"}, {"/data", "xfs", "/dev/sda3"}});
  EXPECT_OUTCOME(run("disk.ro"), Outcome::pass);  // another mount is on top
}

TEST_F(DiskReadonly, SkipsWithoutMountinfo) { EXPECT_OUTCOME(run("disk.ro"), Outcome::skip); }

}  // namespace
}  // namespace ms::health
