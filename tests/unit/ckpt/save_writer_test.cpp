// What a run's own writer deletes when it has committed: files of no rank, directories and names only.
#include "ckpt/save_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "directory_fixture.h"

namespace ms::ckpt {
namespace {

using namespace directory_fixture;
using format_fixture::TempDir;
using ::testing::ElementsAre;

void save_with(SaveWriter& writer, std::int64_t step) {
  const auto wait = [&] {
    while (writer.busy()) writer.wait_for(std::chrono::seconds(1));
  };
  writer.write(step, [] {});
  wait();
  Manifest manifest = format_fixture::some_manifest();
  manifest.step = step;
  manifest.files.clear();
  writer.commit(manifest, [] { return std::vector<RankEntry>(); });
  wait();
  ASSERT_FALSE(writer.result().failed) << writer.result().problem;
}

TEST(SaveWriter, WhatTheRunPassedOverDoesNotPushOutWhatItResumedFrom) {
  const TempDir dir;
  for (const std::int64_t step : {10, 20, 30, 40}) save(dir.path(), step);
  SaveWriter writer({.dir = dir.path(), .rank = 0, .keep_last = 2, .resumed_from = 20}, {}, {});
  save_with(writer, 50);
  EXPECT_THAT(writer.result().pruned, ElementsAre(dir / "step-00000010"));
  EXPECT_THAT(names(dir.path()), ElementsAre("step-00000020", "step-00000030", "step-00000040", "step-00000050"));
  save_with(writer, 60);
  EXPECT_THAT(writer.result().pruned, ElementsAre(dir / "step-00000020"));
  save_with(writer, 70);
  EXPECT_THAT(names(dir.path()), ElementsAre("step-00000030", "step-00000040", "step-00000060", "step-00000070"));
}

TEST(SaveWriter, ARunThatBeganItselfKeepsTheNewestAndThePinned) {
  const TempDir dir;
  SaveWriter writer({.dir = dir.path(), .rank = 0, .keep_last = 1}, {}, {});
  save_with(writer, 10);
  pin(dir.path(), 10);
  save_with(writer, 20);
  save_with(writer, 30);
  EXPECT_THAT(names(dir.path()), ElementsAre("step-00000010", "step-00000010.pin", "step-00000030"));
}

}  // namespace
}  // namespace ms::ckpt
