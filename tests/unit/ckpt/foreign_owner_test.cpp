// Directories of checkpoints that another user owns: what root, or another member of a group, does in them must stay in
// them. The race is between two system calls of ours, where a progress callback stands in for the other user.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/prune.h"
#include "ckpt/repair.h"
#include "sample.h"
#include "support/errors.h"
#include "support/files.h"

namespace ms::ckpt {
namespace {

namespace fs = std::filesystem;
using test::TempDir;

constexpr uid_t kOwner = 65534;

class ForeignOwner : public testing::Test {
 protected:
  void SetUp() override {
    for (const std::int64_t step : {10, 20, 30}) {
      sample::write(own_, step);
      sample::write(victim_, step);
    }
    before_ = test::names_in(victim_);
  }
  void TearDown() override { EXPECT_EQ(test::names_in(victim_), before_) << "the other directory is untouched"; }
  // What the owner of the directory does meanwhile.
  void swap() {
    if (fs::exists(moved_)) return;
    fs::rename(own_, moved_);
    fs::create_directory_symlink(victim_, own_);
  }

  const TempDir dir_;
  const std::string own_ = dir_ / "own", moved_ = dir_ / "moved", victim_ = dir_ / "victim";
  std::vector<std::string> before_;
};

TEST_F(ForeignOwner, PruneStaysInTheDirectoryThatItLocked) {
  const Pruned pruned = prune(own_, {.policy = {.keep_last = 1}, .progress = [&](std::int64_t) { swap(); }});
  EXPECT_EQ(pruned.gone.size(), 2U);
  EXPECT_TRUE(fs::is_symlink(own_));
  EXPECT_FALSE(fs::exists(moved_ + "/step-00000010"));
  EXPECT_TRUE(fs::exists(moved_ + "/step-00000030"));
}

TEST_F(ForeignOwner, RepairStaysInTheDirectoryThatItLocked) {
  fs::resize_file(own_ + "/step-00000020/rank-00000.h5", 100);
  begin_save(own_, 40);
  repair(own_, {.verify = true, .progress = [&](std::int64_t) { swap(); }});
  EXPECT_TRUE(fs::exists(moved_ + "/damaged-step-00000020-1"));
}

TEST_F(ForeignOwner, ASaveStaysInTheDirectoryThatItOpened) {
  const Directory own(own_);
  const Manifest manifest = *look(own_ + "/step-00000030").manifest;
  const Directory saving = open_save(own, 40);
  swap();
  EXPECT_EQ(::faccessat(open_save(own, 40).fd(), ".", F_OK, 0), 0) << "made by another rank";
  Manifest next = manifest;
  next.step = 40;
  next.files.clear();
  commit(own, 40, to_json(next));
  EXPECT_TRUE(fs::exists(moved_ + "/step-00000040/manifest.json"));
}

TEST_F(ForeignOwner, ASaveIsNotWrittenWhereALinkLeads) {
  fs::create_directory_symlink(victim_, own_ + "/saving-step-00000040");
  EXPECT_TRUE(test::error_from([&] { open_save(own_, 40); }));
  EXPECT_TRUE(test::error_from([&] { commit(own_, 40, "{}"); }));
}

TEST_F(ForeignOwner, WhatLiesInACheckpointAsALinkIsNotFollowed) {
  fs::create_directory_symlink(victim_, own_ + "/step-00000010/link");
  fs::create_directory(own_ + "/step-00000010/folder");
  fs::create_symlink(victim_ + "/step-00000030", own_ + "/step-00000010/folder/link");
  EXPECT_TRUE(remove_checkpoint(Directory(own_), 10));
  EXPECT_FALSE(fs::exists(own_ + "/step-00000010"));
  fs::create_directory_symlink(victim_ + "/step-00000030", own_ + "/step-00000010");
  EXPECT_TRUE(remove_checkpoint(Directory(own_), 10));
}

TEST_F(ForeignOwner, PinsAreMadeNeitherThroughLinksNorIntoPipes) {
  const std::string target = dir_ / "nologin";
  for (const char* name : {"/step-00000010.pin", "/pin.lock"}) {
    SCOPED_TRACE(name);
    fs::remove(own_ + name);
    fs::create_symlink(target, own_ + name);
    EXPECT_TRUE(test::error_from([&] { pin(Directory(own_), 10); }));
    EXPECT_FALSE(fs::exists(target));
    fs::remove(own_ + name);
    ASSERT_EQ(mkfifo((own_ + name).c_str(), 0666), 0);
    EXPECT_TRUE(test::error_from([&] { pin(Directory(own_), 10); }));
    fs::remove(own_ + name);
  }
  pin(Directory(own_), 10);
  EXPECT_TRUE(fs::exists(own_ + "/step-00000010.pin"));
}

TEST_F(ForeignOwner, APinIsARegularFile) {
  const std::string name = own_ + "/step-00000010.pin";
  ASSERT_EQ(mkfifo(name.c_str(), 0666), 0);
  const UniqueFd reader(::open(name.c_str(), O_RDONLY | O_NONBLOCK));
  ASSERT_TRUE(reader);
  EXPECT_EQ(test::thrown_by([&] { pin(own_, 10); }).kind(), "ckpt.pin");
}

// What links lead where, by who owns the link, the directory, and the process.
TEST_F(ForeignOwner, NoLinkOfAUserLeadsToAnotherUsersDirectory) {
  if (geteuid() != 0) GTEST_SKIP() << "a second user takes root";
  constexpr uid_t kThird = 65533;
  const std::string above = dir_ / "above", link = above + "/link", on_the_way = above + "/back/victim";
  fs::create_directory(above);
  fs::create_directory_symlink(victim_, link);
  fs::create_directory_symlink(dir_.path(), above + "/back");
  ASSERT_EQ(chmod(dir_.path().c_str(), 0755), 0);
  const auto error_of = [&](const std::string& path, uid_t user) {
    if (seteuid(user) != 0) ADD_FAILURE() << "seteuid";
    const std::optional<Error> error = test::error_from([&] { pin(path, 77); });  // there is no such step
    if (seteuid(0) != 0) ADD_FAILURE() << "seteuid";
    return error ? error->kind() : "";
  };
  struct Row {
    uid_t link, target, user;
    bool allowed, allowed_on_the_way, allowed_where_everybody_writes;
  };
  for (const Row& row :
       {Row{0, 0, 0, true, true, true}, Row{kOwner, 0, 0, false, false, false},
        Row{kOwner, kOwner, 0, true, true, true}, Row{kOwner, kThird, 0, false, false, false},
        Row{0, kOwner, 0, true, true, true}, Row{kOwner, 0, kThird, false, false, false},
        Row{kOwner, kThird, kThird, false, true, false},  // one's own directory, by the link of another
        Row{kThird, kOwner, kThird, true, true, true}}) {
    SCOPED_TRACE(fmt::format("link {} target {} user {}", row.link, row.target, row.user));
    ASSERT_EQ(lchown(link.c_str(), row.link, row.link), 0);
    ASSERT_EQ(lchown((above + "/back").c_str(), row.link, row.link), 0);
    ASSERT_EQ(chown(victim_.c_str(), row.target, row.target), 0);
    ASSERT_EQ(chmod(victim_.c_str(), row.user == row.target ? 0755 : 0777), 0);
    ASSERT_EQ(chmod(above.c_str(), 0755), 0);
    EXPECT_EQ(error_of(link, row.user), row.allowed ? "ckpt.none" : "ckpt.link");
    EXPECT_EQ(error_of(on_the_way, row.user), row.allowed_on_the_way ? "ckpt.none" : "ckpt.link");
    ASSERT_EQ(chmod(above.c_str(), 01777), 0);
    for (const std::string& path : {link, on_the_way})
      EXPECT_EQ(error_of(path, row.user), row.allowed_where_everybody_writes ? "ckpt.none" : "ckpt.link") << path;
  }
}

}  // namespace
}  // namespace ms::ckpt
