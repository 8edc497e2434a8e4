// Implements the readers of blocks.h.
// Reading a data file block by block. Threads take blocks in order; each block is read in chunks that are hashed and
// moved on while they are in the processor's cache. A chunk that one row of one transfer covers is read to where it is
// wanted; any other into the thread's own memory, and scattered from there.
// Invariant: a block is read at most once, and read_blocks returns only if every one was what its hash says.

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/handle.h"
#include "base/hash.h"
#include "ckpt/blocks.h"

namespace ms::ckpt {
namespace {

constexpr std::int64_t kChunkBytes = std::int64_t{256} << 10;  // fits the second-level cache
static_assert(kBlockBytes % kChunkBytes == 0);
constexpr std::int64_t chunk_count(std::int64_t size_bytes) { return (size_bytes + kChunkBytes - 1) / kChunkBytes; }

struct Interval {
  std::int64_t begin = 0, end = 0;
  bool empty() const { return begin >= end; }
};

// A transfer as seen by a chunk: rows that follow on each other on both sides are one row.
Transfer joined(const Transfer& transfer) {
  Transfer result = transfer;
  if (result.rows > 1 && result.file_stride == result.row_bytes && result.memory_stride == result.row_bytes) {
    result.row_bytes *= result.rows;
    result.rows = 1;
  }
  if (result.rows == 1) result.file_stride = result.memory_stride = result.row_bytes;
  return result;
}

// Where its last byte ends in the file.
std::int64_t end_of(const Transfer& t) { return t.file_offset + (t.rows - 1) * t.file_stride + t.row_bytes; }

// The rows that have a byte in `bytes` of the file. `t` is joined.
Interval rows_in(const Transfer& t, const Interval& bytes) {
  const std::int64_t before =
      bytes.begin - t.file_offset - t.row_bytes;         // row r ends after bytes.begin: r * stride > before
  const std::int64_t ahead = bytes.end - t.file_offset;  // row r begins before bytes.end: r * stride < ahead
  return {before < 0 ? 0 : before / t.file_stride + 1,
          ahead <= 0 ? 0 : std::min(t.rows, (ahead + t.file_stride - 1) / t.file_stride)};
}

// Which transfers touch which chunk: two passes of counting, no sorting, whatever the number of transfers.
class Touching {
 public:
  Touching(const BlockFile& file, std::span<const Transfer> transfers)
      : size_bytes_(file.size_bytes), begin_(static_cast<std::size_t>(chunk_count(file.size_bytes)) + 1) {
    for_each(transfers, [&](std::size_t chunk, std::size_t) { ++begin_[chunk + 1]; });
    for (std::size_t chunk = 1; chunk < begin_.size(); ++chunk) begin_[chunk] += begin_[chunk - 1];
    index_.resize(begin_.back());
    std::vector<std::size_t> next(begin_.begin(), begin_.end() - 1);
    for_each(transfers, [&](std::size_t chunk, std::size_t transfer) { index_[next[chunk]++] = transfer; });
  }

  Interval bytes_of(std::int64_t chunk) const {
    return {chunk * kChunkBytes, std::min((chunk + 1) * kChunkBytes, size_bytes_)};
  }
  // The transfers of a chunk, in the order they were given.
  std::span<const std::size_t> of(std::int64_t chunk) const {
    const auto c = static_cast<std::size_t>(chunk);
    return std::span(index_).subspan(begin_[c], begin_[c + 1] - begin_[c]);
  }

 private:
  template <class Visit>
  void for_each(std::span<const Transfer> transfers, Visit visit) const {
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      if (transfers[i].rows <= 0 || transfers[i].row_bytes <= 0) continue;
      const Transfer t = joined(transfers[i]);
      MS_ASSERT(t.file_offset >= 0 && t.file_stride >= t.row_bytes && end_of(t) <= size_bytes_,
                "a transfer of {} rows of {} bytes at {} of a file of {}", t.rows, t.row_bytes, t.file_offset,
                size_bytes_);
      const std::int64_t last = (end_of(t) - 1) / kChunkBytes;
      for (std::int64_t chunk = t.file_offset / kChunkBytes; chunk <= last; ++chunk) {
        if (!rows_in(t, bytes_of(chunk)).empty()) visit(static_cast<std::size_t>(chunk), i);
      }
    }
  }

  std::int64_t size_bytes_;
  std::vector<std::size_t> begin_, index_;  // transfers of chunk c: index_[begin_[c]] .. index_[begin_[c + 1]]
};

Error read_error(std::string_view doing, const std::string& path, int err) {
  return Error("ckpt.read", Blame::storage, fmt::format("cannot {} '{}': {}", doing, path, errno_text(err)));
}
Error damaged(std::string message) { return Error("ckpt.damaged", Blame::storage, std::move(message)); }

UniqueFd open_file(const BlockFile& file) {
  int fd = -1;
  do { fd = ::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); } while (fd < 0 && errno == EINTR);
  if (fd < 0) throw read_error("open", file.path, errno);
  UniqueFd result(fd);
  struct stat status {};
  if (::fstat(fd, &status) != 0) throw read_error("stat", file.path, errno);
  if (!S_ISREG(status.st_mode)) throw damaged(fmt::format("'{}' is not a regular file", file.path));
  if (status.st_size != file.size_bytes) {
    throw damaged(fmt::format("'{}' has {} bytes, not {}", file.path, status.st_size, file.size_bytes));
  }
  // A hint, and as such of no consequence: read ahead as far as the device allows.
  static_cast<void>(::posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL));
  return result;
}

// One call of read_blocks: what its threads share.
class Reading {
 public:
  Reading(const BlockFile& file, std::span<const Transfer> transfers, bool all,
          const std::function<void(std::int64_t)>& progress)
      : file_(file), transfers_(transfers), touching_(file, transfers), progress_(progress) {
    for (std::int64_t chunk = 0; chunk < chunk_count(file.size_bytes); ++chunk) {
      const std::int64_t block = chunk * kChunkBytes / kBlockBytes;
      if ((all || !touching_.of(chunk).empty()) && (blocks_.empty() || blocks_.back() != block)) {
        blocks_.push_back(block);
      }
    }
  }
  std::size_t blocks() const { return blocks_.size(); }
  std::int64_t bytes_read() const { return bytes_read_; }

  // Runs in each thread: reads blocks until none is left or a read has failed.
  void work() noexcept {
    try {
      const UniqueFd fd = open_file(file_);  // of its own: the kernel reads ahead per open file
      const auto scratch = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(kChunkBytes));
      for (std::size_t i = next_++; i < blocks_.size() && !failed_; i = next_++) {
        const std::int64_t so_far = bytes_read_ += read_block(fd, blocks_[i], scratch.get());
        if (progress_) progress_(so_far);
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!first_) first_ = std::current_exception();
      failed_ = true;
    }
  }
  // After all threads have ended.
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  // How many bytes it has.
  std::int64_t read_block(const UniqueFd& fd, std::int64_t block, std::byte* scratch) const {
    const Interval bytes{block * kBlockBytes, std::min((block + 1) * kBlockBytes, file_.size_bytes)};
    Hasher hasher;
    for (std::int64_t chunk = bytes.begin / kChunkBytes; chunk < chunk_count(bytes.end); ++chunk) {
      const Interval part = touching_.bytes_of(chunk);
      std::byte* const place = place_for(chunk);
      std::byte* const data = place != nullptr ? place : scratch;
      read_whole(fd, part, data);
      hasher.update({data, static_cast<std::size_t>(part.end - part.begin)});
      for (const std::size_t i : touching_.of(chunk)) scatter(joined(transfers_[i]), part, data);
    }
    const std::uint64_t expected = file_.hashes[static_cast<std::size_t>(block)];
    if (hasher.digest() != expected) {
      throw damaged(fmt::format("block {} of '{}' (offset {}, {} bytes) is damaged: its hash is {}, not {}", block,
                                file_.path, bytes.begin, bytes.end - bytes.begin, hash_hex(hasher.digest()),
                                hash_hex(expected)));
    }
    return bytes.end - bytes.begin;
  }

  void read_whole(const UniqueFd& fd, const Interval& bytes, std::byte* to) const {
    for (std::int64_t at = bytes.begin; at < bytes.end;) {
      const ssize_t n = ::pread(fd.get(), to + (at - bytes.begin), static_cast<std::size_t>(bytes.end - at), at);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        throw read_error(fmt::format("read block {} (offset {}) of", at / kBlockBytes, at), file_.path, errno);
      }
      if (n == 0) throw damaged(fmt::format("'{}' ends at {} of {} bytes", file_.path, at, file_.size_bytes));
      at += n;
    }
  }

  // Returns the destination of a chunk that is wanted whole and contiguous; nullptr: it has none.
  std::byte* place_for(std::int64_t chunk) const {
    const Interval bytes = touching_.bytes_of(chunk);
    for (const std::size_t i : touching_.of(chunk)) {
      const Transfer t = joined(transfers_[i]);
      if (t.row_bytes < bytes.end - bytes.begin) continue;
      const std::int64_t row = rows_in(t, bytes).begin;
      const std::int64_t begin = t.file_offset + row * t.file_stride;
      if (begin <= bytes.begin && begin + t.row_bytes >= bytes.end) {
        return t.to + row * t.memory_stride + (bytes.begin - begin);
      }
    }
    return nullptr;
  }

  // Copies what a joined transfer wants of `bytes` of the file, which are at `data`.
  static void scatter(const Transfer& t, const Interval& bytes, const std::byte* data) {
    const Interval rows = rows_in(t, bytes);
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const std::int64_t row_begin = t.file_offset + row * t.file_stride;
      const std::int64_t begin = std::max(row_begin, bytes.begin);
      const std::int64_t end = std::min(row_begin + t.row_bytes, bytes.end);
      std::byte* to = t.to + row * t.memory_stride + (begin - row_begin);
      const std::byte* from = data + (begin - bytes.begin);
      if (to != from) std::memcpy(to, from, static_cast<std::size_t>(end - begin));
    }
  }

  const BlockFile& file_;
  const std::span<const Transfer> transfers_;
  const Touching touching_;
  const std::function<void(std::int64_t)>& progress_;
  std::vector<std::int64_t> blocks_;  // to be read
  std::atomic<std::size_t> next_{0};  // in blocks_
  std::atomic<std::int64_t> bytes_read_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;  // guards first_
  std::exception_ptr first_;
};

}  // namespace

ReadReport read_blocks(const BlockFile& file, std::span<const Transfer> transfers, bool all, int threads,
                       const std::function<void(std::int64_t)>& progress) {
  MS_ASSERT(threads >= 1, "{} threads to read '{}'", threads, file.path);
  if (std::ssize(file.hashes) != block_count(file.size_bytes)) {
    throw damaged(
        fmt::format("'{}' has {} blocks, but {} hashes", file.path, block_count(file.size_bytes), file.hashes.size()));
  }
  Reading reading(file, transfers, all, progress);
  if (reading.blocks() == 0 && !all) return {};
  const std::size_t helpers =
      std::min(static_cast<std::size_t>(threads), std::max<std::size_t>(reading.blocks(), 1)) - 1;
  {
    std::vector<std::jthread> pool;
    for (std::size_t i = 0; i < helpers; ++i) {
      pool.emplace_back([&reading] {
        pthread_setname_np(pthread_self(), "ms-ckpt-read");
        reading.work();
      });
    }
    reading.work();
  }
  reading.rethrow();
  return {.bytes_read = reading.bytes_read()};
}

}  // namespace ms::ckpt
