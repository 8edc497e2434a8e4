// Files that are written where another user may have laid something of that name.
#include "base/safe_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "support/errors.h"
#include "support/files.h"

namespace ms {
namespace {

namespace fs = std::filesystem;

TEST(SafeFile, IsARegularFileOfOneName) {
  const test::TempDir dir;
  const std::string precious = dir / "precious";
  test::spill(precious, "text");
  fs::create_symlink(precious, dir / "soft");
  fs::create_symlink(dir / "none", dir / "dangling");
  fs::create_hard_link(precious, dir / "hard");
  fs::create_directory(dir / "folder");
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo((dir / "read").c_str(), 0600), 0);
  const UniqueFd reader(::open((dir / "read").c_str(), O_RDONLY | O_NONBLOCK));
  for (const char* name : {"soft", "dangling", "hard", "folder", "pipe", "read", "precious"}) {
    for (const int flags : {0, O_APPEND, O_TRUNC, O_RDWR | O_TRUNC}) {
      const ToWrite file = open_to_write(AT_FDCWD, dir / name, flags);
      EXPECT_FALSE(file.fd) << name << ' ' << flags;
      EXPECT_FALSE(file.why.empty());
    }
  }
  EXPECT_EQ(test::slurp(precious), "text");
  EXPECT_FALSE(fs::exists(dir / "none"));

  fs::remove(dir / "hard");
  const UniqueFd in(::open(dir.path().c_str(), O_RDONLY | O_DIRECTORY));
  EXPECT_TRUE(open_to_write(in.get(), "precious", O_APPEND).fd);
  EXPECT_EQ(test::slurp(precious), "text");
  EXPECT_TRUE(open_to_write(in.get(), "precious", O_TRUNC).fd);
  EXPECT_EQ(test::slurp(precious), "");
  EXPECT_EQ(open_to_write(in.get(), "precious", O_EXCL).error, EEXIST);
  EXPECT_TRUE(open_to_write(in.get(), "new", O_EXCL).fd);
}

TEST(SafeFile, OfOnesOwnIsNotAnotherUsers) {
  if (::geteuid() != 0) GTEST_SKIP() << "a second user takes root";
  const test::TempDir dir;
  test::spill(dir / "theirs", "text");
  ASSERT_EQ(::chown((dir / "theirs").c_str(), 65534, 65534), 0);
  const UniqueFd in(::open(dir.path().c_str(), O_RDONLY | O_DIRECTORY));
  EXPECT_EQ(test::thrown_by([&] { open_own_file(in, "theirs", O_APPEND, {.kind = "x"}); }).kind(), "x");
  EXPECT_TRUE(open_own_file(in, "ours", O_APPEND, {.kind = "x"}));
}

// Victim: the test's user, root. The other one: 65534. A link of a user can only lie where that user may write.
TEST(SafeFile, ARunsDirectoryIsOutOfReachOfOthers) {
  if (::geteuid() != 0) GTEST_SKIP() << "a second user takes root";
  const test::TempDir dir;
  const auto make = [&](const char* name, uid_t owner, mode_t mode) {
    fs::create_directories(dir / name);
    ASSERT_EQ(::chown((dir / name).c_str(), owner, owner), 0);
    ASSERT_EQ(::chmod((dir / name).c_str(), mode), 0);
  };
  const auto link = [&](const char* target, const char* name, uid_t owner) {
    fs::create_symlink(dir / target, dir / name);
    ASSERT_EQ(::lchown((dir / name).c_str(), owner, owner), 0);
  };
  make("home", 0, 0755);
  make("home/run", 0, 0755);
  make("home/open", 0, 0777);
  make("shared", 0, 01777);
  make("shared/runs", 65534, 0755);
  make("shared/runs/a", 0, 0755);
  make("shared/mine", 0, 0775);
  make("loose", 0, 0777);
  make("loose/run", 0, 0755);
  make("theirs", 65534, 01777);
  make("theirs/run", 0, 0755);
  make("project", 65534, 02775);  // of a colleague, in a directory of root's
  make("project/run", 0, 0755);
  link("home/run", "home/own", 0);
  link("home/run", "shared/own", 0);
  link("home/run", "shared/laid", 65534);
  link("shared/runs/a", "home/to-runs", 0);
  link("home/run", "project/laid", 65534);
  const auto opens = [&](const char* name) {
    try {
      return static_cast<bool>(open_run_directory(dir / name, {.kind = "x"}));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), "x");
      return false;
    }
  };
  for (const char* name : {"home/run", "home/run/", "home/../home/run", "shared/mine", "project/run", "loose/run",
                           "home/own", "shared/own"})
    EXPECT_TRUE(opens(name)) << name;
  for (const char* name : {"home/open", "shared", "shared/runs", "shared/runs/a", "theirs/run", "project",
                           "shared/laid", "project/laid", "home/to-runs", "none"})
    EXPECT_FALSE(opens(name)) << name;
}

}  // namespace
}  // namespace ms
