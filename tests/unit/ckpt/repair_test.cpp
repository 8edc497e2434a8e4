#include "ckpt/repair.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "ckpt/choose.h"
#include "ckpt/manifest_tail.h"
#include "ckpt/prune.h"
#include "sample.h"
#include "support/files.h"

namespace ms::ckpt {
namespace {

namespace fs = std::filesystem;
using test::TempDir;

std::vector<std::string> names_in(const std::string& dir) {
  std::vector<std::string> names;
  for (const Found& found : list(dir)) names.push_back(found.name);
  return names;
}

std::string kind_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) { return error.kind(); }
  return "nothing";
}

// Two sound ones, a newer one that was cut short, and what a killed save and a killed deletion leave.
std::string make_mess(const TempDir& dir) {
  const std::string ck = dir / "ck";
  sample::write(ck, 10);
  sample::write(ck, 20, {.files = 2});
  fs::resize_file(sample::write(ck, 30, {.files = 2}) + "/rank-00001.h5", 100);
  begin_save(ck, 40);
  fs::create_directory(ck + "/deleting-step-00000005-1");
  return ck;
}

TEST(Repair, ADryRunTouchesNothing) {
  const TempDir dir;
  const std::string ck = make_mess(dir);
  const std::vector<std::string> before = names_in(ck);
  const RepairReport report = repair(ck, {.dry_run = true});
  EXPECT_TRUE(report.dry_run);
  EXPECT_EQ(report.repairs.size(), 3U);
  EXPECT_EQ(report.resume_from->step, 20);
  EXPECT_EQ(names_in(ck), before);
}

TEST(Repair, LeftoversGoAndTheDamagedIsKeptUnderItsName) {
  const TempDir dir;
  const std::string ck = make_mess(dir);
  const RepairReport report = repair(ck, {});
  ASSERT_EQ(report.repairs.size(), 3U);
  const auto damaged = std::find_if(report.repairs.begin(), report.repairs.end(),
                                    [](const Repair& r) { return r.remedy == Remedy::set_to_damaged; });
  ASSERT_NE(damaged, report.repairs.end());
  EXPECT_TRUE(damaged->path.ends_with("/step-00000030"));
  EXPECT_NE(damaged->reasons.front().find("100"), std::string::npos) << damaged->reasons.front();
  EXPECT_TRUE(fs::is_directory(damaged->now));
  EXPECT_EQ(report.resume_from->step, 20);
  for (const Found& found : list(ck)) {
    EXPECT_TRUE(found.condition == Condition::complete || found.condition == Condition::damaged) << found.name;
  }
  const RepairReport again = repair(ck, {});
  EXPECT_TRUE(again.repairs.empty()) << "once is enough";
  EXPECT_EQ(again.resume_from->step, 20);
}

TEST(Repair, OnlyVerificationFindsAFlippedBit) {
  const TempDir dir;
  const std::string ck = dir / "ck";
  sample::write(ck, 10);
  const std::string file = sample::write(ck, 20) + "/rank-00000.h5";
  test::flip_bit(file, static_cast<std::int64_t>(fs::file_size(file)) - 5);
  EXPECT_TRUE(repair(ck, {}).repairs.empty());
  std::int64_t most = 0;
  const RepairReport report =
      repair(ck, {.verify = true, .threads = 1, .progress = [&](std::int64_t bytes) { most = std::max(most, bytes); }});
  ASSERT_EQ(report.repairs.size(), 1U);
  EXPECT_TRUE(report.repairs[0].path.ends_with("step-00000020"));
  EXPECT_EQ(report.verified, 1);
  EXPECT_EQ(report.resume_from->step, 10);
  EXPECT_GE(most, static_cast<std::int64_t>(fs::file_size(ck + "/step-00000010/rank-00000.h5")));
  EXPECT_EQ(newest_complete(ck)->step, 10);
}

TEST(Repair, WhatCannotBeReadIsLeftAloneAndTheRestIsDone) {
  for (const std::string file : {"manifest.json", "rank-00000.h5"}) {
    SCOPED_TRACE(file);
    const TempDir dir;
    const std::string ck = make_mess(dir), at = ck + "/step-00000020/" + file;
    fs::remove(at);
    fs::create_symlink(file, at);
    const RepairReport report = repair(ck, {.verify = true});
    ASSERT_EQ(report.unreadable.size(), 1U);
    EXPECT_TRUE(report.unreadable[0].path.ends_with("/step-00000020"));
    EXPECT_NE(report.unreadable[0].reasons.front().find("Too many levels"), std::string::npos);
    EXPECT_EQ(report.repairs.size(), 3U) << "the others are seen to";
    EXPECT_EQ(report.resume_from->step, 10);
    EXPECT_TRUE(fs::is_directory(ck + "/step-00000020"));
    EXPECT_FALSE(fs::exists(ck + "/step-00000030"));
  }
}

TEST(Repair, AFinishedSaveIsCommitted) {
  const TempDir dir;
  const std::string ck = make_mess(dir);
  fs::rename(ck + "/step-00000020", ck + "/saving-step-00000020");
  const RepairReport would = repair(ck, {.dry_run = true});
  EXPECT_EQ(std::count_if(would.repairs.begin(), would.repairs.end(),
                          [](const Repair& r) { return r.remedy == Remedy::committed; }),
            1);
  EXPECT_EQ(would.resume_from->step, 20);
  EXPECT_TRUE(fs::exists(ck + "/saving-step-00000020"));
  const RepairReport report = repair(ck, {});
  ASSERT_FALSE(report.repairs.empty());
  EXPECT_EQ(report.repairs[0].remedy, Remedy::committed);
  EXPECT_EQ(report.repairs[0].now, ck + "/step-00000020");
  EXPECT_EQ(report.resume_from->step, 20);
  EXPECT_EQ(newest_complete(ck)->step, 20);
}

TEST(Repair, NotWhileARunIsAtWork) {
  const TempDir dir;
  const std::string ck = make_mess(dir);
  const std::vector<std::string> before = names_in(ck);
  const DirectoryLock lock(ck);
  EXPECT_EQ(kind_of([&] { repair(ck, {}); }), "ckpt.busy");
  EXPECT_EQ(kind_of([&] { prune(ck, {.policy = {.keep_last = 1}}); }), "ckpt.busy");
  EXPECT_EQ(names_in(ck), before);
}

TEST(Repair, WhatANewerProgramWroteIsNotDamaged) {
  const TempDir dir;
  const std::string ck = make_mess(dir);
  const std::string path = ck + "/step-00000020/manifest.json";
  const std::string version = fmt::format("\"format_version\": {}", kFormatVersion);
  std::string text = read_file(path);
  ASSERT_NE(text.find(version), std::string::npos);
  text.replace(text.find(version), version.size(), "\"format_version\": 999");
  text.resize(text.size() - manifest_tail(0).size());
  write_file_atomic(path, text + manifest_tail(xxh64(text)));
  const std::vector<std::string> before = names_in(ck);
  EXPECT_EQ(kind_of([&] { repair(ck, {}); }), "ckpt.version");
  EXPECT_EQ(names_in(ck), before);
}

TEST(Examine, JudgesByNameSizesAndData) {
  const TempDir dir;
  const std::string ck = make_mess(dir);
  for (const Found& found : list(ck)) {
    const bool sound = found.step == 10 || found.step == 20;
    EXPECT_EQ(examine(found, 1).problems.empty(), sound) << found.name;
  }
  const Verified sound = examine(look(ck + "/step-00000010"), 1);
  EXPECT_EQ(sound.step, 10);
  EXPECT_GT(sound.size_bytes, 0);
}

TEST(Prune, TakesWhatThePolicySays) {
  const TempDir dir;
  const std::string ck = dir / "ck";
  for (const std::int64_t step : {10, 20, 30, 40}) sample::write(ck, step);
  pin(ck, 10);
  const Pruned would = prune(ck, {.policy = {.keep_last = 1}, .dry_run = true});
  EXPECT_EQ(would.gone.size(), 2U);
  EXPECT_EQ(would.kept, 2);
  EXPECT_EQ(names_in(ck).size(), 4U);
  prune(ck, {.policy = {.keep_last = 1}});
  EXPECT_EQ(names_in(ck), (std::vector<std::string>{"step-00000010", "step-00000040"}));
  EXPECT_TRUE(prune(ck, {.policy = {.keep_last = 1}}).gone.empty());
}

TEST(Prune, VerifiesTheNewestUnlessAskedNotTo) {
  const TempDir dir;
  const std::string ck = dir / "ck";
  sample::write(ck, 10);
  const std::string file = sample::write(ck, 20) + "/rank-00000.h5";
  test::flip_bit(file, static_cast<std::int64_t>(fs::file_size(file)) - 5);
  EXPECT_EQ(kind_of([&] { prune(ck, {.policy = {.keep_last = 1}}); }), "ckpt.damaged");
  EXPECT_EQ(names_in(ck).size(), 2U);
  EXPECT_EQ(prune(ck, {.policy = {.keep_last = 1}, .verify = false}).gone.size(), 1U);
}

TEST(Repair, LeavesNoLockInADirectoryOfOtherThings) {
  const TempDir dir;
  test::spill(dir / "model.pt", "theirs");
  fs::create_directory(dir / "step-1000");
  fs::create_directory(dir / "checkpoint-20");
  EXPECT_TRUE(repair(dir.path(), {}).repairs.empty());
  EXPECT_TRUE(prune(dir.path(), {.policy = {.keep_last = 1}}).gone.empty());
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()), 3);
  EXPECT_FALSE(fs::exists(dir / "lock"));
}

TEST(Choose, ACheckpointOrTheNewestOfADirectory) {
  const TempDir dir;
  const std::string ck = make_mess(dir), older = ck + "/step-00000010";
  EXPECT_EQ(choose(older).step, 10);
  EXPECT_EQ(choose(older + "/").path, older);
  EXPECT_EQ(choose(ck).step, 20);
  fs::create_directory_symlink(older, dir / "link");
  EXPECT_EQ(choose(dir / "link").step, 10);
  EXPECT_EQ(choose_all(ck).size(), 3U) << "committed ones, the damaged among them";
  EXPECT_EQ(choose_all(older).size(), 1U);
  EXPECT_EQ(kind_of([&] { choose_complete(ck + "/step-00000030"); }), "ckpt.incomplete");
  EXPECT_EQ(kind_of([&] { choose(dir / "nowhere"); }), "ckpt.path");
  EXPECT_EQ(kind_of([&] { choose(older + "/manifest.json"); }), "ckpt.path");
  EXPECT_EQ(kind_of([&] { choose(dir.path()); }), "ckpt.none");
  EXPECT_EQ(kind_of([&] { choose_all(dir.path()); }), "ckpt.none");
  EXPECT_EQ(kind_of([&] { require_directory(older); }), "ckpt.path");
  EXPECT_EQ(kind_of([&] { require_directory(ck); }), "nothing");
}

TEST(Choose, APlaceToPin) {
  const TempDir dir;
  const std::string ck = make_mess(dir);
  EXPECT_EQ(place_of(ck + "/step-00000020/").step, 20);
  EXPECT_EQ(place_of(ck + "/step-00000020/").dir, ck);
  EXPECT_EQ(kind_of([&] { place_of(ck); }), "ckpt.path");
  EXPECT_EQ(kind_of([&] { place_of(ck + "/saving-step-00000040"); }), "ckpt.path");
}

}  // namespace
}  // namespace ms::ckpt
