#include "base/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <set>
#include <thread>

#include "base/hash.h"
#include "base/user_path.h"
#include "support/files.h"

namespace ms {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class File : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return dir_ + "/" + name; }
  std::set<std::string> names() const {
    std::set<std::string> result;
    for (const auto& entry : fs::directory_iterator(dir_)) result.insert(entry.path().filename());
    return result;
  }
  const test::TempDir temporary_;
  const std::string& dir_ = temporary_.path();
};

template <class Action>
Error error_of(Action action) {
  try {
    action();
  } catch (const Error& error) { return error; }
  ADD_FAILURE() << "nothing thrown";
  return Error("", Blame::bug, "");
}

TEST_F(File, WritesAtomicallyAndReadsBack) {
  std::string data = "binary \0 data";
  data += std::string(100'000, '\xff');
  write_file_atomic(path("f"), data);
  EXPECT_EQ(read_file(path("f")), data);
  write_file_atomic(path("f"), "");
  EXPECT_EQ(read_file(path("f")), "");
  EXPECT_EQ(names(), std::set<std::string>{"f"}) << "no temporary file stays";
  EXPECT_FALSE(read_file("/proc/self/status").empty()) << "files whose size is not told beforehand";
}

TEST_F(File, AFailedWriteLeavesTheOldFileAndNoTrash) {
  fs::create_directory(path("d"));
  write_file_atomic(path("d/inside"), "x");
  const Error error = error_of([&] { write_file_atomic(path("d"), "over a directory"); });
  EXPECT_EQ(error.kind(), "file.rename");
  EXPECT_EQ(error.blame(), Blame::storage);
  EXPECT_THAT(error.message(), HasSubstr(path("d")));
  EXPECT_EQ(names(), std::set<std::string>{"d"});
  EXPECT_EQ(error_of([&] { write_file_atomic(path("none/f"), "x"); }).kind(), "file.create");
}

TEST_F(File, BlamesTheUserOnlyForTheUsersPaths) {
  const Error ours = error_of([&] { read_file(path("absent")); });
  EXPECT_EQ(ours.blame(), Blame::storage);
  EXPECT_EQ(ours.message(), "cannot open '" + path("absent") + "': No such file or directory");
  EXPECT_EQ(error_of([&] { read_file(path("absent"), Blame::user); }).blame(), Blame::user);
  EXPECT_EQ(error_of([&] { read_file(dir_, Blame::user); }).blame(), Blame::user) << "a directory is not a file";
  EXPECT_EQ(error_of([&] { MappedFile(path("absent"), Blame::user); }).blame(), Blame::user);
  EXPECT_EQ(error_of([&] { MappedFile{dir_}; }).blame(), Blame::storage);
}

TEST_F(File, ChecksAnOutputBeforeItIsMade) {
  write_file_atomic(path("f"), "");
  EXPECT_NO_THROW(check_user_file(path("f")));
  EXPECT_NO_THROW(check_user_file(path("new")));
  EXPECT_EQ(names(), std::set<std::string>{"f"}) << "it makes nothing";
  for (const std::string& wrong : {path("none/f"), path("f/g"), dir_}) {
    const Error error = error_of([&] { check_user_file(wrong); });
    EXPECT_EQ(error.blame(), Blame::user);
    EXPECT_THAT(error.message(), HasSubstr("cannot create '" + wrong + "': "));
    EXPECT_EQ(error_of([&] { write_user_file(wrong, "x"); }).blame(), Blame::user) << wrong;
  }
  EXPECT_EQ(error_of([&] { make_user_directories(path("f/d")); }).blame(), Blame::user);
  EXPECT_EQ(error_of([&] { make_directories(path("f/d")); }).blame(), Blame::storage);
}

TEST_F(File, OutputGoesIntoPipesAndDevicesWhichStay) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { write_user_file(path("pipe"), "x"); }).blame(), Blame::user) << "nobody reads";
  const UniqueFd reader(::open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  write_user_file(path("pipe"), "text");
  std::array<char, 8> read{};
  EXPECT_EQ(::read(reader.get(), read.data(), read.size()), 4);
  EXPECT_TRUE(std::filesystem::is_fifo(path("pipe")));
  std::filesystem::create_symlink("/dev/null", path("null"));  // /dev/null itself is not for a test to try
  write_user_file(path("null"), "text");
  EXPECT_TRUE(std::filesystem::is_symlink(path("null")));
  EXPECT_TRUE(std::filesystem::is_character_file(path("null")));
}

TEST_F(File, ReadsRegularFilesOfABoundedSize) {
  write_file_atomic(path("f"), "12345");
  EXPECT_EQ(read_user_file(path("f"), 5), "12345");
  EXPECT_EQ(error_of([&] { read_user_file(path("f"), 4); }).message(),
            "'" + path("f") + "' has 5 bytes, at most 4 are read");
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  for (const std::string& odd : {path("pipe"), std::string("/dev/zero"), dir_}) {
    EXPECT_EQ(error_of([&] { read_user_file(odd, 5); }).blame(), Blame::user) << odd;
    EXPECT_EQ(error_of([&] { read_user_file_end(odd, 5); }).blame(), Blame::user) << odd;
  }
  EXPECT_EQ(read_user_file_end(path("f"), 9), "12345");
  EXPECT_EQ(read_user_file_end(path("f"), 2), "45");
  EXPECT_EQ(read_user_file_end(path("f"), 2, 4), "34");
}

TEST_F(File, ExclusiveCreationHasOneWinner) {
  EXPECT_TRUE(create_exclusive(path("verdict"), "first"));
  EXPECT_FALSE(create_exclusive(path("verdict"), "second"));
  EXPECT_EQ(read_file(path("verdict")), "first");
  std::atomic<int> winners{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back(
          [&, i] { winners += create_exclusive(path("race"), std::string(1000, static_cast<char>('a' + i))); });
    }
  }
  EXPECT_EQ(winners, 1);
  const std::string data = read_file(path("race"));
  EXPECT_EQ(data, std::string(1000, data[0])) << "whole, from one writer";
  EXPECT_EQ(names(), (std::set<std::string>{"race", "verdict"}));
  EXPECT_EQ(error_of([&] { create_exclusive(path("none/f"), "x"); }).blame(), Blame::storage);
}

TEST_F(File, MakesAndRenamesDirectories) {
  make_directories(path("a/b/c"));
  make_directories(path("a/b/c"));
  EXPECT_TRUE(fs::is_directory(path("a/b/c")));
  rename_synced(path("a/b"), path("a/z"));
  EXPECT_TRUE(fs::is_directory(path("a/z/c")));
  EXPECT_EQ(error_of([&] { rename_synced(path("a/b"), path("a/y")); }).kind(), "file.rename");
  write_file_atomic(path("file"), "x");
  EXPECT_EQ(error_of([&] { make_directories(path("file")); }).kind(), "file.make_directory");
  EXPECT_EQ(error_of([&] { make_directories(path("file/below")); }).kind(), "file.make_directory");
  EXPECT_EQ(error_of([&] { sync_directory(path("file")); }).kind(), "file.open");
  EXPECT_EQ(parent_directory("a/b"), "a");
  EXPECT_EQ(parent_directory("b"), ".");
  EXPECT_EQ(parent_directory("/b"), "/");
}

TEST_F(File, MapsReadOnly) {
  write_file_atomic(path("f"), "mapped");
  MappedFile a(path("f"));
  ASSERT_EQ(a.size_bytes(), 6);
  MappedFile b(std::move(a));
  EXPECT_EQ(a.size_bytes(), 0);
  EXPECT_EQ(b.bytes()[0], std::byte{'m'});
  write_file_atomic(path("f"), "other text");
  EXPECT_EQ(b.bytes()[5], std::byte{'d'}) << "the mapping keeps the old file";
  b = MappedFile(path("f"));
  EXPECT_EQ(b.size_bytes(), 10);
  write_file_atomic(path("empty"), "");
  EXPECT_EQ(MappedFile(path("empty")).size_bytes(), 0);
}

TEST_F(File, ReadsOfAMappingSurviveACut) {
  const std::size_t page = 4096;
  write_file_atomic(path("f"), std::string(3 * page, 'x'));
  const MappedFile file(path("f"));
  std::array<std::byte, 4> some{};
  file.read(3 * page - 4, some);
  EXPECT_EQ(some[3], std::byte{'x'});
  ASSERT_EQ(::truncate(path("f").c_str(), 100), 0);
  std::vector<std::byte> all(3 * page);
  const Error error = error_of([&] { file.read(0, all); });
  EXPECT_EQ(error.kind(), "file.cut");
  EXPECT_EQ(error.blame(), Blame::storage);
  EXPECT_EQ(error.message(), path("f") + " was cut while it was in use: it has 100 bytes now, and had 12288");
}

TEST_F(File, AsksTheDiskForPartOfAMapping) {
  const test::TempDir beside(std::filesystem::current_path());  // of the build: the temporary directory may be no disk
  const std::string name = beside / "f";
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  constexpr std::size_t kPages = 1024;
  write_file_atomic(name, std::string(kPages * page, 'x'));
  const MappedFile file(name);
  const auto cached = [&](std::size_t at) {
    unsigned char is_cached = 0;
    EXPECT_EQ(::mincore(const_cast<std::byte*>(file.bytes().data() + at * page), page, &is_cached), 0);
    return (is_cached & 1) != 0;
  };
  const UniqueFd fd(::open(name.c_str(), O_RDONLY));
  ASSERT_EQ(::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
  if (cached(0) || cached(700)) GTEST_SKIP() << "the current directory is not on a disk";
  file.will_need(700 * page - 1, 2);
  for (int i = 0; i < 60'000 && !(cached(699) && cached(700)); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(cached(699) && cached(700));
  EXPECT_FALSE(cached(0)) << "what was not asked for";
  ASSERT_EQ(::truncate(name.c_str(), 100), 0);
  file.will_need(700 * page, page);  // a hint: read() says what is wrong
  file.will_need(kPages * page, 0);
  MappedFile().will_need(0, 0);
}

struct CountTraits {
  using Type = int*;
  static constexpr int* null() { return nullptr; }
  static void destroy(int* count) noexcept { ++*count; }
  static void close(int* count) {
    ++*count;
    throw user_error("test.close", "refused");
  }
};

TEST(Handle, GivesBackExactlyOnce) {
  int count = 0;
  {
    Handle<CountTraits> a(&count);
    EXPECT_TRUE(a);
    Handle<CountTraits> b(std::move(a));
    EXPECT_FALSE(a);
    EXPECT_EQ(b.get(), &count);
    a = std::move(b);
    EXPECT_EQ(count, 0);
  }
  EXPECT_EQ(count, 1);
  int other = 0;
  Handle<CountTraits> a(&count);
  a.reset(&other);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(a.release(), &other);
  EXPECT_EQ(other, 0);
  EXPECT_FALSE(a);
  a.close();
  Handle<CountTraits> b(&count);
  EXPECT_THROW(b.close(), Error);
  EXPECT_FALSE(b) << "empty after a failed close";
  EXPECT_EQ(count, 3);
}

TEST(Handle, ClosesDescriptors) {
  UniqueFd fd(::open("/dev/null", O_RDONLY));
  const int number = fd.get();
  fd.close();
  EXPECT_EQ(::fcntl(number, F_GETFD), -1);
  UniqueFd bad(number);
  EXPECT_EQ(error_of([&] { bad.close(); }).kind(), "file.close");
}

TEST(Hash, KnownAnswers) {
  EXPECT_EQ(xxh64(""), 0xef46db3751d8e999U);
  EXPECT_EQ(xxh64("a"), 0xd24ec4f1a98c6e5bU);
  EXPECT_EQ(xxh64("abc"), 0x44bc2cf5ad770999U);
  EXPECT_NE(xxh64("abc", 1), xxh64("abc", 0));
  EXPECT_EQ(hash_hex(0xabcU), "0000000000000abc");
}

TEST(Hash, PiecesDoNotMatter) {
  const std::string text(1000, 'x');
  for (const std::size_t piece : {1, 7, 32, 999}) {
    Hasher hasher(5);
    for (std::size_t i = 0; i < text.size(); i += piece) hasher.update(std::string_view(text).substr(i, piece));
    EXPECT_EQ(hasher.digest(), xxh64(text, 5)) << piece;
    hasher.update("y");
    EXPECT_EQ(hasher.digest(), xxh64(text + "y", 5)) << piece;
  }
  Hasher empty;
  empty.update(std::span<const std::byte>{});
  EXPECT_EQ(empty.digest(), xxh64(""));
}

}  // namespace
}  // namespace ms
