#include "ckpt/hdf5.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "base/rng.h"
#include "format_fixture.h"
#include "read_layout.h"
#include "support/errors.h"

namespace ms::ckpt {
namespace {

using namespace format_fixture;  // NOLINT: a test's own fixture
using tensor::DType;
using testing::HasSubstr;

class Hdf5 : public testing::Test {
 protected:
  void SetUp() override {
    if (without_hdf5()) GTEST_SKIP() << "built without HDF5";
  }
  TempDir dir_;
};
using Hdf5DeathTest = Hdf5;

void expect_same(const FileLayout& a, const FileLayout& b) {
  EXPECT_EQ(a.pieces, b.pieces);
  EXPECT_EQ(a.size_bytes, b.size_bytes);
}

// Pieces of every kind, with names of every length.
std::vector<Piece> random_pieces(std::uint64_t seed, int count) {
  std::uint64_t next = 0;
  const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(uniform_below(seed, 0, next++, n)); };
  std::vector<Piece> pieces;
  for (int i = 0; i < count; ++i) {
    const std::string name =
        "p" + std::to_string(i) + std::string(static_cast<std::size_t>(below(seed % 2 == 0 ? 20 : 500)), 'x');
    Slice slice = whole(name, 1 + below(40), 1 + below(40));
    slice.row0 = below(static_cast<std::uint64_t>(slice.global_rows));
    slice.rows = 1 + below(static_cast<std::uint64_t>(slice.global_rows - slice.row0));
    slice.elements.end = 1 + below(static_cast<std::uint64_t>(slice.rows * slice.cols));
    slice.elements.begin = below(static_cast<std::uint64_t>(slice.elements.end));
    pieces.push_back(piece(static_cast<State>(below(4)), below(2) == 0 ? DType::f32 : DType::bf16, slice));
  }
  return pieces;
}

TEST_F(Hdf5, SaysWhatItWasGiven) {
  const std::vector<Piece> pieces = some_pieces();
  const FileLayout made = make_skeleton(dir_ / "a.h5", pieces);
  ASSERT_EQ(made.pieces.size(), pieces.size());
  std::int64_t end = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(made.pieces[i].piece, pieces[i]);
    EXPECT_EQ(made.pieces[i].offset % kDataAlignment, 0);
    EXPECT_GE(made.pieces[i].offset, end) << "data lies in the order of the pieces";
    end = made.pieces[i].offset + pieces[i].size_bytes();
  }
  EXPECT_LE(end, made.size_bytes);
  EXPECT_EQ(static_cast<std::int64_t>(std::filesystem::file_size(dir_ / "a.h5")), made.size_bytes);
  expect_same(read_layout(dir_ / "a.h5"), made);

  // Data that is written past the library changes nothing of what the file says.
  std::string bytes = slurp(dir_ / "a.h5");
  for (const PlacedPiece& placed : made.pieces) {
    std::fill_n(bytes.begin() + placed.offset, placed.piece.size_bytes(), '\x7e');
  }
  spill(dir_ / "a.h5", bytes);
  expect_same(read_layout(dir_ / "a.h5"), made);
}

TEST_F(Hdf5, TheSamePiecesAreTheSameBytes) {
  const std::vector<Piece> pieces = random_pieces(4, 100);
  const FileLayout made = make_skeleton(dir_ / "a.h5", pieces);
  std::thread([&] {
    make_skeleton(dir_ / "other", some_pieces());
    expect_same(make_skeleton(dir_ / "b.h5", pieces), made);
  }).join();
  EXPECT_EQ(slurp(dir_ / "a.h5"), slurp(dir_ / "b.h5"));
  // What was there before is gone.
  spill(dir_ / "b.h5", std::string(1 << 20, 'b'));
  make_skeleton(dir_ / "b.h5", pieces);
  EXPECT_EQ(slurp(dir_ / "a.h5"), slurp(dir_ / "b.h5"));
}

TEST_F(Hdf5, ThreadsMakeTheirFilesAtTheSameTime) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const auto name = dir_ / std::to_string(i);
      const FileLayout made = make_skeleton(name, some_pieces());
      expect_same(read_layout(name), made);
    });
  }
  threads.clear();
  for (int i = 1; i < 4; ++i) EXPECT_EQ(slurp(dir_ / std::to_string(i)), slurp(dir_ / "0"));
}

TEST_F(Hdf5, NamesSayWhereAPieceBeginsWhereThereAreSeveral) {
  make_skeleton(dir_ / "a.h5", some_pieces());
  const std::string bytes = slurp(dir_ / "a.h5");
  // The shares of master begin at elements 37 and 301 of a block that begins at row 16 of 32 columns.
  EXPECT_THAT(bytes, HasSubstr("layers.0.attn.q.weight@549"));
  EXPECT_THAT(bytes, HasSubstr("layers.0.attn.q.weight@813"));
  EXPECT_THAT(bytes, testing::Not(HasSubstr("final_norm@")));
}

TEST_F(Hdf5, TheBoundHoldsAndMetadataLiesInFront) {
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    const std::vector<Piece> pieces = random_pieces(seed, static_cast<int>(seed * seed));
    const FileLayout made = make_skeleton(dir_ / "a.h5", pieces);
    EXPECT_LE(made.size_bytes, size_bound(pieces));
    expect_same(read_layout(dir_ / "a.h5"), made);
    for (std::size_t i = 1; i < pieces.size(); ++i) {
      const PlacedPiece& before = made.pieces[i - 1];
      EXPECT_LT(made.pieces[i].offset - before.offset - before.piece.size_bytes(), kDataAlignment) << seed;
    }
  }
}

TEST_F(Hdf5, AFileWithoutPieces) {
  const FileLayout made = make_skeleton(dir_ / "a.h5", {});
  EXPECT_TRUE(made.pieces.empty());
  EXPECT_LE(made.size_bytes, size_bound({}));
  expect_same(read_layout(dir_ / "a.h5"), made);
}

TEST_F(Hdf5DeathTest, PiecesThatCannotBeAreABug) {
  Piece empty = some_pieces()[0];
  empty.slice.elements.end = 0;
  EXPECT_DEATH(make_skeleton(dir_ / "a.h5", {empty}), "of which 0 to 0");
  EXPECT_DEATH(make_skeleton(dir_ / "a.h5", {some_pieces()[0], some_pieces()[0]}), "begin at the same element");
}

TEST_F(Hdf5, WhereItCannotBeMade) {
  const Error error = thrown_by([&] { make_skeleton(dir_ / "none/a.h5", some_pieces()); });
  EXPECT_EQ(error.kind(), "ckpt.hdf5");
  EXPECT_EQ(error.blame(), Blame::storage);
  EXPECT_THAT(error.message(), HasSubstr("No such file or directory"));
}

}  // namespace
}  // namespace ms::ckpt
