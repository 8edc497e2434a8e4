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

}  // namespace
}  // namespace ms
