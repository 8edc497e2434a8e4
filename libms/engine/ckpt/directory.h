// A directory of checkpoints and the commit protocol. Names in it say what things are, and nothing else does: there is
// no pointer file that could lie.
//
//   step-00001200/               committed: manifest.json and the files that it names
//   step-00001200.pin            empty: never pruned
//   saving-step-00001300/        being written, or left by a save that was killed; never looked at for loading
//   deleting-step-00001100-N/    un-committed by a rename, on its way out; never looked at
//   damaged-step-00001200-N/     committed once, found damaged when loaded; kept for whoever looks into it
//   set-aside-N/                 checkpoints of a run that was started afresh, a directory of the same form
//   lock                         flock of the one run that writes here
//   pin.lock                     flock of whoever makes a pin, or un-commits what has none, for that moment
//
// Commit: files and manifest are written into saving-*, each synced; then the directory is synced, renamed to step-*,
// and the parent synced. Un-commit is a rename, synced, before anything is deleted. A kill between any two system calls
// leaves either the old set of complete checkpoints or the new one; where several are set aside, from the newest down,
// possibly a beginning of the old one, and then the new one is whole in saving-* and clean_up() publishes it.
//
// Errors of the system: storage, "ckpt.*" or "file.*", with path and the system's words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/handle.h"
#include "ckpt/manifest.h"

namespace ms::ckpt {

std::string step_name(std::int64_t step);                      // "step-00001200", at least eight digits
std::optional<std::int64_t> step_from(std::string_view name);  // strict

enum class Condition : std::uint8_t { complete, incomplete, saving, deleting, damaged };
std::string_view to_string(Condition condition);

// One checkpoint, or what is left of one, as its names and sizes say; the data is not read.
struct Found {
  std::string path, name;
  std::int64_t step = 0;
  Condition condition = Condition::incomplete;
  std::string problem = {};  // why it is not complete: "manifest.json is missing", "rank-00003.h5 has 12 of 4096 bytes"
  bool unreadable = false;   // the system refused to show all of it: nobody knows whether it is damaged
  bool pinned = false;
  std::optional<Manifest> manifest = {};  // where it is sound
};

// Looks at one directory: manifest sound, every file there with its size.
Found look(const std::string& path);
// Everything of the kinds above, by step, then name; what cannot be looked at is incomplete and unreadable. A directory
// that does not exist holds nothing.
// Throws Error("ckpt.list", storage) where it cannot be read.
std::vector<Found> list(const std::string& dir);
// Whether anything in a directory has a name of ours: others are not locked, which would leave a file in them.
bool is_of_checkpoints(const std::string& dir);
// The committed ones by names and pins alone: a step-* with a manifest.json in it, which is not read, is taken for
// complete. For the run that committed them itself.
std::vector<Found> list_names(const std::string& dir);
// The newest complete one with a step below `below`. Reads manifests from the newest down and stops at the first sound
// one. One of a newer format is not passed over: Error("ckpt.version", user). `passed_over`, where given, receives the
// committed ones that were looked at before and are not complete.
std::optional<Found> newest_complete(const std::string& dir, std::int64_t below = INT64_MAX,
                                     std::vector<Found>* passed_over = nullptr);

// An open directory of checkpoints. Whoever may write above it can rename it and lay a link in its place: what is
// created, renamed and deleted through one Directory stays in the directory that was opened, and no link is followed.
class Directory {
 public:
  // One that does not exist holds nothing, and what is made in it fails. Throws Error("ckpt.list", storage);
  // Error("ckpt.link", user): a link on the way belongs neither to root, nor to the caller, nor to the owner of the
  // directory that it leads to; to the caller's own, such a link leads only as open_run_directory() allows.
  Directory(std::string path);
  // One in another. Throws Error("ckpt.list", storage).
  Directory(const Directory& above, const std::string& name);
  const std::string& path() const { return path_; }
  std::string path_of(std::string_view name) const;
  // For *at() functions: the descriptor, and a name in it.
  int fd() const;
  std::string at(std::string_view name) const { return fd_ ? std::string(name) : path_of(name); }

 private:
  std::string path_;
  UniqueFd fd_;
};

// Keeps other runs and ms-ckpt's changes out while a run writes here. Creates the directory.
// Error("ckpt.busy", user): another has it. Error("ckpt.lock", storage): the file system has no locks.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::string& dir);
  const Directory& directory() const { return *directory_; }  // the one that is locked

 private:
  std::optional<Directory> directory_;
  UniqueFd lock_;
};

// The protocol, by the one process that leads it; the directory is locked by the caller.
std::string begin_save(const Directory& dir, std::int64_t step);  // an empty saving-*; what was left there is deleted
// Opens the saving-* of a step, and makes it where it is not there.
Directory open_save(const Directory& dir, std::int64_t step);
// Writes the manifest, then publishes. Other committed checkpoints of this step or later ones are of a time line that
// was left (the run resumed from before them): they are set aside first, and their paths returned. Error("ckpt.sync"):
// it is published, but the system does not say that its name is on the disk.
std::vector<std::string> commit(const Directory& dir, std::int64_t step, const std::string& manifest_json);
void abandon(const Directory& dir, std::int64_t step);  // deletes saving-*; never throws, logs
// Error("ckpt.none", user) of these, and of pin(), where there is no such checkpoint.
// Un-commits, then deletes. false: it is pinned, perhaps only since the caller looked, and stays.
bool remove_checkpoint(const Directory& dir, std::int64_t step);
std::string mark_damaged(const Directory& dir, std::int64_t step);  // its path then; a pin stays for its successor
// All from a step on that were ever committed, damaged ones too, into set-aside-N; the path of it, empty where there
// were none.
std::string set_aside(const Directory& dir, std::int64_t from_step = 0);
// Publishes each saving-* whose manifest is sound and whose files are all there: its commit was interrupted. Their
// paths, old and new, by step.
struct FinishedCommit {
  std::string was, now;
};
std::vector<FinishedCommit> finish_commits(const Directory& dir);
// First finish_commits(). Then saving-*, deleting-* and scratch files of earlier processes: deleted; how many. A
// saving-* that cannot be read is set aside.
int clean_up(const Directory& dir);

// Error("ckpt.pin", storage): the name of the pin is a link, a pipe or a directory, or cannot be made.
void pin(const Directory& dir, std::int64_t step);
void unpin(const Directory& dir, std::int64_t step);

// Which complete checkpoints a policy deletes, pure: the newest `keep_last` stay, every one whose step is a multiple of
// keep_every stays (0: none by this rule), pinned ones stay, and the newest complete one stays whatever is asked.
struct PrunePolicy {
  std::int64_t keep_last = 0, keep_every = 0;
  // Steps strictly between these neither count nor go: the run passed them over as unusable when it resumed.
  std::int64_t passed_over_after = 0, passed_over_before = 0;
};
std::vector<Found> to_prune(const std::vector<Found>& found, const PrunePolicy& policy);

}  // namespace ms::ckpt
