// Lock files: of what one process at a time may use. A lock ends with its process, however that ends; so a file that is
// left has no meaning and need not be deleted. The file names the process that has the lock. Where that process was
// killed while it started another program, the lock ends a moment later, and lock_file() waits for that.
#pragma once

#include <string>

#include "base/error.h"
#include "base/handle.h"
#include "base/safe_file.h"

namespace ms {

struct FileLock {
  UniqueFd fd;              // the lock, until it is closed; none: another has it, or `error`
  std::string holder = {};  // who has it: "process 4711 on n12", or "another process" where the file does not tell
  int error = 0;            // of a file system that has no locks
};
// Tries to lock the file, which is made where it is not there. Throws Error("file.open") where that cannot be, and
// Error("file.kind") where the name is a link: somebody else could have laid it. `absent` as in base/file.h. With
// `directory`, the file is `name` in that open directory, and `path` is what messages call it.
FileLock lock_file(const std::string& path, Blame absent);
FileLock lock_file(const std::string& path, Blame absent, int directory, const std::string& name);

// An exclusive lock on a file of the caller's (made with 0600, so that no other user can hold it); it is released when
// the handle is destroyed or the process dies. An empty handle: another process has it.
UniqueFd try_lock_at(const UniqueFd& directory, const std::string& name, const Refusal& refusal);
// Waits for it, at most `patience_s`; then the error.
UniqueFd lock_at(const UniqueFd& directory, const std::string& name, double patience_s, const Refusal& refusal);

// Tries to lock an open file that holds data: 0; EWOULDBLOCK: another has it; or the error of a file system that has no
// locks.
int try_lock(const UniqueFd& file);

}  // namespace ms
