// A directory that stands for "/" in tests of what reads the node's files. Removed at the end.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "health/sysroot.h"

namespace ms::health {

class FakeRoot {
 public:
  FakeRoot() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ms-root-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
  }
  ~FakeRoot() {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;

  const std::string& directory() const { return directory_; }
  Sysroot root() const { return Sysroot(directory_); }

  // `name` is absolute, as on a node; directories above it are made.
  void write(const std::string& name, std::string_view text) {
    std::filesystem::create_directories(std::filesystem::path(directory_ + name).parent_path());
    std::ofstream(directory_ + name, std::ios::binary) << text;
  }
  void link(const std::string& name, const std::string& target) {
    std::filesystem::create_directories(std::filesystem::path(directory_ + name).parent_path());
    std::filesystem::create_symlink(target, directory_ + name);
  }

 private:
  std::string directory_;
};

}  // namespace ms::health
