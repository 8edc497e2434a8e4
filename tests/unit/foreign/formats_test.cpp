// Which checkpoints of other programs a directory or a path holds, also where they are damaged from the first byte on.
#include <gmock/gmock.h>

#include <filesystem>

#include "foreign/checkpoint.h"
#include "foreign/verify.h"
#include "support/files.h"
#include "support/torch_file.h"

namespace ms::foreign {
namespace {

using testing::ElementsAre;
namespace fs = std::filesystem;

std::string sound_file() {
  test::TorchFileWriter writer;
  return writer.file(test::pickled_dict({{"w", writer.tensor({1, 2}, {2})}}));
}

std::vector<std::string> names_of(const std::vector<Place>& places) {
  std::vector<std::string> names;
  for (const Place& place : places) names.push_back(fs::path(place.path).filename());
  return names;
}

std::vector<std::string> codes_of(const Checkpoint& checkpoint) {
  std::vector<std::string> codes;
  for (const Problem& problem : checkpoint.problems) codes.push_back(problem.code);
  return codes;
}

TEST(FindCheckpoints, ADamagedFirstByteDoesNotHideTheNewest) {
  std::string flipped = sound_file();
  flipped[0] = '\x10';
  const std::vector<std::pair<std::string, std::string>> rows{{"", "empty"},
                                                              {"P", "format"},
                                                              {"hello world, text", "format"},
                                                              {std::string(5000, '\0'), "format"},
                                                              {flipped, "format"}};
  for (const auto& [bytes, code] : rows) {
    const test::TempDir dir;
    test::spill(dir / "step_10.pt", sound_file());
    test::spill(dir / "step_20.pt", bytes);
    test::spill(dir / "notes_30.txt", "not a checkpoint");
    const std::vector<Place> places = find_checkpoints(dir.path());
    EXPECT_THAT(names_of(places), ElementsAre("step_10.pt", "step_20.pt"));
    EXPECT_TRUE(verify(open(places[0].path), 1, {}).sound());
    const Checkpoint damaged = open(places.back().path);
    EXPECT_FALSE(damaged.finished);
    EXPECT_THAT(codes_of(damaged), ElementsAre(code));
    EXPECT_FALSE(verify(damaged, 1, {}).sound());
    EXPECT_THAT(names_of(find_checkpoints(dir / "step_20.pt")), ElementsAre("step_20.pt"));
  }
}

TEST(FindCheckpoints, AnEmptyDirectoryBesideOthersIsOne) {
  const test::TempDir dir;
  fs::create_directory(dir / "iter_10");
  fs::create_directory(dir / "iter_20");
  fs::create_directory(dir / "logs");
  test::spill(dir / "iter_10/.metadata", "");
  const std::vector<Place> places = find_checkpoints(dir.path());
  EXPECT_THAT(names_of(places), ElementsAre("iter_10", "iter_20"));
  EXPECT_THAT(codes_of(open(places.back().path)), ElementsAre("empty"));
}

TEST(FindCheckpoints, WhatOtherProgramsPutBesideThemIsNotDamaged) {
  const test::TempDir dir;
  test::spill(dir / "pytorch_model-00001-of-00002.bin", sound_file());
  for (const char* name : {"openvino_model.bin", "tokens.bin", "spiece.bin"}) test::spill(dir / name, "text");
  EXPECT_THAT(names_of(find_checkpoints(dir.path())), ElementsAre("pytorch_model-00001-of-00002.bin"));
  test::spill(dir / "pytorch_model-00002-of-00002.bin", "");
  EXPECT_THAT(names_of(find_checkpoints(dir.path())),
              testing::UnorderedElementsAre("pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"));
}

TEST(FindCheckpoints, ADirectoryOfSafetensorsIsNotUnrecognised) {
  for (const char* name : {"model-00001-of-00002.safetensors", "model.safetensors.index.json"}) {
    const test::TempDir dir;
    for (const char* step : {"checkpoint-500", "checkpoint-1000", "checkpoint-1500"}) fs::create_directory(dir / step);
    test::spill(dir / "checkpoint-500/.metadata", "");
    test::spill(dir / (std::string("checkpoint-1000/") + name), "x");
    test::spill(dir / "checkpoint-1500/notes.txt", "x");
    EXPECT_THAT(names_of(find_checkpoints(dir.path())), ElementsAre("checkpoint-500", "checkpoint-1500")) << name;
  }
}

TEST(DeepSpeed, WhatTheSystemPutsIntoDirectoriesIsNoParameter) {
  const test::TempDir dir;
  test::spill(dir / "mp_rank_00_model_states.pt", sound_file());
  for (const char* name : {"zero", "zero/a", "zero/b", "zero/@eaDir", "zero/.snapshot", "zero/.snapshot/c"})
    fs::create_directory(dir / name);
  for (const char* name : {"a/fp32.pt", "a/exp_avg.pt", "b/fp32.pt", "b/exp_avg.pt", ".snapshot/c/fp32.pt"})
    test::spill(dir / (std::string("zero/") + name), sound_file());
  test::spill(dir / "zero/a/.nfs0001", "");
  const Checkpoint universal = open(dir.path());
  EXPECT_EQ(universal.format, "deepspeed");
  EXPECT_THAT(codes_of(universal), ElementsAre());
  EXPECT_TRUE(universal.doubts.empty());
  EXPECT_EQ(universal.tensors.size(), 5U);
}

TEST(FindCheckpoints, NamesAloneDoNotMakeADirectoryOne) {
  const test::TempDir dir;
  test::spill(dir / "step_10.pt", "text");
  fs::create_directory(dir / "step-20");
  EXPECT_TRUE(find_checkpoints(dir.path()).empty());
  test::spill(dir / "config.toml", "");
  EXPECT_TRUE(find_checkpoints(dir / "config.toml").empty());
}

}  // namespace
}  // namespace ms::foreign
