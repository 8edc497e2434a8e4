#include "ckpt/piece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace ms::ckpt {
namespace {

using tensor::DType;

TEST(State, NamesAndBack) {
  for (int i = 0; i < kStates; ++i) {
    const auto state = static_cast<State>(i);
    EXPECT_EQ(state_from(to_string(state)), state);
  }
  for (const char* name : {"", "weights", "Weight", "exp_avg_", "exp_avg_sq "}) {
    EXPECT_EQ(state_from(name), std::nullopt) << name;
  }
}

TEST(SliceOf, LeavesPaddingOut) {
  struct Row {
    mesh::ShardSpec shard;
    mesh::Range range;
    std::int64_t row0, rows;
    mesh::Range elements;
  };
  // A vocabulary of 10 over 4 ranks is 3 rows each: the last rank has one row of the parameter and two of padding.
  const auto embedding = [](int i) { return mesh::shard_rows_padded("embedding", 10, 8, 4, i); };
  const Row rows[] = {
      {embedding(0), {0, 24}, 0, 3, {0, 24}},
      {embedding(0), {5, 20}, 0, 3, {5, 20}},
      {embedding(3), {0, 24}, 9, 1, {0, 8}},
      {embedding(3), {2, 24}, 9, 1, {2, 8}},
      {embedding(3), {8, 24}, 9, 1, {8, 8}},   // padding only
      {embedding(3), {16, 24}, 9, 1, {8, 8}},  // padding only
      {embedding(0), {7, 7}, 0, 3, {7, 7}},
      {mesh::shard_rows_padded("tiny", 2, 8, 4, 3), {0, 8}, 2, 0, {0, 0}},  // a shard that is all padding
      {*mesh::shard_cols("down", 4, 12, 3, 2), {3, 11}, 0, 4, {3, 11}},
  };
  for (const Row& row : rows) {
    const Slice slice = slice_of(row.shard, row.range);
    EXPECT_EQ(slice.name, row.shard.name);
    EXPECT_EQ(slice.global_rows, row.shard.global_rows);
    EXPECT_EQ(slice.global_cols, row.shard.global_cols);
    EXPECT_EQ(slice.row0, row.row0);
    EXPECT_EQ(slice.rows, row.rows);
    EXPECT_EQ(slice.col0, row.shard.col0);
    EXPECT_EQ(slice.cols, row.shard.cols);
    EXPECT_EQ(slice.elements, row.elements);
    if (slice.size() > 0) {
      EXPECT_EQ(problem_with({.state = State::weight, .dtype = DType::f32, .slice = slice}), "");
    }
  }
}

TEST(SliceOfDeathTest, ARangeBeyondTheShardIsABug) {
  const mesh::ShardSpec shard = mesh::replicated("w", 2, 3);
  EXPECT_DEATH(slice_of(shard, {0, 7}), "elements 0..7 of 6 of w");
  EXPECT_DEATH(slice_of(shard, {4, 3}), "elements 4..3");
}

TEST(Whole, IsAllOfIt) {
  const Slice slice = whole("w", 3, 5);
  EXPECT_EQ(slice.size(), 15);
  EXPECT_EQ(slice_of(mesh::replicated("w", 3, 5), {0, 15}), slice);
  EXPECT_EQ((Piece{.state = State::weight, .dtype = DType::bf16, .slice = slice}.size_bytes()), 30);
}

TEST(ProblemWith, FindsWhatCannotBe) {
  struct Row {
    const char* says;
    std::function<void(Piece&)> change;
  };
  const Row rows[] = {
      {"name is not one", [](Piece& p) { p.slice.name = ""; }},
      {"name is not one", [](Piece& p) { p.slice.name = ".."; }},
      {"name is not one", [](Piece& p) { p.slice.name = "a/b"; }},
      {"name is not one", [](Piece& p) { p.slice.name = "a@7"; }},
      {"name is not one", [](Piece& p) { p.slice.name = "a b"; }},
      {"name is not one", [](Piece& p) { p.slice.name = std::string("a\0b", 3); }},
      {"name is not one", [](Piece& p) { p.slice.name = "\xc3\xa4"; }},
      {"name is not one", [](Piece& p) { p.slice.name = std::string(513, 'n'); }},
      {"type f64", [](Piece& p) { p.dtype = DType::f64; }},
      {"type i32", [](Piece& p) { p.dtype = DType::i32; }},
      {"shape 0 x 10", [](Piece& p) { p.slice.global_rows = 0; }},
      {"shape 8 x -1", [](Piece& p) { p.slice.global_cols = -1; }},
      {"has the shape", [](Piece& p) { p.slice.global_rows = INT64_MAX; }},
      {"has the shape", [](Piece& p) { p.slice.global_cols = std::int64_t{1} << 56; }},
      {"rows from -1", [](Piece& p) { p.slice.row0 = -1; }},
      {"4 rows from 5", [](Piece& p) { p.slice.row0 = 5; }},
      {"rows from 9223372036854775807", [](Piece& p) { p.slice.row0 = INT64_MAX; }},
      {"slice of 0 rows", [](Piece& p) { p.slice.rows = 0; }},
      {"9223372036854775807 rows", [](Piece& p) { p.slice.rows = INT64_MAX; }},
      {"columns from -2", [](Piece& p) { p.slice.col0 = -2; }},
      {"6 columns from 5", [](Piece& p) { p.slice.col0 = 5; }},
      {"-6 columns", [](Piece& p) { p.slice.cols = -6; }},
      {"of which -1 to 24", [](Piece& p) { p.slice.elements.begin = -1; }},
      {"of which 24 to 24", [](Piece& p) { p.slice.elements.begin = 24; }},
      {"of which 2 to 1",
       [](Piece& p) {
         p.slice.elements = {2, 1};
       }},
      {"24 elements, of which 2 to 25", [](Piece& p) { p.slice.elements.end = 25; }},
      {"of which 2 to 9223372036854775807", [](Piece& p) { p.slice.elements.end = INT64_MAX; }},
  };
  Piece sound{.state = State::master, .dtype = DType::f32, .slice = whole("w", 8, 10)};
  sound.slice.row0 = 4, sound.slice.rows = 4, sound.slice.col0 = 4, sound.slice.cols = 6;
  sound.slice.elements = {.begin = 2, .end = 24};
  ASSERT_EQ(problem_with(sound), "");
  for (const Row& row : rows) {
    Piece piece = sound;
    row.change(piece);
    EXPECT_THAT(problem_with(piece), testing::HasSubstr(row.says));
  }
}

TEST(FirstIndex, IsTheElementsPlaceInTheParameter) {
  Slice block = whole("w", 6, 10);
  block.row0 = 2, block.rows = 3, block.col0 = 4, block.cols = 5;
  std::set<std::int64_t> seen;
  for (std::int64_t begin = 0; begin < 15; ++begin) {
    block.elements = {.begin = begin, .end = 15};
    EXPECT_EQ(first_index(block), (2 + begin / 5) * 10 + 4 + begin % 5);
    EXPECT_TRUE(seen.insert(first_index(block)).second);
  }
}

}  // namespace
}  // namespace ms::ckpt
