// The reshard plan, carried out on numbered elements: whatever wrote the files and whatever is wanted, every wanted
// element comes exactly once, from the first file that has it; and what is not there is said, not invented.
#include "ckpt/reshard.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "base/error.h"
#include "layouts.h"
#include "support/errors.h"

namespace ms::ckpt {
namespace {

using layouts::Cut;
using layouts::Dice;
using layouts::Param;
using tensor::DType;
using test::thrown_by;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Slice block(std::int64_t rows, std::int64_t cols, std::int64_t row0, std::int64_t block_rows, std::int64_t col0,
            std::int64_t block_cols, mesh::Range elements) {
  return {.name = "w",
          .global_rows = rows,
          .global_cols = cols,
          .row0 = row0,
          .rows = block_rows,
          .col0 = col0,
          .cols = block_cols,
          .elements = elements};
}

// A checkpoint in memory: a manifest, and the bytes of its files, every element its number plus a tag of its file.
class Checkpoint {
 public:
  // The pieces lie one behind the other, with a gap between them.
  void add_file(const std::vector<Piece>& pieces, std::int64_t tag = 0) {
    FileEntry entry{
        .name = "file-" + std::to_string(manifest.files.size()), .size_bytes = 64, .hashes = {}, .pieces = {}};
    for (const Piece& piece : pieces) {
      entry.pieces.push_back({.piece = piece, .offset = entry.size_bytes});
      entry.size_bytes += piece.size_bytes() + 64;
    }
    std::vector<std::byte> bytes(static_cast<std::size_t>(entry.size_bytes), std::byte{0xEE});
    for (const PlacedPiece& placed : entry.pieces) {
      for (std::int64_t i = 0; i < placed.piece.slice.size(); ++i) {
        layouts::put(std::span(bytes).subspan(static_cast<std::size_t>(placed.offset)), placed.piece.dtype, i,
                     layouts::number(placed.piece.slice, i) + tag);
      }
    }
    manifest.files.push_back(std::move(entry));
    files.push_back(std::move(bytes));
  }

  // Carries the plan out; every byte of every piece must be written exactly once.
  std::vector<std::vector<std::byte>> load(const std::vector<Piece>& wanted) const {
    std::vector<std::vector<std::byte>> loaded;
    std::vector<std::vector<int>> writes;
    for (const Piece& piece : wanted) {
      loaded.emplace_back(static_cast<std::size_t>(piece.size_bytes()));
      writes.emplace_back(static_cast<std::size_t>(piece.size_bytes()), 0);
    }
    std::tuple<std::size_t, std::int64_t> before{0, 0};
    for (const PlannedCopy& copy : PieceIndex(manifest).plan(wanted)) {
      EXPECT_LE(before, std::tuple(copy.file, copy.file_offset)) << "sorted by file and offset";
      before = {copy.file, copy.file_offset};
      for (std::int64_t row = 0; row < copy.rows; ++row) {
        for (std::int64_t i = 0; i < copy.row_bytes; ++i) {
          const auto to = static_cast<std::size_t>(copy.want_offset + row * copy.want_stride + i);
          loaded.at(copy.want).at(to) =
              files.at(copy.file).at(static_cast<std::size_t>(copy.file_offset + row * copy.file_stride + i));
          ++writes.at(copy.want).at(to);
        }
      }
    }
    for (const auto& counts : writes) EXPECT_THAT(counts, testing::Each(1));
    return loaded;
  }

  Manifest manifest;
  std::vector<std::vector<std::byte>> files;
};

void expect_numbers(const std::vector<std::byte>& bytes, const Piece& piece) {
  for (std::int64_t i = 0; i < piece.slice.size(); ++i) {
    ASSERT_EQ(layouts::get(bytes, piece.dtype, i), layouts::number(piece.slice, i)) << piece.slice.name << " at " << i;
  }
}

TEST(Overlaps, AreTheFewestCopies) {
  const Slice all = whole("w", 6, 4);
  struct Case {
    const char* what;
    Slice source, wanted;
    std::vector<Overlap> expected;
  };
  const std::vector<Case> cases = {
      {"the same slice", all, all, {{0, 0, 1, 24, 24, 24}}},
      {"a share, whose ends are within rows", all, block(6, 4, 0, 6, 0, 4, {5, 19}), {{5, 0, 1, 14, 14, 14}}},
      {"rows of it", all, block(6, 4, 2, 2, 0, 4, {0, 8}), {{8, 0, 1, 8, 8, 8}}},
      {"columns of it", all, block(6, 4, 0, 6, 1, 2, {0, 12}), {{1, 0, 6, 2, 4, 2}}},
      {"columns into the whole", block(6, 4, 0, 6, 1, 2, {0, 12}), all, {{0, 1, 6, 2, 2, 4}}},
      {"a share of columns: the rest of a row, rows, the beginning of one",
       block(6, 4, 0, 6, 2, 2, {3, 9}),
       all,
       {{0, 7, 1, 1, 1, 1}, {1, 10, 2, 2, 2, 4}, {5, 18, 1, 1, 1, 1}}},
      {"both begin and end within the same row",
       block(6, 4, 0, 6, 0, 4, {9, 11}),
       block(6, 4, 2, 2, 0, 4, {2, 3}),
       {{1, 0, 1, 1, 1, 1}}},
      {"one element", block(6, 4, 3, 1, 3, 1, {0, 1}), all, {{0, 15, 1, 1, 1, 1}}},
      {"nothing: other rows", block(6, 4, 0, 3, 0, 4, {0, 12}), block(6, 4, 3, 3, 0, 4, {0, 12}), {}},
      {"nothing: other columns of the same rows",
       block(6, 4, 0, 6, 0, 2, {0, 12}),
       block(6, 4, 0, 6, 2, 2, {0, 12}),
       {}},
      {"nothing: empty", block(6, 4, 0, 6, 0, 4, {7, 7}), all, {}},
  };
  for (const Case& c : cases) EXPECT_EQ(overlaps(c.source, c.wanted), c.expected) << c.what;
}

// A model in small, with what is hard about the real ones: a vocabulary that no tp divides, vectors, columns.
std::vector<Param> model() {
  return {{"embed", 53, 12, Cut::padded_rows}, {"norm", 1, 12, Cut::none}, {"qkv", 36, 12, Cut::rows},
          {"bias", 1, 36, Cut::cols},          {"out", 12, 36, Cut::cols}, {"one", 1, 1, Cut::none}};
}
struct Layout {
  int tp, dp;
};
const std::vector<Layout> kLayouts = {{1, 1}, {1, 2}, {2, 1}, {1, 3}, {3, 2}, {4, 1}, {6, 5}, {2, 7}, {12, 4}, {1, 24}};

// Every rank's file: its shares of the optimizer's state, and the weights, of which dp rank 0 writes all.
Checkpoint saved_by(const Layout& layout) {
  Checkpoint checkpoint;
  for (int dp = 0; dp < layout.dp; ++dp) {
    for (int tp = 0; tp < layout.tp; ++tp) {
      std::vector<Piece> pieces;
      for (const Slice& slice : layouts::owned(model(), layout.tp, tp, layout.dp, dp)) {
        pieces.push_back({State::master, DType::f32, slice});
      }
      for (const Param& param : model()) {
        const mesh::ShardSpec shard = layouts::shard(param, layout.tp, tp);
        if (dp > 0 || (shard.replicated && tp > 0) || shard.logical_rows() == 0) continue;
        pieces.push_back({State::weight, DType::bf16, slice_of(shard, {0, shard.size()})});
      }
      checkpoint.add_file(pieces);
    }
  }
  return checkpoint;
}

TEST(Plan, EveryLayoutToEveryOther) {
  for (const Layout& from : kLayouts) {
    const Checkpoint checkpoint = saved_by(from);
    for (const Layout& to : kLayouts) {
      SCOPED_TRACE(fmt::format("tp {} dp {} to tp {} dp {}", from.tp, from.dp, to.tp, to.dp));
      std::map<std::string, std::int64_t> elements;
      for (int tp = 0; tp < to.tp; ++tp) {
        for (int dp = 0; dp < to.dp; ++dp) {
          std::vector<Piece> wanted;
          for (const Slice& slice : layouts::owned(model(), to.tp, tp, to.dp, dp)) {
            wanted.push_back({State::master, DType::f32, slice});
          }
          for (const Param& param : model()) {
            const mesh::ShardSpec shard = layouts::shard(param, to.tp, tp);
            wanted.push_back({State::weight, DType::bf16, slice_of(shard, {0, shard.size()})});
          }
          const auto loaded = checkpoint.load(wanted);
          for (std::size_t i = 0; i < wanted.size(); ++i) expect_numbers(loaded[i], wanted[i]);
          for (const Piece& piece : wanted) {
            const bool counts =
                piece.state == State::master &&
                (tp == 0 || piece.slice.rows != piece.slice.global_rows || piece.slice.cols != piece.slice.global_cols);
            if (counts) elements[piece.slice.name] += piece.slice.size();
          }
        }
      }
      for (const Param& param : model()) EXPECT_EQ(elements[param.name], param.rows * param.cols) << param.name;
    }
  }
}

Slice random_slice(Dice& dice, std::int64_t rows, std::int64_t cols, std::int64_t at_least) {
  const std::int64_t row0 = dice.below(rows);
  const std::int64_t col0 = dice.below(cols);
  Slice slice = block(rows, cols, row0, dice.between(1, rows - row0), col0, dice.between(1, cols - col0), {});
  slice.elements.begin = dice.below(slice.rows * slice.cols);
  slice.elements.end = dice.between(slice.elements.begin + at_least, slice.rows * slice.cols);
  return slice;
}

// Any slices, that overlap, repeat each other and leave holes: the first file counts, and holes are counted.
TEST(Plan, AnySlicesAtAll) {
  constexpr std::int64_t kTag = 1000;
  Dice dice(4);
  int complete = 0;
  int incomplete = 0;
  for (int round = 0; round < 3000; ++round) {
    SCOPED_TRACE(round);
    const std::int64_t rows = dice.between(1, 9);
    const std::int64_t cols = dice.between(1, 9);
    Checkpoint checkpoint;
    std::map<std::int64_t, std::int64_t> first;  // element -> number plus tag of the first file that has it
    const auto files = dice.between(1, 8);
    for (std::int64_t file = 0; file < files; ++file) {
      std::vector<Piece> pieces;
      for (auto i = dice.between(1, 3); i > 0; --i) {
        pieces.push_back({State::exp_avg, DType::f32, random_slice(dice, rows, cols, 1)});
        for (std::int64_t e = 0; e < pieces.back().slice.size(); ++e) {
          const std::int64_t number = layouts::number(pieces.back().slice, e);
          first.emplace(number, number + file * kTag);
        }
      }
      checkpoint.add_file(pieces, file * kTag);
    }
    const std::vector<Piece> wanted = {{State::exp_avg, DType::f32, random_slice(dice, rows, cols, 0)},
                                       {State::exp_avg, DType::f32, random_slice(dice, rows, cols, 0)}};
    std::int64_t missing = 0;
    for (const Piece& piece : wanted) {
      for (std::int64_t e = 0; e < piece.slice.size(); ++e)
        missing += first.count(layouts::number(piece.slice, e)) == 0;
    }
    if (missing > 0) {
      ++incomplete;
      EXPECT_EQ(thrown_by([&] { PieceIndex(checkpoint.manifest).plan(wanted); }).kind(), "ckpt.incomplete");
      continue;
    }
    ++complete;
    const auto loaded = checkpoint.load(wanted);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      for (std::int64_t e = 0; e < wanted[i].slice.size(); ++e) {
        ASSERT_EQ(layouts::get(loaded[i], DType::f32, e), first.at(layouts::number(wanted[i].slice, e)));
      }
    }
  }
  EXPECT_GT(complete, 300);
  EXPECT_GT(incomplete, 300);
}

TEST(Plan, WithoutAnyOnePieceIsIncomplete) {
  const Checkpoint checkpoint = saved_by({3, 2});
  std::vector<Piece> wanted;
  for (const Param& param : model()) {
    wanted.push_back({State::master, DType::f32, whole(param.name, param.rows, param.cols)});
    wanted.push_back({State::weight, DType::bf16, whole(param.name, param.rows, param.cols)});
  }
  EXPECT_EQ(checkpoint.load(wanted).size(), wanted.size());
  int tried = 0;
  for (std::size_t file = 0; file < checkpoint.manifest.files.size(); ++file) {
    for (std::size_t i = 0; i < checkpoint.manifest.files[file].pieces.size(); ++i) {
      Manifest manifest = checkpoint.manifest;
      const Piece piece = manifest.files[file].pieces[i].piece;
      // Every tp rank writes its share of what is replicated, so that others may still have it.
      const bool only_copy = piece.state == State::weight || piece.slice.rows < piece.slice.global_rows ||
                             piece.slice.cols < piece.slice.global_cols;
      if (!only_copy) continue;
      manifest.files[file].pieces.erase(manifest.files[file].pieces.begin() + static_cast<std::ptrdiff_t>(i));
      const PieceIndex index(manifest);
      const Error error = thrown_by([&] { index.plan(wanted); });
      const bool gone = index.find(piece.state, piece.slice.name) == nullptr;
      EXPECT_EQ(error.kind(), gone ? "ckpt.mismatch" : "ckpt.incomplete");
      EXPECT_EQ(error.blame(), gone ? Blame::user : Blame::storage);
      const std::string what = fmt::format("{} of {}", to_string(piece.state), piece.slice.name);
      EXPECT_THAT(error.message(), HasSubstr(what));
      if (!gone) {
        EXPECT_THAT(error.message(),
                    HasSubstr(fmt::format("{}: {} of {} elements are in no file", what, piece.slice.size(),
                                          piece.slice.global_rows * piece.slice.global_cols)));
      }
      ++tried;
    }
  }
  EXPECT_GT(tried, 12);
}

// Columns on the left come in five shares and those on the right in three, so that their rows end at different places.
TEST(Plan, CutsNoFinerThanTheSlicesDo) {
  const Slice all = whole("w", 40, 30);
  Checkpoint checkpoint;
  std::size_t fewest = 0;
  for (const auto& [tp_rank, shares] : {std::pair{0, 5}, {1, 3}}) {
    for (int dp = 0; dp < shares; ++dp) {
      std::vector<Piece> pieces;
      for (const Slice& slice : layouts::owned({{"w", 40, 30, Cut::cols}}, 2, tp_rank, shares, dp)) {
        pieces.push_back({State::exp_avg_sq, DType::f32, slice});
        fewest += overlaps(slice, all).size();
      }
      checkpoint.add_file(pieces);
    }
  }
  const Piece wanted{State::exp_avg_sq, DType::f32, all};
  EXPECT_EQ(PieceIndex(checkpoint.manifest).plan({wanted}).size(), fewest);
  expect_numbers(checkpoint.load({wanted}).front(), wanted);
}

TEST(Plan, MismatchesAreListedTogether) {
  Checkpoint checkpoint;
  checkpoint.add_file(
      {{State::weight, DType::f32, whole("a", 50257, 8)}, {State::weight, DType::f32, whole("b", 4, 4)}});
  const PieceIndex index(checkpoint.manifest);
  const std::vector<Piece> wanted = {{State::weight, DType::f32, whole("a", 50304, 8)},
                                     {State::weight, DType::bf16, whole("b", 4, 4)},
                                     {State::weight, DType::bf16, block(4, 4, 0, 1, 0, 4, {0, 4})},
                                     {State::weight, DType::bf16, block(4, 4, 1, 1, 0, 4, {0, 4})},
                                     {State::exp_avg, DType::f32, whole("a", 50257, 8)}};
  const Error error = thrown_by([&] { index.plan(wanted); });
  EXPECT_EQ(error.kind(), "ckpt.mismatch");
  EXPECT_EQ(error.blame(), Blame::user);
  EXPECT_EQ(error.message(),
            "the checkpoint does not hold what the run wants: "
            "weight of a: the checkpoint has 50257 x 8 f32, the run wants 50304 x 8 f32; "
            "weight of b: the checkpoint has 4 x 4 f32, the run wants 4 x 4 bf16; "
            "weight of w: the checkpoint has none, the run wants 4 x 4 bf16; "
            "exp_avg of a: the checkpoint has none, the run wants 50257 x 8 f32");
}

TEST(Plan, ListsAtMostTenMismatches) {
  Checkpoint checkpoint;
  checkpoint.add_file({{State::weight, DType::f32, whole("a", 1, 1)}});
  for (const int count : {10, 13}) {
    std::vector<Piece> wanted;
    for (int i = 0; i < count; ++i) wanted.push_back({State::weight, DType::f32, whole(fmt::format("p{}.", i), 1, 1)});
    const std::string message = thrown_by([&] { PieceIndex(checkpoint.manifest).plan(wanted); }).message();
    EXPECT_THAT(message, HasSubstr("p9."));
    EXPECT_THAT(message, Not(HasSubstr("p10.")));
    EXPECT_EQ(message.ends_with("; and 3 more"), count == 13) << message;
  }
}

TEST(Index, FindsAndLists) {
  const Checkpoint checkpoint = saved_by({2, 3});
  const PieceIndex index(checkpoint.manifest);
  EXPECT_THAT(index.parameters(), ElementsAre("bias", "embed", "norm", "one", "out", "qkv"));
  ASSERT_NE(index.find(State::weight, "embed"), nullptr);
  EXPECT_EQ(index.find(State::weight, "embed")->dtype, DType::bf16);
  EXPECT_EQ(index.find(State::weight, "embed")->slice.global_rows, 53);
  EXPECT_EQ(index.find(State::exp_avg, "embed"), nullptr);
  EXPECT_EQ(index.find(State::weight, "emb"), nullptr);
  EXPECT_THAT(index.plan({}), IsEmpty());
  const Manifest empty;
  EXPECT_THAT(PieceIndex(empty).parameters(), IsEmpty());
}

TEST(Index, RefusesFilesThatDisagree) {
  for (const auto& [second, says] :
       {std::pair<Piece, std::string>{{State::weight, DType::f32, whole("w", 5, 4)}, "5 x 4 f32"},
        {{State::weight, DType::bf16, whole("w", 4, 4)}, "4 x 4 bf16"}}) {
    Checkpoint checkpoint;
    checkpoint.add_file({{State::weight, DType::f32, whole("w", 4, 4)}});
    checkpoint.add_file({{State::exp_avg, DType::f32, whole("w", 4, 4)}, second});
    const Error error = thrown_by([&] { const PieceIndex index(checkpoint.manifest); });
    EXPECT_EQ(error.kind(), "ckpt.manifest");
    EXPECT_EQ(error.message(), fmt::format("weight of w is {} in file-1, but 4 x 4 f32 in file-0", says));
  }
}

}  // namespace
}  // namespace ms::ckpt
