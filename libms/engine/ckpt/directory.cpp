// Changing a directory of checkpoints: lock, save, commit, un-commit. Every function is a sequence of renames, each of
// which leaves a directory that is right by itself; a kill in between leaves work for clean_up(), and nothing to doubt.

#include "ckpt/directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/lock_file.h"
#include "base/log.h"
#include "base/safe_file.h"
#include "base/user_path.h"
#include "ckpt/blocks.h"
#include "ckpt/names.h"
#include "ckpt/open_directory.h"

namespace ms::ckpt {
namespace {

std::string saving_name(std::int64_t step) { return "saving-" + step_name(step); }
std::string pin_name(std::int64_t step) { return step_name(step) + ".pin"; }

Error storage_error(std::string kind, std::string_view doing, const std::string& path, int err) {
  return Error(std::move(kind), Blame::storage, fmt::format("cannot {} '{}': {}", doing, path, errno_text(err)));
}

// Whether there is something of that name, links not followed. `absent` as in base/file.h.
bool exists_at(int directory, const std::string& name, const std::string& path, Blame absent) {
  struct stat status {};
  if (::fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) return true;
  const int err = errno;
  if (err == ENOENT) return false;
  throw Error("ckpt.stat", is_wrong_path(err) ? absent : Blame::storage,
              fmt::format("cannot stat '{}': {}", path, errno_text(err)));
}
bool exists(const Directory& dir, const std::string& name) {
  return exists_at(dir.fd(), dir.at(name), dir.path_of(name), Blame::storage);
}

void require_step(const Directory& dir, std::int64_t step) {
  if (exists(dir, step_name(step))) return;
  throw user_error("ckpt.none", fmt::format("there is no checkpoint of step {} in '{}'", step, dir.path()));
}

// "PREFIX-1", or the first number after it that is free.
std::string free_name(const Directory& dir, const std::string& prefix) {
  for (int number = 1;; ++number) {
    std::string name = fmt::format("{}-{}", prefix, number);
    if (!exists(dir, name)) return name;
  }
}

void make_directory(const Directory& dir, const std::string& name) {
  if (::mkdirat(dir.fd(), dir.at(name).c_str(), 0777) == 0) return;
  throw storage_error("ckpt.create", "make", dir.path_of(name), errno);
}

void move(const Directory& from, const std::string& name, const Directory& to, const std::string& new_name) {
  if (::renameat(from.fd(), from.at(name).c_str(), to.fd(), to.at(new_name).c_str()) == 0) return;
  throw storage_error("ckpt.rename", fmt::format("rename '{}' to", from.path_of(name)), to.path_of(new_name), errno);
}

// 0, or the errno of syncing the names in a directory.
int sync_names(const Directory& dir) {
  const UniqueFd fd(::openat(dir.fd(), dir.at(".").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return errno;
  if (::fsync(fd.get()) == 0 || errno == EINVAL || errno == ENOTSUP) return 0;  // some file systems need none
  return errno;
}
void sync(const Directory& dir) {
  if (const int err = sync_names(dir); err != 0) throw storage_error("file.sync", "fsync", dir.path(), err);
}

// Deletes a file, a link, or a directory with all that is in it; what is gone already is no error.
void delete_tree(int directory, const std::string& name, const std::string& path) {
  if (::unlinkat(directory, name.c_str(), 0) == 0 || errno == ENOENT) return;
  if (errno != EISDIR && errno != EPERM) throw storage_error("ckpt.delete", "delete", path, errno);
  const UniqueFd tree(::openat(directory, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!tree) throw storage_error("ckpt.delete", "delete", path, errno);
  for (const std::string& inside : names_in(fmt::format("/proc/self/fd/{}", tree.get())))
    delete_tree(tree.get(), inside, path_in(path, inside));
  if (::unlinkat(directory, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) return;
  throw storage_error("ckpt.delete", "delete", path, errno);
}
void delete_tree(const Directory& dir, const std::string& name) {
  delete_tree(dir.fd(), dir.at(name), dir.path_of(name));
}

// Gives it a name under which nobody looks for checkpoints, durably.
std::string take_away(const Directory& dir, const std::string& name, std::int64_t step) {
  std::string to = free_name(dir, "deleting-" + step_name(step));
  move(dir, name, dir, to);
  sync(dir);
  return to;
}

void discard_save(const Directory& dir, std::int64_t step) {
  const std::string saving = saving_name(step);
  if (exists(dir, saving)) delete_tree(dir, take_away(dir, saving, step));
}

// Deletes a directory in which nothing came to lie, when what should fill it has failed.
class RemoveIfEmpty {
 public:
  RemoveIfEmpty(const Directory& dir, const std::string& name) : dir_(dir), name_(name) {}
  RemoveIfEmpty(const RemoveIfEmpty&) = delete;
  RemoveIfEmpty& operator=(const RemoveIfEmpty&) = delete;
  ~RemoveIfEmpty() { ::unlinkat(dir_.fd(), dir_.at(name_).c_str(), AT_REMOVEDIR); }

 private:
  const Directory& dir_;
  const std::string& name_;
};

// Moves these, in this order, each with its pin, into a set-aside-N of their own, whose path is returned.
std::string move_aside(const Directory& dir, const std::vector<std::string>& names) {
  const std::string name = free_name(dir, "set-aside");
  make_directory(dir, name);
  const RemoveIfEmpty guard(dir, name);
  const Directory aside(dir, name);
  for (const std::string& one : names) {
    move(dir, one, aside, one);
    const std::string pin = one + ".pin";
    if (exists(dir, pin)) move(dir, pin, aside, pin);
  }
  sync(aside);
  sync(dir);
  return aside.path();
}

// Names of one kind from a step on, newest first: a kill halfway through a series of renames leaves the older ones,
// which are what the run looked like at an earlier time.
std::vector<std::string> newest_first(const Directory& dir, NameKind kind, std::int64_t from_step) {
  std::vector<std::pair<std::int64_t, std::string>> found;
  for (const std::string& text : names_in(dir.path())) {
    const Name name = parse_name(text);
    if (name.kind == kind && name.step >= from_step) found.emplace_back(name.step, text);
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> names;
  for (auto& [step, name] : found) names.push_back(std::move(name));
  return names;
}

// The last part of a commit: what is in the way goes aside, and the save takes its name.
std::vector<std::string> publish(const Directory& dir, std::int64_t step) {
  std::vector<std::string> left = newest_first(dir, NameKind::step, step);
  if (!left.empty()) {
    const std::string aside = move_aside(dir, left);
    for (std::string& name : left) name = path_in(aside, name);
    std::reverse(left.begin(), left.end());
  }
  move(dir, saving_name(step), dir, step_name(step));
  if (sync_names(dir) == 0) return left;
  const int err = sync_names(dir);
  if (err == 0) return left;
  throw Error("ckpt.sync", Blame::storage,
              fmt::format("'{}' is there, but may not be durable: cannot fsync '{}': {}", dir.path_of(step_name(step)),
                          dir.path(), errno_text(err)));
}

// As make_directories(), and the new names are on the disk.
void make_directories_synced(const std::string& dir) {
  std::vector<std::string> parents;
  for (std::string at = dir; !exists_at(AT_FDCWD, at, at, Blame::user); at = parents.back()) {
    parents.push_back(parent_directory(at));
    if (parents.back() == at) break;
  }
  make_user_directories(dir);
  for (const std::string& parent : parents) sync_directory(parent);
}

bool is_directory_itself(const Directory& dir, const std::string& name) {
  struct stat status {};
  return ::fstatat(dir.fd(), dir.at(name).c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode);
}

// Pins come while a run holds the directory, so they have a lock of their own: between looking for a pin and renaming
// the checkpoint, or looking for the checkpoint and making the pin, nobody does the other. Held for moments.
class PinLock {
 public:
  explicit PinLock(const Directory& dir) {
    const std::string path = dir.path_of("pin.lock");
    for (int tries = 0; !lock_; ++tries) {
      FileLock lock = lock_file(path, Blame::storage, dir.fd(), dir.at("pin.lock"));
      if (lock.error != 0) throw storage_error("ckpt.lock", "lock", path, lock.error);
      lock_ = std::move(lock.fd);
      if (lock_) return;
      if (tries == kTries) throw user_error("ckpt.busy", fmt::format("'{}' is held by another process", path));
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

 private:
  static constexpr int kTries = 1000;  // 10 s
  UniqueFd lock_;
};

}  // namespace

bool is_of_checkpoints(const std::string& dir) {
  return std::ranges::any_of(names_in(dir),
                             [](const std::string& name) { return parse_name(name).kind != NameKind::other; });
}

Directory::Directory(std::string path) : path_(std::move(path)), fd_(open_directory(path_)) {
  if (!fd_ && errno != ENOENT) throw storage_error("ckpt.list", "open", path_, errno);
}
Directory::Directory(const Directory& above, const std::string& name)
    : path_(above.path_of(name)),
      fd_(::openat(above.fd(), above.at(name).c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) {
  if (!fd_) throw storage_error("ckpt.list", "open", path_, errno);
}
std::string Directory::path_of(std::string_view name) const { return path_in(path_, name); }
int Directory::fd() const { return fd_ ? fd_.get() : AT_FDCWD; }

DirectoryLock::DirectoryLock(const std::string& dir) {
  make_directories_synced(dir);
  directory_.emplace(dir);
  const std::string path = directory_->path_of("lock");
  FileLock lock = lock_file(path, Blame::user, directory_->fd(), directory_->at("lock"));
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

std::string begin_save(const Directory& dir, std::int64_t step) {
  discard_save(dir, step);
  make_directory(dir, saving_name(step));
  return dir.path_of(saving_name(step));
}

Directory open_save(const Directory& dir, std::int64_t step) {
  const std::string saving = saving_name(step);
  if (::mkdirat(dir.fd(), dir.at(saving).c_str(), 0777) != 0 && errno != EEXIST)
    throw write_error("make", dir.path_of(saving), errno);
  return Directory(dir, saving);
}

std::vector<std::string> commit(const Directory& dir, std::int64_t step, const std::string& manifest_json) {
  // Syncs the directory too, after the last of its entries has been made: from here on all of `saving` is on disk.
  const Directory saving(dir, saving_name(step));
  const std::string name(kManifestName);
  write_file_atomic(saving.path_of(name), manifest_json, saving.fd(), name);
  return publish(dir, step);
}

void abandon(const Directory& dir, std::int64_t step) {
  try {
    discard_save(dir, step);
  } catch (const Error& error) {
    log::warn("ckpt", "the incomplete save of step {} remains for now: {}", step, error.message());
  }
}

bool remove_checkpoint(const Directory& dir, std::int64_t step) {
  std::string deleting;
  {
    const PinLock lock(dir);
    require_step(dir, step);
    if (exists(dir, pin_name(step))) return false;
    deleting = take_away(dir, step_name(step), step);
  }
  delete_tree(dir, deleting);
  return true;
}

std::string mark_damaged(const Directory& dir, std::int64_t step) {
  require_step(dir, step);
  const std::string damaged = free_name(dir, "damaged-" + step_name(step));
  move(dir, step_name(step), dir, damaged);
  sync(dir);
  return dir.path_of(damaged);
}

std::string set_aside(const Directory& dir, std::int64_t from_step) {
  std::vector<std::string> names = newest_first(dir, NameKind::step, from_step);
  const std::vector<std::string> damaged = newest_first(dir, NameKind::damaged, from_step);
  names.insert(names.end(), damaged.begin(), damaged.end());
  return names.empty() ? std::string() : move_aside(dir, names);
}

std::vector<FinishedCommit> finish_commits(const Directory& dir) {
  std::vector<std::int64_t> steps;
  for (const std::string& text : names_in(dir.path())) {
    const Name name = parse_name(text);
    if (name.kind == NameKind::saving && is_directory_itself(dir, text)) steps.push_back(name.step);
  }
  std::sort(steps.begin(), steps.end());
  std::vector<FinishedCommit> finished;
  for (const std::int64_t step : steps) {
    const Found found = look(dir.path_of(saving_name(step)));
    if (!found.manifest || !found.problem.empty()) continue;
    const std::vector<std::string> left = publish(dir, step);
    log::warn("ckpt", "the commit of {} was interrupted: it is done now, {} set aside", dir.path_of(step_name(step)),
              left.size());
    finished.push_back({.was = found.path, .now = dir.path_of(step_name(step))});
  }
  return finished;
}

int clean_up(const Directory& dir) {
  finish_commits(dir);
  int deleted = 0;
  for (const std::string& name : names_in(dir.path())) {
    const NameKind kind = parse_name(name).kind;
    if (kind != NameKind::saving && kind != NameKind::deleting && kind != NameKind::scratch) continue;
    if (kind == NameKind::saving) {
      const Found found = look(dir.path_of(name));
      if (found.unreadable && exists(dir, name)) {
        log::warn("ckpt", "{} cannot be read and is now in {}: {}", found.path, move_aside(dir, {name}), found.problem);
        continue;
      }
    }
    delete_tree(dir, name);
    ++deleted;
  }
  return deleted;
}

void pin(const Directory& dir, std::int64_t step) {
  require_step(dir, step);
  const PinLock lock(dir);
  require_step(dir, step);  // still
  const ToWrite file = open_to_write(dir.fd(), dir.at(pin_name(step)), 0);
  if (!file.fd) {
    throw Error("ckpt.pin", Blame::storage,
                fmt::format("cannot create '{}': {}", dir.path_of(pin_name(step)), file.why));
  }
  sync(dir);
}

void unpin(const Directory& dir, std::int64_t step) {
  if (::unlinkat(dir.fd(), dir.at(pin_name(step)).c_str(), 0) != 0 && errno != ENOENT)
    throw storage_error("ckpt.delete", "delete", dir.path_of(pin_name(step)), errno);
  sync(dir);
}

}  // namespace ms::ckpt
