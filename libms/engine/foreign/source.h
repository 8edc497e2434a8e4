// A file of a checkpoint, read by places. It is never mapped: it may shrink meanwhile, and be larger than memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/handle.h"
#include "unpack/zip.h"

namespace ms::foreign {

class Source {
 public:
  // Error("ckpt.read", storage): it cannot be opened, or is not a regular file, which is not waited for.
  explicit Source(std::string path);
  std::int64_t size_bytes() const { return size_bytes_; }
  const std::string& path() const { return path_; }
  // Error("ckpt.read", storage); Error("file.cut", storage): the file ends before.
  void read(std::int64_t at, std::span<std::byte> to) const;
  std::string text(std::int64_t at, std::int64_t size_bytes) const;
  // Returns the function that reads a part of it. It must outlive the function.
  unpack::ReadAt part(std::int64_t begin) const {
    return [this, begin](std::int64_t at, std::span<std::byte> to) { read(begin + at, to); };
  }

 private:
  std::string path_;
  UniqueFd fd_;
  std::int64_t size_bytes_ = 0;
};

}  // namespace ms::foreign
