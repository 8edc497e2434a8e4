// A file that is written as PATH.part and gets its name when it is complete. It is this process's alone: no link, no
// file of another user or of another name, and locked while it is open.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/handle.h"

namespace ms::data {

class PartFile {
 public:
  // Opens what is there, and writes behind it; or makes it. Error("data.output", user): it is not this user's file
  // alone, or another process writes it. Error("file.write") where it cannot be made, as of every failure below.
  explicit PartFile(std::string path);
  ~PartFile();  // removes it, unless it was published or kept
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  std::int64_t size_bytes() const { return size_bytes_; }
  void write(const void* data, std::size_t size_bytes);
  // Leaves the first `size_bytes` of it.
  void truncate(std::int64_t size_bytes);
  // Makes the content durable.
  void sync();
  // Gives it its name, durably; withdraw() takes that back.
  void publish();
  void withdraw() noexcept;
  void keep(bool on) { keep_ = on; }

  std::string read() const;  // all that was written
  std::uint64_t inode() const { return inode_; }

 private:
  void flush();
  [[noreturn]] void failed(const char* operation) const;

  std::string path_, part_path_;
  UniqueFd fd_;
  std::uint64_t inode_ = 0;
  std::vector<char> buffer_;
  std::int64_t size_bytes_ = 0;  // with what is in the buffer
  bool published_ = false, keep_ = false;
};

}  // namespace ms::data
