#include "ckpt/diff.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "ckpt/batch.h"
#include "ckpt/directory.h"
#include "sample.h"
#include "support/files.h"

namespace ms::ckpt {
namespace {

using tensor::DType;

std::span<const std::byte> bytes_of(const std::vector<float>& values) { return std::as_bytes(std::span(values)); }

std::vector<std::uint16_t> bf16(const std::vector<float>& values) {
  std::vector<std::uint16_t> top;
  for (const float value : values) top.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16));
  return top;
}

TEST(DiffConfig, KeysThatDifferAndWhoSetThemNot) {
  const std::string a = "[model]\nlayers = 2  # set by file\nname = \"a # b\"  # set by default\n[mesh]\ndp = 1\n";
  const std::string b = "[model]\nlayers = 2  # set by --set\nname = \"a # c\"\n[mesh]\ndp = 2\n[run]\ndir = 'x'\n";
  EXPECT_EQ(diff_config(a, a), std::vector<KeyDiff>{});
  EXPECT_EQ(
      diff_config(a, b),
      (std::vector<KeyDiff>{{"mesh.dp", "1", "2"}, {"model.name", "\"a # b\"", "\"a # c\""}, {"run.dir", "", "'x'"}}));
  EXPECT_EQ(diff_config("x = \"a\\\"#b\"", "x = \"a\\\"#c\"").size(), 1U) << "a quote inside a string";
}

TEST(DiffValues, BitsThenNumbers) {
  const std::vector<float> a{1, -2, 3, 4}, b{1, -2.5F, 3, 5};
  const ValueDiff equal = diff_values(DType::f32, bytes_of(a), DType::f32, bytes_of(a));
  EXPECT_EQ(equal.elements, 4);
  EXPECT_EQ(equal.differing, 0);
  const ValueDiff other = diff_values(DType::f32, bytes_of(a), DType::f32, bytes_of(b));
  EXPECT_EQ(other.differing, 2);
  EXPECT_DOUBLE_EQ(other.max_abs, 1);
  EXPECT_DOUBLE_EQ(other.relative_l2, std::sqrt(1.25 / 30));
}

TEST(DiffValues, MinusZeroIsAnotherBitPattern) {
  const std::vector<float> a{0.0F}, b{-0.0F};
  const ValueDiff diff = diff_values(DType::f32, bytes_of(a), DType::f32, bytes_of(b));
  EXPECT_EQ(diff.differing, 1);
  EXPECT_EQ(diff.max_abs, 0);
  EXPECT_EQ(diff.relative_l2, 0);
}

TEST(DiffValues, WhatIsNoNumberIsNotHidden) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> a{nan, 1}, b{0, 7};
  EXPECT_EQ(diff_values(DType::f32, bytes_of(a), DType::f32, bytes_of(a)).differing, 0) << "the same bits";
  const ValueDiff diff = diff_values(DType::f32, bytes_of(a), DType::f32, bytes_of(b));
  EXPECT_EQ(diff.differing, 2);
  EXPECT_TRUE(std::isnan(diff.max_abs));
  EXPECT_TRUE(std::isnan(diff.relative_l2));
}

TEST(DiffValues, TypesMayDiffer) {
  const std::vector<float> a{1, 1.5F};
  const std::vector<std::uint16_t> same = bf16(a), other = bf16({1, 1.25F});
  EXPECT_EQ(diff_values(DType::f32, bytes_of(a), DType::bf16, std::as_bytes(std::span(same))).differing, 0);
  const ValueDiff diff = diff_values(DType::bf16, std::as_bytes(std::span(other)), DType::f32, bytes_of(a));
  EXPECT_EQ(diff.differing, 1);
  EXPECT_DOUBLE_EQ(diff.max_abs, 0.25);
}

TEST(Diff, LayoutsDoNotMatter) {
  const test::TempDir dir;
  const Parameters a(sample::write(dir / "a", 7)), b(sample::write(dir / "b", 7, {.files = 3}));
  std::int64_t last = 0;
  const Diff found = diff(a, b, 2, [&](std::int64_t bytes) { last = bytes; });
  EXPECT_TRUE(found.equal());
  EXPECT_EQ(found.states.size(), 6U);
  EXPECT_EQ(found.place, (std::vector<KeyDiff>{{"dp", "1", "3"}}));
  EXPECT_EQ(last, (24 + 10) * 3 * 4);
  EXPECT_EQ(found.states.front().name, "a");
  EXPECT_EQ(found.states.front().state, State::weight);
}

TEST(Diff, OneElementIsFound) {
  const test::TempDir dir;
  const Parameters a(sample::write(dir / "a", 7, {.files = 2}));
  const Parameters b(sample::write(dir / "b", 7, {.files = 5, .weight_of_b_3 = 0.5F}));
  const Diff found = diff(a, b, 1, {});
  EXPECT_FALSE(found.equal());
  for (const StateDiff& row : found.states) {
    const bool it = row.name == "b" && row.state == State::weight;
    EXPECT_EQ(row.values.differing, it ? 1 : 0) << row.name;
    EXPECT_EQ(row.values.max_abs, it ? 0.5 : 0) << row.name;
  }
}

TEST(Diff, PositionStatesAndShapesCount) {
  const test::TempDir dir;
  const Parameters a(sample::write(dir / "a", 7)), later(sample::write(dir / "b", 8));
  EXPECT_EQ(diff(a, later, 1, {}).position, (std::vector<KeyDiff>{{"step", "7", "8"}, {"data.samples", "56", "64"}}));
  EXPECT_FALSE(diff(a, later, 1, {}).equal());

  const Parameters weights(sample::write(dir / "c", 7, {.optimizer = false}));
  const Diff without = diff(a, weights, 1, {});
  EXPECT_EQ(without.unmatched.size(), 4U);
  EXPECT_EQ(without.states.size(), 2U);
  EXPECT_FALSE(without.equal());
  EXPECT_EQ(diff(weights, a, 1, {}).unmatched.size(), 4U) << "the other way round";

  const Parameters longer(sample::write(dir / "d", 7, {.b_size = 11}));
  const Diff shapes = diff(a, longer, 1, {});
  EXPECT_EQ(shapes.unmatched.size(), 3U);
  EXPECT_EQ(shapes.unmatched.front(), (KeyDiff{"weight b", "1 x 10", "1 x 11"}));
}

// With a hash that is right, but of files that hold 24 and 10 elements.
TEST(Diff, AShapeThatTheFilesDoNotHoldIsRefusedBeforeMemoryIsAskedFor) {
  const test::TempDir dir;
  const std::string path = sample::write(dir / "a", 7);
  Manifest manifest = *look(path).manifest;
  for (PlacedPiece& placed : manifest.files[0].pieces) {
    Slice& slice = placed.piece.slice;
    if (slice.name == "a") slice.global_rows = std::int64_t{1} << 48;
  }
  std::ofstream(path + "/manifest.json", std::ios::binary) << to_json(manifest);
  const Parameters forged(path);
  for (const bool by_diff : {true, false}) {
    try {
      if (by_diff) diff(forged, forged, 1, {});
      if (!by_diff) forged.read_f32("a");
      ADD_FAILURE() << "no error was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), "ckpt.incomplete");
      EXPECT_EQ(error.blame(), Blame::storage);
    }
  }
}

TEST(BatchReader, GivesPiecesInTheirOrderWhateverTheBudget) {
  const test::TempDir dir;
  const std::string path = sample::write(dir / "a", 7, {.files = 4});
  const Manifest manifest = *look(path).manifest;
  const std::vector<Piece> pieces{{.state = State::exp_avg, .dtype = DType::f32, .slice = whole("b", 1, 10)},
                                  {.state = State::weight, .dtype = DType::f32, .slice = whole("a", 6, 4)},
                                  {.state = State::weight, .dtype = DType::f32, .slice = whole("b", 1, 10)}};
  for (const std::int64_t budget : {1, 100, 200, 1 << 20}) {
    BatchReader reader(path, manifest, pieces, budget, 2);
    for (const Piece& piece : pieces) {
      const std::span<const std::byte> bytes = reader.next();
      ASSERT_EQ(bytes.size(), static_cast<std::size_t>(piece.size_bytes()));
      for (std::int64_t e = 0; e < piece.slice.size(); ++e) {
        float value = 0;
        std::memcpy(&value, bytes.data() + e * 4, 4);
        ASSERT_EQ(value, sample::value_of(piece.state, piece.slice.name, e)) << budget;
      }
    }
  }
}

}  // namespace
}  // namespace ms::ckpt
