#include "ckpt/blocks.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>
#include <random>
#include <set>
#include <utility>

#include "base/hash.h"
#include "format_fixture.h"

namespace ms::ckpt {
namespace {

using format_fixture::created;
using format_fixture::slurp;
using format_fixture::TempDir;
using format_fixture::thrown_by;
using ::testing::HasSubstr;

// Page-aligned memory as an image is, filled with noise.
class Image {
 public:
  explicit Image(std::int64_t size_bytes) : size_(size_bytes) {
    const auto bytes = static_cast<std::size_t>(std::max(image_bytes(size_bytes), kPageBytes));
    memory_ = static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kPageBytes}));
    std::mt19937_64 random(static_cast<std::uint64_t>(size_bytes));
    for (std::size_t i = 0; i < bytes; i += 8) {
      const std::uint64_t word = random();
      std::memcpy(memory_ + i, &word, 8);
    }
  }
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;
  ~Image() { ::operator delete (memory_, std::align_val_t{kPageBytes}); }
  std::span<const std::byte> all() const { return {memory_, static_cast<std::size_t>(image_bytes(size_))}; }
  std::span<const std::byte> file() const { return {memory_, static_cast<std::size_t>(size_)}; }
  std::vector<std::uint64_t> hashes() const {
    std::vector<std::uint64_t> result;
    for (std::size_t at = 0; at < file().size(); at += kBlockBytes) {
      result.push_back(xxh64(file().subspan(at, std::min<std::size_t>(kBlockBytes, file().size() - at))));
    }
    return result;
  }

 private:
  std::int64_t size_;
  std::byte* memory_ = nullptr;
};

// As bytes, at memory's speed in any build.
bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}
void put(const std::string& path, std::span<const std::byte> data) {
  format_fixture::spill(path, std::string(reinterpret_cast<const char*>(data.data()), data.size()));
}
bool holds(const std::string& path, std::span<const std::byte> data) {
  const std::string text = slurp(path);
  return same(std::as_bytes(std::span(text)), data);
}

// ---- writing --------------------------------------------------------------------------------------------------------

TEST(WriteImage, WritesExactlyTheFileWhateverItsSizeAndWhatWasThereBefore) {
  const TempDir dir;
  for (const std::int64_t size :
       {std::int64_t{0}, std::int64_t{1}, kPageBytes - 1, kPageBytes, kPageBytes + 1, kBlockBytes, kBlockBytes + 1}) {
    SCOPED_TRACE(size);
    const Image image(size);
    const std::string fresh = dir / "fresh", longer = dir / "longer";
    std::filesystem::remove(fresh);
    format_fixture::spill(longer, std::string(static_cast<std::size_t>(size) + 10'000, 'x'));
    for (const std::string& path : {fresh, longer}) {
      const WriteReport report = write_image(path, created(path), image.all(), size, {});
      EXPECT_EQ(report.hashes, image.hashes());
      EXPECT_TRUE(holds(path, image.file())) << path;
      EXPECT_GT(report.seconds, 0);
      EXPECT_GT(report.cpu_seconds, 0);
    }
  }
}

// In a process of its own: mounts a ramfs, which knows no direct I/O, in a name space of its own.
bool mount_ramfs(const std::string& path) {
  const std::string uids = fmt::format("0 {} 1", ::getuid()), gids = fmt::format("0 {} 1", ::getgid());
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  format_fixture::spill("/proc/self/setgroups", "deny");
  format_fixture::spill("/proc/self/uid_map", uids);
  format_fixture::spill("/proc/self/gid_map", gids);
  return ::mount("none", path.c_str(), "ramfs", 0, nullptr) == 0;
}

TEST(WriteImage, GoesThroughThePageCacheWhereThereIsNoDirectIo) {
  const TempDir dir;
  const Image image(2 * kBlockBytes + 777);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (!mount_ramfs(dir.path())) ::_exit(77);
    const WriteReport report = write_image(dir / "f", created(dir / "f"), image.all(), std::ssize(image.file()), {});
    ::_exit(report.direct ? 1 : !holds(dir / "f", image.file()) ? 2 : report.hashes != image.hashes() ? 3 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no name spaces for users here";
  EXPECT_EQ(WEXITSTATUS(status), 0) << "1: direct, 2: other bytes, 3: other hashes";
}

TEST(WriteImage, SaysWhatTheSystemSaid) {
  const Image image(5000);
  const std::string path = "/dev/full";
  const Error error = thrown_by([&] { write_image(path, created(path), image.all(), 5000, {}); });
  EXPECT_EQ(error.kind(), "ckpt.write");
  EXPECT_EQ(error.blame(), Blame::storage);
  EXPECT_THAT(error.message(), HasSubstr("'/dev/full'"));
  EXPECT_THAT(error.message(), HasSubstr("No space left on device"));
}

TEST(WriteImage, StopsWhenToldTo) {
  const TempDir dir;
  const Image image(kBlockBytes + 1);
  std::stop_source stop;
  EXPECT_EQ(write_image(dir / "f", created(dir / "f"), image.all(), kBlockBytes + 1, stop.get_token()).hashes.size(),
            2U);
  stop.request_stop();
  EXPECT_EQ(thrown_by([&] {
              write_image(dir / "g", created(dir / "g"), image.all(), kBlockBytes + 1, stop.get_token());
            }).kind(),
            "ckpt.stopped");
  EXPECT_NE(std::filesystem::file_size(dir / "g"), static_cast<std::uintmax_t>(kBlockBytes + 1));
}

// ---- reading --------------------------------------------------------------------------------------------------------

class ReadBlocks : public ::testing::Test {
 protected:
  static constexpr std::int64_t kSize = 2 * kBlockBytes + 3'333'337;
  // Made once for all tests, each of which leaves the file as it was.
  struct Shared {
    Shared() { put(path, image.file()); }
    const TempDir dir;
    const std::string path = dir / "f";
    const Image image{kSize};
    const std::vector<std::uint64_t> hashes = image.hashes();
  };
  static void SetUpTestSuite() { shared_ = new Shared; }
  static void TearDownTestSuite() { delete std::exchange(shared_, nullptr); }

  BlockFile file() const { return {.path = path_, .size_bytes = kSize, .hashes = hashes_}; }
  // A byte of the file as it was, or with one bit turned.
  void set(std::int64_t offset, std::byte flip) const {
    std::fstream stream(path_, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(offset).put(static_cast<char>(image_.file()[static_cast<std::size_t>(offset)] ^ flip));
  }
  Error error_of(const std::vector<Transfer>& transfers, bool all, int threads = 2) const {
    return thrown_by([&] { read_blocks(file(), transfers, all, threads); });
  }

  static Shared* shared_;
  const TempDir dir_;
  const std::string& path_ = shared_->path;
  const Image& image_ = shared_->image;
  const std::vector<std::uint64_t>& hashes_ = shared_->hashes;
};
ReadBlocks::Shared* ReadBlocks::shared_ = nullptr;

// Transfers of all shapes to memory of their own, with what must and must not be written there.
class Wanted {
 public:
  Wanted(std::mt19937_64& random, std::int64_t size) : random_(random), size_(size) {
    const std::int64_t count = below(12);
    for (std::int64_t i = 0; i < count; ++i) add();
    std::int64_t at = 0;
    for (Transfer& t : transfers_) {
      at += below(100);
      offsets_.push_back(at);
      at += t.rows <= 0 ? 0 : (t.rows - 1) * t.memory_stride + t.row_bytes;
    }
    memory_.resize(static_cast<std::size_t>(at) + 100, kUntouched);
    for (std::size_t i = 0; i < transfers_.size(); ++i) transfers_[i].to = memory_.data() + offsets_[i];
  }
  const std::vector<Transfer>& transfers() const { return transfers_; }

  // What the memory must hold afterwards, and the blocks that must be read: byte by byte, or nearly so.
  void check(std::span<const std::byte> image, std::int64_t bytes_read) const {
    std::vector<std::byte> expected(memory_.size(), kUntouched);
    std::set<std::int64_t> blocks;
    for (std::size_t i = 0; i < transfers_.size(); ++i) {
      const Transfer& t = transfers_[i];
      for (std::int64_t row = 0; row < t.rows; ++row) {
        const std::int64_t from = t.file_offset + row * t.file_stride;
        const auto to = expected.begin() + offsets_[i] + row * t.memory_stride;
        std::copy_n(image.begin() + from, t.row_bytes, to);
        if (t.row_bytes == 0) continue;
        for (std::int64_t b = from / kBlockBytes; b <= (from + t.row_bytes - 1) / kBlockBytes; ++b) blocks.insert(b);
      }
    }
    std::int64_t touched = 0;
    for (const std::int64_t block : blocks) touched += std::min((block + 1) * kBlockBytes, size_) - block * kBlockBytes;
    EXPECT_EQ(bytes_read, touched);
    EXPECT_TRUE(same(memory_, expected));
  }

 private:
  static constexpr std::byte kUntouched{0xA5};

  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n)); }
  // Small numbers as likely as large ones.
  std::int64_t any_below(std::int64_t n) { return below(std::min(n, std::int64_t{1} << below(26))); }
  void add() {
    Transfer t;
    t.row_bytes = any_below(size_ / 2);
    t.file_stride = t.row_bytes + (below(3) == 0 ? 0 : any_below(size_));
    t.memory_stride = t.row_bytes + (below(2) == 0 ? 0 : below(64));
    t.file_offset = below(size_ - t.row_bytes);
    if (t.row_bytes > 0) t.rows = 1 + any_below((size_ - t.file_offset - t.row_bytes) / t.file_stride + 1);
    transfers_.push_back(t);
  }

  std::mt19937_64& random_;
  std::int64_t size_;
  std::vector<Transfer> transfers_;
  std::vector<std::int64_t> offsets_;
  std::vector<std::byte> memory_;
};

TEST_F(ReadBlocks, AnyTransfersGetTheirBytesAndEveryTouchedBlockIsReadOnce) {
  std::mt19937_64 random(20'260'131);
  for (int trial = 0; trial < 24; ++trial) {
    SCOPED_TRACE(trial);
    Wanted wanted(random, kSize);
    const ReadReport report = read_blocks(file(), wanted.transfers(), false, 1 + trial % 3);
    wanted.check(image_.file(), report.bytes_read);
    if (HasFailure()) break;
  }
}

TEST_F(ReadBlocks, RowsThatEndAndBeginAtBlockEdges) {
  struct Row {
    std::int64_t offset, row_bytes, rows, stride;
  };
  for (const Row& row : {Row{0, kSize, 1, 0}, Row{0, kBlockBytes, 2, kBlockBytes}, Row{kBlockBytes - 1, 2, 1, 0},
                         Row{kBlockBytes, kBlockBytes, 1, 0}, Row{2 * kBlockBytes, kSize - 2 * kBlockBytes, 1, 0},
                         Row{kBlockBytes - 8, 8, 2, kBlockBytes}, Row{kSize - 1, 1, 1, 0},
                         Row{1, kBlockBytes - 1, 2, kBlockBytes}, Row{0, 1, 3, kBlockBytes}}) {
    SCOPED_TRACE(fmt::format("{} x {} at {}", row.rows, row.row_bytes, row.offset));
    std::vector<std::byte> to(static_cast<std::size_t>(row.rows * row.row_bytes));
    const Transfer t{.file_offset = row.offset,
                     .row_bytes = row.row_bytes,
                     .rows = row.rows,
                     .file_stride = row.stride,
                     .memory_stride = row.row_bytes,
                     .to = to.data()};
    read_blocks(file(), std::span(&t, 1), false, 2);
    for (std::int64_t r = 0; r < row.rows; ++r) {
      const auto at = static_cast<std::size_t>(r * row.row_bytes), size = static_cast<std::size_t>(row.row_bytes);
      EXPECT_TRUE(same(std::span(to).subspan(at, size),
                       image_.file().subspan(static_cast<std::size_t>(row.offset + r * row.stride), size)));
    }
  }
}

TEST_F(ReadBlocks, MillionsOfShortTransfersAreNoBurden) {
  constexpr std::int64_t kBytes = 16;
  constexpr std::int64_t kCount = kSize / kBytes;
  std::vector<std::byte> to(static_cast<std::size_t>(kSize));
  std::vector<Transfer> transfers;
  for (std::int64_t i = kCount - 1; i >= 0; --i) {  // in no helpful order
    transfers.push_back({.file_offset = i * kBytes, .row_bytes = kBytes, .to = to.data() + i * kBytes});
  }
  EXPECT_EQ(read_blocks(file(), transfers, false, 2).bytes_read, kSize);
  EXPECT_TRUE(same(std::span(to).first(kCount * kBytes), image_.file().first(kCount * kBytes)));
}

TEST_F(ReadBlocks, SeveralMayWantTheSameBytes) {
  std::vector<std::byte> one(kBlockBytes), other(kBlockBytes), part(1000);
  const std::vector<Transfer> transfers{{.file_offset = kBlockBytes, .row_bytes = kBlockBytes, .to = one.data()},
                                        {.file_offset = kBlockBytes, .row_bytes = kBlockBytes, .to = other.data()},
                                        {.file_offset = kBlockBytes + 5, .row_bytes = 1000, .to = part.data()}};
  EXPECT_EQ(read_blocks(file(), transfers, false, 1).bytes_read, kBlockBytes);
  EXPECT_TRUE(same(one, image_.file().subspan(kBlockBytes, kBlockBytes)));
  EXPECT_TRUE(same(one, other));
  EXPECT_TRUE(same(part, image_.file().subspan(kBlockBytes + 5, 1000)));
}

TEST_F(ReadBlocks, ReadsNothingUnlessAskedAndAllIfAsked) {
  EXPECT_EQ(read_blocks({.path = dir_ / "none", .size_bytes = kSize, .hashes = hashes_}, {}, false, 2).bytes_read, 0);
  std::mutex mutex;
  std::set<std::int64_t> seen;
  const ReadReport report = read_blocks(file(), {}, true, 3, [&](std::int64_t bytes) {
    const std::lock_guard lock(mutex);
    seen.insert(bytes);
  });
  EXPECT_EQ(report.bytes_read, kSize);
  EXPECT_EQ(seen.size(), 3U);
  EXPECT_EQ(*seen.rbegin(), kSize);
  put(dir_ / "empty", {});
  EXPECT_EQ(read_blocks({.path = dir_ / "empty", .size_bytes = 0, .hashes = {}}, {}, true, 2).bytes_read, 0);
}

TEST_F(ReadBlocks, OneFlippedBitIsFoundWhereverItIsAndBlocksThatNobodyWantsAreNotRead) {
  std::byte byte{};
  for (const std::int64_t offset : {std::int64_t{0}, kBlockBytes - 1, kBlockBytes, 2 * kBlockBytes, kSize - 1}) {
    set(offset, std::byte{1});
    const std::int64_t block = offset / kBlockBytes;
    for (std::int64_t wanted = 0; wanted < 3; ++wanted) {
      const std::vector<Transfer> transfers{{.file_offset = wanted * kBlockBytes + 7, .row_bytes = 1, .to = &byte}};
      if (wanted != block) {
        EXPECT_EQ(read_blocks(file(), transfers, false, 2).bytes_read, wanted == 2 ? 3'333'337 : kBlockBytes);
        continue;
      }
      for (const bool all : {false, true}) {
        const Error error = error_of(all ? std::vector<Transfer>{} : transfers, all);
        EXPECT_EQ(error.kind(), "ckpt.damaged");
        EXPECT_EQ(error.blame(), Blame::storage);
        EXPECT_THAT(error.message(),
                    HasSubstr(fmt::format("block {} of '{}' (offset {}", block, path_, block * kBlockBytes)));
        EXPECT_THAT(error.message(), HasSubstr(hash_hex(hashes_[static_cast<std::size_t>(block)])));
      }
    }
    set(offset, std::byte{0});
  }
  EXPECT_EQ(read_blocks(file(), {}, true, 2).bytes_read, kSize);
}

TEST_F(ReadBlocks, DamageInABlockReadInPlaceIsFound) {
  std::vector<std::byte> to(static_cast<std::size_t>(kSize));
  set(kBlockBytes + 100, std::byte{128});
  EXPECT_EQ(error_of({{.file_offset = 0, .row_bytes = kSize, .to = to.data()}}, false).kind(), "ckpt.damaged");
  set(kBlockBytes + 100, std::byte{0});
}

TEST_F(ReadBlocks, RefusesFilesThatAreNotWhatTheyMustBe) {
  struct Row {
    std::string path;
    std::int64_t size;  // that it is made to have; -1: not made
    std::string kind, words;
  };
  std::filesystem::create_directory(dir_ / "folder");
  for (const Row& row : {Row{dir_ / "longer", kSize + 1, "ckpt.damaged", "has 36887770 bytes, not 36887769"},
                         Row{dir_ / "shorter", kSize - 1, "ckpt.damaged", "has 36887768 bytes, not 36887769"},
                         Row{dir_ / "missing", -1, "ckpt.read", "No such file or directory"},
                         Row{dir_ / "folder", -1, "ckpt.damaged", "is not a regular file"}}) {
    if (row.size >= 0) {
      put(row.path, {});
      std::filesystem::resize_file(row.path, static_cast<std::uintmax_t>(row.size));
    }
    const Error error = thrown_by([&] { read_blocks({row.path, kSize, hashes_}, {}, true, 2); });
    EXPECT_EQ(error.kind(), row.kind);
    EXPECT_EQ(error.blame(), Blame::storage);
    EXPECT_THAT(error.message(), HasSubstr("'" + row.path + "'"));
    EXPECT_THAT(error.message(), HasSubstr(row.words));
  }
  const std::span<const std::uint64_t> two(hashes_.data(), 2);
  EXPECT_EQ(thrown_by([&] { read_blocks({path_, kSize, two}, {}, true, 2); }).kind(), "ckpt.damaged");
}

TEST_F(ReadBlocks, TheFirstErrorOfAnyThreadEndsAllAndIsThrown) {
  for (const int threads : {1, 3}) {
    std::mutex mutex;
    int calls = 0;
    const Error error = thrown_by([&] {
      read_blocks(file(), {}, true, threads, [&](std::int64_t) {
        const std::lock_guard lock(mutex);
        throw user_error("test.first", fmt::format("call {}", ++calls));
      });
    });
    EXPECT_EQ(error.kind(), "test.first");
    if (threads == 1) { EXPECT_EQ(error.message(), "call 1"); }  // a thread may be held up between its call and the end
    EXPECT_LE(calls, threads) << "no thread goes on";
  }
}

TEST_F(ReadBlocks, ATransferBeyondTheFileIsABug) {
  std::byte byte{};
  const Transfer beyond{.file_offset = kSize, .row_bytes = 1, .to = &byte};
  EXPECT_DEATH(read_blocks(file(), std::span(&beyond, 1), false, 1), "a transfer of 1 rows of 1 bytes");
}

}  // namespace
}  // namespace ms::ckpt
