// Files: whole reads, atomic writes, exclusive creation, read-only mappings. Everything here throws ms::Error("file.*")
// with the path and the system's words. Blame is storage, except where the caller says that the path is the user's own
// input: then a path that does not exist, is of the wrong kind or may not be opened is the user's mistake.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/handle.h"

namespace ms {

// `absent`: Blame::user where the path is what a user typed.
std::string read_file(const std::string& path, Blame absent = Blame::storage);

// A temporary name beside `path`, fsync, rename, fsync of the directory: a reader, or a crash, sees the old file or the
// new one and nothing between. Concurrent writers: the last rename wins.
void write_file_atomic(const std::string& path, std::string_view data);
// The same of a name in an open directory; `path` is what messages call it.
void write_file_atomic(const std::string& path, std::string_view data, int directory, const std::string& name);

// The same, but only if `path` does not exist: the first of many writers wins, whole, and the others get false. Uses
// link(2), which is atomic on network file systems too.
bool create_exclusive(const std::string& path, std::string_view data);

// Makes the directory and those above it; that they exist already is fine.
void make_directories(const std::string& path);

// rename(2), then fsync of the directory of `to`. For what is committed, or un-committed, by its name.
void rename_synced(const std::string& from, const std::string& to);
// fsync of a directory: its names are then on disk.
void sync_directory(const std::string& path);

// The directory part: "a/b" -> "a", "b" -> ".", "/b" -> "/".
std::string parent_directory(const std::string& path);

// A whole file, mapped read-only: it takes no descriptor. The bytes live as long as the object. Where a file shrinks,
// or a disk fails, under a mapping, read() throws and bytes() is SIGBUS: look at bytes() of files only that were
// committed by rename.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::string& path, Blame absent = Blame::storage);
  MappedFile(MappedFile&& other) noexcept : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    if (this != &other) {
      unmap();
      path_ = std::move(other.path_);
      bytes_ = std::exchange(other.bytes_, {});
    }
    return *this;
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() { unmap(); }

  std::span<const std::byte> bytes() const { return bytes_; }
  std::size_t size_bytes() const { return bytes_.size(); }
  // Copies bytes from `at` on; they must lie in the file as it was opened. Any thread. Error("file.cut", storage): the
  // file has shrunk since, or its disk does not give them.
  void read(std::size_t at, std::span<std::byte> out) const;
  // Asks the storage for bytes that read() will want, and does not wait for them. Any thread. A hint: what is wrong
  // with the file, read() says.
  void will_need(std::size_t at, std::size_t size) const;

 private:
  void unmap() noexcept;
  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace ms
