// Implements the writer of blocks.h.
// Writing a data file from its image. One thread writes, in order, with direct I/O: the disk reads the image itself,
// and the processor is free. A second thread hashes the image meanwhile, so that a hash costs no time of the disk's.
// Invariant: what is returned has been hashed from the same memory that was written, and is durable.

#include <fcntl.h>
#include <pthread.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/handle.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/system_error.h"
#include "ckpt/blocks.h"

namespace ms::ckpt {

Error write_error(std::string_view doing, const std::string& path, int err) {
  const bool full = err == ENOSPC || err == EDQUOT;
  return system_error("ckpt.write", Blame::storage, fmt::format("cannot {} '{}': {}", doing, path, errno_text(err)),
                      err,
                      full ? "make room there: 'ms-ckpt prune', and checkpoint.keep_last for the time to come" : "");
}

namespace {

bool not_supported(int err) { return err == EINVAL || err == EOPNOTSUPP; }

double thread_cpu_s() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// A file being written: direct while that works, through the page cache from where it does not.
class Output {
 public:
  Output(const std::string& path, UniqueFd fd) : path_(path), fd_(std::move(fd)) {
    const int flags = ::fcntl(fd_.get(), F_GETFL);
    direct_ = flags >= 0 && ::fcntl(fd_.get(), F_SETFL, flags | O_DIRECT) == 0;
    if (!direct_ && !not_supported(errno)) throw write_error("write", path_, errno);
  }
  bool direct() const { return direct_; }

  void write(std::span<const std::byte> data, std::int64_t offset) {
    while (!data.empty()) {
      const ssize_t n = ::pwrite(fd_.get(), data.data(), data.size(), offset);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && direct_ && not_supported(errno)) {
        leave_direct();
        continue;
      }
      if (n < 0) throw write_error("write", path_, errno);
      if (n == 0) throw write_error("write", path_, EIO);  // POSIX knows no such answer of a file
      data = data.subspan(static_cast<std::size_t>(n));
      offset += n;
      if (direct_ && n % kPageBytes != 0 && !data.empty()) leave_direct();  // the rest is not aligned
    }
  }

  // Bounds what lies in the page cache unwritten, so that the fsync at the end has little left to do and nobody else
  // on the node is made to wait for it: starts writing [offset, ..) and waits for the block before it. What these
  // calls answer is not looked at: fsync reports the same errors, on every file system.
  void push(std::int64_t offset) {
    if (direct_) return;
    static_cast<void>(::sync_file_range(fd_.get(), offset, kBlockBytes, SYNC_FILE_RANGE_WRITE));
    if (offset < kBlockBytes) return;
    static_cast<void>(
        ::sync_file_range(fd_.get(), offset - kBlockBytes, kBlockBytes,
                          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER));
  }

  void finish(std::int64_t size_bytes) {
    if (::ftruncate(fd_.get(), size_bytes) != 0) throw write_error("set the size of", path_, errno);
    if (::fsync(fd_.get()) != 0) throw write_error("fsync", path_, errno);
    // After EINTR the descriptor is closed all the same, and fsync has vouched for the data.
    if (::close(fd_.release()) != 0 && errno != EINTR) throw write_error("close", path_, errno);
  }

 private:
  void leave_direct() {
    const int flags = ::fcntl(fd_.get(), F_GETFL);
    if (flags < 0 || ::fcntl(fd_.get(), F_SETFL, flags & ~O_DIRECT) != 0) throw write_error("write", path_, errno);
    direct_ = false;
  }

  std::string path_;
  UniqueFd fd_;
  bool direct_ = false;
};

// Not joinable where the system has no more threads: the last save of a run must not fail for that.
std::jthread thread_or_none(std::function<void(const std::stop_token&)> work) {
  try {
    return std::jthread(std::move(work));
  } catch (const std::system_error& refused) {
    log::debug("ckpt", "no thread to hash beside writing: {}", refused.what());
    return {};
  }
}

}  // namespace

WriteReport write_image(const std::string& path, UniqueFd file, std::span<const std::byte> image,
                        std::int64_t size_bytes, const std::stop_token& stop) {
  MS_ASSERT(size_bytes >= 0 && std::ssize(image) >= image_bytes(size_bytes), "an image of {} bytes for a file of {}",
            image.size(), size_bytes);
  MS_ASSERT(reinterpret_cast<std::uintptr_t>(image.data()) % kPageBytes == 0, "an image that is not page-aligned");
  const auto begun = std::chrono::steady_clock::now();
  const double cpu_begun = thread_cpu_s();
  const std::int64_t blocks = block_count(size_bytes);
  // [begin, end) of a block in the file, or, rounded up to whole pages, in the image.
  const auto block_of = [&](std::int64_t block, std::int64_t end) {
    const std::int64_t begin = block * kBlockBytes;
    return image.subspan(static_cast<std::size_t>(begin),
                         static_cast<std::size_t>(std::min(begin + kBlockBytes, end) - begin));
  };

  Output output(path, std::move(file));
  WriteReport report;
  report.hashes.resize(static_cast<std::size_t>(blocks));
  double hash_cpu_s = 0;
  const auto hash = [&](const std::stop_token& given_up) {  // throws nothing
    for (std::int64_t block = 0; block < blocks && !given_up.stop_requested(); ++block) {
      report.hashes[static_cast<std::size_t>(block)] = xxh64(block_of(block, size_bytes));
    }
  };
  std::jthread hasher = thread_or_none([&](const std::stop_token& given_up) {
    pthread_setname_np(pthread_self(), "ms-ckpt-hash");
    hash(given_up);
    hash_cpu_s = thread_cpu_s();
  });
  for (std::int64_t block = 0; block < blocks; ++block) {
    if (stop.stop_requested()) {
      throw Error("ckpt.stopped", Blame::bug, fmt::format("told to stop while writing '{}'", path));
    }
    output.write(block_of(block, image_bytes(size_bytes)), block * kBlockBytes);
    output.push(block * kBlockBytes);
  }
  output.finish(size_bytes);
  hasher.joinable() ? hasher.join() : hash({});
  report.direct = output.direct();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  report.cpu_seconds = thread_cpu_s() - cpu_begun + hash_cpu_s;
  return report;
}

}  // namespace ms::ckpt
