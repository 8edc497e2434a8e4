#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

namespace ms {
namespace {

Error file_error(std::string kind, Blame blame, std::string_view doing, const std::string& path, int err) {
  return Error(std::move(kind), blame, fmt::format("cannot {} '{}': {}", doing, path, errno_text(err)));
}

bool is_absence(int err) {
  return err == ENOENT || err == ENOTDIR || err == EISDIR || err == EACCES || err == ELOOP || err == ENAMETOOLONG;
}

// Opens for reading; EINTR is retried because slow file systems can be interrupted by our own timers.
UniqueFd open_for_reading(const std::string& path, Blame absent, int flags) {
  int fd = -1;
  do { fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags); } while (fd < 0 && errno == EINTR);
  if (fd < 0) throw file_error("file.open", is_absence(errno) ? absent : Blame::storage, "open", path, errno);
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

// A file under a temporary name, complete and on disk; unlinked by the destructor unless it was renamed away.
class TemporaryFile {
 public:
  TemporaryFile(const std::string& target, std::string_view data) {
    static std::atomic<unsigned> counter{0};  // distinct names for the threads of one process
    char host[256] = {};
    ::gethostname(host, sizeof host - 1);  // and for processes of one number on two nodes
    path_ = fmt::format("{}.tmp.{}.{}.{}", target, host, ::getpid(), counter.fetch_add(1));
    UniqueFd fd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!fd) throw file_error("file.create", Blame::storage, "create", path_, errno);
    try {
      write_all(fd, data, path_);
      sync(fd, path_);
      fd.close();
    } catch (const Error& error) {
      ::unlink(path_.c_str());  // the destructor of an object that was not finished does not run
      throw error.with_context(fmt::format("while writing '{}'", target));
    }
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (!renamed_) ::unlink(path_.c_str());
  }
  const std::string& path() const { return path_; }
  void renamed() { renamed_ = true; }

 private:
  std::string path_;
  bool renamed_ = false;
};

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
  const struct stat status = stat_of(fd, path, absent);
  std::string data;
  data.resize(static_cast<std::size_t>(status.st_size) + 1);  // a guess: /proc says 0, a log grows
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

void write_file_atomic(const std::string& path, std::string_view data) {
  TemporaryFile file(path, data);
  if (::rename(file.path().c_str(), path.c_str()) != 0) {
    throw file_error("file.rename", Blame::storage, "rename a temporary file to", path, errno);
  }
  file.renamed();
  sync_directory(parent_directory(path));
}

bool create_exclusive(const std::string& path, std::string_view data) {
  const TemporaryFile file(path, data);
  if (::link(file.path().c_str(), path.c_str()) != 0) {
    if (errno == EEXIST) return false;
    throw file_error("file.link", Blame::storage, "create", path, errno);
  }
  sync_directory(parent_directory(path));
  return true;
}

void make_directories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  // create_directories says "not an error" for some paths that are files; ask for the outcome instead.
  if (!error && !std::filesystem::is_directory(path, error) && !error) {
    error = std::make_error_code(std::errc::not_a_directory);
  }
  if (error) throw file_error("file.make_directory", Blame::storage, "make the directory", path, error.value());
}

void rename_synced(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    throw file_error("file.rename", Blame::storage, fmt::format("rename '{}' to", from), to, errno);
  }
  sync_directory(parent_directory(to));
}

void sync_directory(const std::string& path) {
  const UniqueFd fd = open_for_reading(path, Blame::storage, O_DIRECTORY);
  // Some network file systems refuse fsync of a directory and need none.
  if (::fsync(fd.get()) != 0 && errno != EINVAL && errno != ENOTSUP) {
    throw file_error("file.sync", Blame::storage, "fsync the directory", path, errno);
  }
}

std::string parent_directory(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

MappedFile::MappedFile(const std::string& path, Blame absent) {
  const UniqueFd fd = open_for_reading(path, absent, O_NONBLOCK);  // a pipe would block here until somebody writes
  const struct stat status = stat_of(fd, path, absent);
  if (!S_ISREG(status.st_mode)) throw Error("file.kind", absent, fmt::format("{} is not a regular file", path));
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return;  // mmap refuses an empty mapping
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) throw file_error("file.map", Blame::storage, "map", path, errno);
  bytes_ = {static_cast<const std::byte*>(address), size};
}

void MappedFile::unmap() noexcept {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  bytes_ = {};
}

}  // namespace ms
