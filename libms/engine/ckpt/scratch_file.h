// A file for HDF5's structures, which it makes by name only: empty, with a name that nobody else has, and gone when
// this is.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/error.h"
#include "base/handle.h"
#include "ckpt/blocks.h"
#include "ckpt/names.h"

namespace ms::ckpt {

class ScratchFile {
 public:
  // Throws write_error().
  explicit ScratchFile(const std::string& directory)
      : path_(path_in(directory, fmt::format("{}XXXXXX", kScratchPrefix))) {
    fd_.reset(::mkostemp(path_.data(), O_CLOEXEC));
    if (!fd_) throw write_error("create", path_, errno);
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile() { ::unlink(path_.c_str()); }

  const std::string& path() const { return path_; }
  int fd() const { return fd_.get(); }

 private:
  std::string path_;
  UniqueFd fd_;
};

}  // namespace ms::ckpt
