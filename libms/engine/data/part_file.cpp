#include "data/part_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/lock_file.h"
#include "base/user_path.h"

namespace ms::data {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr int kLockAttempts = 100;  // each is lost to a writer that came to its end just then

}  // namespace

PartFile::PartFile(std::string path) : path_(std::move(path)), part_path_(path_ + ".part") {
  const auto refuse = [&](const std::string& why, const char* hint) {
    throw user_error("data.output", fmt::format("cannot write {}: {}", part_path_, why), hint);
  };
  struct stat status {};
  for (int attempt = 0;; ++attempt) {
    ToWrite file = open_to_write(AT_FDCWD, part_path_, O_RDWR);
    if (!file.fd && (file.error == 0 || file.error == ELOOP || file.error == ENXIO))
      refuse(file.why, "remove it, or name another --output");
    if (!file.fd) {
      throw Error("file.write", is_wrong_path(file.error) ? Blame::user : Blame::storage,
                  fmt::format("cannot create {}: {}", path_, file.why),
                  file.error == ENOENT ? "the directory must exist" : "");
    }
    fd_ = std::move(file.fd);
    // Some network file systems have no locks.
    if (try_lock(fd_) == EWOULDBLOCK) refuse("another process writes it", "wait for it, or name another --output");
    if (::fstat(fd_.get(), &status) != 0) failed("stat");
    struct stat named {};
    // Whoever had the lock may have renamed or removed the file that was opened.
    if (::lstat(part_path_.c_str(), &named) == 0 && named.st_ino == status.st_ino && named.st_dev == status.st_dev)
      break;
    if (attempt == kLockAttempts) refuse("other processes write it", "wait for them, or name another --output");
  }
  if (status.st_uid != ::geteuid())
    refuse(fmt::format("it belongs to user {}", status.st_uid), "remove it, or name another --output");
  inode_ = status.st_ino;
  size_bytes_ = status.st_size;
  if (::lseek(fd_.get(), 0, SEEK_END) < 0) failed("seek in");
  buffer_.reserve(kBufferBytes);
}

PartFile::~PartFile() {
  if (!published_ && !keep_) ::unlink(part_path_.c_str());
}

void PartFile::failed(const char* operation) const {
  const int err = errno;
  throw Error("file.write", Blame::storage, fmt::format("cannot {} {}: {}", operation, path_, errno_text(err)));
}

void PartFile::write(const void* data, std::size_t size_bytes) {
  const char* from = static_cast<const char*>(data);
  size_bytes_ += static_cast<std::int64_t>(size_bytes);
  while (size_bytes > 0) {
    if (buffer_.size() == kBufferBytes) flush();
    const std::size_t part = std::min(size_bytes, kBufferBytes - buffer_.size());
    buffer_.insert(buffer_.end(), from, from + part);
    from += part;
    size_bytes -= part;
  }
}

void PartFile::flush() {
  for (std::size_t done = 0; done < buffer_.size();) {
    const ssize_t n = ::write(fd_.get(), buffer_.data() + done, buffer_.size() - done);
    if (n < 0 && errno != EINTR) failed("write");
    if (n > 0) done += static_cast<std::size_t>(n);
  }
  buffer_.clear();
}

void PartFile::truncate(std::int64_t size_bytes) {
  flush();
  if (::ftruncate(fd_.get(), size_bytes) != 0) failed("truncate");
  if (::lseek(fd_.get(), size_bytes, SEEK_SET) < 0) failed("seek in");
  size_bytes_ = size_bytes;
}

void PartFile::sync() {
  flush();
  if (::fdatasync(fd_.get()) != 0) failed("sync");
}

void PartFile::publish() {
  rename_synced(part_path_, path_);
  published_ = true;
}

void PartFile::withdraw() noexcept {
  if (published_ && ::rename(path_.c_str(), part_path_.c_str()) == 0) published_ = false;
}

std::string PartFile::read() const {
  std::string content(static_cast<std::size_t>(size_bytes_) - buffer_.size(), '\0');
  for (std::size_t done = 0; done < content.size();) {
    const ssize_t n = ::pread(fd_.get(), content.data() + done, content.size() - done, static_cast<off_t>(done));
    if (n == 0 || (n < 0 && errno != EINTR)) failed("read");
    if (n > 0) done += static_cast<std::size_t>(n);
  }
  return content;
}

}  // namespace ms::data
