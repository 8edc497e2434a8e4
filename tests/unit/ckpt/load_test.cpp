// Loading: the plan carried out on files. The files here are bytes with hashes; what HDF5 makes of them is not asked.
#include "ckpt/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "base/error.h"
#include "base/hash.h"
#include "ckpt/file_pool.h"
#include "support/files.h"
#include "written.h"

namespace ms::ckpt {
namespace {

using layouts::thrown_by;
using tensor::DType;
using test::TempDir;
using testing::ElementsAre;
using testing::HasSubstr;

// A file of these pieces, every element its number, one after another; what load() needs of it in the manifest.
FileEntry write_file(const std::string& dir, const std::string& name, const std::vector<Piece>& pieces) {
  FileEntry entry{.name = name, .size_bytes = 4096, .hashes = {}, .pieces = {}};
  for (const Piece& piece : pieces) {
    entry.pieces.push_back({.piece = piece, .offset = entry.size_bytes});
    entry.size_bytes += piece.size_bytes() + 64;
  }
  std::string bytes(static_cast<std::size_t>(entry.size_bytes), 'x');
  for (const PlacedPiece& placed : entry.pieces) {
    const std::span<std::byte> data =
        std::as_writable_bytes(std::span(bytes)).subspan(static_cast<std::size_t>(placed.offset));
    for (std::int64_t i = 0; i < placed.piece.slice.size(); ++i) {
      layouts::put(data, placed.piece.dtype, i, layouts::number(placed.piece.slice, i));
    }
  }
  for (std::size_t at = 0; at < bytes.size(); at += static_cast<std::size_t>(kBlockBytes)) {
    entry.hashes.push_back(xxh64(std::string_view(bytes).substr(at, static_cast<std::size_t>(kBlockBytes))));
  }
  layouts::spill(dir + "/" + name, bytes);
  return entry;
}

// Memory for pieces, and whether it holds their numbers.
class Memory {
 public:
  explicit Memory(const std::vector<Piece>& pieces) {
    for (const Piece& piece : pieces)
      bytes_.emplace_back(static_cast<std::size_t>(piece.size_bytes()), std::byte{0xEE});
    for (std::size_t i = 0; i < pieces.size(); ++i) wants.push_back({.piece = pieces[i], .to = bytes_[i].data()});
  }
  bool right() const {
    for (const Want& want : wants) {
      const std::span<const std::byte> bytes(want.to, static_cast<std::size_t>(want.piece.size_bytes()));
      for (std::int64_t i = 0; i < want.piece.slice.size(); ++i) {
        if (layouts::get(bytes, want.piece.dtype, i) != layouts::number(want.piece.slice, i)) return false;
      }
    }
    return true;
  }
  std::vector<Want> wants;

 private:
  std::vector<std::vector<std::byte>> bytes_;
};

Slice rows(const Slice& all, std::int64_t begin, std::int64_t end) {
  Slice slice = all;
  slice.elements = {.begin = begin * all.cols, .end = end * all.cols};
  return slice;
}

// One file of three blocks: a parameter of 36 MB whose rows are 16 KiB.
class LargeFile : public testing::Test {
 protected:
  static constexpr std::int64_t kRowsPerBlock = kBlockBytes / 16384;
  LargeFile() {
    manifest_.files.push_back(write_file(folder_ / "", "rank-00000.h5", {{State::master, DType::f32, all_}}));
    file_ = folder_ / "rank-00000.h5";
    EXPECT_EQ(block_count(manifest_.files[0].size_bytes), 3);
  }
  LoadReport load_from(Memory& memory, int threads = 2) {
    return load(folder_ / "", manifest_, memory.wants, {.threads = threads});
  }

  const Slice all_ = whole("w", 2200, 4096);
  TempDir folder_;
  Manifest manifest_;
  std::string file_;
};

TEST_F(LargeFile, IsReadOnceWhateverIsWanted) {
  const Slice columns{.name = "w",
                      .global_rows = 2200,
                      .global_cols = 4096,
                      .row0 = 100,
                      .rows = 2000,
                      .col0 = 7,
                      .cols = 11,
                      .elements = {.begin = 5, .end = 21990}};
  const std::int64_t size = manifest_.files[0].size_bytes;
  struct Case {
    const char* what;
    std::vector<Slice> wanted;
    std::int64_t bytes_read;
  };
  const std::vector<Case> cases = {
      {"all", {all_}, size},
      {"all, twice", {all_, all_}, size},
      {"some columns of nearly all rows", {columns}, size},
      {"one row in the second block", {rows(all_, kRowsPerBlock + 9, kRowsPerBlock + 10)}, kBlockBytes},
      {"rows in the first and the last",
       {rows(all_, 0, 3), rows(all_, 2190, 2200)},
       kBlockBytes + size - 2 * kBlockBytes},
      {"a row that lies in two", {rows(all_, kRowsPerBlock - 1, kRowsPerBlock)}, 2 * kBlockBytes},
      {"nothing of it", {rows(all_, 4, 4)}, 0},
      {"nothing", {}, 0},
  };
  for (const Case& c : cases) {
    for (const int threads : {1, 2, 5}) {
      SCOPED_TRACE(fmt::format("{}, {} threads", c.what, threads));
      std::vector<Piece> pieces;
      std::int64_t wanted = 0;
      for (const Slice& slice : c.wanted) pieces.push_back({State::master, DType::f32, slice});
      for (const Piece& piece : pieces) wanted += piece.size_bytes();
      Memory memory(pieces);
      const LoadReport report = load_from(memory, threads);
      EXPECT_EQ(report.bytes_read, c.bytes_read);
      EXPECT_EQ(report.bytes_wanted, wanted);
      EXPECT_TRUE(memory.right());
    }
  }
}

TEST_F(LargeFile, DamageIsFoundWhereItIsTouched) {
  test::flip_bit(file_, kBlockBytes + 12345);
  Memory beside({{State::master, DType::f32, rows(all_, 0, 1000)}});
  EXPECT_EQ(load_from(beside).bytes_read, kBlockBytes);
  EXPECT_TRUE(beside.right());
  Memory touching({{State::master, DType::f32, rows(all_, 1000, 1100)}});  // of the second block, but other bytes
  const Error error = thrown_by([&] { load_from(touching); });
  EXPECT_EQ(error.kind(), "ckpt.damaged");
  EXPECT_EQ(error.blame(), Blame::storage);
  EXPECT_THAT(error.message(), HasSubstr("rank-00000.h5"));
}

TEST_F(LargeFile, ThatIsShortOrGoneIsRefused) {
  Memory memory({{State::master, DType::f32, rows(all_, 0, 1)}});
  std::filesystem::resize_file(file_, static_cast<std::uintmax_t>(manifest_.files[0].size_bytes - 1));
  EXPECT_EQ(thrown_by([&] { load_from(memory); }).kind(), "ckpt.damaged");
  std::filesystem::remove(file_);
  EXPECT_EQ(thrown_by([&] { load_from(memory); }).kind(), "ckpt.read");
}

TEST_F(LargeFile, WhatDoesNotMatchIsRefusedBeforeAnythingIsRead) {
  std::filesystem::remove(file_);
  Memory other({{State::master, DType::f32, whole("w", 2200, 4095)}});
  EXPECT_EQ(thrown_by([&] { load_from(other); }).kind(), "ckpt.mismatch");
  manifest_.files[0].pieces[0].piece.slice.elements.begin = 1;
  Memory memory({{State::master, DType::f32, all_}});
  EXPECT_EQ(thrown_by([&] { load_from(memory); }).kind(), "ckpt.incomplete");
}

TEST(Load, ManyFilesWithFewThreads) {
  const TempDir folder;
  const std::vector<layouts::Param> model = layouts::small_model();
  Manifest manifest;
  std::vector<Piece> wanted;
  for (int dp = 0; dp < 11; ++dp) {
    std::vector<Piece> pieces;
    for (const Slice& slice : layouts::owned(model, 1, 0, 11, dp))
      pieces.push_back({State::exp_avg, DType::f32, slice});
    if (pieces.empty()) continue;  // shares have a least size, and the last ones nothing
    manifest.files.push_back(write_file(folder / "", fmt::format("file-{}", dp), pieces));
  }
  for (int tp = 0; tp < 3; ++tp) {
    for (const Slice& slice : layouts::owned(model, 3, tp, 1, 0)) wanted.push_back({State::exp_avg, DType::f32, slice});
  }
  ASSERT_GT(manifest.files.size(), 8U);
  const PieceIndex index(manifest);
  for (const int threads : {1, 2, 3, 32}) {
    SCOPED_TRACE(threads);
    Memory memory(wanted);
    std::vector<std::int64_t> progress;
    const LoadReport report =
        load(folder / "", index, memory.wants,
             {.threads = threads, .progress = [&](std::int64_t bytes) { progress.push_back(bytes); }});
    EXPECT_TRUE(memory.right());
    EXPECT_EQ(report.bytes_read, manifest.size_bytes());
    EXPECT_EQ(progress.size(), manifest.files.size());
    EXPECT_TRUE(std::is_sorted(progress.begin(), progress.end()));
    EXPECT_EQ(progress.back(), manifest.size_bytes());
  }
  test::flip_bit(folder / "file-7", 100);
  for (const int threads : {1, 3}) {
    Memory memory(wanted);
    const Error error = thrown_by([&] { load(folder / "", index, memory.wants, {.threads = threads}); });
    EXPECT_EQ(error.kind(), "ckpt.damaged");
    EXPECT_THAT(error.message(), HasSubstr("file-7"));
  }
}

TEST(FilePool, LargeFilesHaveAllThreadsAndSmallOnesOneEach) {
  const std::vector<std::int64_t> blocks = {1, 3, 0, 2, 9, 0, 1};
  std::mutex mutex;
  std::vector<std::pair<std::size_t, int>> calls;
  for_each_file(blocks, 3, [&](std::size_t file, int threads) {
    const std::lock_guard lock(mutex);
    calls.emplace_back(file, threads);
  });
  std::sort(calls.begin() + 2, calls.end());
  EXPECT_THAT(calls, ElementsAre(std::pair(1, 3), std::pair(4, 3), std::pair(0, 1), std::pair(3, 1), std::pair(6, 1)));
}

TEST(FilePool, TheFirstFailureEndsIt) {
  for (const int threads : {1, 2}) {  // 1: every file is a large one
    std::atomic<int> calls{0};
    const std::vector<std::int64_t> blocks(100, 1);
    const Error error = thrown_by([&] {
      for_each_file(blocks, threads, [&](std::size_t file, int) {
        ++calls;
        throw Error("test", Blame::storage, fmt::format("file {}", file));
      });
    });
    EXPECT_EQ(error.kind(), "test");
    EXPECT_LE(calls, threads);
  }
}

}  // namespace
}  // namespace ms::ckpt
