#include "ckpt/directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "directory_fixture.h"
#include "support/errors.h"

namespace ms::ckpt {
namespace {

using namespace directory_fixture;
using format_fixture::slurp;
using format_fixture::spill;
using format_fixture::TempDir;
using format_fixture::thrown_by;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// ---- names ----------------------------------------------------------------------------------------------------------

TEST(StepName, AndBack) {
  struct Row {
    std::int64_t step;
    std::string name;
  };
  for (const Row& row : {Row{0, "step-00000000"}, Row{1200, "step-00001200"}, Row{99'999'999, "step-99999999"},
                         Row{100'000'000, "step-100000000"}, Row{INT64_MAX, "step-9223372036854775807"}}) {
    EXPECT_EQ(step_name(row.step), row.name);
    EXPECT_EQ(step_from(row.name), row.step);
  }
  for (const std::string name :
       {"", "step-", "step-1200", "step-0000120", "step-000001200", "step--0001200", "step-0000120a", "step-00001200 ",
        "step-00001200.pin", "Step-00001200", "step-+0001200", "xstep-00001200", "step-9223372036854775808",
        "step-0100000000", "saving-step-00001200"}) {
    EXPECT_EQ(step_from(name), std::nullopt) << name;
  }
}

// ---- save, commit ---------------------------------------------------------------------------------------------------

TEST(Commit, PublishesAndLeavesNothingElse) {
  const TempDir dir;
  EXPECT_EQ(begin_save(dir.path(), 1200), dir / "saving-step-00001200");
  write_files(dir / "saving-step-00001200");
  EXPECT_EQ(newest_step(dir.path()), -1);
  EXPECT_THAT(commit(dir.path(), 1200, manifest_json(1200)), IsEmpty());
  EXPECT_THAT(names(dir.path()), ElementsAre("step-00001200"));
  EXPECT_THAT(names(dir / "step-00001200"), ElementsAre("manifest.json", "rank-00000.h5", "rank-00001.h5"));
  EXPECT_EQ(slurp(dir / "step-00001200/manifest.json"), manifest_json(1200));
  const std::optional<Found> found = newest_complete(dir.path());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->path, dir / "step-00001200");
  EXPECT_EQ(found->manifest->data.samples, 9600);
  EXPECT_EQ(found->problem, "");
}

TEST(Commit, SetsAsideTheTimeLineThatWasLeft) {
  const TempDir dir;
  for (const std::int64_t step : {10, 20, 30, 40}) save(dir.path(), step);
  pin(dir.path(), 40);
  pin(dir.path(), 10);
  EXPECT_THAT(save(dir.path(), 20), ElementsAre(dir / "set-aside-1/step-00000020", dir / "set-aside-1/step-00000030",
                                                dir / "set-aside-1/step-00000040"));
  EXPECT_THAT(names(dir.path()), ElementsAre("set-aside-1", "step-00000010", "step-00000010.pin", "step-00000020"));
  EXPECT_THAT(listed(dir / "set-aside-1"),
              ElementsAre("step-00000020 complete", "step-00000030 complete", "step-00000040 complete pinned"));
  EXPECT_THAT(save(dir.path(), 15), ElementsAre(dir / "set-aside-2/step-00000020"));
  EXPECT_THAT(listed(dir.path()), ElementsAre("step-00000010 complete pinned", "step-00000015 complete"));
}

TEST(Commit, WhatStandsInItsPlaceGoesToo) {
  const TempDir dir;
  fs::create_directory(dir / "step-00000020");  // not complete, but the name is taken
  spill(dir / "step-00000030", "a file");
  save(dir.path(), 20);
  EXPECT_THAT(listed(dir.path()), ElementsAre("step-00000020 complete"));
  EXPECT_THAT(names(dir / "set-aside-1"), ElementsAre("step-00000020", "step-00000030"));
}

TEST(Commit, AKilledOneIsGoneOverAgain) {
  // After any number of the steps of a commit: what a run finds next, and that saving again comes to the same end.
  for (int done = 0; done <= 5; ++done) {
    SCOPED_TRACE(done);
    const TempDir dir;
    for (const std::int64_t step : {10, 20, 30}) save(dir.path(), step);
    const std::string saving = begin_save(dir.path(), 20);
    write_files(saving);
    if (done >= 1) spill(saving + "/manifest.json.tmp.host.1.0", "half");
    if (done >= 2) fs::remove(saving + "/manifest.json.tmp.host.1.0");
    if (done >= 2) spill(saving + "/manifest.json", manifest_json(20));
    if (done >= 3) fs::create_directory(dir / "set-aside-1");
    if (done >= 4) fs::rename(dir / "step-00000030", dir / "set-aside-1/step-00000030");
    if (done >= 5) fs::rename(dir / "step-00000020", dir / "set-aside-1/step-00000020");
    EXPECT_EQ(newest_step(dir.path()), done < 4 ? 30 : done < 5 ? 20 : 10);
    EXPECT_EQ(clean_up(dir.path()), done < 2 ? 1 : 0) << "a whole one is not deleted, its commit is done";
    EXPECT_EQ(newest_step(dir.path()), done < 2 ? 30 : 20);
    if (done >= 2) {
      EXPECT_THAT(listed(dir.path()), ElementsAre("step-00000010 complete", "step-00000020 complete"));
      EXPECT_EQ(slurp(dir / "step-00000020/manifest.json"), manifest_json(20));
    }
    EXPECT_THAT(finish_commits(dir.path()), IsEmpty());
    save(dir.path(), 20);
    EXPECT_THAT(listed(dir.path()), ElementsAre("step-00000010 complete", "step-00000020 complete"));
    EXPECT_THAT(names(dir / "step-00000020"), ElementsAre("manifest.json", "rank-00000.h5", "rank-00001.h5"));
  }
}

TEST(FinishCommits, OnlyWhatIsWhole) {
  struct Row {
    std::string what;
    std::function<void(const std::string& saving)> harm;
    bool finished, set_aside;
  };
  const std::vector<Row> rows{
      {"whole", [](const std::string&) {}, true, false},
      {"no manifest", [](const std::string& at) { fs::remove(at + "/manifest.json"); }, false, false},
      {"a cut manifest", [](const std::string& at) { fs::resize_file(at + "/manifest.json", 100); }, false, false},
      {"of another step", [](const std::string& at) { spill(at + "/manifest.json", manifest_json(21)); }, false, false},
      {"a file less", [](const std::string& at) { fs::remove(at + "/rank-00001.h5"); }, false, false},
      {"a cut file", [](const std::string& at) { fs::resize_file(at + "/rank-00001.h5", 12); }, false, false},
      {"unreadable",
       [](const std::string& at) {
         fs::remove(at + "/rank-00001.h5");
         fs::create_symlink("rank-00001.h5", at + "/rank-00001.h5");
       },
       false, true},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.what);
    const TempDir dir;
    save(dir.path(), 10);
    const std::string saving = begin_save(dir.path(), 20);
    write_files(saving);
    spill(saving + "/manifest.json", manifest_json(20));
    row.harm(saving);
    const std::vector<FinishedCommit> finished = finish_commits(dir.path());
    ASSERT_EQ(finished.size(), row.finished ? 1U : 0U);
    if (row.finished) {
      EXPECT_EQ(finished[0].was, saving);
      EXPECT_EQ(finished[0].now, dir / "step-00000020");
    }
    EXPECT_EQ(clean_up(dir.path()), row.finished || row.set_aside ? 0 : 1);
    EXPECT_EQ(newest_step(dir.path()), row.finished ? 20 : 10);
    EXPECT_FALSE(fs::exists(saving));
    EXPECT_EQ(fs::exists(dir / "set-aside-1/saving-step-00000020"), row.set_aside);
  }
}

TEST(Commit, RefusalsOfTheSystemAreErrorsAndChangeNothing) {
  const TempDir dir;
  save(dir.path(), 10);
  const Error error = thrown_by([&] { commit(dir.path(), 20, manifest_json(20)); });
  EXPECT_EQ(error.blame(), Blame::storage);
  EXPECT_THAT(error.message(), HasSubstr("saving-step-00000020"));
  EXPECT_THAT(error.message(), HasSubstr("No such file or directory"));
  EXPECT_EQ(thrown_by([&] { begin_save(dir / "none", 10); }).kind(), "ckpt.create");
  EXPECT_THAT(listed(dir.path()), ElementsAre("step-00000010 complete"));
}

TEST(BeginSave, IsEmptyWhateverWasThere) {
  const TempDir dir;
  spill(begin_save(dir.path(), 10) + "/rank-00000.h5", "old");
  fs::create_directory(dir / "deleting-step-00000010-1");
  spill(dir / "deleting-step-00000010-1/f", "older");
  EXPECT_THAT(names(begin_save(dir.path(), 10)), IsEmpty());
  EXPECT_THAT(names(dir.path()), ElementsAre("deleting-step-00000010-1", "saving-step-00000010"));
}

TEST(Abandon, DeletesAndNeverThrows) {
  const TempDir dir;
  save(dir.path(), 10);
  write_files(begin_save(dir.path(), 20));
  abandon(dir.path(), 20);
  abandon(dir.path(), 20);  // there is nothing
  EXPECT_THAT(names(dir.path()), ElementsAre("step-00000010"));
}

// ---- un-commit ------------------------------------------------------------------------------------------------------

TEST(Remove, TakesTheCheckpointUnlessItIsPinned) {
  const TempDir dir;
  save(dir.path(), 10);
  save(dir.path(), 20);
  pin(dir.path(), 10);
  fs::create_directory(dir / "deleting-step-00000010-1");  // of an earlier, killed one
  EXPECT_FALSE(remove_checkpoint(dir.path(), 10)) << "whoever looked before it was pinned must not delete it";
  EXPECT_THAT(listed(dir.path()), ElementsAre("deleting-step-00000010-1 deleting", "step-00000010 complete pinned",
                                              "step-00000020 complete"));
  unpin(dir.path(), 10);
  EXPECT_TRUE(remove_checkpoint(dir.path(), 10));
  EXPECT_THAT(names(dir.path()), ElementsAre("deleting-step-00000010-1", "step-00000020"));
  EXPECT_EQ(clean_up(dir.path()), 1);
  const Error error = thrown_by([&] { remove_checkpoint(dir.path(), 10); });
  EXPECT_EQ(error.kind(), "ckpt.none");
  EXPECT_EQ(error.blame(), Blame::user);
}

TEST(Remove, DoesNotFollowLinks) {
  const TempDir dir, elsewhere;
  spill(elsewhere / "precious", "data");
  fs::create_directory_symlink(elsewhere.path(), dir / "step-00000010");
  remove_checkpoint(dir.path(), 10);
  fs::create_directory_symlink(elsewhere.path(), dir / "saving-step-00000020");
  fs::create_directory(dir / "deleting-step-00000020-1");
  fs::create_directory_symlink(elsewhere.path(), dir / "deleting-step-00000020-1/inside");
  EXPECT_EQ(clean_up(dir.path()), 2);
  EXPECT_THAT(names(dir.path()), IsEmpty());
  EXPECT_EQ(slurp(elsewhere / "precious"), "data");
}

TEST(MarkDamaged, KeepsItUnderAnotherName) {
  const TempDir dir;
  for (int i = 1; i <= 2; ++i) {
    save(dir.path(), 10);
    EXPECT_EQ(mark_damaged(dir.path(), 10), dir / fmt::format("damaged-step-00000010-{}", i));
  }
  EXPECT_EQ(newest_step(dir.path()), -1);
  EXPECT_THAT(listed(dir.path()), ElementsAre("damaged-step-00000010-1 damaged", "damaged-step-00000010-2 damaged"));
  EXPECT_EQ(list(dir.path())[0].problem, "") << "its files are there";
  EXPECT_EQ(list(dir.path())[0].step, 10);
  EXPECT_EQ(thrown_by([&] { mark_damaged(dir.path(), 10); }).kind(), "ckpt.none");
}

TEST(SetAside, LeavesADirectoryForAFreshStart) {
  const TempDir dir;
  EXPECT_EQ(set_aside(dir / "none"), "");
  EXPECT_EQ(set_aside(dir.path()), "");
  EXPECT_THAT(names(dir.path()), IsEmpty());
  save(dir.path(), 10);
  save(dir.path(), 20);
  mark_damaged(dir.path(), 20);
  save(dir.path(), 20);
  pin(dir.path(), 20);
  EXPECT_EQ(set_aside(dir.path()), dir / "set-aside-1");
  EXPECT_THAT(names(dir.path()), ElementsAre("set-aside-1"));
  EXPECT_THAT(listed(dir / "set-aside-1"), ElementsAre("step-00000010 complete", "damaged-step-00000020-1 damaged",
                                                       "step-00000020 complete pinned"));
  save(dir.path(), 5);
  EXPECT_EQ(set_aside(dir.path()), dir / "set-aside-2");
}

TEST(SetAside, WorksWherePathsAreTooLongForTheSystem) {
  const TempDir dir;
  std::string deep = dir.path();
  for (std::size_t rest = 4080 - deep.size(); rest > 0; rest = 4080 - deep.size()) {
    fs::create_directory(deep += "/" + std::string(rest > 202 ? 100 : rest - 1, 'x'));
  }
  fs::create_directory(deep + "/step-00000010");
  EXPECT_EQ(set_aside(deep), deep + "/set-aside-1");
  EXPECT_THAT(names(deep), ElementsAre("set-aside-1"));
}

TEST(CleanUp, DeletesLeftoversAndNothingElse) {
  const TempDir dir;
  const std::vector<std::string> kept{"damaged-step-00000010-1",  "deleting-me",  "deleting-step-00000010",
                                      "deleting-step-00000010-x", "lock",         "saving-grace",
                                      "saving-step-10",           "set-aside-1",  "step-00000010",
                                      "step-00000010.pin",        "step-0000001x"};
  for (const std::string& name : kept) fs::create_directory(dir / name);
  for (const std::string name :
       {"saving-step-00000030", "deleting-step-00000010-1", "deleting-step-00000010-22", "saving-step-00000040"}) {
    fs::create_directories(dir / (name + "/deep/er"));
    spill(dir / (name + "/deep/f"), "x");
  }
  spill(dir / ".skeleton-aBc123", "x");  // of a process that was killed while it made one
  EXPECT_EQ(clean_up(dir.path()), 5);
  EXPECT_EQ(names(dir.path()), kept);
  EXPECT_EQ(clean_up(dir.path()), 0);
  EXPECT_EQ(clean_up(dir / "none"), 0);
}

// ---- lock, pins -----------------------------------------------------------------------------------------------------

TEST(DirectoryLock, HasOneHolder) {
  const TempDir dir;
  const std::string ck = dir / "new/ck";
  {
    const DirectoryLock lock(ck);
    const Error error = thrown_by([&] { const DirectoryLock second(ck); });
    EXPECT_EQ(error.kind(), "ckpt.busy");
    EXPECT_EQ(error.blame(), Blame::user);
    EXPECT_THAT(error.message(), HasSubstr(fmt::format("'{}': process {} on ", ck, ::getpid())));
    EXPECT_FALSE(error.hint().empty());
  }
  const DirectoryLock again(ck);
  EXPECT_THAT(names(ck), ElementsAre("lock"));
  EXPECT_THAT(list(ck), IsEmpty());
}

TEST(DirectoryLock, SaysSoWhereItCannotBeMade) {
  const TempDir dir;
  fs::create_directory(dir / "lock");
  const Error error = thrown_by([&] { const DirectoryLock lock(dir.path()); });
  EXPECT_EQ(error.kind(), "file.open");
  EXPECT_EQ(error.blame(), Blame::user);
  EXPECT_THAT(error.message(), HasSubstr("Is a directory"));
}

TEST(Pin, AndRemoveAtTheSameTimeNeverBothSucceed) {
  const TempDir dir;
  for (int i = 0; i < 200; ++i) {
    save(dir.path(), 10);
    bool pinned = false;
    std::jthread other([&] { pinned = !test::error_from([&] { pin(dir.path(), 10); }); });
    const bool removed = remove_checkpoint(dir.path(), 10);
    other.join();
    EXPECT_FALSE(pinned && removed);
    EXPECT_EQ(fs::exists(dir / "step-00000010"), !removed);
    EXPECT_EQ(fs::exists(dir / "step-00000010.pin"), pinned) << "no pin of nothing";
    unpin(dir.path(), 10);
    if (!removed) remove_checkpoint(dir.path(), 10);
  }
}

TEST(DirectoryLock, MakesWhatIsAboveItToo) {
  const TempDir dir;
  for (const std::string name : {"a/b/c", "d/e/", "f//g"}) {
    const DirectoryLock lock(dir / name);
    EXPECT_THAT(names(dir / name), ElementsAre("lock"));
  }
  spill(dir / "file", "");
  EXPECT_EQ(thrown_by([&] { const DirectoryLock lock(dir / "file/x"); }).blame(), Blame::user);
}

TEST(Pin, IsForOneThatIsThere) {
  const TempDir dir;
  EXPECT_EQ(thrown_by([&] { pin(dir.path(), 10); }).kind(), "ckpt.none");
  save(dir.path(), 10);
  EXPECT_FALSE(look(dir / "step-00000010").pinned);
  pin(dir.path(), 10);
  pin(dir.path(), 10);
  EXPECT_TRUE(look(dir / "step-00000010").pinned);
  unpin(dir.path(), 10);
  unpin(dir.path(), 10);
  EXPECT_FALSE(look(dir / "step-00000010").pinned);
}

}  // namespace
}  // namespace ms::ckpt
