#include "ckpt/file_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>

#include "base/hash.h"
#include "base/rng.h"
#include "format_fixture.h"
#include "read_layout.h"

namespace ms::ckpt {
namespace {

using namespace format_fixture;  // NOLINT: a test's own fixture
using tensor::DType;

class FileWriterTest : public testing::Test {
 protected:
  void SetUp() override {
    if (without_hdf5()) GTEST_SKIP() << "built without HDF5";
  }

  // Page-aligned memory for these pieces, full of what was there before.
  std::span<std::byte> image(const std::vector<Piece>& pieces) {
    const auto size = static_cast<std::size_t>(image_bytes(size_bound(pieces)));
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(static_cast<std::size_t>(kPageBytes), size)));
    std::fill_n(memory_.get(), size, std::byte{0xa5});
    return {memory_.get(), size};
  }
  static void fill(const FileWriter& writer, std::uint64_t seed) {
    for (std::size_t i = 0; i < writer.layout().pieces.size(); ++i) {
      const std::span<std::byte> data = writer.data(i);
      for (std::size_t k = 0; k < data.size(); ++k) {
        data[k] = static_cast<std::byte>(random_block(seed, i, k / 16)[k / 4 % 4] >> (k % 4 * 8));
      }
    }
  }

  TempDir dir_;

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
};

TEST_F(FileWriterTest, WritesTheSkeletonWithTheDataInIt) {
  const std::vector<Piece> pieces = some_pieces();
  const FileWriter writer(pieces, image(pieces), dir_.path());
  ASSERT_EQ(writer.layout().pieces.size(), pieces.size());
  fill(writer, 1);
  WriteReport report;
  const FileEntry entry = writer.write(dir_.path(), rank_file_name(3), {}, &report);

  EXPECT_EQ(entry.name, "rank-00003.h5");
  EXPECT_EQ(entry.size_bytes, writer.layout().size_bytes);
  EXPECT_EQ(entry.pieces, writer.layout().pieces);
  EXPECT_EQ(entry.hashes, report.hashes);
  const std::string bytes = slurp(dir_ / entry.name);
  ASSERT_EQ(static_cast<std::int64_t>(bytes.size()), entry.size_bytes);
  EXPECT_EQ(entry.hashes, std::vector{xxh64(bytes)});

  // With its data taken out it is the file that HDF5 made; the data is what was filled in.
  std::string skeleton = bytes;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(entry.pieces[i].piece, pieces[i]);
    const std::span<std::byte> data = writer.data(i);
    ASSERT_EQ(static_cast<std::int64_t>(data.size()), pieces[i].size_bytes());
    EXPECT_EQ(std::memcmp(bytes.data() + entry.pieces[i].offset, data.data(), data.size()), 0);
    std::fill_n(skeleton.begin() + entry.pieces[i].offset, data.size(), '\0');
  }
  make_skeleton(dir_ / "skeleton", pieces);
  EXPECT_EQ(skeleton, slurp(dir_ / "skeleton"));
  const FileLayout said = read_layout(dir_ / entry.name);
  EXPECT_EQ(said.pieces, entry.pieces);
  EXPECT_EQ(said.size_bytes, entry.size_bytes);
}

TEST_F(FileWriterTest, AWriterWritesAgainAndOverWhatWasThere) {
  const std::vector<Piece> pieces = some_pieces();
  const FileWriter writer(pieces, image(pieces), dir_.path());
  fill(writer, 1);
  const FileEntry first = writer.write(dir_.path(), "a.h5", {});
  spill(dir_ / "b.h5", std::string(1 << 20, 'b'));
  const FileEntry again = writer.write(dir_.path(), "b.h5", {});
  EXPECT_EQ(slurp(dir_ / "a.h5"), slurp(dir_ / "b.h5"));
  EXPECT_EQ(first.hashes, again.hashes);
  fill(writer, 2);
  const FileEntry other = writer.write(dir_.path(), "a.h5", {});
  EXPECT_NE(first.hashes, other.hashes);
  EXPECT_EQ(other.hashes, std::vector{xxh64(slurp(dir_ / "a.h5"))});
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_.path()), {}), 2) << "nothing else is left behind";
}

TEST_F(FileWriterTest, AFileOfSeveralBlocks) {
  const std::vector<Piece> pieces = {piece(State::master, DType::f32, whole("w", 1, 4'500'001)),
                                     piece(State::weight, DType::bf16, whole("w", 1, 4'500'001))};
  const FileWriter writer(pieces, image(pieces), dir_.path());
  std::fill(writer.data(0).begin(), writer.data(0).end(), std::byte{1});
  std::fill(writer.data(1).begin(), writer.data(1).end(), std::byte{2});
  const FileEntry entry = writer.write(dir_.path(), "a.h5", {});
  const std::string bytes = slurp(dir_ / "a.h5");
  ASSERT_EQ(std::ssize(entry.hashes), block_count(entry.size_bytes));
  ASSERT_EQ(entry.hashes.size(), 2U);
  const std::string_view all = bytes;
  EXPECT_EQ(entry.hashes[0], xxh64(all.substr(0, kBlockBytes)));
  EXPECT_EQ(entry.hashes[1], xxh64(all.substr(kBlockBytes)));
}

TEST_F(FileWriterTest, WhereItCannotBeWritten) {
  const std::vector<Piece> pieces = some_pieces();
  const FileWriter writer(pieces, image(pieces), dir_.path());
  std::filesystem::create_directory(dir_ / "taken");
  struct Row {
    std::string directory, name, says;
  };
  const Row rows[] = {{dir_ / "none", "a.h5", "No such file or directory"}, {dir_.path(), "taken", "Is a directory"}};
  for (const Row& row : rows) {
    const Error error = thrown_by([&] { writer.write(row.directory, row.name, {}); });
    EXPECT_EQ(error.kind(), "ckpt.write");
    EXPECT_EQ(error.blame(), Blame::storage);
    EXPECT_THAT(error.message(), testing::HasSubstr(row.directory + "/" + row.name));
    EXPECT_THAT(error.message(), testing::HasSubstr(row.says));
  }
}

// Whoever made saving-* before us can lay links where the file goes.
TEST_F(FileWriterTest, WritesNeitherThroughLinksNorIntoOtherNames) {
  const std::vector<Piece> pieces = some_pieces();
  const FileWriter writer(pieces, image(pieces), dir_.path());
  spill(dir_ / "precious", "text");
  std::filesystem::create_symlink(dir_ / "precious", dir_ / "soft");
  std::filesystem::create_hard_link(dir_ / "precious", dir_ / "hard");
  for (const char* name : {"soft", "hard"}) {
    EXPECT_EQ(thrown_by([&] { writer.write(dir_.path(), name, {}); }).kind(), "ckpt.write") << name;
  }
  EXPECT_EQ(slurp(dir_ / "precious"), "text");
}

TEST_F(FileWriterTest, TheScratchFileIsGoneWhateverHappens) {
  const auto files = [&] { return std::distance(std::filesystem::directory_iterator(dir_.path()), {}); };
  const std::vector<Piece> pieces = some_pieces();
  { const FileWriter writer(pieces, image(pieces), dir_.path()); }
  EXPECT_EQ(files(), 0);
  const Error error = thrown_by([&] { FileWriter(pieces, image(pieces), dir_ / "none"); });
  EXPECT_EQ(error.kind(), "ckpt.write");
  EXPECT_THAT(error.message(), testing::HasSubstr((dir_ / "none") + "/.skeleton-"));
  EXPECT_THAT(error.message(), testing::HasSubstr("No such file or directory"));
  const std::ptrdiff_t open = open_files();
  // HDF5 itself fails: no file of this process may grow to what the metadata take.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 100, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Error full = thrown_by([&] { FileWriter(pieces, image(pieces), dir_.path()); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(full.kind(), "ckpt.hdf5");
  EXPECT_EQ(full.blame(), Blame::storage);
  EXPECT_EQ(files(), 0);
  EXPECT_EQ(open_files(), open);
  // And works again afterwards.
  const FileWriter writer(pieces, image(pieces), dir_.path());
  EXPECT_EQ(writer.layout().pieces.size(), pieces.size());
}

TEST_F(FileWriterTest, StopsWhenAsked) {
  const std::vector<Piece> pieces = some_pieces();
  const FileWriter writer(pieces, image(pieces), dir_.path());
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(thrown_by([&] { writer.write(dir_.path(), "a.h5", stop.get_token()); }).kind(), "ckpt.stopped");
}

TEST_F(FileWriterTest, AnImageThatIsTooSmallIsABug) {
  const std::vector<Piece> pieces = some_pieces();
  const std::span<std::byte> memory = image(pieces);
  EXPECT_DEATH(FileWriter(pieces, memory.first(static_cast<std::size_t>(kPageBytes)), dir_.path()),
               "an image of 4096 bytes");
}

TEST(RankFileName, SortsAsRanksDo) {
  EXPECT_EQ(rank_file_name(0), "rank-00000.h5");
  EXPECT_EQ(rank_file_name(12287), "rank-12287.h5");
  EXPECT_EQ(rank_file_name(123456), "rank-123456.h5");
}

}  // namespace
}  // namespace ms::ckpt
