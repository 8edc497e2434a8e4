// Checkpoints written and read by one process: what goes in comes out whole, whatever layout it went in by.
#include "ckpt/offline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ckpt/directory.h"
#include "support/files.h"
#include "written.h"

namespace ms::ckpt {
namespace {

using layouts::Cut;
using layouts::files_of;
using layouts::manifest_at;
using layouts::small_model;
using layouts::thrown_by;
using tensor::DType;
using test::TempDir;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

void expect_model(const Parameters& parameters) {
  for (const layouts::Param& param : small_model()) {
    const Parameters::Info* info = parameters.find(param.name);
    ASSERT_NE(info, nullptr) << param.name;
    EXPECT_EQ(info->rows, param.rows);
    EXPECT_EQ(info->cols, param.cols);
    EXPECT_THAT(info->states, ElementsAre(State::weight, State::master, State::exp_avg));
    EXPECT_EQ(info->weight_dtype, DType::bf16);
    for (const State state : info->states) {
      const Piece all{state, state == State::weight ? DType::bf16 : DType::f32,
                      whole(param.name, param.rows, param.cols)};
      std::vector<std::byte> expected(static_cast<std::size_t>(all.size_bytes()));
      layouts::fill(all, expected);
      std::vector<std::byte> read(expected.size());
      parameters.read(state, param.name, read);
      EXPECT_EQ(read, expected) << to_string(state) << " of " << param.name;
    }
  }
}

TEST(Offline, WhatAnyLayoutWroteIsReadWhole) {
  for (const auto& [tp, dp] : {std::pair{1, 1}, {2, 3}, {3, 2}, {4, 1}, {1, 7}}) {
    SCOPED_TRACE(fmt::format("tp {} dp {}", tp, dp));
    const TempDir folder;
    const std::string path = write_checkpoint(folder / "runs", manifest_at(12), files_of(small_model(), tp, dp));
    EXPECT_EQ(path, folder / "runs/step-00000012");
    EXPECT_EQ(look(path).condition, Condition::complete);
    const Parameters parameters(path);
    EXPECT_EQ(parameters.manifest().step, 12);
    EXPECT_EQ(parameters.manifest().run, "0123456789abcdef");
    EXPECT_EQ(parameters.path(), path);
    EXPECT_EQ(parameters.list().size(), small_model().size());
    EXPECT_EQ(parameters.list().front().name, "bias");
    expect_model(parameters);
  }
}

TEST(Offline, ACheckpointMadeOfAnotherIsTheSame) {
  const TempDir folder;
  const Parameters source(write_checkpoint(folder / "a", manifest_at(3), files_of(small_model(), 2, 3)));
  std::vector<OfflineFile> files = files_of(small_model(), 3, 2);
  for (OfflineFile& file : files) {
    file.fill = [&source, pieces = file.pieces](std::size_t i, std::span<std::byte> to) {
      load(source.path(), source.index(), {{.piece = pieces[i], .to = to.data()}}, {});
    };
  }
  expect_model(Parameters(write_checkpoint(folder / "b", source.manifest(), files)));
}

TEST(Offline, FloatsComeFromTheMasterOrAreWidened) {
  const TempDir folder;
  const std::vector<Piece> pieces = {{State::weight, DType::bf16, whole("both", 3, 5)},
                                     {State::master, DType::f32, whole("both", 3, 5)},
                                     {State::weight, DType::bf16, whole("half", 2, 5)},
                                     {State::weight, DType::f32, whole("full", 1, 7)},
                                     {State::exp_avg, DType::f32, whole("moment", 1, 2)}};
  const OfflineFile file{pieces, [&](std::size_t i, std::span<std::byte> to) { layouts::fill(pieces[i], to); }};
  const Parameters parameters(write_checkpoint(folder / "runs", manifest_at(0), {file}));
  for (const auto& [name, size, add] : {std::tuple{"both", 15, 0.125F}, {"half", 10, 0.0F}, {"full", 7, 0.0F}}) {
    std::vector<float> expected;
    for (int i = 0; i < size; ++i) expected.push_back(layouts::value_of(i) + add);
    EXPECT_EQ(parameters.read_f32(name), expected) << name;
  }
  EXPECT_EQ(parameters.find("full")->weight_dtype, DType::f32);
  EXPECT_EQ(parameters.find("none"), nullptr);
  for (const char* name : {"none", "moment"}) {
    const Error error = thrown_by([&] { parameters.read_f32(name); });
    EXPECT_EQ(error.kind(), "ckpt.mismatch");
    EXPECT_THAT(error.message(), HasSubstr(fmt::format("holds no weight of {}", name)));
  }
}

TEST(Offline, RefusesWhatIsNoCompleteCheckpoint) {
  const TempDir folder;
  EXPECT_EQ(thrown_by([&] { const Parameters p(folder / "none"); }).kind(), "ckpt.path");
  const std::string path = write_checkpoint(folder / "runs", manifest_at(12), files_of(small_model(), 2, 1));
  const std::string manifest = layouts::slurp(path + "/manifest.json");
  std::filesystem::remove(path + "/manifest.json");
  EXPECT_EQ(thrown_by([&] { const Parameters p(path); }).kind(), "ckpt.incomplete");
  layouts::spill(path + "/manifest.json", manifest);
  EXPECT_EQ(Parameters(path).list().size(), small_model().size());
  std::filesystem::remove(path + "/rank-00001.h5");
  const Error error = thrown_by([&] { const Parameters p(path); });
  EXPECT_EQ(error.kind(), "ckpt.incomplete");
  EXPECT_THAT(error.message(), HasSubstr("rank-00001.h5"));
}

TEST(Offline, DamageIsFoundAsItIsRead) {
  const TempDir folder;
  const std::string path = write_checkpoint(folder / "runs", manifest_at(12), files_of(small_model(), 1, 1));
  const Parameters parameters(path);
  test::flip_bit(path + "/rank-00000.h5", parameters.manifest().files[0].pieces[0].offset);
  EXPECT_EQ(thrown_by([&] { parameters.read_f32("embed"); }).kind(), "ckpt.damaged");
}

TEST(Offline, NeverTakesThePlaceOfAnother) {
  const TempDir folder;
  const std::vector<OfflineFile> files = files_of(small_model(), 1, 1);
  const auto write = [&](std::int64_t step) { return write_checkpoint(folder / "runs", manifest_at(step), files); };
  const std::string path = write(5);
  for (const std::int64_t step : {5, 4}) {
    const Error error = thrown_by([&] { write(step); });
    EXPECT_EQ(error.kind(), "ckpt.exists");
    EXPECT_EQ(error.blame(), Blame::user);
    EXPECT_THAT(error.message(), HasSubstr("step-00000005"));
  }
  EXPECT_EQ(look(path).condition, Condition::complete);
  write(6);
  std::vector<std::string> names;
  for (const Found& found : list(folder / "runs")) names.push_back(found.name);
  EXPECT_THAT(names, ElementsAre("step-00000005", "step-00000006"));
  const DirectoryLock lock(folder / "runs");
  EXPECT_EQ(thrown_by([&] { write(7); }).kind(), "ckpt.busy");
}

TEST(Offline, AFailureLeavesNoCheckpoint) {
  const TempDir folder;
  std::vector<OfflineFile> files = files_of(small_model(), 2, 2);
  std::vector<std::int64_t> progress;
  const auto write = [&] {
    return write_checkpoint(folder / "runs", manifest_at(5), files,
                            [&](std::int64_t bytes) { progress.push_back(bytes); });
  };
  const auto fill = files[2].fill;
  files[2].fill = [](std::size_t, std::span<std::byte>) { throw Error("test", Blame::storage, "no more"); };
  EXPECT_EQ(thrown_by(write).kind(), "test");
  EXPECT_THAT(list(folder / "runs"), IsEmpty());
  files[2].fill = fill;
  progress.clear();
  EXPECT_EQ(look(write()).condition, Condition::complete);
  std::int64_t bytes = 0;
  for (const OfflineFile& file : files) {
    for (const Piece& piece : file.pieces) bytes += piece.size_bytes();
  }
  ASSERT_FALSE(progress.empty());
  EXPECT_EQ(progress.back(), bytes);
}

}  // namespace
}  // namespace ms::ckpt
