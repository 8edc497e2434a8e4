#include "diag/disk.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>

#include "base/error.h"
#include "base/handle.h"
#include "base/text.h"

namespace ms::diag {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kDiskBlock = 1 << 20;
constexpr std::int64_t kSmall = 4096;  // what is made durable
constexpr std::int64_t kPartOfFree = 20;
constexpr std::int64_t kBlocksInCache = 67;  // prime, so that every file has its turn
constexpr std::size_t kAlign = 4096;         // of memory and offsets, for O_DIRECT

Error disk_error(const std::string& what, int error) {
  return Error("diag.disk", Blame::storage, fmt::format("{}: {}", what, errno_text(error)));
}

// A file without a name where the file system has them. Elsewhere, as on NFS, its name is taken away at once.
UniqueFd open_nameless(const std::string& directory, int flags) {
  UniqueFd file(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600));
  if (file || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) return file;
  std::string name = directory + "/.ms-diag-XXXXXX";
  UniqueFd named(::mkostemp(name.data(), O_CLOEXEC | flags));
  const int error = errno;
  if (named) ::unlink(name.c_str());
  errno = error;
  return named;
}

struct FreeMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Block = std::unique_ptr<std::byte, FreeMemory>;
Block make_block() { return Block(static_cast<std::byte*>(std::aligned_alloc(kAlign, kDiskBlock))); }

// Random words, which no disk compresses.
Block make_pattern() {
  Block block = make_block();
  std::uint64_t value = 1;
  for (std::int64_t i = 0; i < kDiskBlock; i += 8) {
    value = value * 6364136223846793005U + 1442695040888963407U;
    std::memcpy(block.get() + i, &value, sizeof value);
  }
  return block;
}

// Makes every page of the block differ from all others of the file.
void stamp(const Block& block, std::int64_t offset) {
  for (std::int64_t i = 0; i < kDiskBlock; i += kSmall) {
    const std::int64_t at = offset + i;
    std::memcpy(block.get() + i, &at, sizeof at);
  }
}

class Disk {
 public:
  Disk(const std::string& directory, const DiskPlan& plan) : directory_(directory), plan_(plan) {
    for (int i = 0; i < plan.threads; ++i) {  // a file each: file systems serialize writes that make one file longer
      UniqueFd file = open_nameless(directory, O_DIRECT);
      speed_.direct = static_cast<bool>(file);
      if (!file && errno == EINVAL) file = open_nameless(directory, 0);  // as tmpfs before Linux 6.6
      if (!file) throw disk_error("cannot write in " + directory, errno);
      files_.push_back(std::move(file));
    }
    struct statvfs space {};
    if (::fstatvfs(files_[0].get(), &space) != 0) throw disk_error("statvfs " + directory, errno);
    const auto free = static_cast<std::int64_t>(space.f_bavail * space.f_frsize);
    most_ = std::min(plan.most_bytes, free / kPartOfFree) / kDiskBlock * kDiskBlock;
    if (most_ < kDiskBlock * plan.threads) throw disk_error("too little room in " + directory, ENOSPC);
  }

  DiskSpeed run() {
    const double write_s = pass([this](const Block& pattern, const Block&, std::int64_t offset) {
      stamp(pattern, offset);
      whole("write", ::pwrite(file_of(offset), pattern.get(), kDiskBlock, place_of(offset)));
      // A cache takes in seconds what the disk then writes for minutes: never leave it much.
      if (!speed_.direct && offset / kDiskBlock % kBlocksInCache == 0) durable(file_of(offset));
    });
    const Clock::time_point synced = Clock::now();
    for (const UniqueFd& file : files_) durable(file.get());
    const double sync_s = std::chrono::duration<double>(Clock::now() - synced).count();
    speed_.bytes = moved_;
    speed_.write_gbps = static_cast<double>(moved_) / (write_s + sync_s) / 1e9;
    for (const UniqueFd& file : files_) ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
    most_ = speed_.bytes;
    const double read_s = pass([this](const Block& pattern, const Block& block, std::int64_t offset) {
      whole("read", ::pread(file_of(offset), block.get(), kDiskBlock, place_of(offset)));
      stamp(pattern, offset);
      if (std::memcmp(block.get(), pattern.get(), kDiskBlock) != 0) ++num_wrong_;
    });
    speed_.read_gbps = static_cast<double>(moved_) / read_s / 1e9;
    speed_.num_wrong = num_wrong_;
    fsyncs();
    return speed_;
  }

 private:
  void durable(int file) {
    if (::fdatasync(file) != 0) throw disk_error("fdatasync in " + directory_, errno);
  }
  void whole(const char* what, ssize_t done) {
    if (done != kDiskBlock) throw disk_error(fmt::format("{} in {}", what, directory_), done < 0 ? errno : EIO);
  }

  // Blocks go round the files.
  int file_of(std::int64_t offset) const {
    return files_[static_cast<std::size_t>(offset / kDiskBlock) % files_.size()].get();
  }
  std::int64_t place_of(std::int64_t offset) const { return offset / kDiskBlock / std::ssize(files_) * kDiskBlock; }

  // The seconds in which all threads together move blocks until the time or the size is over, with what it takes to
  // mark and compare them.
  template <class Move>
  double pass(Move move) {
    std::atomic<std::int64_t> next{0};
    std::atomic<std::int64_t> moved{0};
    const Clock::time_point start = Clock::now();
    const auto end = start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(plan_.seconds));
    std::vector<std::future<void>> threads;
    for (int i = 0; i < plan_.threads; ++i) {
      threads.push_back(std::async(std::launch::async, [&] {
        const Block pattern = make_pattern(), block = make_block();
        while (Clock::now() < end) {
          const std::int64_t offset = next.fetch_add(kDiskBlock);
          if (offset >= most_) return;
          move(pattern, block, offset);
          moved += kDiskBlock;
        }
      }));
    }
    for (auto& thread : threads) thread.get();
    moved_ = moved;
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  // As a log that is made durable entry by entry.
  void fsyncs() {
    const Block block = make_pattern();
    const Clock::time_point start = Clock::now();
    double elapsed_s = 0;
    for (std::int64_t i = 0; elapsed_s < plan_.fsync_s; ++i) {
      const Clock::time_point before = Clock::now();
      const ssize_t written = ::pwrite(files_[0].get(), block.get(), kSmall, i * kSmall % kDiskBlock);
      if (written != kSmall || ::fdatasync(files_[0].get()) != 0) throw disk_error("fdatasync in " + directory_, errno);
      const Clock::time_point now = Clock::now();
      speed_.fsync_s.push_back(std::chrono::duration<double>(now - before).count());
      elapsed_s = std::chrono::duration<double>(now - start).count();
    }
    std::sort(speed_.fsync_s.begin(), speed_.fsync_s.end());
  }

  const std::string directory_;
  const DiskPlan plan_;
  std::vector<UniqueFd> files_;
  std::int64_t most_ = 0, moved_ = 0;
  std::atomic<std::int64_t> num_wrong_{0};
  DiskSpeed speed_;
};

}  // namespace

DiskSpeed measure_disk(const std::string& directory, const DiskPlan& plan) { return Disk(directory, plan).run(); }

}  // namespace ms::diag
