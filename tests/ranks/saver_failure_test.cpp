// Saves that fail: all ranks agree on the failure, no checkpoint is committed, and the next save succeeds.
#include "ckpt/saver.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <thread>

#include "ckpt/directory.h"
#include "saver_case.h"

namespace ms::ckpt::testing {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A save of step 1 that fails because `before` or `written` changed the directory; then, after `mend`, a save of step 2
// that must succeed.
struct FailedSaveCase {
  const char* name;
  void (*before)(const std::string& dir);   // on rank 0, before any rank begins
  void (*written)(const std::string& dir);  // on rank 0, when all have written
  void (*mend)(const std::string& dir);     // on rank 0, when the save has ended
  std::vector<std::string> problems;        // by rank: substring of the problem; "": no problem
};
void nothing(const std::string&) {}

class FailedSave : public ::testing::TestWithParam<FailedSaveCase> {};

TEST_P(FailedSave, AllRanksAgreeAndTheNextSaveSucceeds) {
  const Directory root;
  const std::string dir = root.path() + "/checkpoints";
  fs::create_directory(dir);
  Outcomes outcomes(4);
  on_ranks({.parameters = kOdd}, [&](Rank& rank) {
    const auto saver = rank.open({.dir = dir});
    EXPECT_TRUE(rank.begin(*saver, 9));  // no failure yet
    EXPECT_TRUE(saver->finish()->committed);
    rank.update(1);
    if (rank.rank() == 0) {
      remove_checkpoint(dir, 9);
      GetParam().before(dir);
    }
    rank.barrier();
    EXPECT_TRUE(rank.begin(*saver, 1));
    while (saver->votes().writing > 0) std::this_thread::sleep_for(1ms);
    rank.barrier();
    if (rank.rank() == 0) GetParam().written(dir);
    rank.barrier();
    outcomes.add(rank, rank.outcome(*saver));
    if (rank.rank() == 0) {
      EXPECT_FALSE(newest_complete(dir));
      GetParam().mend(dir);
      EXPECT_THAT(root.names("checkpoints"), IsEmpty());
    }
    rank.barrier();
    rank.update(2);
    EXPECT_TRUE(rank.begin(*saver, 2));
    outcomes.add(rank, rank.outcome(*saver));
  });
  EXPECT_FALSE(outcomes.of(0).committed);
  for (int r = 0; r < 4; ++r) {
    const std::string& want = GetParam().problems[static_cast<std::size_t>(r)];
    const std::string& problem = outcomes.of(0, r).problem;
    if (want.empty()) {
      EXPECT_EQ(problem, "") << "rank " << r;
    } else {
      EXPECT_THAT(problem, HasSubstr(want)) << "rank " << r;
    }
  }
  EXPECT_TRUE(outcomes.of(1).committed) << outcomes.of(1).problem;
  EXPECT_EQ(problem_with(dir + "/step-00000002", kOdd, 2), "");
  EXPECT_THAT(root.names("checkpoints"), ElementsAre("step-00000002"));
}

INSTANTIATE_TEST_SUITE_P(
    Saver, FailedSave,
    ::testing::Values(
        // A directory with the name of rank 2's file.
        FailedSaveCase{
            "OneFile",
            [](const std::string& dir) { fs::create_directories(dir + "/saving-step-00000001/rank-00002.h5/x"); },
            nothing,
            nothing,
            {"1 of 4 ranks could not write", "", "cannot create", ""}},
        FailedSaveCase{"TwoFilesOneOfThemRank0s",
                       [](const std::string& dir) {
                         fs::create_directories(dir + "/saving-step-00000001/rank-00000.h5/x");
                         fs::create_directories(dir + "/saving-step-00000001/rank-00003.h5/x");
                       },
                       nothing,
                       nothing,
                       {"rank-00000.h5", "", "", "rank-00003.h5"}},
        // Ranks write into the directory that they opened, but it is not where the next run looks.
        FailedSaveCase{"TheWholeDirectory",
                       [](const std::string& dir) { fs::rename(dir, dir + "-gone"); },
                       nothing,
                       [](const std::string& dir) { fs::rename(dir + "-gone", dir); },
                       {"all nodes share", "", "", ""}},
        // As on a node that mounts another directory of that name.
        FailedSaveCase{"AFileThatRank0DoesNotSee",
                       nothing,
                       [](const std::string& dir) { fs::remove(dir + "/saving-step-00000001/rank-00001.h5"); },
                       nothing,
                       {"all nodes share", "", "", ""}},
        FailedSaveCase{
            "AFileThatIsShort",
            nothing,
            [](const std::string& dir) { fs::resize_file(dir + "/saving-step-00000001/rank-00003.h5", 100); },
            nothing,
            {"rank-00003.h5 has 100 of ", "", "", ""}},
        // The commit itself: the manifest's name is taken.
        FailedSaveCase{
            "TheManifest",
            nothing,
            [](const std::string& dir) { fs::create_directories(dir + "/saving-step-00000001/manifest.json/x"); },
            nothing,
            {"manifest.json", "", "", ""}}),
    [](const auto& row) { return row.param.name; });

TEST(Saver, DirectoryMayAppearLater) {
  const Directory root;
  const std::string dir = root.path() + "/later";
  Outcomes outcomes(4);
  on_ranks({.parameters = kOdd}, [&](Rank& rank) {
    const auto saver = rank.open({.dir = dir});  // no directory for its file's skeleton yet
    for (std::uint64_t version = 1; version <= 2; ++version) {
      rank.update(version);
      EXPECT_TRUE(rank.begin(*saver, 1));
      outcomes.add(rank, rank.outcome(*saver));
      if (rank.rank() == 0 && version == 1) fs::create_directory(dir);
      rank.barrier();
    }
  });
  EXPECT_FALSE(outcomes.of(0).committed);
  for (int r = 0; r < 4; ++r) EXPECT_THAT(outcomes.of(0, r).problem, HasSubstr("No such file or directory"));
  EXPECT_TRUE(outcomes.of(1).committed) << outcomes.of(1).problem;
  EXPECT_EQ(problem_with(dir + "/step-00000001", kOdd, 2), "");
}

TEST(Saver, RankThatExitsDuringASaveLeavesNoCheckpoint) {
  for (const auto delay : {0us, 300us, 3000us}) {
    const Directory dir;
    on_ranks({.parameters = kOdd}, [&](Rank& rank) {
      {
        const auto saver = rank.open({.dir = dir.path()});
        rank.update(1);
        EXPECT_TRUE(rank.begin(*saver, 1));
        std::this_thread::sleep_for(delay);
      }
      rank.barrier();
      if (rank.rank() == 0) {
        EXPECT_THAT(dir.names(), Each(::testing::StartsWith("saving-")));
        clean_up(dir.path());
        EXPECT_THAT(dir.names(), IsEmpty());
      }
      rank.barrier();
      const auto saver = rank.open({.dir = dir.path()});
      rank.update(2);
      EXPECT_TRUE(rank.begin(*saver, 1));
      EXPECT_TRUE(saver->finish()->committed);
    });
    EXPECT_EQ(problem_with(dir.path() + "/step-00000001", kOdd, 2), "");
  }
}

TEST(Saver, FailedRunSavesNothing) {
  const Directory dir;
  on_ranks({.parameters = kOdd}, [&](Rank& rank) {
    const auto saver = rank.open({.dir = dir.path()});
    rank.barrier();
    if (rank.rank() == 2) rank.compute().call([] { throw Error("tensor.op", Blame::node, "the adder is broken"); });
    rank.update(1);
    EXPECT_TRUE(rank.begin(*saver, 1));
    if (rank.rank() == 2) {
      while (saver->votes().writing > 0) std::this_thread::sleep_for(1ms);
      EXPECT_EQ(saver->votes().failed, 1);
    }
    try {
      saver->finish();
      ADD_FAILURE() << "rank " << rank.rank() << " finished";
    } catch (const Error& error) { EXPECT_THAT(error.message(), HasSubstr("the adder is broken")); }
  });
  EXPECT_THAT(dir.names(), Each(::testing::StartsWith("saving-")));
  EXPECT_FALSE(newest_complete(dir.path()));
}

}  // namespace
}  // namespace ms::ckpt::testing
