// Files in places where others may be about: root's policy, state directory, spool and notes, and a user's copies in
// /dev/shm. Paths are walked one component at a time; every directory on the way must belong to root (or to the caller)
// and be writable by nobody else (a sticky one passes), and the last component is never followed if it is a link. In a
// user namespace, which shows root's files as those of nobody, nobody's directories pass as root's. Below an open
// directory, files are reached by plain names only. Everything is refused with the caller's own kind of error, nothing
// is mended.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/handle.h"

namespace ms {

// The error that is thrown: which kind, and who is to blame.
struct Refusal {
  const char* kind;
  Blame blame = Blame::node;
};

// Opens for reading a regular file of `owner` (or of root) that only they may write, in directories of the same.
UniqueFd open_trusted_file(const std::string& path, uid_t owner, const Refusal& refusal);
// The text of such a file.
std::string read_trusted_file(const std::string& path, uid_t owner, std::size_t max_bytes, const Refusal& refusal);

// Opens a directory that is the caller's and has no bit of `forbidden_mode`; makes it, as `mode` says, if it is not
// there (but not those above it).
UniqueFd open_own_directory(const std::string& path, mode_t mode, mode_t forbidden_mode, const Refusal& refusal);
// The same of a plain name in an open directory; `path` is what messages call it.
UniqueFd open_own_directory_at(const UniqueFd& directory, const std::string& name, const std::string& path, mode_t mode,
                               mode_t forbidden_mode, const Refusal& refusal);

// Opens the caller's directory for the files of a run, at a path that its user gave. Other users whom no one chose to
// trust can neither have laid what is on the way, nor write into it: a directory on the way that everybody may write
// must be root's or the caller's, and what lies there one of theirs; and the directory itself is the caller's and
// closed to everybody else but its group. Who owns the other directories on the way, and their groups, are trusted.
// Links are followed as far as this holds; the last name is no link of another user. In a directory that everybody may
// write and that is not sticky others can still move what they did not make: whoever opened it so chose that.
UniqueFd open_run_directory(const std::string& path, const Refusal& refusal);

// The text of a regular file of the caller's in an open directory; nullopt: there is none of that name. Refused: links,
// files of others, more than max_bytes.
std::optional<std::string> read_at(const UniqueFd& directory, const std::string& name, std::size_t max_bytes,
                                   const Refusal& refusal);

// Replaces a file in an open directory by a temporary name, fsync, rename, fsync: whole or not at all. The temporary
// name is always the same, so that nothing piles up: writers of one name hold a lock.
void write_at(const UniqueFd& directory, const std::string& name, std::string_view data, mode_t mode,
              const Refusal& refusal);

struct Append {
  std::optional<std::size_t> behind = {};  // so many bytes; what stands behind them now is cut off. nullopt: behind all
  mode_t mode = 0600;                      // of a file that is made
};
// Appends to a file of the caller's in an open directory; what was written of it is taken back where not all could be.
void append_at(const UniqueFd& directory, const std::string& name, std::string_view data, const Refusal& refusal,
               const Append& how = {});

// A file that was opened for writing, or why not: `why` reads "it is a symbolic link", `error` is the system's.
struct ToWrite {
  UniqueFd fd;
  std::string why = {};
  int error = 0;
};
// Opens a regular file of an open directory (or of AT_FDCWD) for writing, and makes it where it is not there. What
// another user may have laid there is refused before a byte of it changes: a link, a file that has another name, too,
// and what is no regular file, which is not waited for. `flags` such as O_APPEND; O_TRUNC empties what is not refused.
ToWrite open_to_write(int directory, const std::string& name, int flags, mode_t mode = 0666);
// The same of a file that must belong to the caller.
UniqueFd open_own_file(const UniqueFd& directory, const std::string& name, int flags, const Refusal& refusal,
                       mode_t mode = 0600);

}  // namespace ms
