// One holder at a time, which is named, and none once its process has ended.
#include "base/lock_file.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

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
