#include "base/lock_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <thread>

#include "base/clock.h"
#include "base/text.h"
#include "base/user_path.h"

namespace ms {
namespace {

constexpr std::size_t kMaxHolderBytes = 300;
constexpr std::chrono::seconds kLeftWithin{5};  // by what a process that has ended was about to start
constexpr std::chrono::milliseconds kLookEvery{10};

// Returns how the file names this process of this host.
std::string name_of(int pid) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("process {} on {}", pid, host.data());
}

// Who the file says has it. It is read while the other may be writing, and may be anybody's.
std::string named_in(const UniqueFd& fd) {
  std::array<char, kMaxHolderBytes> text{};
  const ssize_t size = ::pread(fd.get(), text.data(), text.size(), 0);
  const std::string name = plain_text({text.data(), static_cast<std::size_t>(size > 0 ? size : 0)}, kMaxHolderBytes);
  return name.starts_with("process ") ? name : "another process";
}

// Returns whether the process that the file names was of this host and has ended. A program that it was about to start
// then keeps the lock until it has closed our descriptors in exec(), which takes a moment on a busy machine.
bool holder_has_ended(const UniqueFd& fd) {
  const std::string name = named_in(fd);
  int pid = 0;
  if (std::sscanf(name.c_str(), "process %d on ", &pid) != 1 || name != name_of(pid)) return false;
  return ::kill(pid, 0) != 0 && errno == ESRCH;
}

// Tries to lock the file, and names this process in it.
FileLock locked(UniqueFd fd) {
  FileLock lock{.fd = std::move(fd)};
  const auto end = std::chrono::steady_clock::now() + kLeftWithin;
  int error = try_lock(lock.fd);
  while (error == EWOULDBLOCK && holder_has_ended(lock.fd) && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kLookEvery);
    error = try_lock(lock.fd);
  }
  if (error == 0) {
    const std::string holder = name_of(::getpid());
    // For people only: where the disk is full, the lock holds all the same.
    if (::ftruncate(lock.fd.get(), 0) == 0) (void)!::pwrite(lock.fd.get(), holder.data(), holder.size(), 0);
    return lock;
  }
  if (error == EWOULDBLOCK) {
    lock.holder = named_in(lock.fd);
  } else {
    lock.error = error;
  }
  lock.fd.reset();
  return lock;
}

}  // namespace

int try_lock(const UniqueFd& file) {
  int result = 0;
  do { result = ::flock(file.get(), LOCK_EX | LOCK_NB); } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

FileLock lock_file(const std::string& path, Blame absent) { return lock_file(path, absent, AT_FDCWD, path); }

FileLock lock_file(const std::string& path, Blame absent, int directory, const std::string& name) {
  ToWrite file = open_to_write(directory, name, O_RDWR);
  if (file.fd) return locked(std::move(file.fd));
  if (file.error == 0 || file.error == ELOOP || file.error == ENXIO) {
    throw Error("file.kind", absent, fmt::format("'{}' is not a lock file: {}", path, file.why), "remove it");
  }
  const bool has_failed =
      file.error == EROFS && ::faccessat(directory, name.c_str(), F_OK, 0) == 0;  // it was written to before
  throw Error("file.open", is_wrong_path(file.error) && !has_failed ? absent : Blame::storage,
              fmt::format("cannot open '{}': {}", path, file.why));
}

UniqueFd try_lock_at(const UniqueFd& directory, const std::string& name, const Refusal& refusal) {
  FileLock lock = locked(open_own_file(directory, name, O_RDWR, refusal));
  if (lock.error == 0) return std::move(lock.fd);
  throw Error(refusal.kind, refusal.blame, fmt::format("cannot lock '{}': {}", name, errno_text(lock.error)));
}

UniqueFd lock_at(const UniqueFd& directory, const std::string& name, double patience_s, const Refusal& refusal) {
  constexpr double kTick_s = 0.01;
  SystemClock clock;
  const double end_s = clock.now_s() + patience_s;
  while (true) {
    if (UniqueFd fd = try_lock_at(directory, name, refusal)) return fd;
    if (clock.now_s() >= end_s) {
      throw Error(refusal.kind, refusal.blame, fmt::format("'{}' is locked by another process", name));
    }
    clock.sleep_s(kTick_s);
  }
}

}  // namespace ms
