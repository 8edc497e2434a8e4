#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "base/system_error.h"
#include "base/user_path.h"

namespace ms {
namespace {

Error file_error(std::string kind, Blame blame, std::string_view doing, const std::string& path, int err) {
  return system_error(std::move(kind), blame, fmt::format("cannot {} '{}': {}", doing, path, errno_text(err)), err);
}

Blame blame_of(int err, Blame absent) { return is_wrong_path(err) ? absent : Blame::storage; }

// Opens for reading; EINTR is retried because slow file systems can be interrupted by our own timers.
UniqueFd open_for_reading(const std::string& path, Blame absent, int flags, int directory = AT_FDCWD,
                          const char* name = nullptr) {
  int fd = -1;
  do {
    fd = ::openat(directory, name != nullptr ? name : path.c_str(), O_RDONLY | O_CLOEXEC | flags);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) throw file_error("file.open", blame_of(errno, absent), "open", path, errno);
  return UniqueFd(fd);
}

struct stat stat_of(const UniqueFd& fd, const std::string& path, Blame absent) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) throw file_error("file.stat", Blame::storage, "stat", path, errno);
  if (S_ISDIR(status.st_mode)) throw file_error("file.open", absent, "read", path, EISDIR);
  return status;
}

void write_all(const UniqueFd& fd, std::string_view data, const std::string& path) {
  while (!data.empty()) {
    const ssize_t n = ::write(fd.get(), data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw file_error("file.write", Blame::storage, "write", path, errno);
    data.remove_prefix(static_cast<std::size_t>(n));
  }
}

void sync(const UniqueFd& fd, const std::string& path) {
  if (::fsync(fd.get()) != 0) throw file_error("file.sync", Blame::storage, "fsync", path, errno);
}

std::string read_all(const UniqueFd& fd, std::size_t guess_bytes, const std::string& path) {
  std::string data;
  data.resize(guess_bytes + 1);  // a guess: /proc says 0, a log grows
  std::size_t size = 0;
  while (true) {
    const ssize_t n = ::read(fd.get(), data.data() + size, data.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw file_error("file.read", Blame::storage, "read", path, errno);
    if (n == 0) break;
    size += static_cast<std::size_t>(n);
    if (size == data.size()) data.resize(data.size() * 2 + 4096);
  }
  data.resize(size);
  return data;
}

void require_regular(const struct stat& status, const std::string& path, Blame absent) {
  if (!S_ISREG(status.st_mode)) throw Error("file.kind", absent, fmt::format("{} is not a regular file", path));
}

void sync_directory_at(int directory, const std::string& name, const std::string& path) {
  const UniqueFd fd = open_for_reading(path, Blame::storage, O_DIRECTORY, directory, name.c_str());
  // Some network file systems refuse fsync of a directory and need none.
  if (::fsync(fd.get()) != 0 && errno != EINVAL && errno != ENOTSUP) {
    throw file_error("file.sync", Blame::storage, "fsync the directory", path, errno);
  }
}

// Why no file could be made at this path; 0: nothing is known against it.
int output_errno(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) return EISDIR;
  const std::string directory = parent_directory(path);
  if (::stat(directory.c_str(), &status) != 0) return errno;
  if (!S_ISDIR(status.st_mode)) return ENOTDIR;
  return ::access(directory.c_str(), W_OK | X_OK) == 0 ? 0 : errno;
}

// A file under a temporary name, complete and on disk; unlinked by the destructor unless it was renamed away.
class TemporaryFile {
 public:
  TemporaryFile(const std::string& target, std::string_view data, Blame absent, int directory, const std::string& name)
      : directory_(directory) {
    static std::atomic<unsigned> counter{0};  // distinct names for the threads of one process
    char host[256] = {};
    ::gethostname(host, sizeof host - 1);  // and for processes of one number on two nodes
    path_ = fmt::format("{}.tmp.{}.{}.{}", name, host, ::getpid(), counter.fetch_add(1));
    UniqueFd fd(::openat(directory_, path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!fd) throw file_error("file.create", blame_of(errno, absent), "create", target, errno);
    try {
      write_all(fd, data, target);
      sync(fd, target);
      fd.close();
    } catch (const Error&) {
      ::unlinkat(directory_, path_.c_str(), 0);  // the destructor of an object that was not finished does not run
      throw;
    }
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (!renamed_) ::unlinkat(directory_, path_.c_str(), 0);
  }
  const std::string& path() const { return path_; }
  void renamed() { renamed_ = true; }

 private:
  int directory_;
  std::string path_;
  bool renamed_ = false;
};

void write_atomic(const std::string& path, std::string_view data, Blame absent, int directory,
                  const std::string& name) {
  TemporaryFile file(path, data, absent, directory, name);
  if (::renameat(directory, file.path().c_str(), directory, name.c_str()) != 0) {
    throw file_error("file.rename", blame_of(errno, absent), "rename a temporary file to", path, errno);
  }
  file.renamed();
  sync_directory_at(directory, parent_directory(name), parent_directory(path));
}

// Whether there is something that a rename would replace by a file: a device, a pipe, or /dev/stdout.
bool is_written_into(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || S_ISDIR(status.st_mode)) return false;
  std::error_code error;
  const std::string directory = std::filesystem::canonical(parent_directory(path), error).string();
  return !S_ISREG(status.st_mode) || directory == "/dev" || directory.starts_with("/proc/");
}

void write_into(const std::string& path, std::string_view data) {
  // A pipe that nobody reads is refused with ENXIO, and not waited for.
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd)
    throw file_error("file.open", errno == ENXIO ? Blame::user : blame_of(errno, Blame::user), "open", path, errno);
  if (const int flags = ::fcntl(fd.get(), F_GETFL); flags >= 0) ::fcntl(fd.get(), F_SETFL, flags & ~O_NONBLOCK);
  write_all(fd, data, path);
  fd.close();
}

void make_all(const std::string& path, Blame absent) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  // create_directories says "not an error" for some paths that are files; ask for the outcome instead.
  if (!error && !std::filesystem::is_directory(path, error) && !error) {
    error = std::make_error_code(std::errc::not_a_directory);
  }
  if (error)
    throw file_error("file.make_directory", blame_of(error.value(), absent), "make the directory", path, error.value());
}

}  // namespace

void FdTraits::close(int fd) {
  // After EINTR Linux has closed the descriptor all the same: a second close could hit another thread's new file.
  if (::close(fd) != 0 && errno != EINTR) {
    throw Error("file.close", Blame::storage,
                fmt::format("cannot close file descriptor {}: {}", fd, errno_text(errno)));
  }
}

std::string read_file(const std::string& path, Blame absent) {
  UniqueFd fd = open_for_reading(path, absent, 0);
  return read_all(fd, static_cast<std::size_t>(stat_of(fd, path, absent).st_size), path);
}

std::string read_user_file(const std::string& path, std::size_t max_bytes) {
  const UniqueFd fd = open_for_reading(path, Blame::user, O_NONBLOCK);  // a pipe would block here until somebody writes
  const struct stat status = stat_of(fd, path, Blame::user);
  require_regular(status, path, Blame::user);
  const auto size_bytes = static_cast<std::size_t>(status.st_size);
  if (size_bytes > max_bytes) {
    throw user_error("file.size", fmt::format("'{}' has {} bytes, at most {} are read", path, size_bytes, max_bytes));
  }
  return read_all(fd, size_bytes, path);
}

std::string read_user_file_end(const std::string& path, std::size_t max_bytes, std::int64_t until_bytes) {
  const UniqueFd fd = open_for_reading(path, Blame::user, O_NONBLOCK);
  const struct stat status = stat_of(fd, path, Blame::user);
  require_regular(status, path, Blame::user);
  const std::int64_t end = std::min<std::int64_t>(status.st_size, until_bytes);
  std::string text(std::min(static_cast<std::size_t>(end), max_bytes), '\0');
  const ssize_t got = pread(fd.get(), text.data(), text.size(), end - std::ssize(text));
  if (got < 0) throw file_error("file.read", Blame::storage, "read", path, errno);
  text.resize(static_cast<std::size_t>(got));
  return text;
}

void write_file_atomic(const std::string& path, std::string_view data) {
  write_atomic(path, data, Blame::storage, AT_FDCWD, path);
}
void write_file_atomic(const std::string& path, std::string_view data, int directory, const std::string& name) {
  write_atomic(path, data, Blame::storage, directory, name);
}

void write_user_file(const std::string& path, std::string_view data) {
  if (is_written_into(path)) {
    write_into(path, data);
  } else {
    write_atomic(path, data, Blame::user, AT_FDCWD, path);
  }
}

bool create_exclusive(const std::string& path, std::string_view data) {
  const TemporaryFile file(path, data, Blame::storage, AT_FDCWD, path);
  if (::link(file.path().c_str(), path.c_str()) != 0) {
    if (errno == EEXIST) return false;
    throw file_error("file.link", Blame::storage, "create", path, errno);
  }
  sync_directory(parent_directory(path));
  return true;
}

void check_user_file(const std::string& path) {
  if (const int err = output_errno(path); err != 0) {
    throw file_error("file.create", blame_of(err, Blame::user), "create", path, err);
  }
}

bool is_wrong_path(int err) {
  constexpr int kWrong[] = {ENOENT, ENOTDIR, EISDIR, EACCES, EPERM, EROFS, ELOOP, ENAMETOOLONG, EEXIST};
  return std::ranges::find(kWrong, err) != std::end(kWrong);
}

void make_directories(const std::string& path) { make_all(path, Blame::storage); }
void make_user_directories(const std::string& path) { make_all(path, Blame::user); }

void rename_synced(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    throw file_error("file.rename", Blame::storage, fmt::format("rename '{}' to", from), to, errno);
  }
  sync_directory(parent_directory(to));
}

void sync_directory(const std::string& path) { sync_directory_at(AT_FDCWD, path, path); }

std::string parent_directory(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

MappedFile::MappedFile(const std::string& path, Blame absent) : path_(path) {
  const UniqueFd fd = open_for_reading(path, absent, O_NONBLOCK);  // a pipe would block here until somebody writes
  const struct stat status = stat_of(fd, path, absent);
  require_regular(status, path, absent);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return;  // mmap refuses an empty mapping
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) throw file_error("file.map", Blame::storage, "map", path, errno);
  bytes_ = {static_cast<const std::byte*>(address), size};
}

void MappedFile::read(std::size_t at, std::span<std::byte> out) const {
  MS_ASSERT(at <= bytes_.size() && out.size() <= bytes_.size() - at, "bytes {} + {} of {}", at, out.size(), path_);
  // The kernel copies, since it answers EFAULT where this thread would get a SIGBUS. Some sandboxes forbid the call.
  while (!out.empty()) {
    const iovec to{.iov_base = out.data(), .iov_len = out.size()};
    const iovec from{.iov_base = const_cast<std::byte*>(bytes_.data() + at), .iov_len = out.size()};
    const ssize_t n = ::process_vm_readv(::getpid(), &to, 1, &from, 1, 0);
    if (n < 0 && (errno == EPERM || errno == ENOSYS)) {
      std::ranges::copy(bytes_.subspan(at, out.size()), out.begin());
      return;
    }
    if (n <= 0) {
      struct stat status {};
      const bool is_there = ::stat(path_.c_str(), &status) == 0;
      throw Error("file.cut", Blame::storage,
                  is_there && static_cast<std::size_t>(status.st_size) < bytes_.size()
                      ? fmt::format("{} was cut while it was in use: it has {} bytes now, and had {}", path_,
                                    status.st_size, bytes_.size())
                      : fmt::format("cannot read {} at byte {}: the disk or file system does not give it", path_, at));
    }
    at += static_cast<std::size_t>(n);
    out = out.subspan(static_cast<std::size_t>(n));
  }
}

void MappedFile::will_need(std::size_t at, std::size_t size) const {
  MS_ASSERT(at <= bytes_.size() && size <= bytes_.size() - at, "bytes {} + {} of {}", at, size, path_);
  const std::size_t before = at % static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  ::madvise(const_cast<std::byte*>(bytes_.data() + at - before), size + before, MADV_WILLNEED);
}

void MappedFile::unmap() noexcept {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  bytes_ = {};
}

}  // namespace ms
