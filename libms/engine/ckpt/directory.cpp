// Changing a directory of checkpoints: lock, save, commit, un-commit. Every function is a sequence of renames, each of
// which leaves a directory that is right by itself; a kill in between leaves work for clean_up(), and nothing to doubt.

#include "ckpt/directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/lock_file.h"
#include "base/log.h"
#include "base/user_path.h"
#include "ckpt/names.h"

namespace ms::ckpt {
namespace {

std::string saving_path(const std::string& dir, std::int64_t step) { return path_in(dir, "saving-" + step_name(step)); }
std::string step_path(const std::string& dir, std::int64_t step) { return path_in(dir, step_name(step)); }
std::string pin_path(const std::string& dir, std::int64_t step) { return step_path(dir, step) + ".pin"; }

// Whether there is something of that name, links not followed. `absent` as in base/file.h.
bool exists(const std::string& path, Blame absent = Blame::storage) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0) return true;
  const int err = errno;
  if (err == ENOENT) return false;
  throw Error("ckpt.stat", is_wrong_path(err) ? absent : Blame::storage,
              fmt::format("cannot stat '{}': {}", path, errno_text(err)));
}

void require_step(const std::string& dir, std::int64_t step) {
  if (exists(step_path(dir, step))) return;
  throw user_error("ckpt.none", fmt::format("there is no checkpoint of step {} in '{}'", step, dir));
}

// "PREFIX-1", or the first number after it that is free.
std::string free_path(const std::string& prefix) {
  for (int number = 1;; ++number) {
    std::string path = fmt::format("{}-{}", prefix, number);
    if (!exists(path)) return path;
  }
}

void make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) == 0) return;
  throw Error("ckpt.create", Blame::storage, fmt::format("cannot make '{}': {}", path, errno_text(errno)));
}

void move(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  throw Error("ckpt.rename", Blame::storage,
              fmt::format("cannot rename '{}' to '{}': {}", from, to, errno_text(errno)));
}

void delete_tree(const std::string& path) {
  std::error_code error;  // a link is deleted, not what it points to; what is gone already is no error
  std::filesystem::remove_all(path, error);
  if (!error) return;
  throw Error("ckpt.delete", Blame::storage, fmt::format("cannot delete '{}': {}", path, errno_text(error.value())));
}

void delete_file(const std::string& path) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return;
  throw Error("ckpt.delete", Blame::storage, fmt::format("cannot delete '{}': {}", path, errno_text(errno)));
}

// Gives it a name under which nobody looks for checkpoints, durably.
std::string take_away(const std::string& dir, const std::string& path, std::int64_t step) {
  std::string to = free_path(path_in(dir, "deleting-" + step_name(step)));
  rename_synced(path, to);
  return to;
}

void discard_save(const std::string& dir, std::int64_t step) {
  const std::string saving = saving_path(dir, step);
  if (exists(saving)) delete_tree(take_away(dir, saving, step));
}

// Deletes a directory in which nothing came to lie, when what should fill it has failed.
class RemoveIfEmpty {
 public:
  explicit RemoveIfEmpty(const std::string& path) : path_(path) {}
  RemoveIfEmpty(const RemoveIfEmpty&) = delete;
  RemoveIfEmpty& operator=(const RemoveIfEmpty&) = delete;
  ~RemoveIfEmpty() { ::rmdir(path_.c_str()); }

 private:
  const std::string& path_;
};

// Moves these, in this order, each with its pin, into a set-aside-N of their own, which is returned.
std::string move_aside(const std::string& dir, const std::vector<std::string>& names) {
  const std::string aside = free_path(path_in(dir, "set-aside"));
  make_directory(aside);
  const RemoveIfEmpty guard(aside);
  for (const std::string& name : names) {
    move(path_in(dir, name), path_in(aside, name));
    const std::string pin = name + ".pin";
    if (exists(path_in(dir, pin))) move(path_in(dir, pin), path_in(aside, pin));
  }
  sync_directory(aside);
  sync_directory(dir);
  return aside;
}

// Names of one kind from a step on, newest first: a kill halfway through a series of renames leaves the older ones,
// which are what the run looked like at an earlier time.
std::vector<std::string> newest_first(const std::string& dir, NameKind kind, std::int64_t from_step) {
  std::vector<std::pair<std::int64_t, std::string>> found;
  for (const std::string& text : names_in(dir)) {
    const Name name = parse_name(text);
    if (name.kind == kind && name.step >= from_step) found.emplace_back(name.step, text);
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> names;
  for (auto& [step, name] : found) names.push_back(std::move(name));
  return names;
}

// 0, or the errno of syncing the names in a directory.
int sync_names(const std::string& dir) {
  const UniqueFd fd(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return errno;
  if (::fsync(fd.get()) == 0 || errno == EINVAL || errno == ENOTSUP) return 0;  // some file systems need none
  return errno;
}

// The last part of a commit: what is in the way goes aside, and the save takes its name.
std::vector<std::string> publish(const std::string& dir, std::int64_t step) {
  std::vector<std::string> left = newest_first(dir, NameKind::step, step);
  if (!left.empty()) {
    const std::string aside = move_aside(dir, left);
    for (std::string& name : left) name = path_in(aside, name);
    std::reverse(left.begin(), left.end());
  }
  move(saving_path(dir, step), step_path(dir, step));
  if (sync_names(dir) == 0) return left;
  const int err = sync_names(dir);
  if (err == 0) return left;
  throw Error("ckpt.sync", Blame::storage,
              fmt::format("'{}' is there, but may not be durable: cannot fsync '{}': {}", step_path(dir, step), dir,
                          errno_text(err)));
}

// As make_directories(), and the new names are on the disk.
void make_directories_synced(const std::string& dir) {
  std::vector<std::string> parents;
  for (std::string at = dir; !exists(at, Blame::user); at = parents.back()) {
    parents.push_back(parent_directory(at));
    if (parents.back() == at) break;
  }
  make_user_directories(dir);
  for (const std::string& parent : parents) sync_directory(parent);
}

bool is_directory_itself(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// Pins come while a run holds the directory, so they have a lock of their own: between looking for a pin and renaming
// the checkpoint, or looking for the checkpoint and making the pin, nobody does the other. Held for moments.
class PinLock {
 public:
  explicit PinLock(const std::string& dir) {
    const std::string path = path_in(dir, "pin.lock");
    lock_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!lock_) throw cannot("open", path);
    for (int tries = 0; ::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0; ++tries) {
      if (errno != EWOULDBLOCK && errno != EINTR) throw cannot("lock", path);
      if (tries == kTries) throw user_error("ckpt.busy", fmt::format("'{}' is held by another process", path));
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

 private:
  static constexpr int kTries = 1000;  // 10 s

  static Error cannot(std::string_view doing, const std::string& path) {
    return Error("ckpt.lock", Blame::storage, fmt::format("cannot {} '{}': {}", doing, path, errno_text(errno)));
  }

  UniqueFd lock_;
};

}  // namespace

DirectoryLock::DirectoryLock(const std::string& dir) {
  make_directories_synced(dir);
  const std::string path = path_in(dir, "lock");
  FileLock lock = lock_file(path, Blame::user);
  if (lock.error != 0) {
    throw Error("ckpt.lock", Blame::storage, fmt::format("cannot lock '{}': {}", path, errno_text(lock.error)),
                "the file system must support flock");
  }
  if (!lock.fd) {
    throw user_error("ckpt.busy", fmt::format("another run, or ms-ckpt, is at work in '{}': {}", dir, lock.holder),
                     "wait until it has ended, or use another directory");
  }
  lock_ = std::move(lock.fd);
}

std::string begin_save(const std::string& dir, std::int64_t step) {
  discard_save(dir, step);
  std::string saving = saving_path(dir, step);
  make_directory(saving);
  return saving;
}

std::vector<std::string> commit(const std::string& dir, std::int64_t step, const std::string& manifest_json) {
  const std::string saving = saving_path(dir, step);
  // Syncs the directory too, after the last of its entries has been made: from here on all of `saving` is on disk.
  write_file_atomic(path_in(saving, kManifestName), manifest_json);
  return publish(dir, step);
}

void abandon(const std::string& dir, std::int64_t step) {
  try {
    discard_save(dir, step);
  } catch (const Error& error) {
    log::warn("ckpt", "the incomplete save of step {} remains for now: {}", step, error.message());
  }
}

bool remove_checkpoint(const std::string& dir, std::int64_t step) {
  std::string deleting;
  {
    const PinLock lock(dir);
    require_step(dir, step);
    if (exists(pin_path(dir, step))) return false;
    deleting = take_away(dir, step_path(dir, step), step);
  }
  delete_tree(deleting);
  return true;
}

std::string mark_damaged(const std::string& dir, std::int64_t step) {
  require_step(dir, step);
  std::string damaged = free_path(path_in(dir, "damaged-" + step_name(step)));
  rename_synced(step_path(dir, step), damaged);
  return damaged;
}

std::string set_aside(const std::string& dir, std::int64_t from_step) {
  std::vector<std::string> names = newest_first(dir, NameKind::step, from_step);
  const std::vector<std::string> damaged = newest_first(dir, NameKind::damaged, from_step);
  names.insert(names.end(), damaged.begin(), damaged.end());
  return names.empty() ? std::string() : move_aside(dir, names);
}

std::vector<FinishedCommit> finish_commits(const std::string& dir) {
  std::vector<std::int64_t> steps;
  for (const std::string& text : names_in(dir)) {
    const Name name = parse_name(text);
    if (name.kind == NameKind::saving && is_directory_itself(path_in(dir, text))) steps.push_back(name.step);
  }
  std::sort(steps.begin(), steps.end());
  std::vector<FinishedCommit> finished;
  for (const std::int64_t step : steps) {
    const Found found = look(saving_path(dir, step));
    if (!found.manifest || !found.problem.empty()) continue;
    const std::vector<std::string> left = publish(dir, step);
    log::warn("ckpt", "the commit of {} was interrupted: it is done now, {} set aside", step_path(dir, step),
              left.size());
    finished.push_back({.was = found.path, .now = step_path(dir, step)});
  }
  return finished;
}

int clean_up(const std::string& dir) {
  finish_commits(dir);
  int deleted = 0;
  for (const std::string& name : names_in(dir)) {
    const NameKind kind = parse_name(name).kind;
    if (kind != NameKind::saving && kind != NameKind::deleting && kind != NameKind::scratch) continue;
    if (kind == NameKind::saving) {
      const Found found = look(path_in(dir, name));
      if (found.unreadable && exists(found.path)) {
        log::warn("ckpt", "{} cannot be read and is now in {}: {}", found.path, move_aside(dir, {name}), found.problem);
        continue;
      }
    }
    delete_tree(path_in(dir, name));
    ++deleted;
  }
  return deleted;
}

void pin(const std::string& dir, std::int64_t step) {
  require_step(dir, step);
  const PinLock lock(dir);
  require_step(dir, step);  // still
  const std::string path = pin_path(dir, step);
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  if (!fd) throw Error("ckpt.pin", Blame::storage, fmt::format("cannot create '{}': {}", path, errno_text(errno)));
  fd.close();
  sync_directory(dir);
}

void unpin(const std::string& dir, std::int64_t step) {
  delete_file(pin_path(dir, step));
  sync_directory(dir);
}

}  // namespace ms::ckpt
