// Copies in memory: which of what lies there is taken for a copy, and what is left of what fails.
#include "ckpt/memory_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "ckpt/directory.h"
#include "support/files.h"
#include "written.h"

namespace ms::ckpt {
namespace {

namespace fs = std::filesystem;
using layouts::slurp;
using layouts::spill;
using layouts::thrown_by;
using test::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Manifest two_files(std::int64_t step) {
  Manifest manifest = layouts::manifest_at(step);
  for (const char* name : {"rank-00000.h5", "rank-00001.h5"}) {
    manifest.files.push_back({.name = name, .size_bytes = 5, .hashes = {42}, .pieces = {}});
  }
  return manifest;
}

std::vector<std::byte> bytes_of(const std::string& text) {
  std::vector<std::byte> bytes;
  for (const char c : text) bytes.push_back(static_cast<std::byte>(c));
  return bytes;
}

void write_both(const std::string& root, const Manifest& manifest) {
  for (const FileEntry& file : manifest.files) {
    EXPECT_TRUE(write_copy(root, manifest.step, file.name, bytes_of("12345"), {}));
  }
  write_mark(root, manifest.step, memory_mark(manifest));
}

std::vector<std::size_t> found(const std::string& root, const Manifest& manifest) {
  std::vector<std::size_t> places;
  for (const auto& [place, file] : copies_of(root, manifest)) places.push_back(place);
  return places;
}

TEST(MemoryFiles, ADirectoryOfItsOwnForEveryDirectoryOfCheckpoints) {
  EXPECT_EQ(memory_root("/m", "/a/b"), memory_root("/m", "/a/./c/../b/"));
  EXPECT_NE(memory_root("/m", "/a/b"), memory_root("/m", "/a/c"));
  EXPECT_EQ(memory_root("/m", "b"), memory_root("/m", fs::current_path().string() + "/b"));
  EXPECT_TRUE(memory_root("/m", "/a/b").starts_with(fmt::format("/m/ms-{}/", geteuid())));
}

TEST(MemoryFiles, NobodyElseReadsThem) {
  const TempDir folder;
  fs::create_directory(folder / "shm");
  fs::permissions(folder / "shm", fs::perms(01777));
  write_both(folder / "shm/mine/id", two_files(3));
  for (const char* path : {"shm/mine", "shm/mine/id", "shm/mine/id/step-00000003"}) {
    EXPECT_EQ(fs::status(folder / path).permissions(), fs::perms(0700)) << path;
  }
  for (const char* name : {"rank-00000.h5", "mark"}) {
    EXPECT_EQ(fs::status(folder / ("shm/mine/id/step-00000003/" + std::string(name))).permissions(), fs::perms(0600))
        << name;
  }
}

// A neighbour who was there first: nothing is written, read or deleted, and what a link points to stays as it is.
TEST(MemoryFiles, SomebodyElsesDirectoryIsRefused) {
  struct Row {
    const char* what;
    std::function<void(const std::string& shm)> change;
    bool needs_root;
    const char* says;
  };
  constexpr uid_t kNeighbour = 4243;
  const auto mode = [](const std::string& path, int bits) { fs::permissions(path, fs::perms(bits)); };
  const Row rows[] = {
      {"a link", [](const std::string& shm) { fs::create_directory_symlink(shm + "/../victim", shm + "/mine"); }, false,
       "Not a directory"},
      {"open to others",
       [&](const std::string& shm) {
         fs::create_directory(shm + "/mine");
         mode(shm + "/mine", 0755);
       },
       false, "has mode 0755, expected 0700"},
      {"others may rename it", [&](const std::string& shm) { mode(shm, 0777); }, false,
       "may be written by others (mode 0777)"},
      {"of somebody else",
       [&](const std::string& shm) {
         fs::create_directory(shm + "/mine");
         mode(shm + "/mine", 0700);
         ASSERT_EQ(chown((shm + "/mine").c_str(), kNeighbour, kNeighbour), 0);
       },
       true, "belongs to user 4243, not to us"},
      {"in somebody else's", [&](const std::string& shm) { ASSERT_EQ(chown(shm.c_str(), kNeighbour, kNeighbour), 0); },
       true, "belongs to user 4243, who could put anything there"},
      {"over somebody else's link",
       [&](const std::string& shm) {
         fs::rename(shm, shm + ".real");
         fs::create_directory_symlink(shm + ".real", shm);
         ASSERT_EQ(lchown(shm.c_str(), kNeighbour, kNeighbour), 0);
       },
       true, "is a link that belongs to user 4243"},
  };
  for (const Row& row : rows) {
    if (row.needs_root && geteuid() != 0) continue;
    const TempDir folder;
    fs::create_directories(folder / "shm");
    fs::permissions(folder / "shm", fs::perms(01777));
    write_both(folder / "victim/id", two_files(3));
    row.change(folder / "shm");
    const std::string root = folder / "shm/mine/id";
    const std::function<void()> calls[] = {[&] { write_copy(root, 3, "rank-00000.h5", bytes_of("ABCDE"), {}); },
                                           [&] { write_mark(root, 3, "0"); },
                                           [&] { copies_of(root, two_files(3)); },
                                           [&] { remove_copy(root, 3, "rank-00000.h5"); },
                                           [&] { keep_copies(root, 4); },
                                           [&] { keep_copies(root, std::nullopt); },
                                           [&] { remove_older_copies(root, 4); }};
    for (const auto& call : calls) {
      const Error error = thrown_by(call);
      EXPECT_EQ(error.kind(), "ckpt.memory") << row.what;
      EXPECT_THAT(error.message(), HasSubstr(row.says)) << row.what;
    }
    EXPECT_EQ(found(folder / "victim/id", two_files(3)), (std::vector<std::size_t>{0, 1})) << row.what;
    EXPECT_EQ(slurp(folder / "victim/id/step-00000003/rank-00000.h5"), "12345") << row.what;
  }
}

TEST(MemoryFiles, ALinkUnderTheNameOfACopyIsReplaced) {
  const TempDir folder;
  spill(folder / "victim", "secret");
  fs::create_directories(folder / "mine/id/step-00000003");
  for (const char* path : {"mine", "mine/id", "mine/id/step-00000003"}) {
    fs::permissions(folder / path, fs::perms(0700));
  }
  for (const char* name : {"rank-00000.h5.part", "rank-00000.h5", "mark"}) {
    fs::create_symlink(folder / "victim", folder / ("mine/id/step-00000003/" + std::string(name)));
  }
  write_both(folder / "mine/id", two_files(3));
  EXPECT_EQ(slurp(folder / "victim"), "secret");
  EXPECT_EQ(found(folder / "mine/id", two_files(3)).size(), 2U);
}

TEST(MemoryFiles, TheMarkIsTheSameFromTextsAndFromTheManifest) {
  const Manifest manifest = two_files(3);
  std::vector<std::string> texts{"", entry_to_json(manifest.files[0]), "", entry_to_json(manifest.files[1])};
  EXPECT_EQ(memory_mark(texts), memory_mark(manifest));
  EXPECT_EQ(memory_mark(parse_manifest(to_json(manifest), "m")), memory_mark(manifest));
  Manifest other = manifest;
  other.files[1].hashes[0] ^= 1;
  EXPECT_NE(memory_mark(other), memory_mark(manifest));
}

TEST(MemoryFiles, WhatIsWrittenIsFound) {
  const TempDir folder;
  const std::string root = folder / "deep/id";
  const Manifest manifest = two_files(3);
  write_both(root, manifest);
  const auto copies = copies_of(root, manifest);
  ASSERT_EQ(copies.size(), 2U);
  EXPECT_EQ(std::vector(copies.at(1).bytes().begin(), copies.at(1).bytes().end()), bytes_of("12345"));
}

TEST(MemoryFiles, WhatIsNotWholeOrNotOfThisCheckpointIsNone) {
  struct Row {
    const char* what;
    std::function<void(const std::string& step)> change;
    std::vector<std::size_t> left;
  };
  const Row rows[] = {
      {"nothing", [](const std::string&) {}, {0, 1}},
      {"a file is gone", [](const std::string& step) { fs::remove(step + "/rank-00000.h5"); }, {1}},
      {"torn", [](const std::string& step) { fs::resize_file(step + "/rank-00001.h5", 4); }, {0}},
      {"longer", [](const std::string& step) { fs::resize_file(step + "/rank-00001.h5", 6); }, {0}},
      {"never finished",
       [](const std::string& step) { fs::rename(step + "/rank-00000.h5", step + "/rank-00000.h5.part"); },
       {1}},
      {"a directory",
       [](const std::string& step) {
         fs::remove(step + "/rank-00000.h5");
         fs::create_directory(step + "/rank-00000.h5");
       },
       {1}},
      {"no mark", [](const std::string& step) { fs::remove(step + "/mark"); }, {}},
      {"a torn mark", [](const std::string& step) { fs::resize_file(step + "/mark", 7); }, {}},
      {"another mark", [](const std::string& step) { spill(step + "/mark", "0123456789abcdef"); }, {}},
      {"the mark is a directory",
       [](const std::string& step) {
         fs::remove(step + "/mark");
         fs::create_directory(step + "/mark");
       },
       {}},
      {"all is gone", [](const std::string& step) { fs::remove_all(step); }, {}},
  };
  for (const Row& row : rows) {
    const TempDir folder;
    const Manifest manifest = two_files(3);
    write_both(folder / "id", manifest);
    row.change(folder / "id/step-00000003");
    EXPECT_EQ(found(folder / "id", manifest), row.left) << row.what;
  }
}

TEST(MemoryFiles, AnotherTimeLineOfTheSameStepIsNotMixedUp) {
  const TempDir folder;
  const Manifest manifest = two_files(3);
  write_both(folder / "id", manifest);
  Manifest again = manifest;
  again.files[0].hashes[0] = 43;
  EXPECT_THAT(found(folder / "id", again), IsEmpty());
}

TEST(MemoryFiles, WhatStopsOrFailsLeavesNoFile) {
  const TempDir folder;
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(write_copy(folder / "id", 3, "rank-00000.h5", bytes_of("12345"), stop.get_token()));
  EXPECT_TRUE(fs::is_empty(folder / "id/step-00000003"));
  {
    CopyFile file(folder / "id", 3, "rank-00000.h5", 5);
    file.append(bytes_of("12"));
    EXPECT_FALSE(fs::exists(folder / "id/step-00000003/rank-00000.h5"));
  }
  EXPECT_TRUE(fs::is_empty(folder / "id/step-00000003"));
  // More than any file system has: refused before a byte is written.
  const Error error = thrown_by([&] { CopyFile(folder / "id", 3, "rank-00000.h5", std::int64_t{1} << 62); });
  EXPECT_EQ(error.kind(), "ckpt.memory");
  EXPECT_THAT(error.message(), HasSubstr("rank-00000.h5"));
  EXPECT_TRUE(fs::is_empty(folder / "id/step-00000003"));
  // A file where the directory should be.
  spill(folder / "file", "");
  EXPECT_EQ(thrown_by([&] { write_copy(folder / "file", 3, "x", bytes_of("1"), {}); }).kind(), "ckpt.memory");
}

TEST(MemoryFiles, OthersGo) {
  const TempDir folder;
  const std::string root = folder / "id";
  const auto names = [&] {
    std::vector<std::string> result;
    for (const auto& entry : fs::directory_iterator(root)) result.push_back(entry.path().filename());
    std::sort(result.begin(), result.end());
    return result;
  };
  for (const std::int64_t step : {1, 2, 3, 4}) write_both(root, two_files(step));
  remove_older_copies(root, 3);  // of step 4 another rank may have begun
  EXPECT_THAT(names(), ElementsAre("step-00000003", "step-00000004"));
  spill(root + "/odd", "");
  keep_copies(root, 3);
  EXPECT_THAT(names(), ElementsAre("step-00000003"));
  remove_copy(root, 3, "rank-00000.h5");
  remove_copy(root, 3, "rank-00000.h5");
  EXPECT_EQ(found(root, two_files(3)), std::vector<std::size_t>{1});
  keep_copies(root, std::nullopt);
  EXPECT_FALSE(fs::exists(root));
  keep_copies(root, 3);
  remove_older_copies(root, 3);
  EXPECT_FALSE(fs::exists(root));
}

}  // namespace
}  // namespace ms::ckpt
