#include "base/safe_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <deque>
#include <filesystem>

#include "base/sysroot.h"
#include "base/text.h"

namespace ms {
namespace {

constexpr int kMaxLinks = 16;

Error refuse(const Refusal& refusal, std::string message) {
  return Error(refusal.kind, refusal.blame, std::move(message));
}

Error cannot(const Refusal& refusal, std::string_view doing, const std::string& path, int err) {
  return Error(refusal.kind, refusal.blame, fmt::format("cannot {} '{}': {}", doing, path, errno_text(err)),
               err == EMFILE ? "'ulimit -n' limits the files that a process has open" : "");
}

UniqueFd open_at(int directory, const std::string& name, int flags, mode_t mode = 0) {
  int fd = -1;
  do { fd = ::openat(directory, name.c_str(), flags | O_CLOEXEC, mode); } while (fd < 0 && errno == EINTR);
  return UniqueFd(fd);
}

struct stat status_of(const UniqueFd& fd, const std::string& path, const Refusal& refusal) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) throw cannot(refusal, "stat", path, errno);
  return status;
}

// Returns the user that owns what the caller's user namespace has no number for; nullopt in the first namespace.
std::optional<uid_t> unmapped_user() {
  constexpr std::string_view kAll = "0 0 4294967295";  // inside, outside, how many
  std::string map;
  for (const std::string& word : split(Sysroot().read("/proc/self/uid_map").value_or(""), ' ')) {
    if (!trim(word).empty()) map += (map.empty() ? "" : " ") + std::string(trim(word));
  }
  if (map.empty() || map == kAll) return std::nullopt;
  const auto user = Sysroot().read_int("/proc/sys/kernel/overflowuid");
  return user ? std::optional(static_cast<uid_t>(*user)) : std::nullopt;
}

bool trusted_owner(const struct stat& status, uid_t owner) {
  return status.st_uid == 0 || status.st_uid == owner || status.st_uid == unmapped_user();
}

void check_directory(const struct stat& status, const std::string& path, uid_t owner, const Refusal& refusal) {
  if (!trusted_owner(status, owner)) {
    throw refuse(refusal, fmt::format("'{}' belongs to user {}, who could put anything there", path, status.st_uid));
  }
  if ((status.st_mode & 022) != 0 && (status.st_mode & S_ISVTX) == 0) {
    throw refuse(refusal, fmt::format("'{}' may be written by others (mode {:04o})", path, status.st_mode & 07777));
  }
}

bool everybody_writes(const struct stat& status) { return (status.st_mode & S_IWOTH) != 0; }

// For the files of a run: owners of directories that not everybody may write are trusted.
void check_on_the_way(const struct stat& status, const struct stat& parent, const std::string& path,
                      const Refusal& refusal) {
  const bool is_trusted = trusted_owner(status, ::geteuid());
  if (everybody_writes(parent) && !is_trusted) {
    throw refuse(refusal,
                 fmt::format("'{}' belongs to user {}, and lies where everybody may write", path, status.st_uid));
  }
  if (!S_ISDIR(status.st_mode) || !everybody_writes(status)) return;
  if (!is_trusted) {
    throw refuse(refusal, fmt::format("'{}' belongs to user {}, and everybody may write there", path, status.st_uid));
  }
}

enum class Way { strict, of_run };

struct Place {
  UniqueFd parent;  // O_PATH
  std::string name;
};

// Walks to the directory that holds the last component, or, of a run, to the last one itself. Links on the way are
// followed only if a trusted owner put them there, and what they point to is walked in the same way.
Place walk(const std::string& path, uid_t owner, const Refusal& refusal, Way way = Way::strict) {
  if (!path.starts_with('/')) throw refuse(refusal, fmt::format("'{}' is not an absolute path", path));
  std::deque<std::string> rest;
  for (std::string& part : split(path, '/')) {
    if (!part.empty() && part != ".") rest.push_back(std::move(part));
  }
  const bool is_strict = way == Way::strict;
  if (rest.empty() || (is_strict && rest.back() == ".."))
    throw refuse(refusal, fmt::format("'{}' names nothing", path));
  const auto root = [&] {
    UniqueFd fd = open_at(AT_FDCWD, "/", O_PATH | O_DIRECTORY);
    if (!fd) throw cannot(refusal, "open", "/", errno);
    if (is_strict) check_directory(status_of(fd, "/", refusal), "/", owner, refusal);
    return fd;
  };
  UniqueFd at = root();
  std::string at_path;  // for messages
  int links = 0;
  while (rest.size() > (is_strict ? 1 : 0)) {
    const std::string name = std::move(rest.front());
    rest.pop_front();
    const std::string here = at_path + "/" + name;
    UniqueFd fd = open_at(at.get(), name, O_PATH | O_NOFOLLOW);
    if (!fd) throw cannot(refusal, "open", here, errno);
    const struct stat status = status_of(fd, here, refusal);
    if (!is_strict) check_on_the_way(status, status_of(at, at_path, refusal), here, refusal);
    if (S_ISDIR(status.st_mode)) {
      if (is_strict) check_directory(status, here, owner, refusal);
      at = std::move(fd);
      at_path = here;
      continue;
    }
    if (!S_ISLNK(status.st_mode)) throw cannot(refusal, "open", here, ENOTDIR);
    if (is_strict && !trusted_owner(status, owner)) {
      throw refuse(refusal, fmt::format("'{}' is a link that belongs to user {}", here, status.st_uid));
    }
    if (++links > kMaxLinks) throw cannot(refusal, "open", path, ELOOP);
    std::array<char, PATH_MAX> target{};
    const ssize_t size = ::readlinkat(fd.get(), "", target.data(), target.size());
    if (size < 0) throw cannot(refusal, "read the link", here, errno);
    const std::string_view text(target.data(), static_cast<std::size_t>(size));
    const std::vector<std::string> parts = split(text, '/');
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      if (!part->empty() && *part != ".") rest.push_front(*part);
    }
    if (text.starts_with('/')) {
      at = root();
      at_path.clear();
    }
  }
  return {std::move(at), is_strict ? rest.front() : "."};
}

std::string read_all(const UniqueFd& fd, const std::string& path, std::size_t max_bytes, const Refusal& refusal) {
  std::string text;
  std::array<char, 16384> buffer;
  while (true) {
    const ssize_t n = ::read(fd.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw cannot(refusal, "read", path, errno);
    if (n == 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(n));
    if (text.size() > max_bytes) {
      throw refuse(refusal, fmt::format("'{}' is larger than {} bytes", path, max_bytes));
    }
  }
}

// How much of it was written; errno says why not more.
std::size_t write_some(const UniqueFd& fd, std::string_view data) {
  std::size_t done = 0;
  while (done < data.size()) {
    const ssize_t n = ::write(fd.get(), data.data() + done, data.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

// The temporary name of write_at, unlinked unless it was renamed away.
class TemporaryAt {
 public:
  TemporaryAt(const UniqueFd& directory, std::string name) : directory_(directory), name_(std::move(name)) {
    ::unlinkat(directory_.get(), name_.c_str(), 0);  // of a writer that died
  }
  TemporaryAt(const TemporaryAt&) = delete;
  TemporaryAt& operator=(const TemporaryAt&) = delete;
  ~TemporaryAt() {
    if (!renamed_) ::unlinkat(directory_.get(), name_.c_str(), 0);
  }
  const std::string& name() const { return name_; }
  void renamed() { renamed_ = true; }

 private:
  const UniqueFd& directory_;
  std::string name_;
  bool renamed_ = false;
};

}  // namespace

UniqueFd open_trusted_file(const std::string& path, uid_t owner, const Refusal& refusal) {
  const Place place = walk(path, owner, refusal);
  UniqueFd fd = open_at(place.parent.get(), place.name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (!fd) throw cannot(refusal, "open", path, errno);
  const struct stat status = status_of(fd, path, refusal);
  if (!S_ISREG(status.st_mode)) throw refuse(refusal, fmt::format("'{}' is not a regular file", path));
  if (!trusted_owner(status, owner)) {
    throw refuse(refusal, fmt::format("'{}' belongs to user {}", path, status.st_uid));
  }
  if ((status.st_mode & 022) != 0) {
    throw refuse(refusal, fmt::format("'{}' may be written by others (mode {:04o})", path, status.st_mode & 07777));
  }
  return fd;
}

std::string read_trusted_file(const std::string& path, uid_t owner, std::size_t max_bytes, const Refusal& refusal) {
  return read_all(open_trusted_file(path, owner, refusal), path, max_bytes, refusal);
}

UniqueFd open_run_directory(const std::string& path, const Refusal& refusal) {
  std::error_code error;
  const std::string whole = std::filesystem::absolute(path, error).string();
  if (error) throw cannot(refusal, "find", path, error.value());
  struct stat named {};
  if (::lstat(whole.c_str(), &named) == 0 && S_ISLNK(named.st_mode) && !trusted_owner(named, ::geteuid())) {
    throw refuse(refusal, fmt::format("'{}' is a link that belongs to user {}", path, named.st_uid));
  }
  const Place place = walk(whole, ::geteuid(), refusal, Way::of_run);
  UniqueFd fd = open_at(place.parent.get(), place.name, O_RDONLY | O_DIRECTORY);
  if (!fd) throw cannot(refusal, "open", path, errno);
  const struct stat status = status_of(fd, path, refusal);
  if (status.st_uid != ::geteuid() || everybody_writes(status)) {
    throw refuse(refusal, status.st_uid != ::geteuid()
                              ? fmt::format("'{}' belongs to user {}, not to this user", path, status.st_uid)
                              : fmt::format("everybody may write in '{}' (mode {:04o})", path, status.st_mode & 07777));
  }
  return fd;
}

UniqueFd open_own_directory(const std::string& path, mode_t mode, mode_t forbidden_mode, const Refusal& refusal) {
  const Place place = walk(path, ::geteuid(), refusal);
  return open_own_directory_at(place.parent, place.name, path, mode, forbidden_mode, refusal);
}

UniqueFd open_own_directory_at(const UniqueFd& directory, const std::string& name, const std::string& path, mode_t mode,
                               mode_t forbidden_mode, const Refusal& refusal) {
  const bool made = ::mkdirat(directory.get(), name.c_str(), mode) == 0;
  if (!made && errno != EEXIST) throw cannot(refusal, "make the directory", path, errno);
  UniqueFd fd = open_at(directory.get(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!fd) throw cannot(refusal, "open the directory", path, errno);
  if (made && ::fchmod(fd.get(), mode) != 0) throw cannot(refusal, "set the mode of", path, errno);  // umask took bits
  const struct stat status = status_of(fd, path, refusal);
  if (status.st_uid != ::geteuid()) {
    throw refuse(refusal, fmt::format("'{}' belongs to user {}, not to us", path, status.st_uid));
  }
  if ((status.st_mode & forbidden_mode) != 0) {
    throw refuse(refusal, fmt::format("'{}' has mode {:04o}, expected {:04o}", path, status.st_mode & 07777, mode));
  }
  return fd;
}

std::optional<std::string> read_at(const UniqueFd& directory, const std::string& name, std::size_t max_bytes,
                                   const Refusal& refusal) {
  const UniqueFd fd = open_at(directory.get(), name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (!fd && errno == ENOENT) return std::nullopt;
  if (!fd) throw cannot(refusal, "open", name, errno);
  const struct stat status = status_of(fd, name, refusal);
  if (!S_ISREG(status.st_mode) || !trusted_owner(status, ::geteuid())) {
    throw refuse(refusal, fmt::format("'{}' is not a regular file of our own", name));
  }
  return read_all(fd, name, max_bytes, refusal);
}

void write_at(const UniqueFd& directory, const std::string& name, std::string_view data, mode_t mode,
              const Refusal& refusal) {
  TemporaryAt temporary(directory, fmt::format(".{}.tmp", name));
  UniqueFd fd = open_own_file(directory, temporary.name(), O_EXCL, refusal);
  if (write_some(fd, data) != data.size()) throw cannot(refusal, "write", name, errno);
  if (::fchmod(fd.get(), mode) != 0) throw cannot(refusal, "set the mode of", name, errno);
  if (::fsync(fd.get()) != 0) throw cannot(refusal, "fsync", name, errno);
  if (::close(fd.release()) != 0 && errno != EINTR) throw cannot(refusal, "close", name, errno);
  if (::renameat(directory.get(), temporary.name().c_str(), directory.get(), name.c_str()) != 0) {
    throw cannot(refusal, "rename a temporary file to", name, errno);
  }
  temporary.renamed();
  if (::fsync(directory.get()) != 0) throw cannot(refusal, "fsync the directory of", name, errno);
}

void append_at(const UniqueFd& directory, const std::string& name, std::string_view data, const Refusal& refusal,
               const Append& how) {
  UniqueFd fd = open_own_file(directory, name, O_APPEND, refusal, how.mode);
  off_t before = status_of(fd, name, refusal).st_size;
  if (how.behind && static_cast<off_t>(*how.behind) < before) {
    before = static_cast<off_t>(*how.behind);
    if (::ftruncate(fd.get(), before) != 0) throw cannot(refusal, "cut off the end of", name, errno);
  }
  if (write_some(fd, data) == data.size()) {
    // On a network file system a full disk is only told here.
    if (::close(fd.release()) != 0 && errno != EINTR) throw cannot(refusal, "close", name, errno);
    return;
  }
  const int err = errno;
  if (::ftruncate(fd.get(), before) != 0) {
    throw refuse(refusal, fmt::format("cannot write '{}' ({}), and cannot take back what was written: {}", name,
                                      errno_text(err), errno_text(errno)));
  }
  throw cannot(refusal, "write", name, err);
}

ToWrite open_to_write(int directory, const std::string& name, int flags, mode_t mode) {
  constexpr int kNoOther = O_CREAT | O_NOFOLLOW | O_NONBLOCK;
  const int access = (flags & O_ACCMODE) == O_RDONLY ? O_WRONLY : 0;
  ToWrite file{.fd = open_at(directory, name, (flags & ~O_TRUNC) | access | kNoOther, mode)};
  struct stat status {};
  if (!file.fd || ::fstat(file.fd.get(), &status) != 0) {
    file.error = errno;
    // A pipe that is not read, and a socket, are ENXIO.
    file.why = file.error == ELOOP   ? "it is a symbolic link"
               : file.error == ENXIO ? "it is not a regular file"
                                     : errno_text(file.error);
  } else if (!S_ISREG(status.st_mode)) {
    file.why = "it is not a regular file";
  } else if (status.st_nlink > 1) {
    file.why = "it has another name, too";
  } else if ((flags & O_TRUNC) != 0 && ::ftruncate(file.fd.get(), 0) != 0) {
    file.error = errno;
    file.why = errno_text(file.error);
  }
  if (!file.why.empty()) file.fd.reset();
  return file;
}

UniqueFd open_own_file(const UniqueFd& directory, const std::string& name, int flags, const Refusal& refusal,
                       mode_t mode) {
  ToWrite file = open_to_write(directory.get(), name, flags, mode);
  if (!file.fd) throw refuse(refusal, fmt::format("cannot open '{}': {}", name, file.why));
  if (const struct stat status = status_of(file.fd, name, refusal); status.st_uid != ::geteuid()) {
    throw refuse(refusal, fmt::format("'{}' belongs to user {}, not to us", name, status.st_uid));
  }
  return std::move(file.fd);
}

}  // namespace ms
