// Verification: nothing that can be wrong with a checkpoint passes, and everything that is wrong is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/rng.h"
#include "ckpt/directory.h"
#include "ckpt/load.h"
#include "support/files.h"
#include "written.h"

namespace ms::ckpt {
namespace {

namespace fs = std::filesystem;
using layouts::manifest_at;
using layouts::small_model;
using layouts::thrown_by;
using tensor::DType;
using test::TempDir;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;

class Verify : public testing::Test {
 protected:
  Verify() : path_(write_checkpoint(folder_ / "runs", manifest_at(12), layouts::files_of(small_model(), 2, 2))) {}
  // The manifest as `change` would have it, with a right hash.
  void rewrite(const std::function<void(Manifest&)>& change) {
    Manifest manifest = *look(path_).manifest;
    change(manifest);
    layouts::spill(path_ + "/manifest.json", to_json(manifest));
  }
  TempDir folder_;
  std::string path_;
};

TEST_F(Verify, FindsNothingWhereNothingIsWrong) {
  for (const int threads : {1, 2, 8}) {
    std::vector<std::int64_t> progress;
    EXPECT_THAT(verify(path_, threads, [&](std::int64_t bytes) { progress.push_back(bytes); }), IsEmpty());
    ASSERT_FALSE(progress.empty());
    EXPECT_EQ(progress.back(), look(path_).manifest->size_bytes());
  }
}

TEST_F(Verify, FindsAFlippedBitAnywhere) {
  const std::string path = write_checkpoint(folder_ / "small", manifest_at(1), layouts::files_of(small_model(), 1, 2));
  int flipped = 0;
  for (const auto& entry : fs::directory_iterator(path)) {
    const std::string file = entry.path().string();
    const auto size = static_cast<std::int64_t>(fs::file_size(file));
    for (std::int64_t at = 0; at < size; at += at < 32 || at > size - 32 ? 7 : 701) {
      test::flip_bit(file, at);
      const auto problems = verify(path, 1);
      EXPECT_EQ(problems.size(), 1U) << file << " at " << at;
      test::flip_bit(file, at);
      ++flipped;
    }
  }
  EXPECT_GT(flipped, 40);
  EXPECT_THAT(verify(path, 1), IsEmpty());
}

TEST_F(Verify, TellsAllProblemsOfAllFiles) {
  test::flip_bit(path_ + "/rank-00000.h5", 5000);
  fs::remove(path_ + "/rank-00001.h5");
  fs::resize_file(path_ + "/rank-00002.h5", 4000);
  layouts::spill(path_ + "/rank-00003.h5", layouts::slurp(path_ + "/rank-00003.h5") + "x");
  layouts::spill(path_ + "/rank-00004.h5", "");
  std::vector<std::int64_t> progress;
  const std::int64_t size = look(path_).manifest->size_bytes();
  EXPECT_THAT(verify(path_, 2, [&](std::int64_t bytes) { progress.push_back(bytes); }),
              UnorderedElementsAre(AllOf(HasSubstr("rank-00000.h5"), HasSubstr("block 0")),
                                   AllOf(HasSubstr("rank-00001.h5"), HasSubstr("No such file")),
                                   AllOf(HasSubstr("rank-00002.h5"), HasSubstr("4000")), HasSubstr("rank-00003.h5"),
                                   AllOf(HasSubstr("rank-00004.h5"), HasSubstr("is not a file of this checkpoint"))));
  EXPECT_EQ(progress.back(), size);
}

TEST_F(Verify, TellsWhatCannotBeReadFromDamage) {
  bool unreadable = true;
  EXPECT_THAT(verify(path_, 1, {}, &unreadable), IsEmpty());
  EXPECT_FALSE(unreadable);
  const std::string refused = path_ + "/rank-00000.h5", damaged = path_ + "/rank-00001.h5";
  fs::remove(refused);
  fs::create_symlink("rank-00000.h5", refused);
  EXPECT_THAT(verify(path_, 2, {}, &unreadable), ElementsAre(HasSubstr(refused)));
  EXPECT_TRUE(unreadable);
  test::flip_bit(damaged, 5000);
  EXPECT_THAT(verify(path_, 2, {}, &unreadable), ElementsAre(HasSubstr(damaged), HasSubstr(refused)));
  EXPECT_FALSE(unreadable) << "one proof is enough";
  fs::remove(refused);
  EXPECT_EQ(verify(path_, 1, {}, &unreadable).size(), 2U);
  EXPECT_FALSE(unreadable) << "a file that is not there is damage";
}

TEST_F(Verify, TellsEveryDamagedBlock) {
  const Piece piece{State::master, DType::f32, whole("w", 1100, 16384)};  // five blocks
  const OfflineFile file{{piece},
                         [](std::size_t, std::span<std::byte> to) { std::fill(to.begin(), to.end(), std::byte{7}); }};
  const std::string path = write_checkpoint(folder_ / "large", manifest_at(1), {file});
  EXPECT_THAT(verify(path, 2), IsEmpty());
  test::flip_bit(path + "/rank-00000.h5", kBlockBytes + 1);
  test::flip_bit(path + "/rank-00000.h5", 3 * kBlockBytes + 2);
  test::flip_bit(path + "/rank-00000.h5", 4 * kBlockBytes - 1);
  EXPECT_THAT(verify(path, 2), ElementsAre(HasSubstr("block 1 "), HasSubstr("block 3 ")));
}

TEST_F(Verify, ComparesTheManifestWithTheFiles) {
  struct Case {
    const char* what;
    std::function<void(std::vector<PlacedPiece>&)> change;
  };
  for (const Case& c :
       {Case{"a piece at another place", [](auto& pieces) { std::swap(pieces[0].offset, pieces[1].offset); }},
        Case{"another slice", [](auto& pieces) { pieces[0].piece.slice.elements.begin += 1; }},
        Case{"another state", [](auto& pieces) { pieces[0].piece.state = State::exp_avg_sq; }},
        Case{"a piece that is not told", [](auto& pieces) { pieces.pop_back(); }}}) {
    const std::string before = layouts::slurp(path_ + "/manifest.json");
    rewrite([&](Manifest& manifest) { c.change(manifest.files[1].pieces); });
    EXPECT_THAT(verify(path_, 1), Contains(AllOf(HasSubstr("rank-00001.h5"), HasSubstr("manifest")))) << c.what;
    layouts::spill(path_ + "/manifest.json", before);
  }
  EXPECT_THAT(verify(path_, 1), IsEmpty());
}

// Metadata made up by somebody who mends the hashes: each is told, and none is shown to HDF5, whose memory 18 in 1,000
// of them broke.
TEST_F(Verify, HostileMetadataWithRightHashesIsTold) {
  const std::string path = path_ + "/rank-00000.h5";
  const std::string good = layouts::slurp(path);
  const Manifest manifest = *look(path_).manifest;
  const auto metadata = static_cast<std::uint64_t>(manifest.files[0].pieces.front().offset);
  std::uint64_t next = 0;
  const auto below = [&](std::uint64_t n) { return uniform_below(20261124, 0, next++, n); };
  for (int round = 0; round < 250; ++round) {
    std::string bytes = good;
    for (std::uint64_t left = 1 + below(8); left > 0; --left) {
      const std::uint64_t used = good.find_last_not_of('\0', metadata - 1) + 1;
      bytes[below(used)] ^= static_cast<char>(1 + below(255));
    }
    if (bytes == good) continue;
    layouts::spill(path, bytes);
    rewrite([&](Manifest& mended) { mended.files[0].hashes = {xxh64(bytes)}; });
    ASSERT_THAT(verify(path_, 1), ElementsAre(HasSubstr("rank-00000.h5' is not that of the manifest's pieces")))
        << "round " << round;
  }
  layouts::spill(path, good);
  rewrite([&](Manifest& mended) { mended.files[0].hashes = {xxh64(good)}; });
  EXPECT_THAT(verify(path_, 1), IsEmpty());
}

// Pieces that no file of ours holds must not reach the writer of skeletons, for which they are a bug.
TEST_F(Verify, AManifestOfTwoPiecesAtTheSameElement) {
  rewrite([](Manifest& manifest) {
    std::vector<PlacedPiece>& pieces = manifest.files[0].pieces;
    pieces[1].piece = pieces[0].piece;
    pieces[1].piece.slice.elements.end = pieces[1].piece.slice.elements.begin + 1;
  });
  EXPECT_THAT(verify(path_, 1), Contains(HasSubstr("begin at the same element")));
}

TEST_F(Verify, MissesParametersThatAreNotWhole) {
  rewrite([](Manifest& manifest) { manifest.files.pop_back(); });
  EXPECT_THAT(verify(path_, 1), UnorderedElementsAre(HasSubstr("elements are in no file"),
                                                     HasSubstr("rank-00003.h5' is not a file of this checkpoint")));
}

TEST_F(Verify, OfWhatIsNoCheckpoint) {
  fs::remove(path_ + "/manifest.json");
  EXPECT_THAT(verify(path_, 1), ElementsAre(HasSubstr("manifest.json")));
  layouts::spill(path_ + "/manifest.json", "{}");
  EXPECT_THAT(verify(path_, 1), ElementsAre(Not("")));
  for (const char* path : {"none", "runs/step-00000012/rank-00000.h5"}) {
    EXPECT_EQ(thrown_by([&] { verify(folder_ / path, 1); }).kind(), "ckpt.path");
  }
}

}  // namespace
}  // namespace ms::ckpt
