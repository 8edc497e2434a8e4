#include "ckpt/hdf5.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <thread>

#include "base/rng.h"
#include "format_fixture.h"
#include "support/errors.h"

// The library loses memory when it refuses metadata whose checksum is wrong; that is not ours to find.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libhdf5"; }

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
      EXPECT_EQ(thrown_by([&] { read_layout(dir_ / "none"); }).kind(), "ckpt.hdf5");
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

TEST_F(Hdf5, RefusesWhatIsNoDataFile) {
  struct Row {
    const char* says;
    std::function<void(const std::string&)> make;
  };
  const std::string good = dir_ / "good";
  make_skeleton(good, some_pieces());
  const std::string bytes = slurp(good);
  const auto renamed = [&](const std::string& from, const std::string& to) {
    std::string changed = bytes;
    const std::size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos);
    return changed.replace(at, to.size(), to);
  };
  const Row rows[] = {
      {"No such file", [](const std::string&) {}},
      {"cannot open it", [](const std::string& path) { std::filesystem::create_directory(path); }},
      {"cannot open it", [](const std::string& path) { spill(path, ""); }},
      {"cannot open it", [](const std::string& path) { spill(path, "not HDF5 at all\n"); }},
      {"cannot open it", [&](const std::string& path) { spill(path, std::string(bytes.size(), '\0')); }},
      {"truncated", [&](const std::string& path) { spill(path, bytes.substr(0, bytes.size() - 1)); }},
      {"checksum", [&](const std::string& path) { spill(path, renamed("ms_checkpoint", "ms_checkpoinT")); }},
  };
  for (std::size_t i = 0; i < std::size(rows); ++i) {
    const std::string path = dir_ / ("bad" + std::to_string(i));
    rows[i].make(path);
    testing::internal::CaptureStderr();
    const Error error = thrown_by([&] { read_layout(path); });
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(error.kind(), "ckpt.hdf5");
    EXPECT_EQ(error.blame(), Blame::storage);
    EXPECT_THAT(error.message(), testing::StartsWith(path));
    EXPECT_THAT(error.message(), HasSubstr(rows[i].says));
  }
}

TEST_F(Hdf5, WhereItCannotBeMade) {
  const Error error = thrown_by([&] { make_skeleton(dir_ / "none/a.h5", some_pieces()); });
  EXPECT_EQ(error.kind(), "ckpt.hdf5");
  EXPECT_EQ(error.blame(), Blame::storage);
  EXPECT_THAT(error.message(), HasSubstr("No such file or directory"));
}

// Every byte of the metadata wrong, one at a time, and the file cut off anywhere: refused, or, where nothing depends on
// the byte, read as what it was; never anything else.
TEST_F(Hdf5, DamageIsRefusedOrWithoutEffect) {
  const std::string path = dir_ / "a.h5";
  const FileLayout good = make_skeleton(path, some_pieces());
  const std::string bytes = slurp(path);
  const auto metadata = static_cast<std::size_t>(good.pieces.front().offset);
  const std::size_t used = bytes.find_last_not_of('\0', metadata - 1) + 1;  // the rest of the block is free
  const std::ptrdiff_t files = open_files();
  int refused = 0;
  const auto read = [&](const char* damage, std::size_t at) {
    FileLayout layout;
    const std::optional<Error> error = test::error_from([&] { layout = read_layout(path); });
    if (!error) {
      expect_same(layout, good);
    } else {
      ++refused;
      EXPECT_EQ(error->kind(), "ckpt.hdf5") << damage << " " << at;
    }
  };
  // In place: to write the file anew each time takes longer than to read it.
  const auto overwrite = [&](std::size_t at, const std::string& with) {
    std::fstream(path, std::ios::binary | std::ios::in | std::ios::out).seekp(static_cast<std::streamoff>(at)) << with;
  };
  for (std::size_t i = 0; i < used; ++i) {
    overwrite(i, std::string(1, static_cast<char>(bytes[i] ^ static_cast<char>(1 << (i % 8)))));
    read("a bit of byte", i);
    overwrite(i, bytes.substr(i, 1));
  }
  EXPECT_GT(refused, static_cast<int>(used) / 2);
  for (std::size_t i = 0; i < used; i += 64) {
    overwrite(i, std::string(512, '\0'));
    read("zeros from", i);
    overwrite(i, bytes.substr(i, 512));
  }
  expect_same(read_layout(path), good);
  refused = 0;
  int cut = 0;
  for (std::size_t size = bytes.size() - 1; size > 0; size -= std::min<std::size_t>(size, 67), ++cut) {
    std::filesystem::resize_file(path, size);
    read("size", size);
  }
  EXPECT_EQ(refused, cut);
  EXPECT_EQ(open_files(), files);
}

}  // namespace
}  // namespace ms::ckpt
