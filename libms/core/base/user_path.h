// Paths that a user named. One that does not exist, is of the wrong kind or may not be opened or made is the user's
// mistake; a full or failing disk is not. Throws as base/file.h does, whose functions blame the storage for both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace ms {

// Whether a failed system call, by its errno, says that a path is wrong, and not that a disk is.
bool is_wrong_path(int err);

// A whole regular file of at most max_bytes: of others a pipe would wait for ever, and /dev/zero has no end.
std::string read_user_file(const std::string& path, std::size_t max_bytes);
// The last bytes of a regular file of any size, or of its first `until_bytes`: at most max_bytes.
std::string read_user_file_end(const std::string& path, std::size_t max_bytes,
                               std::int64_t until_bytes = std::numeric_limits<std::int64_t>::max());
// As write_file_atomic(), but a device or a pipe is written into, and stays.
void write_user_file(const std::string& path, std::string_view data);
// Throws what write_user_file() would, as far as can be known before: for results that take a while.
void check_user_file(const std::string& path);
// As make_directories().
void make_user_directories(const std::string& path);

}  // namespace ms
