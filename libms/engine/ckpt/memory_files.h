// Copies of checkpoint files in the memory of a node: what lies where, and what says that it is whole.
//
//   DIR/ms-UID/ID/step-00001200/rank-00003.h5    a rank's file, byte for byte; of ranks of this node and of others
//   DIR/ms-UID/ID/step-00001200/rank-00003.h5.part    being written, or torn
//   DIR/ms-UID/ID/step-00001200/mark             which checkpoint it is, written when that was committed
//
// ID stands for the directory of checkpoints, so that runs do not meet. There is no manifest: the one on storage says
// which step is the newest, and its hashes say whether what is here is right.
//
// DIR may be /dev/shm, where everybody writes: ms-UID belongs to the user, closed to all others, or it is not used.
//
// Errors: "ckpt.memory", storage, with the path and the system's words.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/file.h"
#include "ckpt/manifest.h"

namespace ms::ckpt {

// Returns DIR/ms-UID/ID, of a memory directory and a directory of checkpoints.
std::string memory_root(const std::string& memory_dir, const std::string& checkpoint_dir);

// Returns a hash that tells a checkpoint from every other one, also of the same step: over its files' entries, in the
// order of ranks. The entries that ranks send when they save and the manifest give the same hash.
std::string memory_mark(const std::vector<std::string>& entries);
std::string memory_mark(const Manifest& manifest);

// A copy being written: under its name once it is finished, gone where it is not. Makes the directory.
class CopyFile {
 public:
  // Takes the memory for all of it first, so that what is written later cannot fail for want of it.
  CopyFile(const std::string& root, std::int64_t step, const std::string& name, std::int64_t size_bytes);
  CopyFile(CopyFile&&) noexcept = default;
  CopyFile& operator=(CopyFile&&) = delete;
  CopyFile(const CopyFile&) = delete;
  CopyFile& operator=(const CopyFile&) = delete;
  ~CopyFile();

  void append(std::span<const std::byte> bytes);
  void finish();

 private:
  UniqueFd directory_;  // of the step
  std::string name_;    // empty once it is finished
  std::string path_;    // for messages
  UniqueFd fd_;
};

// Writes a whole copy at once; returns false where `stop` was requested.
bool write_copy(const std::string& root, std::int64_t step, const std::string& name, std::span<const std::byte> bytes,
                const std::stop_token& stop);
void remove_copy(const std::string& root, std::int64_t step, const std::string& name);

// The copies that a marked step has: those of the manifest's files that have their size, open, by place in the
// manifest. None where there is no such step, or its mark is another one.
std::map<std::size_t, MappedFile> copies_of(const std::string& root, const Manifest& manifest);

// From here on copies_of() shows this step's.
void write_mark(const std::string& root, std::int64_t step, const std::string& mark);
// Removes the copies of other steps than this, all of them or only older ones; nothing: of every step.
void keep_copies(const std::string& root, std::optional<std::int64_t> step);
void remove_older_copies(const std::string& root, std::int64_t step);

}  // namespace ms::ckpt
