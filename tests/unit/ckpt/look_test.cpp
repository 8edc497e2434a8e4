// Looking for checkpoints: what is complete, what is not and why, and which is the newest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <functional>
#include <thread>

#include "base/hash.h"
#include "ckpt/manifest_tail.h"
#include "directory_fixture.h"

namespace ms::ckpt {
namespace {

using namespace directory_fixture;
using format_fixture::spill;
using format_fixture::TempDir;
using format_fixture::thrown_by;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Look, SaysWhyOneIsNotComplete) {
  struct Row {
    std::string what;
    std::function<void(const std::string& path)> harm;
    std::string problem;
  };
  const std::int64_t size = format_fixture::some_manifest().files[1].size_bytes;
  const std::vector<Row> rows{
      {"no manifest", [](auto& path) { fs::remove(path + "/manifest.json"); }, "manifest.json is missing"},
      {"cut manifest", [](auto& path) { fs::resize_file(path + "/manifest.json", 100); }, "/manifest.json: "},
      {"a manifest of another step", [](auto& path) { spill(path + "/manifest.json", manifest_json(11)); },
       "manifest.json is of step 11"},
      {"a file less", [](auto& path) { fs::remove(path + "/rank-00001.h5"); }, "rank-00001.h5 is missing"},
      {"a short file", [](auto& path) { fs::resize_file(path + "/rank-00001.h5", 12); },
       fmt::format("rank-00001.h5 has 12 of {} bytes", size)},
      {"a long file",
       [&](auto& path) { fs::resize_file(path + "/rank-00001.h5", static_cast<std::uintmax_t>(size) + 1); },
       fmt::format("rank-00001.h5 has {} of {} bytes", size + 1, size)},
      {"a folder for a file",
       [](auto& path) {
         fs::remove(path + "/rank-00000.h5");
         fs::create_directory(path + "/rank-00000.h5");
       },
       "rank-00000.h5 is not a regular file"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.what);
    const TempDir dir;
    save(dir.path(), 9);
    save(dir.path(), 10);
    row.harm(dir / "step-00000010");
    const Found found = look(dir / "step-00000010/");
    EXPECT_EQ(found.path, dir / "step-00000010");
    EXPECT_EQ(found.name, "step-00000010");
    EXPECT_EQ(found.step, 10);
    EXPECT_EQ(found.condition, Condition::incomplete);
    EXPECT_THAT(found.problem, HasSubstr(row.problem));
    std::vector<Found> passed_over{{}};  // what is in it is replaced
    const std::optional<Found> newest = newest_complete(dir.path(), INT64_MAX, &passed_over);
    EXPECT_EQ(newest->step, 9);
    ASSERT_EQ(passed_over.size(), 1U);
    EXPECT_EQ(passed_over[0].problem, found.problem);
  }
}

TEST(Look, TellsDamageFromWhatCannotBeRead) {
  struct Row {
    std::string what, file, problem;
    std::function<void(const std::string& file)> make;
    bool unreadable;
  };
  const auto loop = [](const std::string& file) { fs::create_symlink(fs::path(file).filename(), file); };
  const auto fifo = [](const std::string& file) { ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0); };
  const auto huge = [](const std::string& file) {
    spill(file, "");
    fs::resize_file(file, (std::uintmax_t{1} << 30) + 1);
  };
  const auto nothing = [](const std::string&) {};
  const std::vector<Row> rows{
      {"manifest, system refuses", "manifest.json", "Too many levels of symbolic links", loop, true},
      {"data, system refuses", "rank-00001.h5", "Too many levels of symbolic links", loop, true},
      {"manifest is a pipe", "manifest.json", "manifest.json is not a regular file", fifo, false},
      {"manifest is huge", "manifest.json", "manifest.json has 1073741825 bytes", huge, false},
      {"data is a pipe", "rank-00001.h5", "rank-00001.h5 is not a regular file", fifo, false},
      {"no manifest", "manifest.json", "manifest.json is missing", nothing, false},
      {"no data", "rank-00001.h5", "rank-00001.h5 is missing", nothing, false},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.what);
    const TempDir dir;
    save(dir.path(), 10);
    const std::string file = dir / ("step-00000010/" + row.file);
    fs::remove(file);
    row.make(file);
    const Found found = look(dir / "step-00000010");
    EXPECT_EQ(found.condition, Condition::incomplete);
    EXPECT_EQ(found.unreadable, row.unreadable);
    EXPECT_THAT(found.problem, HasSubstr(row.problem));
  }
}

TEST(List, HoldsWhatCannotBeLookedAt) {
  const TempDir dir;
  save(dir.path(), 10);
  fs::create_symlink("nowhere", dir / "step-00000020");
  fs::create_symlink("step-00000030", dir / "step-00000030");
  const std::vector<Found> found = list(dir.path());
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[1].problem, "No such file or directory");
  EXPECT_EQ(found[2].problem, "Too many levels of symbolic links");
  for (const Found& one : {found[1], found[2]}) {
    EXPECT_EQ(one.condition, Condition::incomplete);
    EXPECT_TRUE(one.unreadable);
  }
  std::vector<Found> passed_over;
  EXPECT_EQ(newest_complete(dir.path(), INT64_MAX, &passed_over)->step, 10);
  ASSERT_EQ(passed_over.size(), 2U);
  EXPECT_EQ(passed_over[0].step, 30);
  EXPECT_TRUE(passed_over[1].unreadable);
}

TEST(ListNames, ReadsNoManifest) {
  const TempDir dir;
  EXPECT_THAT(list_names(dir / "none"), IsEmpty());
  for (const std::int64_t step : {99'999'999, 100'000'000, 100'000'001}) save(dir.path(), step);
  pin(dir.path(), 100'000'000);
  spill(dir / "step-99999999/manifest.json", "not looked at");
  fs::remove(dir / "step-100000001/manifest.json");
  begin_save(dir.path(), 7);
  spill(dir / "step-00000002", "a file");
  const std::vector<Found> found = list_names(dir.path());
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].path, dir / "step-99999999");
  EXPECT_EQ(found[0].condition, Condition::complete);
  EXPECT_FALSE(found[0].manifest || found[0].pinned);
  EXPECT_EQ(found[1].step, 100'000'000);
  EXPECT_TRUE(found[1].pinned);
}

TEST(Look, TakesACheckpointUnderAnyName) {
  const TempDir dir;
  save(dir.path(), 10);
  fs::rename(dir / "step-00000010", dir / "best");
  EXPECT_EQ(look(dir / "best").condition, Condition::complete);
  EXPECT_EQ(look(dir / "best").step, 10);
  EXPECT_EQ(look(dir / "nowhere").problem, "No such file or directory");
  EXPECT_EQ(look(dir / "best/manifest.json").problem, "it is not a directory");
  fs::create_directory_symlink("best", dir / "step-00000010");
  EXPECT_EQ(newest_step(dir.path()), 10) << "moved elsewhere, with a link in its place";
}

TEST(List, IsByStepThenNameAndIgnoresWhatIsNotOurs) {
  const TempDir dir;
  EXPECT_THAT(list(dir / "none"), IsEmpty());
  save(dir.path(), 100'000'000);
  save(dir.path(), 99'999'999);
  EXPECT_THAT(listed(dir.path()), ElementsAre("step-99999999 complete")) << "the other was set aside";
  save(dir.path(), 100'000'000);
  begin_save(dir.path(), 7);
  fs::create_directory(dir / "deleting-step-99999999-3");
  fs::create_directory(dir / "my-notes");
  fs::create_directory(dir / "step-00000001");
  pin(dir.path(), 1);
  spill(dir / "step-00000002", "a file");
  spill(dir / "lock", "");
  EXPECT_THAT(listed(dir.path()),
              ElementsAre("step-00000001 incomplete pinned", "saving-step-00000007 saving",
                          "deleting-step-99999999-3 deleting", "step-99999999 complete", "step-100000000 complete"));
}

TEST(List, SaysSoWhereItCannotRead) {
  const TempDir dir;
  spill(dir / "f", "x");
  const Error error = thrown_by([&] { list(dir / "f"); });
  EXPECT_EQ(error.kind(), "ckpt.list");
  EXPECT_EQ(error.blame(), Blame::storage);
  EXPECT_THAT(error.message(), HasSubstr("Not a directory"));
}

TEST(NewestComplete, IsBelowAStepAndNeverFromAnotherProgram) {
  const TempDir dir;
  EXPECT_EQ(newest_step(dir / "none"), -1);
  for (const std::int64_t step : {10, 20, 30}) save(dir.path(), step);
  EXPECT_EQ(newest_step(dir.path()), 30);
  EXPECT_EQ(newest_step(dir.path(), 30), 20);
  EXPECT_EQ(newest_step(dir.path(), 10), -1);

  const std::string json = manifest_json(30);
  std::string body = json.substr(0, json.size() - manifest_tail(0).size());
  const std::string key = "\"format_version\": 1";
  const auto at = body.find(key);
  ASSERT_NE(at, std::string::npos) << body;
  body.replace(at, key.size(), "\"format_version\": 2");
  spill(dir / "step-00000030/manifest.json", body + manifest_tail(xxh64(body)));
  EXPECT_EQ(thrown_by([&] { newest_complete(dir.path()); }).kind(), "ckpt.version");
  EXPECT_EQ(newest_step(dir.path(), 30), 20);
  EXPECT_EQ(look(dir / "step-00000030").condition, Condition::incomplete);
  spill(dir / "step-00000030/manifest.json", body + manifest_tail(0));
  EXPECT_EQ(newest_step(dir.path()), 20) << "its hash is wrong, so it is damage";
}

TEST(NewestComplete, IsFoundWhileOthersComeAndGo) {
  const TempDir dir;
  save(dir.path(), 1);
  std::jthread run([&](const std::stop_token& stop) {
    for (std::int64_t step = 2; !stop.stop_requested(); ++step) {
      save(dir.path(), step);
      remove_checkpoint(dir.path(), step - 1);
    }
  });
  std::int64_t last = 1;
  for (int i = 0; i < 300; ++i) {
    const std::int64_t step = newest_step(dir.path());
    ASSERT_GE(step, last);
    last = step;
    for (const Found& found : list(dir.path())) ASSERT_GE(found.step, 1);
  }
}

}  // namespace
}  // namespace ms::ckpt
