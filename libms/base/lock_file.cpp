#include "base/lock_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/text.h"
#include "base/user_path.h"

namespace ms {
namespace {

constexpr std::size_t kMaxHolderBytes = 300;

std::string own_name() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("process {} on {}", ::getpid(), host.data());
}

// Who the file says has it. It is read while the other may be writing, and may be anybody's.
std::string named_in(const UniqueFd& fd) {
  std::array<char, kMaxHolderBytes> text{};
  const ssize_t size = ::pread(fd.get(), text.data(), text.size(), 0);
  const std::string name = plain_text({text.data(), static_cast<std::size_t>(size > 0 ? size : 0)}, kMaxHolderBytes);
  return name.starts_with("process ") ? name : "another process";
}

// Throws where the file may be somebody else's, under a name that was laid here for us to overwrite.
void require_own_name(const UniqueFd& fd, const std::string& path, Blame absent) {
  struct stat status {};
  if (::fstat(fd.get(), &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink <= 1) return;
  throw Error("file.kind", absent,
              fmt::format("'{}' is no lock: {}", path,
                          S_ISREG(status.st_mode) ? "the file has another name, too" : "it is not a regular file"),
              "remove it");
}

}  // namespace

FileLock lock_file(const std::string& path, Blame absent) {
  FileLock lock{.fd = UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0666))};
  if (!lock.fd) {
    const int err = errno;
    if (err == ELOOP) {
      throw Error("file.kind", absent, fmt::format("'{}' is no lock: it is a symbolic link", path), "remove it");
    }
    const bool has_failed = err == EROFS && ::access(path.c_str(), F_OK) == 0;  // it was written to before
    throw Error("file.open", is_wrong_path(err) && !has_failed ? absent : Blame::storage,
                fmt::format("cannot open '{}': {}", path, errno_text(err)));
  }
  require_own_name(lock.fd, path, absent);
  int result = 0;
  do { result = ::flock(lock.fd.get(), LOCK_EX | LOCK_NB); } while (result != 0 && errno == EINTR);
  if (result == 0) {
    const std::string name = own_name();
    // For people only: where the disk is full, the lock holds all the same.
    if (::ftruncate(lock.fd.get(), 0) == 0) (void)!::pwrite(lock.fd.get(), name.data(), name.size(), 0);
    return lock;
  }
  if (errno == EWOULDBLOCK) {
    lock.holder = named_in(lock.fd);
  } else {
    lock.error = errno;
  }
  lock.fd.reset();
  return lock;
}

}  // namespace ms
