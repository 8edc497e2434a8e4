// One holder at a time, which is named, and none once its process has ended.
#include "base/lock_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "support/files.h"

namespace ms {
namespace {

TEST(LockFile, NamesItsHolder) {
  const test::TempDir dir;
  const std::string path = dir / "lock";
  {
    const FileLock lock = lock_file(path, Blame::user);
    EXPECT_TRUE(lock.fd);
    EXPECT_TRUE(lock.holder.empty());
    const FileLock second = lock_file(path, Blame::user);
    EXPECT_FALSE(second.fd);
    EXPECT_TRUE(second.holder.starts_with(fmt::format("process {} on ", ::getpid()))) << second.holder;
    test::spill(path, "\x1b[31m\nanything");
    EXPECT_EQ(lock_file(path, Blame::user).holder, "another process") << "what the file says is not trusted";
  }
  EXPECT_TRUE(lock_file(path, Blame::user).fd);
}

TEST(LockFile, IsFreeOnceItsProcessIsGone) {
  const test::TempDir dir;
  const std::string path = dir / "lock";
  const pid_t child = ::fork();
  if (child == 0) {
    const FileLock lock = lock_file(path, Blame::user);
    ::_exit(lock.fd ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the child had it";
  EXPECT_TRUE(lock_file(path, Blame::user).fd);
}

// A process is killed while a program that it starts has the lock's descriptor, and has not come to exec() yet.
TEST(LockFile, IsFreeOnceWhatAKilledProcessWasStartingHasBegun) {
  const test::TempDir dir;
  const std::string path = dir / "lock";
  std::array<int, 2> locked{};
  ASSERT_EQ(::pipe(locked.data()), 0);
  const pid_t holder = ::fork();
  if (holder == 0) {
    const FileLock lock = lock_file(path, Blame::user);
    const int looks = ::inotify_init1(IN_CLOEXEC);
    ::inotify_add_watch(looks, path.c_str(), IN_ACCESS);
    if (::fork() == 0) {  // until somebody has read who has it: then the lock was tried in vain
      std::array<char, 256> event{};
      ::_exit(::write(locked[1], "1", 1) == 1 && ::read(looks, event.data(), event.size()) > 0 ? 0 : 1);
    }
    ::pause();
  }
  char word = 0;
  ASSERT_EQ(::read(locked[0], &word, 1), 1);
  ::kill(holder, SIGKILL);
  ASSERT_EQ(::waitpid(holder, nullptr, 0), holder);
  const FileLock lock = lock_file(path, Blame::user);
  EXPECT_TRUE(lock.fd) << lock.holder;
  for (const int end : locked) ::close(end);
}

// Whoever owns the directory could have laid the name for others to overwrite what it leads to.
TEST(LockFile, IsNoLinkToAnotherFile) {
  const test::TempDir dir;
  test::spill(dir / "precious", "text");
  ASSERT_EQ(::symlink((dir / "precious").c_str(), (dir / "soft").c_str()), 0);
  ASSERT_EQ(::link((dir / "precious").c_str(), (dir / "hard").c_str()), 0);
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  for (const char* name : {"soft", "hard", "pipe"}) {
    try {
      lock_file(dir / name, Blame::user);
      FAIL() << name;
    } catch (const Error& error) { EXPECT_EQ(error.kind(), "file.kind") << error.message(); }
  }
  EXPECT_EQ(test::slurp(dir / "precious"), "text");
}

TEST(LockFile, SaysWhoIsToBlameWhereItCannotBeMade) {
  const test::TempDir dir;
  for (const Blame blame : {Blame::user, Blame::storage}) {
    try {
      lock_file(dir / "none/lock", blame);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), "file.open");
      EXPECT_EQ(error.blame(), blame);
    }
  }
}

}  // namespace
}  // namespace ms
